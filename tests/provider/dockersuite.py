"""What the tests of the Docker provider share: an engine for all, a world for each."""
import argparse
import os
import sys
import time
import traceback

from dockerbox import Ended, Engine, Provider

TESTS = []
AUTO, INIT, EXEC = range(3)

def test(fn):
    TESTS.append((fn.__name__, fn, None))
    return fn


def both(fn):
    """A test that is given a way."""
    TESTS.append((fn.__name__ + " [init]", fn, INIT))
    TESTS.append((fn.__name__ + " [exec]", fn, EXEC))
    return fn


class World:
    def __init__(self, build, engine, init=None):
        self.build, self.engine, self.providers = build, engine, []
        self.init = init or build + "/garret-init"

    def provider(self, owner="tests", way=AUTO, **config):
        p = Provider(self.build + "/tests/provider/test-docker", config.pop("host", "unix://" + self.engine.socket), owner,
                     config.pop("init", self.init), way=way, **config)
        self.providers.append(p)
        return p

    def end(self):
        bad = []
        for p in self.providers:
            code, text = p.end()
            if code not in (0, 1, -9) or "ERROR:" in text:
                bad.append(f"the driver ended with {code}: {text[-3000:]}")
        self.engine.clean()
        return bad


def same(a, b):
    assert a == b, f"{a!r} is not {b!r}"


def opened(e):
    assert "error" not in e, e
    return e


def refused(e, code, part=""):
    assert e.get("error") == code and part in e["text"], e


def until(fn, seconds=10, what="it"):
    end = time.time() + seconds
    while time.time() < end:
        if fn():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true within {seconds} s")


def main(usage):
    ap = argparse.ArgumentParser(description=usage)
    ap.add_argument("--build", default="build")
    ap.add_argument("--init", help="the static garret-init, when that of the build isn't")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    engine = Engine()
    passed = failed = 0
    try:
        for name, fn, way in TESTS:
            if a.names and not any(n in name for n in a.names):
                continue
            start = time.time()
            w = World(os.path.abspath(a.build), engine, a.init)
            try:
                fn(w, *([] if way is None else [way]))
                bad = []
            except (AssertionError, Ended, OSError, KeyError, ValueError) as e:
                bad = [traceback.format_exc(limit=-2)] if not isinstance(e, Ended) else [str(e)]
            except Exception:  # pylint: disable=broad-except
                bad = [traceback.format_exc()]
            bad += w.end()
            print(f"{'FAIL' if bad else 'ok'} {name} ({time.time() - start:.1f} s)", flush=True)
            for b in bad:
                print("     " + b.replace("\n", "\n     "), flush=True)
            failed += bool(bad)
            passed += not bad
    finally:
        engine.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
