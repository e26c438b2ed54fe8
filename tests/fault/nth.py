"""The Nth system call fails, in one process of the tree: success, or an error that says so, and nothing left."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
import uuid
from http.client import HTTPException

from ground import Failure, Fault, Ground, Report, g, wait_until

GROUPS = {
    "files": ("openat,openat2,mkdirat,mkdir,renameat2,renameat,rename,unlinkat,unlink,rmdir", [errno.EIO, errno.EMFILE, errno.ENOSPC]),
    "processes": ("clone,clone3,fork,vfork,execve", [errno.EAGAIN, errno.ENOMEM]),
    "mounts": ("open_tree,move_mount,fsopen,fsconfig,fsmount,mount_setattr,pivot_root,umount2,mount", [errno.ENOMEM, errno.EMFILE]),
    "identity": ("setns,unshare,setresuid,setresgid,setgroups,capset,prctl,seccomp,keyctl,prlimit64", [errno.ENOMEM, errno.EPERM]),
    "sockets": ("socket,socketpair,sendmsg,recvmsg,accept4,bind,listen,epoll_ctl,epoll_create1,signalfd4,timerfd_create,pidfd_open",
                [errno.ENOMEM, errno.EMFILE]),
    "writes": ("write,pwrite64,splice,pipe2,memfd_create,fsync,fdatasync,ftruncate,fchownat,fchown,fchmodat", [errno.EIO, errno.ENOSPC]),
    "memory": ("mmap,brk,mremap", [errno.ENOMEM]),
}
# Calls that no program expects to fail so: that is told by the kernel only for a descriptor that isn't one.
ABORTS = (134, -signal.SIGABRT, 139, -signal.SIGSEGV, 132, -signal.SIGILL)
BIG = 200 * 1024


def clear(text: str) -> bool:
    """An error that names something: more than a code."""
    return len(text.split()) >= 3


class Scenario:
    name = ""
    roles: tuple[str, ...] = ()

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    def go(self, base: str, fault: Fault) -> None:
        raise NotImplementedError

    def counts(self) -> Report:
        """How many calls of which kind there are when nothing fails."""
        base = self.ground.fresh()
        self.go(base, Fault("all", "all", 0, errno.EIO))
        report = Report(base)
        shutil.rmtree(base)
        return report

    def check(self, fault: Fault) -> bool:
        """False: it wasn't reached."""
        base = self.ground.fresh()
        try:
            self.go(base, fault)
            report = Report(base)
            if report.left and fault.error is not None:
                raise Failure(f"still there after 25 s: {report.left}")
            if fault.role == "engine" and wait_until(lambda: not self.ground.left(groups=False)) and self.ground.left():
                # An empty group whose removal was what failed: any engine's next start removes it.
                self.ground.still_works()
            self.ground.nothing_left(15)
            return report.hit
        finally:
            self.ground.reap()
            self.keep = base

    def met(self) -> str:
        """Which call it was."""
        return f" ({Report(self.keep).call})"

    def dropped(self) -> None:
        shutil.rmtree(self.keep, ignore_errors=True)


class Run(Scenario):
    """garret run -- sh -c 'echo hi; exit 3'"""

    name = "run"
    roles = ("cli", "cli-fork", "engine", "zygote", "reaper", "helper", "init", "spawn")

    def go(self, base: str, fault: Fault) -> None:
        r = self.ground.run(base, ["--", "sh", "-c", "echo hi; exit 3"], fault)
        low = "memory" in r.stderr or "mmap" in fault.calls
        if r.returncode == 3 and r.stdout == "hi\n":
            pass
        elif r.returncode in ABORTS and low:
            pass
        elif r.returncode == 125 and "garret: " in r.stderr and clear(r.stderr.split("garret: ", 1)[1]):
            pass
        elif r.returncode in (126, 127) and fault.role in ("init", "spawn") and clear(r.stderr):
            pass
        elif r.returncode == 127 and fault.role == "cli" and "shared librar" in r.stderr:
            pass
        elif fault.n == 0 or not (fault.role == "cli" and r.returncode and clear(r.stderr)):
            raise Failure(f"status {r.returncode}, output {r.stdout!r}, errors {r.stderr!r}")
        run = os.path.join(base, "state", "run")
        # A state directory whose removal was what failed may stay until the next start.
        if os.path.isdir(run) and os.listdir(run):
            again = self.ground.run(base, ["--", "true"])
            if again.returncode or os.listdir(run):
                raise Failure(f"left in {run}: {os.listdir(run)}; the next run: {again.returncode} {again.stderr}")


