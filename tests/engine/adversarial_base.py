"""What attack.py, adversarial.py and hostile.py share: a bench with engines of its own, and the report."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
import time
import traceback
from typing import Callable, Iterator

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import garretproto as g  # noqa: E402

BUILD = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build")
# With the switches that weaken a session (-Dtest_switches=true); the engine tests need both.
TEST_BUILD = os.path.join(TOP, os.environ.get("GARRET_TEST_BUILD", "build-test"))
SLOW = 5.0 if "asan" in BUILD else 1.0
D = 0x6F000000  # first id on disk
OWNER = D + 65536  # of what the main user of a session writes
PEER = D - 1  # garretd's, when there is no user `garret`


def wait_until(what: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def read(path: str) -> str:
    with open(path, errors="replace") as f:
        return f.read()


def processes_in(namespace: int) -> dict[int, str]:
    """Living processes of a pid namespace (its inode): host pid -> command line."""
    found = {}
    for p in os.listdir("/proc"):
        if not p.isdigit():
            continue
        try:
            if os.stat(f"/proc/{p}/ns/pid").st_ino == namespace and ") Z " not in read(f"/proc/{p}/stat"):
                found[int(p)] = read(f"/proc/{p}/cmdline").replace("\0", " ").strip()
        except OSError:
            pass
    return found


def mounts() -> list[str]:
    """mountinfo without what counts up."""
    return sorted(line.split(" ", 2)[2] for line in read("/proc/self/mountinfo").splitlines())


class Bench:
    """A temporary directory, engines whose state and cgroups are their own, and a look for leftovers."""

    def __init__(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="garret-attack-")
        os.chmod(self.dir, 0o755)
        self.group = f"garret-attack-{os.getpid()}"
        self.engines: list[g.Engine] = []
        self.log = open(os.path.join(self.dir, "log"), "w+")
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin, 0o755)
        shutil.copy(os.path.join(BUILD, "tests/engine/attack"), self.bin)

    def engine(self, config: str = "", build: str = BUILD, env: dict[str, str] | None = None, state: str = "state",
               **more) -> g.Engine:
        conf = os.path.join(self.dir, f"conf{len(self.engines)}")
        with open(conf, "w") as f:
            f.write(config + f"cgroup_parent = {self.group}\n")
        self.engines.append(g.Engine(os.path.join(self.dir, state), program=os.path.join(build, "garret-engine"),
                                     args=["--config", conf], stderr=self.log, env={**os.environ, **(env or {})}, **more))
        return self.engines[-1]

    def tools(self) -> tuple[str, str, bool]:
        """A volume with the attack program."""
        return (self.bin, "/tmp/bin", True)

    def left(self) -> list[str]:
        found = []
        for p in glob.glob("/proc/[0-9]*/cgroup"):
            try:
                if f"/{self.group}/" in read(p) and ") Z " not in read(p[:-6] + "stat"):
                    found.append(f"process {p} {read(p[:-6] + 'cmdline')}")
            except OSError:
                pass
        for d in glob.glob(f"/sys/fs/cgroup/*/{self.group}") + glob.glob(f"/sys/fs/cgroup/{self.group}"):
            found.append(f"cgroup {d}")
        found += [f"mount {m}" for m in mounts() if self.dir in m]
        return found

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind, *_) -> None:
        for e in self.engines:
            e.sock.close()
            try:
                e.process.wait(30)
            except Exception:
                e.process.kill()
                e.process.wait()
                raise
        left = [] if wait_until(lambda: not self.left()) else self.left()
        self.log.seek(0)
        log = self.log.read()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        if kind is not None and log:
            print(log[-4000:])
        assert not left, left


TESTS: list[Callable[[], None]] = []


def test(fn: Callable[[], None]) -> Callable[[], None]:
    TESTS.append(fn)
    return fn


class Skip(Exception):
    """This host can't do it; the text says why."""


def report() -> int:
    """Run the tests (those whose name begins as an argument does); the exit status."""
    only = sys.argv[2:]
    passed = failed = skipped = 0
    if os.geteuid() != 0:
        print("needs root")
        return 77
    for fn in TESTS:
        if only and not any(fn.__name__.startswith(o) for o in only):
            continue
        start = time.monotonic()
        try:
            fn()
            word, passed = "ok", passed + 1
        except Skip as e:
            word, skipped = f"skip ({e})", skipped + 1
        except Exception:
            traceback.print_exc(file=sys.stdout)
            word, failed = "FAIL", failed + 1
        print(f"{word} {fn.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
    tail = f", {skipped} skipped" if skipped else ""
    print(f"{passed} passed, {failed} failed{tail}")
    return 1 if failed or not passed else 0


def percentile(values: list[float], p: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


def chunks(items: list, n: int) -> Iterator[list]:
    for i in range(0, len(items), n):
        yield items[i:i + n]
