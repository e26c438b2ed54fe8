"""A file of tests: each is a function with @test, called in the order of the file.

usage of each: FILE.py [--build DIR] [NAME...]     (a part of a name will do)

    import suite
    from suite import test

    @test
    def something(d): ...

    sys.exit(suite.main(shared=True))       # all get one daemon; without it each starts its own, of suite.BUILD
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
import traceback

from daemon import TOP, Daemon

TESTS = []
# The sanitizers make everything slower; what is measured there is only that it ends well.
SLOW = 4.0 if os.environ.get("GARRET_SANITIZED") else 1.0
BUILD = ""  # set by main


class Skip(Exception):
    """Raised by a test that can't be run here, with the reason."""


def test(fn):
    TESTS.append(fn)
    return fn


def until(condition, seconds: float = 10.0):
    """What condition returns, once that is true."""
    end = time.time() + seconds * SLOW
    while True:
        found = condition()
        if found:
            return found
        assert time.time() < end, f"not so after {seconds} s: {found!r}"
        time.sleep(0.01)


class Tally:
    """What passed, failed and was skipped, said as it happens."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    def do(self, fn, *args) -> None:
        start = time.time()
        try:
            fn(*args)
        except Skip as e:
            self.skipped += 1
            print(f"skip {fn.__name__}: {e}", flush=True)
        except Exception:  # noqa: BLE001
            self.failed += 1
            print(f"FAIL {fn.__name__} ({time.time() - start:.1f} s)\n{traceback.format_exc()}", flush=True)
        else:
            self.passed += 1
            print(f"ok   {fn.__name__} ({time.time() - start:.1f} s)", flush=True)

    def end(self) -> int:
        """The last line, and the exit status."""
        print(f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else ""))
        return 1 if self.failed or not self.passed else 0


def main(shared: bool = False) -> int:
    global BUILD
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default=os.environ.get("GARRET_BUILD", "build"))
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    BUILD = os.path.join(TOP, a.build)
    tally = Tally()
    with Daemon(build=BUILD) if shared else contextlib.nullcontext() as d:
        for fn in TESTS:
            if not a.names or any(n in fn.__name__ for n in a.names):
                tally.do(fn, *([d] if shared else []))
    return tally.end()
