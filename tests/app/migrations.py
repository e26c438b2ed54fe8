#!/usr/bin/env python3
"""The schema of the application layer, step by step, on empty and on populated databases.

usage: tests/app/migrations.py BUILD [--database URL]

Without --database each test has a file of SQLite's; the URL's database is emptied again and again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from applib import App, AppLibrary, Failure, Log  # noqa: E402,F401
from scene import new, refused  # noqa: E402

STEPS = ["base", "0001_base", "0002_workspace_directories", "0003_session_epoch", "0004_ownership"]
# What a step adds to a table that was there before: what it is in old rows.
ADDED = {"0002_workspace_directories": {("agent_workspaces", "directories"): None}, "0003_session_epoch": {("agent_workspaces", "session_epoch"): 0}}
ENTRY = {"created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}


class Database:
    """What the tests look into behind the library's back."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _psql(self, sql: str) -> str:
        return subprocess.run(["psql", self.url, "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql], check=True, capture_output=True, text=True).stdout

    @property
    def sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    def execute(self, sql: str) -> None:
        if not self.sqlite:
            self._psql(sql)
            return
        db = sqlite3.connect(self.url[7:])
        with db:
            db.execute(sql)
        db.close()

    def rows(self, table: str) -> list[dict]:
        """As text and sorted, whatever order they are kept in."""
        if self.sqlite:
            db = sqlite3.connect(self.url[7:])
            db.row_factory = sqlite3.Row
            found = [{k: v.hex() if isinstance(v, bytes) else v for k, v in dict(r).items()} for r in db.execute(f"SELECT * FROM {table}")]
            db.close()
        else:
            # A column of JSON as text: exactly what was stored.
            columns = self._psql(f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}'").splitlines()
            wanted = ", ".join(f"{name}::text AS {name}" if kind == "json" else name for name, kind in (c.split("|") for c in columns))
            found = json.loads(self._psql(f"SELECT coalesce(json_agg(t), '[]') FROM (SELECT {wanted} FROM {table}) t"))
        return sorted(found, key=lambda r: json.dumps(r, sort_keys=True))

    def tables(self) -> list[str]:
        if self.sqlite:
            db = sqlite3.connect(self.url[7:])
            names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
            db.close()
        else:
            names = self._psql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").split()
        return sorted(n for n in names if n != "garret_schema")

    def all(self) -> dict[str, list[dict]]:
        return {t: self.rows(t) for t in self.tables()}


class Ground:
    def __init__(self, library: AppLibrary, database: str | None) -> None:
        self.l = library
        self.dir = tempfile.mkdtemp(prefix="garret-migrations-")
        self.url = database or f"sqlite:{self.dir}/db"
        self.db = Database(self.url)
        if database:
            self.db.execute("DROP SCHEMA public CASCADE")
            self.db.execute("CREATE SCHEMA public")

    def app(self, **options) -> App:
        return App(self.l, os.path.join(self.dir, "app"), self.url, **options)

    def close(self) -> None:
        shutil.rmtree(self.dir)


def populate(g: Ground) -> str:
    """Something of every kind; the organisation."""
    org, agent, conversation = new(), new(), new()
    with g.app() as app:
        service = app.connect(org, "sandboxd", "http://127.0.0.1:1", "secret-ünïcode".encode("ascii", "ignore").decode(), name="ü service")["id"]
        app.connect(org, "native", "/nowhere", name="native", runtime="python")
        app.connect(org, "docker", "unix:///run/nowhere.sock", name="docker", is_default=True)
        app.connect(org, "daytona", "", "key", account="eu", name="daytona")
        for scope, facts in (("conversation", {"conversation": conversation}), ("channel", {"channel": "C1"}), ("user", {"user": "Jürgen"}), ("agent", {})):
            r = app.run(org, agent, new(), {"session_scope": scope}, **facts)
            key = r.info()["key"]
            if scope == "conversation":  # directories, bytes that are no text, a NUL
                r.make_dir("empty/größe")
                r.write("日本/\"quoted\".txt", "größe\n".encode())
                r.write("nul", b"a\0b")
                r.write("bytes", bytes(range(256)))
            elif scope == "channel":
                app.put_document(org, key, {"files": {"/emoji": {"content": ["\U0001f600", "\u0000"], **ENTRY}}})
            elif scope == "user":
                app.put_document(org, key, {"files": {}, "directories": ["/d"]})
            r.close()
            options = {"backend": "service", "connection_id": service, "session_scope": scope}
            r = app.run(org, agent, new(), options, **facts)
            if scope != "agent":
                r.report(r.info()["ref"])
            r.close()
        # An environment that couldn't be removed.
        r = app.run(org, agent, new(), {"backend": "service", "connection_id": service, "session_scope": "run"})
        refused("UNAVAILABLE", r.write, "f", b"1")
        r.close()
        # Rows of the log: what failed above was recorded.
        assert app.log(org)[1] > 0
        parked = app.run(org, agent, new(), {"session_scope": "run"})
        parked.write("half", b"done\0")
        parked.close(parked=True)
        detached = app.run(org, agent, new(), {"session_scope": "run"})
        detached.close(detached=True)
        left = app.run(org, agent, new(), {"backend": "service", "connection_id": service}, conversation=conversation)
        left.report(left.info()["ref"])
        g.db.execute("UPDATE sandbox_runs SET spills = '[\"/tool_output/x\"]' WHERE session_id IS NOT NULL")
        g.before = g.db.all()
        left.close()
        # As a killed process leaves them: its run is open, and its spool has a mark.
        for row in g.before["sandbox_runs"]:
            if row["session_id"]:
                columns = [k for k in row if row[k] is not None]
                values = ", ".join(repr(row[k]) if not isinstance(row[k], str) else "'" + row[k].replace("'", "''") + "'" for k in columns)
                g.db.execute(f"INSERT INTO sandbox_runs({', '.join(columns)}) VALUES({values})")
    g.db.execute("INSERT INTO sandbox_spools(owner, drained) VALUES('elsewhere/spool', 12345)")
    found = g.db.all()
    assert all(found[t] for t in found), {t: len(found[t]) for t in found}
    assert len(found["agent_workspaces"]) == 8 and len(found["sandbox_runs"]) == 3 and len(found["sandbox_connections"]) == 4
    return org


def without(rows: dict, step: str) -> dict:
    """As they are when that step was undone and made again."""
    added = ADDED.get(step, {})
    return {t: sorted(({**r, **{c: v for (table, c), v in added.items() if table == t}} for r in rows[t]), key=lambda r: json.dumps(r, sort_keys=True))
            for t in rows}


def fresh_down_and_up_again(g: Ground) -> None:
    schemas = {}
    for step in STEPS[1:]:
        assert g.l.migrate(g.url, step) == step
        schemas[step] = g.l.schema(g.url)
    assert len(set(schemas.values())) == len(schemas)
    for step in reversed(STEPS[1:]):
        assert g.l.schema(g.url) == schemas[step], step
        before = STEPS[STEPS.index(step) - 1]
        assert g.l.migrate(g.url, before) == before
    assert g.db.tables() == [] and g.l.migrate(g.url, "base") == "base"
    assert g.l.migrate(g.url) == STEPS[-1] and g.l.schema(g.url) == schemas[STEPS[-1]]
    with g.app():
        assert g.l.schema(g.url) == schemas[STEPS[-1]]


def the_steps_are_all_of_them(g: Ground) -> None:
    assert g.l.migrate(g.url) == STEPS[-1]
    assert [r["name"] for r in g.db.rows("garret_schema")] == STEPS[1:]
    text = refused("INVALID", g.l.migrate, g.url, "0000_nothing", names="target")
    assert STEPS[-1] in text


def populated_step_by_step(g: Ground) -> None:
    org = populate(g)
    schema = g.l.schema(g.url)
    want = g.db.all()
    for step in reversed(STEPS[1:]):
        before = STEPS[STEPS.index(step) - 1]
        g.l.migrate(g.url, before)
        tables = g.db.tables()
        kept = g.db.all()
        # Below it nothing is touched: each row is there, without the columns that went.
        for t in tables:
            columns = set(kept[t][0]) if kept[t] else set()
            left = sorted(({k: v for k, v in r.items() if k in columns} for r in want[t]), key=lambda r: json.dumps(r, sort_keys=True))
            assert kept[t] == left, (step, t)
        g.l.migrate(g.url, step)  # up again
        again = g.db.all()
        for t in again:
            assert again[t] == (without(want, step)[t] if t in tables else []), (step, t)
        g.l.migrate(g.url, before)
        assert g.db.all() == kept, step
        want = kept
    assert want == {}
    g.l.migrate(g.url)
    assert g.l.schema(g.url) == schema and all(not rows for rows in g.db.all().values())
    with g.app() as app:
        assert app.rows(org) == ([], 0) and app.connections(org) == [] and app.purges(org) == []


def an_old_database_is_brought_up_and_read(g: Ground) -> None:
    """What an application of the first step wrote is what today's finds."""
    org = populate(g)
    with g.app() as app:
        rows, connections, log = app.rows(org), app.connections(org), app.log(org)
        documents = {r["key"]: app.document(org, r["key"]) for r in rows[0] if r["backend"] == 0}
    g.l.migrate(g.url, "0001_base")
    with g.app() as app:
        assert app.rows(org) == rows and app.connections(org) == connections and app.log(org) == log
        assert {k: app.document(org, k)["files"] for k in documents} == {k: d["files"] for k, d in documents.items()}
        key = next(k for k, d in documents.items() if "/nul" in d["files"])
        v = app.visit(org, key)
        assert v.read("nul") == b"a\0b" and v.read("日本/\"quoted\".txt") == "größe\n".encode() and v.read("bytes") == bytes(range(256))
        v.close()


def one_of_a_newer_library_is_refused(g: Ground) -> None:
    g.app().close()
    g.db.execute("INSERT INTO garret_schema(name, made_at) VALUES('9999_later', 1)")
    text = refused("CONFLICT", g.app, names="9999_later")
    assert "newer" in text
    for target in (None, "base", "0001_base"):
        refused("CONFLICT", g.l.migrate, g.url, target, names="9999_later")
    g.db.execute("DELETE FROM garret_schema WHERE name = '9999_later'")
    g.db.execute("DELETE FROM garret_schema WHERE name = '0002_workspace_directories'")
    refused("CONFLICT", g.app, names="not all before it")


def several_processes_open_a_new_one_at_once(g: Ground) -> None:
    script = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
from applib import *
library = AppLibrary({g.l.build!r})
sys.stdin.readline()
app = App(library, sys.argv[1], {g.url!r})
print(app.rows({new()!r})[1])
app.close()
"""
    for shared in (True, False):
        if g.db.tables():
            g.l.migrate(g.url, "base")
        p = [subprocess.Popen([sys.executable, "-B", "-c", script, os.path.join(g.dir, "shared" if shared else f"own{i}")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(4)]
        for x in p:
            x.stdin.write("\n")
            x.stdin.flush()
        for x in p:
            out, err = x.communicate(timeout=60)
            assert x.returncode == 0 and out == "0\n", err
        assert [r["name"] for r in g.db.rows("garret_schema")] == STEPS[1:]


TESTS = (fresh_down_and_up_again, the_steps_are_all_of_them, populated_step_by_step, an_old_database_is_brought_up_and_read,
         one_of_a_newer_library_is_refused, several_processes_open_a_new_one_at_once)


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--database")
    a = p.parse_args()
    library = AppLibrary(os.path.abspath(a.build))
    library.build = os.path.abspath(a.build)
    failed = 0
    for fn in TESTS:
        began = time.time()
        g = Ground(library, a.database)
        try:
            fn(g)
            print(f"ok   {fn.__name__} ({time.time() - began:.1f} s)", flush=True)
        except Exception:  # noqa: BLE001
            failed += 1
            print(f"FAIL {fn.__name__} ({time.time() - began:.1f} s)\n{traceback.format_exc()}", flush=True)
        finally:
            g.close()
    print(f"{len(TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