class Protocol(Scenario):
    """The engine alone: three sessions, two runs in each."""

    name = "engine"
    roles = ("engine", "zygote", "reaper", "helper", "init", "spawn")

    def go(self, base: str, fault: Fault) -> None:
        self.trouble: list[str] = []
        self.lost = 0
        try:
            e = self.ground.engine(base, fault)
        except (EOFError, OSError) as error:
            self.not_started(base, error)
            return
        self.session(e, "s0", fault)
        if self.trouble and fault.role == "zygote":
            time.sleep(1.5)  # one that can't begin is tried again, but not at once
        for n in (1, 2):
            self.session(e, f"s{n}", fault)
        if e.process.poll() is not None:
            self.not_started(base, EOFError("in the middle"))
            return
        code = self.ground.engine_end(e)
        report = Report(base)
        if len(self.trouble) > 1 and e.process.poll() is None:
            raise Failure(f"one fault, {len(self.trouble)} troubles: {self.trouble}")
        if code and not (report.hit and fault.role == "engine"):
            raise Failure(f"the engine ended with {code}: {self.log(base)}")
        self.leftovers(base)

    def session(self, e: g.Engine, name: str, fault: Fault) -> None:
        s = None
        try:
            s = e.open(name, flags=g.CONNECTED | g.EPHEMERAL)
            for _ in range(2):
                r = s.sh("echo hi")
                if r.code == 0 and r.stdout == b"hi\n":
                    continue
                if r.code not in (125, 126, 127, 137) or fault.role not in ("init", "spawn"):
                    raise Failure(f"a run: {r}")
                self.trouble.append(f"run {r}")
            s.close()
        except g.EngineError as error:
            if not clear(error.message):
                raise Failure(f"unclear: {error}") from None
            self.trouble.append(str(error))
        except (EOFError, ConnectionError, BrokenPipeError) as error:
            self.trouble.append(f"the connection of {name}: {error}")
        except TimeoutError:
            raise Failure(f"no answer for {name} within 20 s") from None
        finally:
            if s is not None:
                s.sock.close()

    def log(self, base: str) -> str:
        with open(os.path.join(base, "log"), errors="replace") as f:
            return f.read()[-2000:]

    def not_started(self, base: str, error: Exception) -> None:
        """The engine ended: with words, unless it had no memory to say them."""
        process = self.ground.children[-1]
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            raise Failure(f"an engine that lost its connection lives: {error}") from None
        log = self.log(base)
        if code == 0 and not Report(base).hit:
            raise Failure(f"the engine ended with 0: {error} {log}")
        if code in ABORTS and "memory" not in log and "mmap" not in Report(base).call and "brk" not in Report(base).call:
            raise Failure(f"the engine ended with {code}: {log}")
        if code not in ABORTS and not clear(log):
            raise Failure(f"the engine ended with {code} and no word")
        self.again(base)

    def leftovers(self, base: str, seconds: float = 2) -> None:
        state = os.path.join(base, "state")
        if not wait_until(lambda: not [n for d in ("sessions", "trash") for n in os.listdir(os.path.join(state, d))], seconds):
            self.again(base)  # whatever couldn't be removed is, at the next start

    def again(self, base: str) -> None:
        """The next engine on the same directory works and leaves nothing of the first."""
        e = self.ground.engine(base)
        s = e.open("again", flags=g.CONNECTED | g.EPHEMERAL)
        r = s.sh("echo hi")
        if r.code or r.stdout != b"hi\n":
            raise Failure(f"the next start: {r}")
        s.close()
        if self.ground.engine_end(e):
            raise Failure(f"the next start ended badly: {self.log(base)}")
        state = os.path.join(base, "state")
        left = [f"{d}/{n}" for d in ("sessions", "trash") for n in os.listdir(os.path.join(state, d))]
        if left:
            raise Failure(f"left after the next start: {left}")


