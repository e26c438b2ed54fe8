"""What the fault tests stand on: a view of the control groups of their own, a look for what is left.

Run in a mount namespace and as the parent of orphans (run, the program, sees to both): whatever
of garret's is a descendant of this process, in one of these control groups or in this directory,
was started here, whoever else tests on the machine.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "tests", "engine"), os.path.join(TOP, "tests", "wire")]
sys.dont_write_bytecode = True
import garretproto as g  # noqa: E402
from daemon import Daemon, Session  # noqa: E402

__all__ = ["Daemon", "Failure", "Ground", "Session", "descendants", "g", "read", "wait_until"]


class Failure(Exception):
    """What a test found."""


def read(path: str) -> str:
    with open(path, errors="replace") as f:
        return f.read()


def wait_until(what, seconds: float = 15):
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.01)


def descendants(pid: int) -> dict[int, str]:
    """Living processes below: number -> command line."""
    kids: dict[int, list[int]] = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = read(f"/proc/{p}/stat").rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):
            continue
        if state not in "ZX":
            kids.setdefault(int(parent), []).append(int(p))
    todo, found = [pid], {}
    while todo:
        for k in kids.get(todo.pop(), []):
            todo.append(k)
            try:
                found[k] = read(f"/proc/{k}/cmdline").replace("\0", " ").strip() or read(f"/proc/{k}/comm").strip()
            except OSError:
                pass
    return found


def mounts() -> list[str]:
    return sorted(line.split(" ", 2)[2] for line in read("/proc/self/mountinfo").splitlines())


def remove_groups(top: str) -> None:
    for d, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(d)
        except OSError:
            pass


class Ground:
    """A directory and control groups of this test's own."""

    def __init__(self, build: str) -> None:
        self.build = os.path.join(TOP, build)
        self.slow = 5.0 if "asan" in build else 1.0
        self.dir = tempfile.mkdtemp(prefix="garret-fault-")
        os.chmod(self.dir, 0o755)
        self.inject = os.path.join(self.build, "tests/fault/inject")
        self.garret = os.path.join(self.build, "garret")
        self.engine_program = os.path.join(self.build, "garret-engine")
        self.groups = self.own_groups()
        self.children: list[subprocess.Popen] = []
        self.mounts = mounts()
        self.n = 0

    def own_groups(self) -> list[str]:
        """Where control groups are mounted, a directory of our own is from here on."""
        name, made, seen = f"garret-fault-{os.getpid()}", [], set()
        for line in read("/proc/self/mountinfo").splitlines():
            device, point, kind = line.split()[2], line.split()[4], line.split(" - ")[1].split()[0]
            if kind not in ("cgroup", "cgroup2") or device in seen:
                continue
            seen.add(device)
            d = os.path.join(point, name)
            for old in os.listdir(point):  # of one that was killed itself
                if old.startswith("garret-fault-") and not os.path.exists("/proc/" + old.rsplit("-", 1)[1]):
                    remove_groups(os.path.join(point, old))
            os.makedirs(d, exist_ok=True)
            if kind == "cgroup2":
                for c in ("memory", "pids", "cpu"):
                    for at in (point, d):
                        try:
                            with open(os.path.join(at, "cgroup.subtree_control"), "w") as f:
                                f.write(f"+{c}")
                        except OSError:
                            pass
            subprocess.run(["mount", "--bind", d, point], check=True)
            made.append(point)
        return made

    def fresh(self) -> str:
        self.n += 1
        d = os.path.join(self.dir, f"c{self.n}")
        os.mkdir(d, 0o755)
        return d

    def reap(self) -> None:
        """Orphans that came to us."""
        mine = {c.pid for c in self.children if c.poll() is None}
        for pid in [p for p in self.zombies() if p not in mine]:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass

    def zombies(self) -> list[int]:
        found = []
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                state, parent = read(f"/proc/{p}/stat").rsplit(")", 1)[1].split()[:2]
            except (OSError, IndexError):
                continue
            if state == "Z" and int(parent) == os.getpid():
                found.append(int(p))
        return found

    def groups_left(self) -> list[str]:
        found = []
        for point in self.groups:
            for d, names, _ in os.walk(point):
                found += [os.path.join(d, n) for n in names]
        return found

    def left(self, groups: bool = True) -> list[str]:
        """Processes, control groups and mounts that are there and weren't."""
        self.reap()
        found = [f"process {p} {c}" for p, c in descendants(os.getpid()).items()]
        found += [f"group {d}" for d in self.groups_left()] if groups else []
        return found + [f"mount {m}" for m in mounts() if m not in self.mounts]

    def nothing_left(self, seconds: float = 15, groups: bool = True) -> None:
        if not wait_until(lambda: not self.left(groups), seconds * self.slow):
            raise Failure(f"left: {self.left(groups)}; {self.why()}")

    def why(self) -> str:
        """Of control groups that are left: are there members, does the kernel refuse, or did nobody try?"""
        said = []
        for d in reversed(self.groups_left()):
            members = read(os.path.join(d, "cgroup.procs")).split()
            try:
                os.rmdir(d)
                said.append(f"{d} could be removed")
            except OSError as e:
                said.append(f"{d}: {e.strerror}, members {members}")
        locks = [line.split()[5:7] for line in read("/proc/locks").splitlines() if "OFDLCK" in line]
        return f"{said}, locked {locks}"

    def clean_by_force(self) -> None:
        """After a failure, so that the next test isn't blamed."""
        for _ in range(50):
            for p in descendants(os.getpid()):
                try:
                    os.kill(p, signal.SIGKILL)
                except OSError:
                    pass
            for point in self.groups:
                for d, names, _ in os.walk(point, topdown=False):
                    for n in names:
                        try:
                            os.rmdir(os.path.join(d, n))
                        except OSError:
                            pass
            if not self.left():
                return
            time.sleep(0.1)

    def close(self) -> None:
        self.clean_by_force()
        for point in self.groups:
            d = os.path.join(point, f"garret-fault-{os.getpid()}")
            subprocess.run(["umount", point], check=False)
            try:
                os.rmdir(d)
            except OSError as e:
                print(f"    can't remove {d}: {e}")
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- garret, possibly with a fault ----

    def injected(self, fault: Fault | None, report: str, argv: list[str]) -> list[str]:
        return argv if fault is None else [self.inject, report, *fault.args(), "--", *argv]

    def run(self, base: str, argv: list[str], fault: Fault | None = None, timeout: float = 60) -> subprocess.CompletedProcess:
        """`garret run ARGV` with its directories below base."""
        command = self.injected(fault, os.path.join(base, "report"), [self.garret, "run", *argv])
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                             errors="replace", env={**os.environ, "GARRET_RUN_DIR": os.path.join(base, "state")})
        self.children.append(p)
        try:
            out, err = p.communicate(timeout=timeout * self.slow)
        except subprocess.TimeoutExpired:
            tree = descendants(p.pid)
            p.kill()
            raise Failure(f"hangs: {tree}") from None
        finally:
            self.children.remove(p)
        return subprocess.CompletedProcess(command, p.returncode, out, err)

    def still_works(self) -> None:
        d = self.fresh()
        r = self.run(d, ["--", "true"])
        if r.returncode:
            raise Failure(f"the next run: {r.returncode} {r.stderr}")
        if os.listdir(os.path.join(d, "state", "run")):
            raise Failure("the next run left its directory")
        shutil.rmtree(d)

    def engine(self, base: str, fault: Fault | None = None, config: str = "", hello: bool = True) -> g.Engine:
        """An engine whose state is in base; its log is base/log."""
        conf, wrapper = os.path.join(base, "engine.conf"), os.path.join(base, "engine")
        with open(conf, "w") as f:
            f.write(config + "pool_slots = 2\n")
        argv = self.injected(fault, os.path.join(base, "report"), [self.engine_program])
        with open(wrapper, "w") as f:
            f.write("#!/bin/sh\nexec " + " ".join(argv) + ' "$@"\n')
        os.chmod(wrapper, 0o755)
        e = g.Engine.__new__(g.Engine)
        with open(os.path.join(base, "log"), "a") as log:
            try:
                e.__init__(os.path.join(base, "state"), program=wrapper, args=["--config", conf], stderr=log, hello=hello)
            finally:
                if hasattr(e, "process"):
                    self.children.append(e.process)
                    base_of[e.process.pid] = base
        return e

    def engine_end(self, e: g.Engine, timeout: float = 30) -> int:
        e.sock.close()
        try:
            return e.process.wait(timeout * self.slow)
        except subprocess.TimeoutExpired:
            raise Failure(f"the engine doesn't end: {descendants(e.process.pid)}") from None

    def daemon(self, base: str, fault: Fault | None = None, **env: str) -> Daemon:
        """Not started.  With a fault the daemon's process is inject's, which passes signals on."""
        os.makedirs(os.path.join(base, "state"), exist_ok=True)
        build = self.build
        if fault is not None:
            build = os.path.join(base, "bin")
            os.makedirs(build, exist_ok=True)
            with open(os.path.join(build, "garretd"), "w") as f:
                f.write("#!/bin/sh\nexec " + " ".join(self.injected(fault, os.path.join(base, "report"),
                                                                    [os.path.join(self.build, "garretd")])) + "\n")
            os.chmod(os.path.join(build, "garretd"), 0o755)
        d = Daemon(build=build, state=self.dir, **env)
        d.state = os.path.join(base, "state")
        return d

    def daemon_start(self, d: Daemon) -> Daemon:
        try:
            return d.start()
        finally:
            if d.process:
                self.children.append(d.process)


