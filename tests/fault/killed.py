"""kill -9 at any moment of a process's life: before its Nth system call, drawn from all that it makes.

Who goes with it is documented: with an init its own session, with a helper at most the session it
was making, with an engine whoever is connected to it.  A zygote, a reaper and a keeper's engine are
replaced and no session notices; garretd's sessions wait for the next one on the same directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ground import Failure, Fault, Report, descendants, g, read, wait_until
from nth import Protocol, Run, Service


class KilledRun(Run):
    """The command line and what it started, with the directory that it leaves."""

    name = "killed run"
    roles = ("cli", "engine")

    def go(self, base: str, fault: Fault) -> None:
        r = self.ground.run(base, ["--", "sh", "-c", "echo hi; exit 3"], fault)
        if Report(base).hit and fault.role == "engine" and r.returncode not in (3, 125):
            raise Failure(f"status {r.returncode} {r.stderr}")
        if r.returncode == 3 and r.stdout != "hi\n":
            raise Failure(f"succeeded with {r.stdout!r}")
        self.ground.nothing_left(groups=False)
        again = self.ground.run(base, ["--", "true"])
        left = os.listdir(os.path.join(base, "state", "run"))
        if again.returncode or left:
            raise Failure(f"the next run: {again.returncode} {again.stderr}, left {left}")


class KilledProtocol(Protocol):
    """Three sessions at a time; who may be lost depends on who was killed."""

    name = "killed engine"
    roles = ("engine", "zygote", "reaper", "helper", "init")

    def go(self, base: str, fault: Fault) -> None:
        self.trouble: list[str] = []
        self.live: dict[str, g.Session] = {}
        gone = ""
        try:
            e = self.ground.engine(base, fault)
            lost = self.use(e, fault)
        except TimeoutError:
            raise Failure("no answer within 20 s") from None
        except (EOFError, OSError) as error:
            gone = repr(error)  # not the error itself: it holds the socket of a session that lives by it
        if gone:
            self.ended(base, fault, gone)
            return
        may = {"zygote": 0, "reaper": 0, "helper": 1, "init": 1}.get(fault.role, 0)
        if len(lost) > may:
            raise Failure(f"lost {lost}: {self.trouble}")
        code = self.ground.engine_end(e)
        if code == 137 and fault.role == "engine":
            self.ended(base, fault, "at its end")
            return
        if code:
            raise Failure(f"the engine ended with {code}: {self.log(base)}")
        # A reaper comes back after a second, which this engine may not have seen.
        self.leftovers(base, 0.2 if fault.role == "reaper" else 2)

    def use(self, e: g.Engine, fault: Fault) -> set[str]:
        """The sessions that were lost.  EOFError: the engine was."""
        lost: set[str] = set()
        live = self.live
        for name in ("a", "b", "c"):
            try:
                live[name] = e.open(name, flags=g.CONNECTED | g.EPHEMERAL)
            except g.EngineError as error:
                self.trouble.append(f"open {name}: {error}")
                # A zygote that is killed before it is ready is missing for a moment.
                if fault.role == "zygote" and "zygote" in error.message:
                    time.sleep(1.5)
                    live[name] = e.open(name, flags=g.CONNECTED | g.EPHEMERAL)
                else:
                    lost.add(name)
            except (EOFError, ConnectionError) as error:
                self.gone(e, error)
                lost.add(name)
            self.each(e, live, lost)
        for name, s in live.items():
            try:
                s.close()
            except g.EngineError as error:
                if name not in lost:
                    lost.add(name)
                    self.trouble.append(f"close {name}: {error}")
        return lost

    def each(self, e: g.Engine, live: dict, lost: set[str]) -> None:
        for name, s in live.items():
            if name in lost:
                continue
            try:
                r = s.sh("echo hi")
                if r.code or r.stdout != b"hi\n":
                    raise Failure(f"a run in {name}: {r}")
            except (EOFError, ConnectionError) as error:
                self.gone(e, error)
                self.trouble.append(f"{name}: {error}")
                lost.add(name)
                s.sock.close()

    def gone(self, e: g.Engine, error: Exception) -> None:
        """The connection of a session broke: of the session, or with the engine?"""
        try:
            for handle, body in [(0, b"\0" * 8)]:
                e.answer(e.send(g.USAGE, body), 20)
        except (EOFError, ConnectionError):
            raise EOFError(str(error)) from None

    def ended(self, base: str, fault: Fault, error: str) -> None:
        if fault.role != "engine":
            raise Failure(f"the engine is gone: {error} {self.log(base)}")
        self.ground.children[-1].wait(30)
        for s in self.live.values():
            s.sock.close()  # a connected session is its owner's
        self.ground.nothing_left(groups=False)
        self.again(base)


class KilledService(Service):
    """garretd and two sessions, with HTTP."""

    name = "killed daemon"
    roles = ("daemon", "keeper", "engine", "init", "zygote", "reaper")

    def check(self, fault: Fault) -> bool:
        hit = super().check(fault)
        names = {t.split()[0] for t in self.trouble}
        if fault.role == "init" and len(names) > 1 or fault.role in ("zygote", "reaper", "keeper") and names:
            raise Failure(f"others were hurt: {self.trouble}")
        # What needs an engine waits for the next one, or says that there is none at the moment.
        bad = [t for t in self.trouble if " open: 503" not in t and " open: 502" not in t]
        if fault.role == "engine" and bad:
            raise Failure(f"not only opens noticed: {bad}")
        return hit


def a_reaper_is_replaced(ground) -> None:
    """Not only at the next start: what is closed after its death leaves the disk."""
    base = ground.fresh()
    e = ground.engine(base)
    trash = os.path.join(base, "state", "trash")

    def reapers() -> list[int]:
        found = []
        for p in descendants(e.process.pid):
            with contextlib.suppress(OSError):  # it ended since
                if read(f"/proc/{p}/comm").strip() == "garret-reaper":
                    found.append(p)
        return found

    s = e.open("a", flags=g.CONNECTED | g.EPHEMERAL)
    old = wait_until(reapers)[0]
    for _ in range(2):
        os.kill(reapers()[0], signal.SIGKILL)
        e.open("b", flags=g.CONNECTED | g.EPHEMERAL).close()
        if not wait_until(lambda: not os.listdir(trash) and [p for p in reapers() if p != old], 15 * ground.slow):
            raise Failure(f"in the trash: {os.listdir(trash)}; reapers: {reapers()}")
        if s.sh("echo hi").stdout != b"hi\n":
            raise Failure("the session noticed")
    s.close()
    if ground.engine_end(e):
        raise Failure("the engine ended badly")


SCENARIOS = (KilledProtocol, KilledService, KilledRun)


def cases(scenario, report: Report, rng, number: int) -> list[Fault]:
    found = []
    for role in scenario.roles:
        total = report.number(role, "all")
        # Under the daemon the engine and its children again, but fewer: alone they had their turn.
        few = scenario.name == "killed daemon" and role != "daemon"
        found += [Fault(role, "all", n, None) for n in rng.sample(range(1, total + 1), min(number // 3 if few else number, total))]
    return found
