"""The log of operations: D6."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading
import time

from applib import CODES, Failure
from scene import DOCUMENT, SERVICE, new, refused, test


# ---- D6: the log ----

@test(SERVICE)
def D06_each_operation_is_recorded_as_it_is_called_today(s):
    r = s.run()
    key, run = r.info()["key"], r.info()["run"]
    r.write("f.txt", b"marker content\n")
    r.read("f.txt")
    r.read_at("f.txt", 2, 3)
    r.list()
    r.walk()
    r.make_dir("d")
    r.append("f.txt", b"more\n")
    r.copy("f.txt", "copy.txt")
    r.chmod("copy.txt", 0o600)
    r.rename("copy.txt", "d/moved.txt")
    r.edit("f.txt", "marker", "edited")
    r.glob(".", "*.txt")
    r.grep(".", "edited", "*.txt")
    r.sh("echo marker output; exit 3")
    r.remove("d")
    for question in ("exists", "stat", "resolve", "working_dir", "realpath"):
        if question == "stat":
            r.size("f.txt")
        elif question == "working_dir":
            r.working_dir()
        else:
            getattr(r, question)("f.txt")
    rows, total = s.app.log(s.org)
    got = [(x["op"], x["target"], x["detail"], x["ok"]) for x in reversed(rows)]
    assert got == [("write", "f.txt", "15 bytes", True), ("read", "f.txt", "15 bytes", True), ("read", "f.txt", "3 bytes", True),
                   ("ls_info", ".", "1 results", True), ("ls_info", ".", "1 results", True), ("mkdir", "d", "", True),
                   ("write", "f.txt", "5 bytes", True), ("write", "copy.txt", "", True), ("write", "copy.txt", "", True),
                   ("remove", "copy.txt", "", True), ("write", "d/moved.txt", "", True), ("read", "f.txt", "", True), ("write", "f.txt", "", True),
                   ("execute", "find . -path '*.txt'", "", True), ("execute", "grep -rnP --include '*.txt' -e edited -- .", "", True),
                   ("execute", "echo marker output; exit 3", "exit 3", False), ("remove", "d", "", True)], got
    assert total == len(rows) and all(x["run"] == run and x["agent"] == s.agent and x["key"] == key for x in rows)
    assert all(0 <= time.time() - x["created_at"] < 60 for x in rows)
    assert "marker content" not in json.dumps(rows)
    r.close()


@test(SERVICE)
def D06_failures_are_recorded_by_class_and_told(s):
    r = s.run()
    refused("NOT_FOUND", r.read, "none")
    r.write("f", b"1")
    refused("NOT_DIRECTORY", r.list, "f")

    try:
        r.sh("sleep 30", timeout=0.3)
    except Failure as e:
        assert e.code == "TIMEOUT"
    rows = {x["op"]: x for x in s.app.log(s.org, ok=-1)[0]}
    assert rows["read"]["detail"] == CODES[CODES.index("NOT_FOUND")] or rows["read"]["detail"], rows["read"]
    assert all(not x["ok"] and " " not in x["detail"] for x in rows.values()), rows
    assert rows["execute"]["target"] == "sleep 30" and {"read", "ls_info", "execute"} == set(rows)
    r.close()


@test(SERVICE)
def D06_a_long_or_odd_target_is_cut_not_dropped(s):
    r = s.run()
    r.sh("echo " + "ü" * 2000)
    row = s.app.log(s.org)[0][0]
    assert 500 < len(row["target"].encode()) <= 512 and row["target"].startswith("echo ü")

    path = b"od\xff\xfed\n"
    try:
        s.l.call("garret_write", r.w, path, b"1", 1, 0)
    except F:
        pass
    assert "od\ufffd" in s.app.log(s.org, op="write")[0][0]["target"]
    r.close()


@test(SERVICE)
def D06_filters_reach_the_query(s):
    a, b = s.run(), s.run(session_scope="agent")
    a.write("a", b"1")
    refused("NOT_FOUND", a.read, "none")
    b.write("b", b"1")
    b.write("c", b"1")
    assert [x["target"] for x in s.app.log(s.org, key=b.info()["key"])[0]] == ["c", "b"]
    assert [x["target"] for x in s.app.log(s.org, run=a.info()["run"], ok=1)[0]] == ["a"]
    assert [x["target"] for x in s.app.log(s.org, op="read")[0]] == ["none"]
    assert s.app.log(s.org, ok=-1)[1] == 1 and s.app.log(s.org, agent=new())[1] == 0
    rows, total = s.app.log(s.org, max=2, offset=1)
    assert total == 4 and [x["target"] for x in rows] == ["b", "none"]
    assert s.app.log(s.org, until=time.time() - 60)[1] == 0 and s.app.log(s.org, since=time.time() - 60)[1] == 4
    assert s.app.log_names(s.org) == ["read", "write"] and s.app.log(new()) == ([], 0) and s.app.log_names(new()) == []
    for bad, name in (({"max": 1001}, "max"), ({"agent": "x"}, "agent"), ({"run": "x"}, "run"), ({"since": -1.0}, "since"), ({"op": ""}, "op"),
                      ({"key": "a\nb"}, "key")):
        refused("INVALID", s.app.log, s.org, names=name, **bad)
    a.close()
    b.close()


def execute(s, sql: str, *args) -> None:
    if s.database:

        for a in args:
            sql = sql.replace("?", "'" + str(a) + "'", 1)
        subprocess.run(["psql", s.database, "-qc", sql], check=True, capture_output=True)
        return

    with sqlite3.connect(os.path.join(s.dir, "app", "app.db")) as db:
        db.execute(sql, args)


@test()
def D06_rows_of_old_names_are_found_by_todays(s):
    now = time.time()
    for op in ("edit", "glob_info", "grep_raw", "read_bytes", "read"):
        execute(s, "INSERT INTO sandbox_operations(organisation, session_key, op, target, detail, ok, duration_ms, created_at) VALUES(?,?,?,?,?,?,?,?)",
                s.org, "old", op, op, "", 1, 5, now)
    assert s.app.log_names(s.org) == ["edit", "glob_info", "grep_raw", "read", "read_bytes"]
    found = {op: sorted(x["op"] for x in s.app.log(s.org, op=op)[0]) for op in ("read", "write", "execute", "edit", "remove")}
    assert found == {"read": ["read", "read_bytes"], "write": ["edit"], "execute": ["glob_info", "grep_raw"], "edit": ["edit"], "remove": []}
    assert s.app.log(s.org, op="edit")[0][0]["agent"] == ""  # a row may have no agent and no run


@test()
def D06_rows_are_kept_thirty_days(s):
    now = time.time()
    for age in (29, 31):
        execute(s, "INSERT INTO sandbox_operations(organisation, session_key, op, target, detail, ok, duration_ms, created_at) VALUES(?,?,?,?,?,?,?,?)",
                s.org, "old", "read", f"{age}", "", 1, 5, now - age * 86400)
    assert s.app.sweep()["operations"] >= 1
    assert [x["target"] for x in s.app.log(s.org)[0]] == ["29"]


@test(DOCUMENT)
def D06_documents_are_not_recorded(s):
    s.once()
    assert s.app.log(s.org) == ([], 0)


@test(SERVICE)
def D06_a_wrapped_workspace_is_the_same(s):
    r = s.run()
    ref = r.info()["ref"]
    r.write("f", b"1")
    assert r.ref() == ref
    r.close()


@test(SERVICE)
def D06_other_processes_see_it_at_once(s):
    r = s.run()
    r.write("f", b"1")
    assert s.another().log(s.org)[1] == 1
    assert s.app.log(s.org)[1] == 1, "each row is there once"
    r.close()


@test()
def D06_a_spool_that_is_being_made_is_nobody_elses(s):
    """Who drains those of dead processes must not take it for one: its rows would be lost, its runs swept while they are open."""
    done, failed = threading.Event(), []

    def held():
        for fd in os.listdir("/proc/self/fd"):
            try:
                yield os.readlink(f"/proc/self/fd/{fd}")
            except FileNotFoundError:
                pass  # others open and close as well

    def drain(app):
        while not done.is_set():
            try:
                app.log_names(s.org)
            except Exception as e:  # noqa: BLE001
                failed.append(e)
    others = [threading.Thread(target=drain, args=(s.another(),)) for _ in range(2)]
    for t in others:
        t.start()
    try:
        for _ in range(400):
            app = s.another()
            owned = {at for at in held() if at.endswith(".ops")}
            assert len(owned) >= len(s.apps), owned  # and maybe one that is just being drained
            s.end(app)
    finally:
        done.set()
        for t in others:
            t.join()
    assert not failed, failed