base_of: dict[int, str] = {}


class Fault:
    """The Nth of these calls in processes of this role fails with error, or kills (None)."""

    def __init__(self, role: str, calls: str, n: int, error: int | None, each: bool = False) -> None:
        self.role, self.calls, self.n, self.error, self.each = role, calls, n, error, each

    def args(self) -> list[str]:
        return [self.role, self.calls, f"{self.n}{'+' if self.each else ''}", "kill" if self.error is None else str(self.error)]

    def __str__(self) -> str:
        what = "killed" if self.error is None else os.strerror(self.error)
        return f"{self.role} {self.calls} #{self.n}{' in each' if self.each else ''}: {what}"


class Report:
    """What inject wrote."""

    def __init__(self, base: str) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.left: list[str] = []
        self.hit, self.status, self.call = False, None, ""
        path = os.path.join(base, "report")
        for line in read(path).splitlines() if os.path.exists(path) else []:
            w = line.split()
            if w[0] == "count":
                self.counts.setdefault(w[1], {})[w[2]] = int(w[3])
            elif w[0] == "left":
                self.left.append(line)
            elif w[0] == "hit":
                self.hit, self.call = True, w[3]
            elif w[0] == "status":
                self.status = int(w[1])

    def number(self, role: str, calls: str) -> int:
        return sum(n for c, n in self.counts.get(role, {}).items() if calls == "all" or c in calls.split(","))


def own_view() -> None:
    """Enter a mount namespace (by starting this program again) and become the parent of orphans."""
    if os.environ.get("GARRET_FAULT_VIEW") != str(os.getpid()):
        os.environ["GARRET_FAULT_VIEW"] = str(os.getpid())
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, "-B", *sys.argv])
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(36, 1, 0, 0, 0) < 0 or prctl(1, signal.SIGTERM, 0, 0, 0) < 0:  # the parent of orphans; ends with its own
        raise OSError("prctl")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and cleans up
    os.environ.pop("GARRET_FAULT_VIEW")


def seeded(text: str) -> random.Random:
    return random.Random(int(text))