class Service(Scenario):
    """garretd: two sessions, runs with 200 KiB, one is closed and one left; SIGINT.

    Whatever fails, what was answered holds: by what goes on, and by the next daemon on the same directory.
    """

    name = "daemon"
    roles = ("daemon", "daemon-fork", "keeper", "engine", "zygote", "helper", "init", "spawn")

    def go(self, base: str, fault: Fault) -> None:
        self.trouble: list[str] = []
        self.opened: dict[str, str] = {}  # acknowledged, with their tokens
        self.closed: dict[str, str] = {}
        self.unsure: set[str] = set()  # something was asked for that may end it
        self.runs: dict[tuple[str, str], tuple[int, dict]] = {}
        self.stopping = False
        d = self.ground.daemon(base, fault)
        try:
            self.ground.daemon_start(d)
        except RuntimeError as error:  # it ended, and shows its log
            if d.process.poll() is None and Report(base).call == "write" and self.stop(d) == 0:
                os.unlink(d.log_path)  # the line that failed is the one by which we know that it is ready
                return
            # Libraries that we start with don't look at what malloc() gives them.
            theirs = d.process.poll() in ABORTS and set(Report(base).call.split(",")) & {"mmap", "brk", "mremap"}
            if not fault.n or not (clear(d.log()) or theirs or fault.error is None):
                raise Failure(f"no start: {error}") from None
            os.unlink(d.log_path)
            self.again(base, fault)
            return
        try:
            for n in range(2):
                self.session(d, f"s{n}", fault, close=n == 0)
            self.stopping = d.process.poll() is None
            code = self.stop(d)
            log = d.log()
        finally:
            os.unlink(d.log_path)
        if not fault.n and (self.trouble or code):
            raise Failure(f"{self.trouble} {code} {log}")
        if code and not clear(log) and fault.error is not None:
            raise Failure(f"ended with {code} and no word")
        if code in ABORTS and "memory" not in log and not set(Report(base).call.split(",")) & {"mmap", "brk", "mremap"}:
            raise Failure(f"ended with {code}: {log[-1500:]}")
        if "Sanitizer" in log:
            raise Failure(log[-3000:])
        if fault.role in ("daemon", "keeper", "engine") or code:
            self.again(base, fault)

    def session(self, d, name: str, fault: Fault, close: bool) -> None:
        try:
            token = self.open(d, name)
            if not token:
                return
            for size in (BIG, 100):
                self.run(d, name, token, size, fault)
            if close:
                self.close(d, name, token)
        except TimeoutError:
            raise Failure(f"no answer for {name} within 40 s; {d.log()[-1000:]}") from None
        except (OSError, HTTPException) as error:
            self.trouble.append(f"{name} {type(error).__name__} {error}")

    def open(self, d, name: str) -> str | None:
        end = time.monotonic() + 20 * self.ground.slow
        while True:
            status, answer = d.call("POST", "/sessions", {"session_id": name, "reuse": True}, timeout=40)
            if status == 200:
                self.opened[name] = answer["token"]
                return answer["token"]
            self.refused(f"{name} open", status, answer)
            # The engine is away for the moment in which its keeper starts another one.
            if status != 503 or time.monotonic() > end:
                return None
            time.sleep(0.05)

    def run(self, d, name: str, token: str, size: int, fault: Fault) -> None:
        body = {"argv": ["sh", "-c", f"echo >> marks; head -c {size} /dev/zero | tr '\\0' x"], "run_id": uuid.uuid4().hex, "timeout_seconds": 30}
        status, answer = d.call("POST", f"/sessions/{name}/run", body, token, timeout=40)
        if status != 200:
            self.refused(f"{name} run", status, answer)
            return
        self.runs[name, body["run_id"]] = size, answer
        if answer["exit_code"] or answer["stdout"] != "x" * size:
            if answer["exit_code"] == 0 or fault.role not in ("init", "spawn", "daemon"):
                raise Failure(f"a run: {str(answer)[:300]} {str(answer)[-300:]}")
            self.trouble.append(f"{name} run {str(answer)[-200:]}")

    def close(self, d, name: str, token: str) -> None:
        self.unsure.add(name)
        status, answer = d.call("DELETE", f"/sessions/{name}?purge=true", None, token, timeout=40)
        if status >= 300:
            self.refused(f"{name} close", status, answer)
            return
        self.closed[name] = self.opened.pop(name)

    def refused(self, what: str, status: int, answer) -> None:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        if not 400 <= status < 600 or not detail or not clear(str(detail)):
            raise Failure(f"{what}: {status} {answer}")
        self.trouble.append(f"{what}: {status} {detail}")

    def stop(self, d) -> int:
        if d.process.poll() is None:
            d.process.send_signal(signal.SIGINT)
        try:
            return d.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure(f"doesn't stop: {d.log()[-1500:]}") from None

    def again(self, base: str, fault: Fault) -> None:
        """The next daemon on that directory has what was acknowledged by the first."""
        d = self.ground.daemon(base)
        try:
            self.ground.daemon_start(d)
            for name, token in self.closed.items():
                status, answer = d.call("GET", f"/sessions/{name}", None, token, timeout=40)
                if status != 410:
                    raise Failure(f"a closed session: {status} {answer}")
            for name, token in self.opened.items():
                self.still_there(d, name, token, fault)
            status, answer = d.call("POST", "/sessions", {"session_id": f"n{time.time_ns()}"}, timeout=40)
            if status != 200:
                raise Failure(f"after the next start: {status} {answer}")
            if self.stop(d):
                raise Failure(f"the next start ended badly: {d.log()[-1500:]}")
        except RuntimeError as error:
            raise Failure(f"no next start: {error}") from None
        finally:
            if hasattr(d, "log_path"):
                os.unlink(d.log_path)

    def still_there(self, d, name: str, token: str, fault: Fault) -> None:
        status, answer = d.call("GET", f"/sessions/{name}", None, token, timeout=40)
        # It may have been ended: because we asked for that, or for a fault of its own.
        if status == 410 and (self.stopping or name in self.unsure or fault.role in ("init", "spawn", "helper")):
            return
        # Of one that we asked to be closed the environment may have gone first.
        may_be_dead = self.stopping or name in self.unsure or fault.role in ("init", "spawn", "helper")
        if status != 200 or not (answer["alive"] or may_be_dead):
            raise Failure(f"the session {name} is lost: {status} {answer}; {d.log()[-1500:]}")
        for (of, run_id), (size, was) in self.runs.items():
            if of != name or not answer["alive"]:
                continue
            body = {"argv": ["sh", "-c", f"echo >> marks; head -c {size} /dev/zero | tr '\\0' x"], "run_id": run_id, "timeout_seconds": 30}
            status, got = d.call("POST", f"/sessions/{name}/run", body, token, timeout=40)
            if status != 200 or got != was:
                raise Failure(f"the run {run_id} of {name} has another answer: {status} {str(got)[:300]}, was {str(was)[:300]}")


SCENARIOS = (Run, Protocol, Service)


def cases(scenario: Scenario, report: Report) -> list[Fault]:
    """Every call of every group in every role, once; and for what is started again and again, in each."""
    found = []
    for role in scenario.roles:
        for calls, errors in GROUPS.values():
            total = report.number(role, calls)
            # A little more: what a failure does comes after it.
            found += [Fault(role, calls, n, errors[n % len(errors)]) for n in range(1, total + 1)]
    return found
