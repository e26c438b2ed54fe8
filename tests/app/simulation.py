#!/usr/bin/env python3
"""An application with many organisations, runs at once, and everything that may go wrong around it.

usage: tests/app/simulation.py BUILD [--seed N] [--conversations N] [--workers N] [--seconds N] [--verbose]

Twenty workers, of which some are processes that are killed, open runs of all scopes in documents,
in sessions of garretd and of this machine; they write, read, list, park, resume, detach, abandon and
delegate.  Beside them sessions are purged behind the application's back, conversations deleted,
garretd is stopped and killed, and sweepers run.  model.py says what each operation may give.  At the
end all is deleted, and nothing may be left anywhere.  The same seed decides the same, as far
as threads allow.
"""

from __future__ import annotations

import argparse
import collections
import ctypes as c
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import uuid

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "wire")]
from applib import SCOPES, App, AppLibrary, Facts, Failure, text  # noqa: E402
from daemon import Daemon  # noqa: E402
from model import Book, Doing, Session, Truth, all_empty, expected, forgotten_once, found_in, leftover_spools, wild_outcome  # noqa: E402
from puppet import Killed, Puppet, Seat  # noqa: E402
from worlds import Native  # noqa: E402

ORGANISATIONS, APPS, PUPPETS = 5, 4, 4
PASSING = ("UNAVAILABLE", "CONFLICT")  # it is said to come back, and did
WEATHER = {"purge": 10, "delete": 6, "sweep": 6, "stop": 1, "kill": 1}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Simulation:
    def __init__(self, build: str, seed: int, conversations: int, verbose: bool) -> None:
        self.build, self.seed, self.n, self.verbose = build, seed, conversations, verbose
        self.lock = threading.Lock()
        self.books: dict[tuple[str, str], Book] = {}
        self.parked: list[Doing] = []
        self.count: collections.Counter = collections.Counter()
        self.told: collections.Counter = collections.Counter()  # events of puppets
        self.broken: list[str] = []
        self.done, self.up = threading.Event(), threading.Event()
        self.up.set()
        self.restarts = 0  # one more when it goes, and when it is back
        self.dir = tempfile.mkdtemp(prefix="garret-simulation-")
        self.state = os.path.join(self.dir, "app")
        self.shared = AppLibrary(build)
        self.daemon = Daemon(build=build, SANDBOXD_PORT=str(free_port()), SANDBOXD_MAX_SESSIONS="5000").start()
        self.daemon_lock = threading.RLock()
        self.native = Native(self.shared)
        self.apps = [App(self.shared, self.state) for _ in range(APPS)]
        self.truth = Truth(os.path.join(self.state, "app.db"))
        rng = random.Random(seed)
        self.orgs = [self.id(rng) for _ in range(ORGANISATIONS)]
        self.agents = {o: [self.id(rng), self.id(rng)] for o in self.orgs}
        self.connections = {}
        for o in self.orgs:
            self.connections[o, "garretd"] = self.apps[0].connect(o, "sandboxd", self.daemon.url, self.daemon.token, name="garretd")["id"]
            self.connections[o, "native"] = self.apps[0].connect(o, "native", self.native.dir, name="native")["id"]
        self.conversations = [(rng.choice(self.orgs), self.id(rng), rng.choices(("garretd", "state", "native"), (60, 32, 8))[0],
                               rng.random() < 0.7) for _ in range(conversations)]

    @staticmethod
    def id(rng: random.Random) -> str:
        return uuid.UUID(int=rng.getrandbits(128)).hex

    # ---- books ----

    def book(self, org: str, key: str, place: str, scope: str, exact: bool) -> Book:
        with self.lock:
            return self.books.setdefault((org, key), Book(org, key, place, scope, exact))

    def key(self, d: dict) -> str:
        """As the library makes it."""
        f = Facts(size=c.sizeof(Facts), **{k: text(v) for k, v in d["facts"].items()})
        ret = c.create_string_buffer(65)
        self.shared.ask("garret_app_scope_key", c.byref(f), SCOPES.index(d["scope"]), text(d["connection"]), ret)
        return ret.value.decode()

    def on_event(self, name: str, fields: dict) -> None:
        with self.lock:
            self.told[name, fields.get("scope")] += 1

    # ---- deciding ----

    def decide(self, rng: random.Random, i: int) -> Doing | None:
        org, conversation, place, exact = self.conversations[i]
        scopes = {"conversation": 60, "run": 15, "agent": 5, "channel": 10, "user": 10}
        if place == "native":
            scopes = {"conversation": 70, "run": 30}
        scope = rng.choices(list(scopes), scopes.values())[0]
        agent, run = rng.choice(self.agents[org]), self.id(rng)
        facts = {"conversation": conversation, "channel": rng.choice(("general", "random")), "user": rng.choice(("ann", "ben", "cy"))}
        connection = self.connections.get((org, place))
        sandbox = {"backend": "state" if place == "state" else "service", "session_scope": scope}
        if connection:
            sandbox["connection_id"] = connection
        key = self.key({"facts": {"organisation": org, "agent": agent, "run": run, **facts}, "scope": scope, "connection": connection})
        # Who shares a key agrees on how it is watched.
        exact = exact if scope == "conversation" else True if scope == "run" else int(key[-1], 16) % 2 == 0
        return Doing(self.book(org, key, place, scope, exact), org, agent, run, sandbox, facts)

    # ---- what is done ----

    def failed(self, d: Doing, what: str, e: Failure) -> None:
        if e.code not in PASSING:
            raise d.book.wrong(f"{what} of run {d.run}: {e}")
        with self.lock:
            self.count[f"{what}: {e.code}"] += 1
        if self.verbose:
            print(f"{what} {d.book.place} {e}", flush=True)
        self.up.wait(30)  # as people would

    def open(self, seat: Seat, d: Doing, resume: bool = False):
        b = d.book
        with b.lock if b.exact else self.nothing():
            if b.exact:
                self.truth.sync(b)
                before = b.row.session if b.row else None
            b.runs.add(d.run)
            h = seat.resume(d.org, d.run) if resume else seat.open(d.org, d.agent, d.run, d.sandbox, d.facts)
            if b.exact:
                attached = h.info()["attached"]
                b.note(d.run[:8], "resumed" if resume else "opened", "attached" if attached else "by name", getattr(seat, "app", seat).__repr__()[-12:])
                self.truth.sync(b)
                if b.scope != "run" and b.place != "state" and not resume:
                    if attached not in (before is not None, b.row.session is not None):
                        raise b.wrong(f"run {d.run} was opened attached: {attached}")
                    d.means = before if attached else None
                d.row = d.row or b.row
        return h

    @staticmethod
    def nothing():
        return threading.RLock()

    def operate(self, h, d: Doing, rng: random.Random, kill_after: float | None = None) -> None:
        op = rng.choices(("write", "read", "list"), (50, 25, 25))[0]
        b = d.book
        with b.lock if b.exact else self.nothing():
            s = d.at or b.session
            calm = not b.disturbed
            if b.exact:
                self.truth.sync(b)
            may = expected(d) if b.exact else None
            at = may[1] if may and may[1] else s  # what is gone has files that a new one lacks
            known = sorted(at.files) if at else []
            if op == "read" and not known:
                op = "list"
            name = d.next_name() if op == "write" else rng.choice(known) if op == "read" else "."
            args = (name, d.content(name)) if op == "write" else (name,)
            try:
                failure, before = None, self.restarts
                value = h.do(op, *args) if kill_after is None else h.do(op, *args, kill_after=kill_after)
                code = "OK"
            except Failure as e:
                value, code, failure = None, e.code, e
            except Killed:
                value, code = None, "KILLED"
            b.note(d.run[:8], op, args[0][-12:], code, failure or "", d.at, f"restarts {before} {self.restarts}")
            self.outcome(d, op, args, code, value, may, calm)
            if code in ("KILLED", *PASSING):
                self.cut(d, op, args, s, rng)
                if code == "KILLED":
                    raise Killed
                self.failed(d, op, failure)
            elif code not in ("OK", "GONE") and not (op == "read" and code == "NOT_FOUND" and not b.exact):
                self.failed(d, op, failure)

    def outcome(self, d: Doing, op: str, args: tuple, code: str, value, may, calm: bool) -> None:
        b = d.book
        with self.lock:
            self.count[f"{op} {code}"] += 1
        if code == "OK" and b.exact:
            if "ok" not in may[0]:
                self.truth.sync(b)  # a sweeper was between
                may = expected(d)
            if "ok" not in may[0] and not d.loose:
                raise b.wrong(f"run {d.run} carries on unaware: {op} {args[0]} was due to be GONE ({vars(d)})")
            if "ok" in may[0]:
                d.at = may[1]
            else:
                d.at = b.session if b.session and not b.session.gone else Session()
            if not d.at.doomed:
                b.session = d.at
            self.seen(d, op, args, value)
        elif code == "GONE" and b.exact:
            if "gone" not in may[0]:
                self.truth.sync(b)
                may = expected(d)
            if "gone" not in may[0] and not d.loose:
                raise b.wrong(f"run {d.run} has lost what nobody took, at {op} {args[0]} ({vars(d)})")
            d.lost = True
            self.truth.sync(b)
            if b.row and b.row is d.row and b.row.session and b.row.session.gone:
                raise b.wrong(f"run {d.run} found it lost, and its row still holds it")
        elif code in ("OK", "GONE"):
            wild_outcome(d, code)
            if code == "OK":
                self.seen_wild(d, op, args, value, calm)
            d.lost = d.lost or code == "GONE"
        if b.exact and code in ("OK", "GONE"):
            self.truth.sync(b)
            if code == "OK" and b.place != "state" and b.scope != "run" and not d.at.doomed and b.row.session is not d.at:
                raise b.wrong(f"run {d.run} works in what its row doesn't hold")

    def cut(self, d: Doing, op: str, args: tuple, s: Session | None, rng: random.Random) -> None:
        """Nobody knows what came of it."""
        b = d.book
        b.cut += 1
        if not b.exact:
            with self.lock:
                b.session = b.session or Session()
                if op == "write":
                    b.session.maybe[args[0]] = args[1]
            return
        if not b.session or b.session.gone or b.session.doomed:
            b.session = d.at if d.at and not d.at.doomed and not d.at.gone else Session()
        self.truth.sync(b)
        s = d.at or (b.row and b.row.session) or b.session
        if op == "write":
            s.maybe[args[0]] = args[1]

    def seen(self, d: Doing, op: str, args: tuple, value) -> None:
        s = d.at
        if op == "write":
            s.files[args[0]] = args[1]
        elif op == "read":
            if args[0] in s.files and value != s.files[args[0]]:
                raise d.book.wrong(f"{args[0]} holds {value}")
            found_in(d, args[0], value)
        else:
            missing, extra = set(s.files) - set(value), set(value) - set(s.files) - set(s.maybe)
            if missing or extra:
                raise d.book.wrong(f"run {d.run} misses {sorted(missing)}, finds {sorted(extra)}")

    def seen_wild(self, d: Doing, op: str, args: tuple, value, calm: bool) -> None:
        b = d.book
        if op == "write":
            with self.lock:
                b.session = b.session or Session()
                b.session.files[args[0]] = args[1]
        elif op == "read":
            found_in(d, args[0], value)
        elif any(name.split("-")[0] not in b.runs for name in value):
            raise b.wrong(f"run {d.run} finds {value}")

    def run(self, seat: Seat, rng: random.Random, d: Doing, resume: bool = False) -> None:
        """One run, from its opening to how it ends."""
        b = d.book
        owner = getattr(seat, "app", seat)
        if b.place == "native":
            with self.lock:
                if b.users and owner not in b.users:
                    self.count["skipped: another has this machine's session"] += 1
                    return
                b.users[owner] = b.users.get(owner, 0) + 1
        h = None
        try:
            h = self.open(seat, d, resume)
            dies = seat.kills and rng.random() < 0.3
            steps = rng.randint(1, 5)
            for step in range(steps):
                if dies and step == steps - 1:
                    self.operate(h, d, rng, kill_after=rng.random() * 0.02)
                    raise Killed
                self.operate(h, d, rng)
            if rng.random() < 0.15:
                self.delegate(seat, h, d, rng)
            self.close(h, d, rng)
        except Killed:
            seat.kill()
            with self.lock:
                self.count["killed"] += 1
                b.cut += 1
                if rng.random() < 0.4 and b.place != "native":
                    d.loose = True
                    self.parked.append(d)
        except Failure as e:
            if resume and e.code in ("NOT_FOUND", "CONFLICT") and d.loose:
                return  # a sweeper was first
            self.failed(d, "resume" if resume else "open", e)
        finally:
            if b.place == "native":
                with self.lock:
                    b.users[owner] -= 1
                    if not b.users[owner]:
                        del b.users[owner]

    def close(self, h, d: Doing, rng: random.Random) -> None:
        b = d.book
        how = rng.choices(({}, {"parked": True}, {"detached": True}), (75, 15, 10))[0]
        with b.lock if b.exact else self.nothing():
            h.close(**how)
            b.note(d.run[:8], "closed", *how)
            if not how and b.scope == "run" and b.session:
                b.session.gone = True
            if b.exact:
                self.truth.sync(b)
        if how:
            with self.lock:
                self.parked.append(d)
        with self.lock:
            self.count["closed" if not how else f"closed, {next(iter(how))}"] += 1

    def delegate(self, seat: Seat, h, d: Doing, rng: random.Random) -> None:
        """Shared, it works in what the parent has; else in what is its own."""
        shared, run, agent = rng.random() < 0.5, self.id(rng), self.agents[d.org][0]
        own = {"backend": d.sandbox["backend"], **({"connection_id": d.sandbox["connection_id"]} if "connection_id" in d.sandbox else {})}
        if shared:
            c = h.delegate(agent, run, True, None)
            d.book.runs.add(run)
            self.operate(c, d, rng)
            c.close()
            return
        c = h.delegate(agent, run, False, own)
        key = c.info()["key"]
        if key == d.book.key:
            raise d.book.wrong("a delegate that shares nothing has its parent's workspace")
        of = Doing(self.book(d.org, key, d.book.place, "run", True), d.org, agent, run, {**own, "session_scope": "run"}, {})
        of.book.runs.add(run)
        self.operate(c, of, rng)
        c.close()
        with self.lock:
            self.count["delegates"] += 1

    # ---- what happens around it ----

    def guarded(self, fn, *args) -> None:
        try:
            fn(*args)
        except Exception:  # noqa: BLE001
            with self.lock:
                self.broken.append(traceback.format_exc())
                if len(self.broken) == 1:
                    print(self.broken[0], *self.daemon.log().splitlines()[-40:], sep="\n", flush=True)
            self.done.set()

    def worker(self, i: int, n: int, steps: int) -> None:
        rng = random.Random(f"{self.seed} worker {i}")
        seat = Puppet(self.build, self.state, f"sqlite:{self.state}/app.db", self.on_event) if i < PUPPETS else Seat(self.apps[i % APPS])
        try:
            for step in range(steps):
                if self.done.is_set() or time.time() > self.until:
                    break
                with self.lock:
                    found = self.parked.pop(rng.randrange(len(self.parked))) if self.parked and rng.random() < 0.25 else None
                if found:
                    self.run(seat, rng, found, resume=True)
                    continue
                at = (step * self.n // steps + (rng.randrange(8) if step % 3 else i)) % self.n
                self.run(seat, rng, self.decide(rng, at))
        finally:
            if seat.kills:
                seat.end() if not self.broken else seat.kill()

    def some_book(self, rng: random.Random, *places: str) -> Book | None:
        with self.lock:
            found = [b for _, b in sorted(self.books.items(), key=lambda x: x[0]) if b.place in places and b.session and b.scope != "run"]
        return rng.choice(found[-40:]) if found else None

    def purge(self, b: Book) -> None:
        """Behind the application's back."""
        with b.lock if b.exact else self.nothing(), self.daemon_lock:
            b.disturbed += 1
            code = self.daemon.call("DELETE", f"/sessions/{b.key}?purge=true")[0]
            if code not in (200, 204, 404):
                raise b.wrong(f"it can't be purged: {code}")
            if b.session and b.exact:
                b.session.gone = True
            b.note("purged", code)
            with self.lock:
                self.count[f"purged {code}"] += 1

    def delete(self, app: App, b: Book) -> None:
        with b.lock if b.exact else self.nothing():
            if b.exact:
                self.truth.sync(b)
            b.disturbed += 1
            try:
                if b.scope == "conversation":
                    row = self.truth.ask("SELECT conversation FROM agent_workspaces WHERE organisation = ? AND scope_key = ?", b.org, b.key)
                    if row:
                        app.remove_conversation(b.org, row[0][0])
                else:
                    app.remove(b.org, b.key)
            except Failure as e:
                if e.code != "NOT_FOUND":
                    raise
            b.row = None
            b.note("deleted")
            if b.session and b.exact:
                queued = self.truth.ask("SELECT 1 FROM sandbox_purges WHERE organisation = ? AND session_id = ?", b.org, b.key)
                b.session.doomed, b.session.gone = bool(queued), not queued
        with self.lock:
            self.count["deleted"] += 1

    def restart(self, how: int) -> None:
        with self.daemon_lock:
            self.up.clear()
            self.restarts += 1
            self.daemon.stop(how)
            os.unlink(self.daemon.log_path)
            self.daemon.start()
            self.restarts += 1
            self.up.set()
        with self.lock:
            self.count[f"garretd: {signal.Signals(how).name}"] += 1

    def weather(self) -> None:
        rng = random.Random(f"{self.seed} weather")
        while not self.done.wait(0.02 + rng.random() * 0.1):
            what, app = rng.choices(list(WEATHER), WEATHER.values())[0], rng.choice(self.apps)
            b = self.some_book(rng, "garretd") if what == "purge" else self.some_book(rng, "garretd", "state", "native") if what == "delete" else None
            if what == "purge" and b:
                self.purge(b)
            elif what == "delete" and b:
                self.delete(app, b)
            elif what == "sweep":
                app.sweep()
            elif what in ("stop", "kill"):
                self.restart(signal.SIGTERM if what == "stop" else signal.SIGKILL)

    def go(self, workers: int, steps: int) -> None:
        threads = [threading.Thread(target=self.guarded, args=(self.worker, i, workers, steps)) for i in range(workers)]
        weather = threading.Thread(target=self.guarded, args=(self.weather,))
        for t in (*threads, weather):
            t.start()
        for t in threads:
            t.join()
        self.done.set()
        weather.join()
        if not self.broken:
            self.guarded(forgotten_once, self)
            self.guarded(all_empty, self, APPS)

    def end(self) -> None:
        left = []
        if not self.broken:  # else runs may be open
            for app in self.apps:
                app.close()
            left = leftover_spools(self.state)
        self.daemon.stop()
        self.daemon.clean()
        shutil.rmtree(self.native.dir, ignore_errors=True)
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not left, left


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--seed", type=int)
    p.add_argument("--conversations", type=int, default=200)
    p.add_argument("--workers", type=int, default=20)
    p.add_argument("--seconds", type=float, default=1e9, help="then no more runs are begun")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    seed = a.seed if a.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    began = time.time()
    s = Simulation(os.path.abspath(a.build), seed, a.conversations, a.verbose)
    s.until = began + a.seconds
    try:
        s.go(a.workers, max(1, 3 * a.conversations // a.workers))
    finally:
        s.end()
    print(", ".join(f"{k}: {n}" for k, n in sorted(s.count.items())))
    print(f"{len(s.books)} workspaces of {a.conversations} conversations in {time.time() - began:.0f} s (again with --seed {seed})")
    print(f"{0 if s.broken else 1} passed, {1 if s.broken else 0} failed")
    return 1 if s.broken else 0


if __name__ == "__main__":
    sys.exit(main())
