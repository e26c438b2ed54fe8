"""What the simulation expects: which session each workspace has, what is in it, and what each run may find.

A book is of one workspace: of an organisation and a key.  An exact one takes one operation at a time
(of however many runs), so what each may give is known; in the others all race, and only what no
order of things could excuse is wrong.
"""

from __future__ import annotations

import collections
import json
import os
import sqlite3
import threading
import time


class Wrong(Exception):
    """An invariant is broken."""


class Session:
    """An environment or document of one name, from when it was made until it was removed."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.maybe: dict[str, str] = {}  # of operations whose outcome nobody knows
        self.gone = self.doomed = False  # doomed: its removal is queued

    def __repr__(self) -> str:
        return f"<session {id(self) & 0xffffff:x}{' gone' * self.gone}{' doomed' * self.doomed} {len(self.files)} files>"


class Row:
    def __init__(self, id: str) -> None:
        self.id, self.epoch, self.session = id, 0, None  # the session that it holds


class Book:
    def __init__(self, org: str, key: str, place: str, scope: str, exact: bool) -> None:
        self.org, self.key, self.place, self.scope, self.exact = org, key, place, scope, exact
        self.lock = threading.RLock()
        self.row: Row | None = None
        self.session: Session | None = None  # what has its name; of one whose opening was cut short it may not be there
        self.disturbed = 0  # how often it was purged or deleted, or that was begun
        self.cut = 0  # operations that were cut short, or failed on their way
        self.forgotten = 0
        self.runs: set[str] = set()
        self.history: collections.deque = collections.deque(maxlen=30)
        self.users: dict = {}  # of this machine: which application has it open

    def note(self, *what) -> None:
        self.history.append(f"  {time.time() % 1000:.3f} {' '.join(map(str, what))}")

    def wrong(self, what: str) -> Wrong:
        return Wrong("\n".join([f"{self.place} {self.key} ({'exact' if self.exact else 'wild'}): {what}", *self.history,
                                f"  row {self.row and vars(self.row)}, session {self.session}"]))


class Doing:
    """A run as the model knows it."""

    def __init__(self, book: Book, org: str, agent: str, run: str, sandbox: dict, facts: dict) -> None:
        self.book, self.org, self.agent, self.run, self.sandbox, self.facts = book, org, agent, run, sandbox, facts
        self.row: Row | None = None      # that it was opened on
        self.means: Session | None = None  # that it was attached to when it was opened
        self.at: Session | None = None   # that it works in
        self.lost = self.loose = False   # loose: cut short, and gone on with
        self.n = 0

    def content(self, name: str) -> str:
        return json.dumps({"organisation": self.org, "key": self.book.key, "run": self.run, "name": name})

    def next_name(self) -> str:
        self.n += 1
        return f"{self.run}-{self.n}"


class Truth:
    """The database as it is, and a ledger of what was recorded and forgotten, kept by triggers."""

    def __init__(self, path: str) -> None:
        self.path, self.local = path, threading.local()
        with self.db() as db:
            db.executescript("""
                CREATE TABLE sim_ledger(n INTEGER PRIMARY KEY, row TEXT, key TEXT, what TEXT, epoch INT, UNIQUE(row, what, epoch));
                CREATE TRIGGER sim_recorded AFTER UPDATE OF session_id ON agent_workspaces
                WHEN OLD.session_id IS NULL AND NEW.session_id IS NOT NULL BEGIN
                  INSERT INTO sim_ledger(row, key, what, epoch) VALUES(NEW.id, NEW.scope_key, 'recorded', NEW.session_epoch); END;
                CREATE TRIGGER sim_forgotten AFTER UPDATE OF session_id ON agent_workspaces
                WHEN OLD.session_id IS NOT NULL AND NEW.session_id IS NULL BEGIN
                  INSERT INTO sim_ledger(row, key, what, epoch) VALUES(OLD.id, OLD.scope_key, 'forgotten', OLD.session_epoch); END;""")

    def db(self) -> sqlite3.Connection:
        if not hasattr(self.local, "db"):
            self.local.db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        return self.local.db

    def ask(self, sql: str, *args) -> list[tuple]:
        return self.db().execute(sql, args).fetchall()

    def count(self, table: str) -> int:
        return self.ask(f"SELECT count(*) FROM {table}")[0][0]

    def sync(self, book: Book) -> None:
        """What the sweepers may have done to an exact book meanwhile; nobody else changes it."""
        found = self.ask("SELECT id, session_id, session_epoch FROM agent_workspaces WHERE organisation = ? AND scope_key = ?", book.org, book.key)
        if not found:
            if book.row and book.scope != "run":
                raise book.wrong("its row has vanished")
            return
        id, session, epoch = found[0]
        if not book.row:
            book.row = Row(id)
            if book.place == "state":
                book.row.session = book.session = Session()
        row = book.row
        if row.id != id:
            raise book.wrong("its row is another")
        if book.place == "state":
            return
        if row.session and (not session or epoch != row.epoch):
            if not row.session.gone:
                raise book.wrong("a session was forgotten that is there")
            row.session = None
            book.forgotten += 1
            book.note("forgotten", epoch)
        if session and not row.session:
            if not book.session or (book.session.gone and not book.cut):
                raise book.wrong("a session was recorded that nobody has seen")
            if book.session.gone:
                book.session = Session()
            row.session, row.epoch = book.session, epoch
            book.note("recorded", epoch, book.session)


def expected(d: Doing) -> tuple[set[str], Session | None]:
    """What an operation may give: "ok" with a session, "gone"."""
    book, row = d.book, d.book.row
    if d.lost:
        return {"gone"}, None
    if d.at:
        return ({"ok", "gone"} if d.at.doomed else {"gone"} if d.at.gone else {"ok"}), d.at
    if book.scope == "run":
        return {"ok"}, book.session or Session()
    if not row:
        return {"gone"}, None
    if book.place == "state":
        return {"ok" if row is d.row else "gone"}, row.session
    if d.means and (row is not d.row or row.session is not d.means or d.means.gone):
        return {"gone"}, None
    if row.session:
        return {"gone" if row.session.gone else "ok"}, row.session
    s = book.session
    return {"ok"}, s if s and not s.gone and not s.doomed else Session()


def found_in(d: Doing, name: str, text: str) -> None:
    """Whatever is found says whose it is."""
    f = json.loads(text)
    if (f["organisation"], f["key"], f["name"]) != (d.org, d.book.key, name) or f["run"] not in d.book.runs:
        raise d.book.wrong(f"run {d.run} of {d.org} finds {name}: {text}")


def wild_outcome(d: Doing, code: str) -> None:
    if d.lost and code == "OK":
        raise d.book.wrong(f"run {d.run} goes on after a loss")
    if code == "GONE" and not d.book.disturbed and not d.book.cut:
        raise d.book.wrong(f"run {d.run} has lost what nobody took")


def leftover_spools(state_dir: str) -> list[str]:
    return [os.path.join(at, f) for at, _, files in os.walk(state_dir) for f in files if f.endswith(".ops")]


# ---- the end ----

def forgotten_once(sim) -> None:
    events: collections.Counter = collections.Counter({k: n for (name, k), n in sim.told.items() if name == "workspace_session_forgotten"})
    for app in sim.apps:
        for fields in app.told("workspace_session_forgotten"):
            events[fields["scope"]] += 1
    ledger = dict(sim.truth.ask("SELECT key, count(*) FROM sim_ledger WHERE what = 'forgotten' GROUP BY key"))
    for b in sim.books.values():
        if b.exact:
            sim.truth.sync(b)
        n = ledger.get(b.key, 0)
        if not n - b.cut <= events[b.key] <= n:
            raise b.wrong(f"forgotten {n} times, told {events[b.key]} times")
        if n > b.disturbed or (b.exact and not b.forgotten <= n <= b.forgotten + b.cut):  # a sweeper and a deletion at once
            raise b.wrong(f"forgotten {n} times, noticed {b.forgotten} times, of {b.disturbed} purges")
    sim.count["sessions forgotten"] = sum(ledger.values())


def all_empty(sim, apps: int) -> None:
    """All is deleted, and time passes."""
    for org in sim.orgs:
        for _, conversation, *_ in (c for c in sim.conversations if c[0] == org):
            sim.apps[0].remove_conversation(org, conversation)
        for row in sim.apps[0].rows(org)[0]:
            sim.apps[0].remove(org, row["key"])
    for _ in range(20):
        sim.truth.ask("UPDATE sandbox_runs SET seen_at = 0 WHERE parked <> 0")
        sim.truth.ask("UPDATE sandbox_purges SET next_at = 0")
        for app in sim.apps:
            app.sweep()
        if not sim.truth.count("sandbox_purges") and not sim.truth.count("sandbox_runs"):
            break
        time.sleep(0.1)
    left = {t: sim.truth.ask(f"SELECT * FROM {t}") for t in ("agent_workspaces", "sandbox_runs", "sandbox_purges")}
    left["sessions"] = [s["session_id"] for s in sim.daemon.call("GET", "/sessions")[1]["sessions"]]
    left["kept workspaces"] = [w["session_id"] for w in sim.daemon.call("GET", "/workspaces")[1]["workspaces"]]
    left["native"] = [os.path.join(at, f) for at, dirs, files in os.walk(sim.native.dir) for f in dirs + files]
    left["spools"] = leftover_spools(sim.state)[apps:]
    if any(left.values()):
        names = "\n".join(f"  {k}: {str(v)[:2000]}" for k, v in left.items() if v)
        raise Wrong(f"left over:\n{names}\n" + "\n".join(str(vars(b)) for b in sim.books.values() if b.key in names))
