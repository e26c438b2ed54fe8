"""Documents in the database: D5."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading

from applib import App, Failure, text
from scene import DOCUMENT, new, refused, test


# ---- D5: documents ----

ENTRY = {"content": ["x"], "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}


def stored(s, key: str) -> str:
    return s.l.text("garret_app_document_get", s.app.p, s.org.encode(), key.encode())


@test(DOCUMENT)
def D05_1_what_is_stored_comes_back_exactly(s):
    r = s.run()
    key = r.info()["key"]
    r.write("ünïcode/\"quoted\".txt", "größe\n日本\n".encode())
    r.write("bytes", bytes(range(256)))
    r.write("nul", b"a\0b")
    r.write("key", b'","directories":["/x"]}')
    r.make_dir("empty/dir")
    before = stored(s, key)
    r.close()
    document = json.loads(before)
    assert document["directories"] == ["/empty", "/empty/dir", "/ünïcode"], document["directories"]
    row = s.app.row(s.org, key)
    compact = [json.dumps(document[k], separators=(",", ":"), ensure_ascii=False) for k in ("files", "directories")]
    assert row["bytes"] == sum(len(x.encode()) for x in compact)
    r = s.run()
    assert r.read("bytes") == bytes(range(256)) and r.read("nul") == b"a\0b" and r.read("key") == b'","directories":["/x"]}'
    assert r.exists("empty/dir") and stored(s, key) == before
    r.close()


@test(DOCUMENT)
def D05_1_no_directories_is_null(s):
    key = s.once()
    assert json.loads(stored(s, key))["directories"] == []
    assert column(s, "directories") == [None]
    s.app.put_document(s.org, key, {"files": {}, "directories": ["/d"]})
    assert column(s, "directories") == ['["/d"]']


def column(s, name: str) -> list:
    if s.database:

        out = subprocess.run(["psql", s.database, "-Atc", f"SELECT {name} FROM agent_workspaces WHERE organisation = '{s.org}'"],
                             capture_output=True, text=True, check=True).stdout
        return [x or None for x in out.splitlines()]

    with sqlite3.connect(os.path.join(s.dir, "app", "app.db")) as db:
        return [x[0] for x in db.execute(f"SELECT {name} FROM agent_workspaces WHERE organisation = ?", (s.org,))]


@test(DOCUMENT)
def D05_2_over_the_bound_is_refused_and_nothing_changed(s):
    bound = 20000
    app = s.another(os.path.join(s.dir, "small"), state_max_bytes=bound) if s.database else App(
        s.l, os.path.join(s.dir, "small"), f"sqlite:{s.dir}/app/app.db", state_max_bytes=bound)
    if not s.database:
        s.apps.append(app)
    r = s.run(app=app)
    key = r.info()["key"]
    r.write("f", b"x" * 100)
    spare = bound - app.row(s.org, key)["bytes"]
    r.write("f", b"x" * (100 + spare))  # exactly the bound
    assert app.row(s.org, key)["bytes"] == bound
    full = stored(s, key)
    for change in (lambda: r.write("f", b"x" * (101 + spare)), lambda: r.append("f", b"x"), lambda: r.write("g", b""), lambda: r.make_dir("d"),
                   lambda: r.copy("f", "g"), lambda: r.rename("f", "ff"), lambda: r.edit("f", "x" * 50, "y" * 51 + "x")):
        try:
            change()
            raise AssertionError("the bound was passed")
        except Failure as e:
            assert e.code in ("NO_SPACE", "CONFLICT"), e
        assert stored(s, key) == full
    text = refused("NO_SPACE", r.write, "f", b"x" * (101 + spare), names=str(bound))
    assert str(bound + 1) in text and "delete" not in text and "shorten" in text and "overwrite" in text, text
    r.write("f", b"small")  # big with small frees room
    r.write("g", b"y" * 1000)
    assert r.read("g") == b"y" * 1000
    r.close()


@test(DOCUMENT)
def D05_2_directories_count(s):
    app = App(s.l, os.path.join(s.dir, "small"), s.database or f"sqlite:{s.dir}/app/app.db", state_max_bytes=2000)
    s.apps.append(app)
    r = s.run(app=app)
    key = r.info()["key"]
    n = 0
    try:
        for n in range(1000):
            r.make_dir(f"directory-{n:04}")
        raise AssertionError("directories don't count")
    except Failure as e:
        assert e.code == "NO_SPACE", e
    assert 50 < n < 120 and len(json.loads(stored(s, key))["directories"]) == n
    assert app.row(s.org, key)["bytes"] <= 2000
    refused("NO_SPACE", app.put_document, s.org, key, {"files": {f"/{i}": ENTRY for i in range(40)}, "directories": []})
    r.close()


@test(DOCUMENT)
def D05_2_one_that_is_over_already_can_only_shrink(s):
    r = s.run()
    key = r.info()["key"]
    r.write("a", b"x" * 3000)
    r.write("b", b"x" * 3000)
    r.close()
    app = App(s.l, os.path.join(s.dir, "small"), s.database or f"sqlite:{s.dir}/app/app.db", state_max_bytes=4000)
    s.apps.append(app)
    r = s.run(app=app)
    assert r.read("a") == b"x" * 3000
    refused("NO_SPACE", r.write, "c", b"1")
    r.write("a", b"short")
    refused("NO_SPACE", r.append, "b", b"x" * 2000)
    r.write("c", b"1")
    assert s.app.row(s.org, key)["bytes"] <= 4000
    r.close()


@test(DOCUMENT)
def D05_3_a_conversation_deleted_meanwhile_loses_its_files(s):
    r = s.run()
    r.write("f", b"1")
    s.app.remove_conversation(s.org, s.conversation)
    refused("GONE", r.write, "g", b"1")
    refused("GONE", r.read, "f")
    r.close()
    assert s.app.rows(s.org)[1] == 0


@test(DOCUMENT)
def D05_3_one_that_was_made_anew_is_another(s):
    r = s.run()
    key = r.info()["key"]
    r.write("f", b"1")
    s.app.remove(s.org, key)
    fresh_id = new()
    fresh = s.run(run=fresh_id)
    assert fresh.list() == []
    fresh.write("g", b"2")  # it has the version that the other one had
    assert s.app.row(s.org, key)["version"] == 2
    refused("GONE", r.write, "h", b"1")
    refused("GONE", r.read, "f")
    r.close()
    assert fresh.list() == ["g"]
    fresh.close(parked=True)
    s.app.remove(s.org, key)
    s.once()
    fresh = s.app.resume(s.org, fresh_id)
    refused("GONE", fresh.list)
    fresh.close()


@test(DOCUMENT)
def D05_4_two_writers_lose_nothing(s):
    a, b = s.run(), s.run(app=s.another())
    a.write("a", b"1")
    b.write("b", b"2")
    a.write("c", b"3")
    assert a.list() == b.list() == ["a", "b", "c"]
    a.write("same", b"of a")
    assert b.read("same") == b"of a"
    b.write("same", b"of b")
    assert a.read("same") == b"of b"
    a.close()
    b.close()
    r = s.run()
    assert r.list() == ["a", "b", "c", "same"]
    r.close()
    assert s.app.told("workspace_flush_overtaken") == []


@test(DOCUMENT)
def D05_4_who_is_overtaken_is_told_of_the_paths(s):
    """Threads of several processes on one document: each write is there, or was refused with CHANGED."""
    runs = [s.run(app=s.another()) for _ in range(3)]
    done, failures = [], []

    def work(i, r):
        for n in range(40):
            try:
                r.write("shared" if n % 4 == 0 else f"w{i}-{n}", f"{i} {n}".encode())
                done.append((i, n))
            except Failure as e:
                failures.append(e)
    threads = [threading.Thread(target=work, args=x) for x in enumerate(runs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(e.code == "CHANGED" for e in failures), failures
    look = s.run()
    for i, n in done:
        if n % 4:
            assert look.read(f"w{i}-{n}") == f"{i} {n}".encode()
    told = [x for app in s.apps for x in app.told("workspace_flush_overtaken")]
    assert all(x["scope"] == look.info()["key"] and x["loaded"] != x["found"] for x in told)
    assert not failures or any("/shared" in x["paths"] for x in told)
    for r in (*runs, look):
        r.close()


@test(DOCUMENT)
def D05_a_document_is_put_and_got(s):
    key = s.once()
    s.app.put_document(s.org, key, {"files": {"/a/b": ENTRY}, "directories": ["/z"]})
    assert s.app.document(s.org, key)["files"]["/a/b"]["content"] == ["x"]
    r = s.run()
    assert r.list() == ["a", "z"] and r.read("a/b") == b"x"
    s.app.put_document(s.org, key, {"files": {}})
    assert r.list() == []
    r.close()
    before = stored(s, key)
    for bad in ("", "{", "[]", '{"files":{"/f":1}}', '{"files":{"relative":{}}}', '{"files":{"/f":' + json.dumps({**ENTRY, "content": 5}) + "}}",
                '{"files":{},"directories":{}}'):
        refused("INVALID", s.app.put_document, s.org, key, bad)
        assert stored(s, key) == before
    refused("NOT_FOUND", s.app.put_document, s.org, "dc-none", {"files": {}})
    refused("NOT_FOUND", s.app.document, s.org, "dc-none")


@test(DOCUMENT)
def D05_the_published_document_loads(s):
    """As its StateBackend keeps it: keys in its order, no directories, times with an offset."""
    key = s.once()
    s.app.put_document(s.org, key, json.dumps({"files": {"/x.txt": {"content": ["a", "b"], "created_at": "2025-01-01T00:00:00+00:00",
                                                                   "modified_at": "2025-01-02T00:00:00+00:00"}}}))
    r = s.run()
    assert r.read("x.txt") == b"a\nb"
    r.close()
