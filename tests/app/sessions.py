"""Sessions that are recorded, lost and forgotten, and what a crash leaves: D4, D11."""

from __future__ import annotations

import ctypes as c
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time

from applib import App, Failure, Workspace, text
from garret import Result, RunOptions
from log import execute
from scene import ANY, ENDS, LIVE, SERVICE, HERE, new, refused, test


# ---- D4: sessions ----

@test(SERVICE)
def D04_1_two_first_runs_at_once_share_one(s):
    a, b = s.run(), s.run()
    assert not a.info()["attached"] and not b.info()["attached"]
    failures = []

    def write(r, name):
        try:
            r.write(name, b"1")
        except Failure as e:
            failures.append(e)
    threads = [threading.Thread(target=write, args=x) for x in ((a, "a"), (b, "b"))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and a.list() == b.list() == ["a", "b"]
    a.close()
    b.close()


@test(SERVICE)
def D04_2_later_runs_attach_by_what_was_recorded(s):
    r = s.run()
    key = r.info()["key"]
    r.write("f", b"1")
    assert s.app.row(s.org, key)["session_id"] == key
    r.close()
    r = s.run()
    assert r.info()["attached"] and r.info()["ref"][1] == key and r.read("f") == b"1"
    r.close()


@test(LIVE)
def D04_2_one_that_was_recorded_meanwhile_is_attached_to(s):
    late = s.run()
    key = s.once()
    assert not late.info()["attached"]
    s.w.purge(key)
    # By its name it would be a new, empty one.
    refused("GONE", late.exists, "seed")
    assert late.lost and s.app.row(s.org, key)["session_id"] == ""
    late.close()


FIRST = {"exists": lambda r: r.exists("f"), "stat": lambda r: r.size("f"), "resolve": lambda r: r.resolve("f"), "working_dir": lambda r: r.working_dir(),
         "realpath": lambda r: r.realpath("f"), "read": lambda r: r.read("f"), "write": lambda r: r.write("g", b""), "list": lambda r: r.list(),
         "mkdir": lambda r: r.make_dir("d"), "remove": lambda r: r.remove("f"), "run": lambda r: r.sh("true"), "walk": lambda r: r.walk(),
         "glob": lambda r: r.glob(".", "*"), "grep": lambda r: r.grep(".", "x"), "edit": lambda r: r.edit("f", "a", "b"),
         "append": lambda r: r.append("f", b"x"), "chmod": lambda r: r.chmod("f", 0o644), "copy": lambda r: r.copy("f", "g"),
         "rename": lambda r: r.rename("f", "g")}


@test(SERVICE)
def D11_F1_every_operation_notices_the_loss(s):
    for name, operation in FIRST.items():
        conversation = new()
        key = s.once(conversation=conversation)
        s.w.purge(key)
        r = s.run(conversation=conversation)
        assert r.info()["attached"], name
        refused("GONE", operation, r)
        assert r.lost, f"{name} has not noticed"
        assert s.app.row(s.org, key)["session_id"] == "", f"after {name} the row still holds it"
        refused("GONE", r.write, "f", b"1")  # it stays lost, whatever has that name now
        r.close()
        r = s.run(conversation=conversation)
        assert not r.info()["attached"] and r.list() == [], name
        r.close()
        s.app.remove(s.org, key)
    assert len(s.app.told("workspace_session_forgotten")) == len(FIRST)


@test(LIVE)
def D04_3_a_loss_in_the_middle_is_one_too(s):
    r = s.run()
    key = r.info()["key"]
    r.write("f", b"1")
    s.w.purge(key)
    refused("GONE", r.read, "f")
    refused("GONE", r.write, "f", b"2")
    assert r.lost and s.app.row(s.org, key)["session_id"] == ""
    r.close()
    assert s.app.row(s.org, key)["session_id"] == ""


def begun(s, r):
    """The run's first operation: a command, in a session that no row holds yet; a function that waits for its end."""
    o, p = RunOptions(size=c.sizeof(RunOptions), shell=b"sleep 60", timeout=60.0), c.c_void_p()
    s.l.call("garret_run_start", r.w, c.byref(o), c.byref(p))

    def end() -> None:
        try:
            refused("GONE", s.l.call, "garret_run_wait", p, c.c_double(30), c.byref(Result()))
        finally:
            s.l.lib.garret_run_free(p)
    return end


@test(ENDS)
def D04_3_what_another_recorded_is_forgotten_when_it_is_the_same(s):
    r, b = s.run(), s.run(app=s.another())
    key, end = r.info()["key"], begun(s, r)
    assert b.list() == [] and s.app.row(s.org, key)["session_id"] == key
    s.w.purge(key)
    end()
    assert r.lost and s.app.row(s.org, key)["session_id"] == ""
    refused("GONE", b.list)
    r.close()
    b.close()


@test(ENDS)
def D04_3_what_another_recorded_stays_when_it_is_a_newer_one(s):
    r = s.run()
    key, end = r.info()["key"], begun(s, r)
    s.w.purge(key)
    fresh = s.run(app=s.another())
    fresh.write("new", b"1")
    end()
    assert r.lost and s.app.row(s.org, key)["session_id"] == key
    assert fresh.read("new") == b"1" and not s.app.told("workspace_session_forgotten")
    r.close()
    fresh.close()


@test(LIVE)
def D04_4_what_surrounds_the_tools_notices_it_too(s):
    key = s.once()
    a, b = s.run(), s.run()
    s.w.purge(key)
    refused("GONE", a.exists, "seed")
    # The other run learns it from the row, though a new one may have that name by now.
    fresh = s.run()
    fresh.write("new", b"1")
    refused("GONE", b.exists, "new")
    assert b.lost and s.app.row(s.org, key)["session_id"] == key
    for r in (a, b, fresh):
        r.close()
    assert len(s.app.told("workspace_session_forgotten")) == 1


@test()
def D04_5_only_gone_means_lost(s):
    """A host that is down, and one that refuses, clear nothing."""
    import http.server

    class Refuses(http.server.BaseHTTPRequestHandler):
        def answer(self):
            n = int(self.headers.get("content-length") or 0)
            self.rfile.read(n)
            self.send_response(403)
            self.end_headers()
        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *a):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for address in ("http://127.0.0.1:1", f"http://127.0.0.1:{server.server_port}"):
            c = s.app.connect(s.org, "sandboxd", address, "t", name=address)["id"]
            options = {"backend": "service", "connection_id": c}
            r = s.app.run(s.org, s.agent, new(), options, conversation=s.conversation)
            r.report(r.info()["ref"])  # as if it had been opened
            key = r.info()["key"]
            r.close()
            assert s.app.row(s.org, key)["session_id"] == key
            r = s.app.run(s.org, s.agent, new(), options, conversation=s.conversation)
            try:
                r.read("f")
                raise AssertionError("read from nowhere")
            except Failure as e:
                assert e.code not in ("GONE", "OK"), e
            assert not r.lost
            r.close()
            assert s.app.row(s.org, key)["session_id"] == key
            s.app.disconnect(s.org, c)
    finally:
        server.shutdown()
        server.server_close()


@test(LIVE)
def D04_6_a_row_forgets_only_what_was_lost(s):
    """One run finds the old session lost after another has recorded a new one of the same name."""
    key = s.once()
    late = s.run()
    late.exists("seed")
    s.w.purge(key)
    early = s.run()
    refused("GONE", early.exists, "seed")
    early.close()
    fresh = s.run()
    fresh.write("new", b"1")
    fresh.close()
    late.report(late.info()["ref"], lost=True)
    late.close()
    row = s.app.row(s.org, key)
    assert row["session_id"] == key, "a session that came later was forgotten"
    r = s.run()
    assert r.info()["attached"] and r.read("new") == b"1"
    r.close()


@test(SERVICE)
def D04_7_one_never_touched_is_not_asked_for(s):
    r = s.run(session_scope="run")
    r.close()
    down = s.app.connect(s.org, "sandboxd", "http://127.0.0.1:1", "t", name="down")["id"]
    r = s.app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": down, "session_scope": "run"})
    r.close()
    assert s.app.told("workspace_purge_failed") == [] and s.app.purges(s.org) == []


@test()
def D04_9_closing_never_fails(s):
    down = s.app.connect(s.org, "sandboxd", "http://127.0.0.1:1", "t", name="down")["id"]
    r = s.app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": down, "session_scope": "run"})
    refused("UNAVAILABLE", r.write, "f", b"1")
    r.close()  # what may have been made there is in the queue
    queued = s.app.purges(s.org)
    assert len(queued) == 1 and queued[0]["code"] == "UNAVAILABLE" and queued[0]["tries"] == 1 and queued[0]["next_at"] > time.time()
    s.app.disconnect(s.org, down)


@test(SERVICE)
def D12_76_77_deleting_a_conversation_purges_what_it_recorded(s):
    key = s.once()
    kept = s.once(conversation=new())
    second = s.app.connect(s.org, s.w.kind, s.w.address(), s.w.token(), name="second", **s.w.fields())["id"]
    r = s.run(connection_id=second)
    r.write("f", b"1")
    r.close()
    state = s.app.run(s.org, s.agent, new(), {}, conversation=s.conversation)
    state.write("f", b"1")
    state.close()
    assert s.app.remove_conversation(s.org, s.conversation) == 3
    assert [x["key"] for x in s.app.rows(s.org)[0]] == [kept] and s.app.purges(s.org) == []
    r = s.run()  # of that name: a new one
    assert r.info()["key"] == key and r.list() == []
    r.close()
    assert s.app.remove_conversation(s.org, new()) == 0


@test()
def D12_78_79_80_deletion_survives_what_is_away(s):
    def recorded(connection):
        r = s.app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": connection}, conversation=s.conversation)
        r.report(r.info()["ref"])
        r.close()
    down = s.app.connect(s.org, "sandboxd", "http://127.0.0.1:1", "t", name="down")["id"]
    recorded(down)
    assert s.app.remove_conversation(s.org, s.conversation) == 1 and s.app.rows(s.org)[1] == 0
    queued = s.app.purges(s.org)
    assert len(queued) == 1 and queued[0]["connection_id"] == down and queued[0]["code"] == "UNAVAILABLE"
    assert s.app.sweep()["waiting"] == 0, "it is tried again only when it is due"
    # A connection that was forgotten: nobody could be asked.
    s.conversation = new()
    recorded(down)
    s.app.disconnect(s.org, down)
    assert s.app.remove_conversation(s.org, s.conversation) == 1 and s.app.rows(s.org)[1] == 0


@test(SERVICE)
def D04_8_a_run_that_makes_its_session_after_the_deletion_leaves_none(s):
    r = s.run()
    key = r.info()["key"]
    assert s.app.remove_conversation(s.org, s.conversation) == 1
    refused("GONE", r.write, "f", b"1")
    r.close()
    r = s.run()
    assert r.info()["key"] == key and r.list() == []
    r.close()


@test(SERVICE)
def D04_8_a_new_session_of_the_name_outlives_the_old_runs(s):
    """What is cleaned up after the old one is over is never the new one."""
    key = s.once()
    old = s.run()
    old.read("seed")
    s.app.remove(s.org, key)
    r = s.run()
    assert r.list() == []
    r.write("new", b"1")
    refused("GONE", old.read, "seed")
    old.close()
    r.close()
    r = s.run()
    assert r.info()["attached"] and r.read("new") == b"1"
    r.close()


@test(SERVICE)
def D04_3_a_run_that_found_it_lost_leaves_nothing(s):
    key = s.once()
    r = s.run()
    s.w.purge(key)
    refused("GONE", r.read, "seed")
    r.close()  # of this machine's: no state directory (worlds.py looks)


@test(SERVICE)
def D04_8_a_queued_purge_never_hits_a_newer_one(s):
    """Its host was down; when it is back and the name is used again, the old one goes first."""
    r = s.run(session_scope="agent")
    key = r.info()["key"]
    r.write("old", b"1")
    r.close()
    connection = s.w.connection(s.app, s.org)
    real = s.app.connection(s.org, connection)
    name = real["name"]
    broken = {"sandboxd": "http://127.0.0.1:1", "native": "/proc/nowhere", "docker": "unix:///nowhere.sock"}[s.w.kind]
    s.app.connect(s.org, s.w.kind, broken, None, name=name, id=connection, **s.w.fields())
    s.app.remove(s.org, key)
    assert len(s.app.purges(s.org)) == 1
    s.app.connect(s.org, s.w.kind, s.w.address(), None, name=name, id=connection, **s.w.fields())
    r = s.run(session_scope="agent")
    assert r.info()["key"] == key and r.list() == [] and s.app.purges(s.org) == []
    r.write("new", b"1")
    s.app.sweep()
    assert r.read("new") == b"1"
    r.close()


@test(SERVICE)
def D04_a_client_of_the_applications_own_reports(s):
    r = s.run()
    key = r.info()["key"]
    r.report(None)
    assert s.app.row(s.org, key)["session_id"] == ""
    r.report(r.info()["ref"])
    assert s.app.row(s.org, key)["session_id"] == key and r.info()["attached"]
    r.report(r.info()["ref"], lost=True)
    assert r.lost and s.app.row(s.org, key)["session_id"] == ""
    r.close()


@test(ANY)
def D03_people_may_look_into_it(s):
    key = s.once()
    v = s.app.visit(s.org, key)
    assert v.read("seed") == b"planted"
    v.close()
    assert s.app.log(s.org, op="read")[1] == 0
    if s.w.service:
        s.w.purge(key)
        v = s.app.visit(s.org, key)
        refused("GONE", v.read, "seed")
        v.close()
        assert s.app.row(s.org, key)["session_id"] == key, "a look changes nothing"
    refused("NOT_FOUND", s.app.visit, s.org, "dc-none")


# ---- ownership ----

def killed(s, script: str) -> str:
    """Another process does it and is killed; what it printed."""

    head = f"""
import sys, os, json, signal
sys.path.insert(0, {HERE!r})
from applib import *
app = App(AppLibrary({s.l.build!r}), {os.path.join(s.dir, 'app')!r}, {s.database!r})
"""
    p = subprocess.run([sys.executable, "-c", head + script + "\nsys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)"],
                       capture_output=True, text=True)
    assert p.returncode == -9, p.stderr
    return p.stdout.strip()


@test(ANY)
def D04_what_a_crash_left_is_swept(s):
    options = s.w.options(s.app, s.org, session_scope="conversation")
    own = {**options, "session_scope": "run"}
    ids = [new(), new(), new()]
    out = killed(s, f"""
a = app.run({s.org!r}, {s.agent!r}, {ids[0]!r}, {options!r}, conversation={s.conversation!r})
a.write('f', b'1')
b = app.run({s.org!r}, {s.agent!r}, {ids[1]!r}, {own!r})
b.write('f', b'1')
c = app.run({s.org!r}, {s.agent!r}, {ids[2]!r}, {own!r})
print(json.dumps([a.info()['key'], b.info()['key']]))
""")
    kept, gone = json.loads(out)
    swept = s.app.sweep()
    assert swept["runs"] == 3, swept
    assert s.app.sweep()["runs"] == 0 and s.app.purges(s.org) == []
    r = s.run()
    assert r.info()["key"] == kept and r.read("f") == b"1" and r.info()["attached"] == s.w.service
    r.close()
    r = s.app.run(s.org, s.agent, ids[1], own)
    assert r.info()["key"] == gone and not r.exists("f")
    r.close()
    assert s.app.log(s.org, op="write")[1] == (2 if s.w.service else 0), "what it had spooled is in the log"


@test(ANY)
def D04_what_a_crash_left_may_be_gone_on_with(s):
    for scope in ("run", "conversation"):
        run, options = new(), s.w.options(s.app, s.org, session_scope=scope)
        killed(s, f"""
a = app.run({s.org!r}, {s.agent!r}, {run!r}, {options!r}, conversation={s.conversation!r})
a.write('f', b'1')
""")
        r = s.app.resume(s.org, run)
        assert r.read("f") == b"1", scope
        r.close()


def pass_time(s) -> None:
    """Since runs were last seen."""
    sql = f"UPDATE sandbox_runs SET seen_at = 0 WHERE organisation = '{s.org}'"
    if s.database:
        subprocess.run(["psql", s.database, "-qc", sql], check=True)
        return
    with sqlite3.connect(os.path.join(s.dir, "app", "app.db")) as db:
        db.execute(sql)


@test(LIVE)
def D04_a_session_whose_answer_never_came_is_found(s):
    """A host makes it, and goes down before it says so: no row holds it, but it isn't left behind."""
    connection = s.app.connection(s.org, s.w.connection(s.app, s.org))

    nowhere = {"sandboxd": "http://127.0.0.1:1", "docker": "unix:///nowhere.sock"}[s.w.kind]

    def host(address: str) -> None:
        s.app.connect(s.org, s.w.kind, address, None, name=connection["name"], id=connection["id"], **s.w.fields())

    def made_and_not_told() -> str:
        host(nowhere)
        r = s.run()
        key, run = r.info()["key"], r.info()["run"]
        refused("UNAVAILABLE", r.write, "f", b"1")
        with Workspace(s.l, s.w.kind, **s.w.session_settings(s.org, key)) as w:
            w.write("f", b"1")
        r.close()
        refused("NOT_FOUND", s.app.resume, s.org, run)
        host(s.w.address())
        return key
    key = made_and_not_told()
    assert s.app.row(s.org, key)["session_id"] == "" and s.app.sweep()["runs"] == 0, "it is asked for at once"
    pass_time(s)
    assert s.app.sweep()["runs"] == 1 and s.app.row(s.org, key)["session_id"] == key
    pass_time(s)
    assert s.app.sweep()["runs"] == 0, "what is known is asked for again"
    s.app.remove(s.org, key)
    assert made_and_not_told() == key
    s.app.remove(s.org, key)  # before it was asked for
    r = s.run()
    assert r.list() == [], "it was left behind"
    r.close()
    pass_time(s)
    assert s.app.sweep()["runs"] == 1
    s.app.remove(s.org, key)
    # And where the process is gone it is asked for twice: it may have been on its way.
    options = s.w.options(s.app, s.org)
    host(nowhere)
    killed(s, f"""
a = app.run({s.org!r}, {s.agent!r}, {new()!r}, {options!r}, conversation={s.conversation!r})
try:
    a.write('f', b'1')
except Failure:
    pass
""")
    host(s.w.address())
    for due in (1, 1, 0):
        assert s.app.sweep()["runs"] == due
        pass_time(s)
    assert s.app.row(s.org, key)["session_id"] == "" and s.app.told("workspace_session_forgotten") == []


@test(ANY)
def D04_a_run_of_a_process_that_lives_is_left_alone(s):
    other = s.another()
    r = s.run(app=other, session_scope="run")
    r.write("f", b"1")
    assert s.app.sweep()["runs"] == 0 and r.read("f") == b"1"
    r.close()


@test(ANY)
def D04_another_hosts_run_is_swept_after_its_lease(s):
    far = s.another(os.path.join(s.dir, "far"), lease=3600.0) if s.database else App(s.l, os.path.join(s.dir, "far"), f"sqlite:{s.dir}/app/app.db")
    if not s.database:
        s.apps.append(far)
    near = App(s.l, os.path.join(s.dir, "near"), s.database or f"sqlite:{s.dir}/app/app.db", lease=0.2)
    s.apps.append(near)
    r = far.run(s.org, s.agent, new(), {}, conversation=s.conversation)
    assert near.sweep()["runs"] == 0
    time.sleep(0.3)
    assert near.sweep()["runs"] == 1
    r.close()


@test(ANY)
def D05_5_a_parked_run_goes_on_with_what_it_had(s):
    for scope in ("run", "conversation"):
        run = new()
        r = s.run(run=run, session_scope=scope)
        r.write("f", b"half done")
        r.close(parked=True)
        assert s.app.sweep()["runs"] == 0
        refused("CONFLICT", s.run, run=run, session_scope="agent", names="run")
        r = s.run(run=run, session_scope=scope)
        assert r.read("f") == b"half done", scope
        r.close()
    r = s.run(run=run, session_scope="run")
    assert not r.exists("f")
    r.close()


@test(ANY)
def D04_another_process_goes_on_with_a_detached_run(s):
    for scope in ("run", "conversation"):
        r = s.run(session_scope=scope)
        run, key = r.info()["run"], r.info()["key"]
        refused("CONFLICT", s.app.resume, s.org, run, names="run")
        r.write("f", b"half done")
        r.close(detached=True)
        other = s.another()
        assert other.sweep()["runs"] == 0, "its lease is not over"
        refused("NOT_FOUND", other.resume, new(), run)
        r = other.resume(s.org, run)
        assert r.info()["key"] == key and r.info()["scope"] == scope and r.read("f") == b"half done"
        r.close()
        refused("NOT_FOUND", other.resume, s.org, run)
    refused("INVALID", s.app.resume, s.org, "x", names="run")


@test(ANY)
def D04_a_detached_run_that_nobody_comes_back_to_is_swept(s):
    app = s.another(lease=0.2)
    r = s.run(app=app, session_scope="run")
    r.write("f", b"1")
    run = r.info()["run"]
    r.close(detached=True)
    assert app.sweep()["runs"] == 0
    time.sleep(0.3)
    assert app.sweep()["runs"] == 1 and app.purges(s.org) == []
    refused("NOT_FOUND", app.resume, s.org, run)


@test(LIVE)
def D04_a_loss_stays_one_when_another_call_goes_on(s):
    key = s.once()
    kept, told = s.run(), s.run()
    assert kept.exists("seed")
    s.w.purge(key)
    refused("GONE", told.exists, "seed")
    runs = [r.info()["run"] for r in (kept, told)]
    for r in (kept, told):
        r.close(detached=True)
    fresh = s.run()
    fresh.write("new", b"1")
    fresh.close()
    for run in runs:  # one was told, the other has it still to learn
        r = s.app.resume(s.org, run)
        refused("GONE", r.list)
        assert r.lost
        r.close()
    assert s.app.row(s.org, key)["session_id"] == key


@test(ANY)
def D04_a_detached_run_whose_row_is_gone_can_be_closed(s):
    r = s.run()
    r.write("f", b"1")
    run = r.info()["run"]
    r.close(detached=True)
    assert s.app.remove_conversation(s.org, s.conversation) == 1
    r = s.app.resume(s.org, run)
    refused("GONE", r.read, "f")
    r.close()
    refused("NOT_FOUND", s.app.resume, s.org, run)


@test(SERVICE)
def D05_5_a_parked_run_that_made_nothing_yet_begins_by_name(s):
    """Its host was down: there is nothing that could be lost."""
    connection = s.w.connection(s.app, s.org)
    name = s.app.connection(s.org, connection)["name"]
    broken = {"sandboxd": "http://127.0.0.1:1", "native": "/proc/nowhere", "docker": "unix:///nowhere.sock"}[s.w.kind]
    s.app.connect(s.org, s.w.kind, broken, None, name=name, id=connection, **s.w.fields())
    r = s.run(session_scope="run")
    run = r.info()["run"]
    try:
        r.write("f", b"1")
        raise AssertionError("written to nowhere")
    except Failure as e:
        assert e.code != "GONE", e
    r.close(parked=True)
    s.app.connect(s.org, s.w.kind, s.w.address(), None, name=name, id=connection, **s.w.fields())
    r = s.app.resume(s.org, run)
    assert not r.info()["attached"] and r.list() == []
    r.write("f", b"1")
    r.close(parked=True)
    r = s.app.resume(s.org, run)
    assert r.info()["attached"] and r.list() == ["f"]
    r.close()


@test()
def D04_8_a_host_that_is_down_is_waited_for_once(s):
    """Each try would be as long as its host takes to say nothing; who deletes waits for no old ones either."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = s.another(opening_timeout=0.5)
        c = app.connect(s.org, "sandboxd", f"http://127.0.0.1:{silent.getsockname()[1]}", "t")["id"]
        for i in range(8):
            conversation = new()
            r = app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": c}, conversation=conversation)
            r.report(r.info()["ref"])
            r.close()
            if i < 7:
                execute(s, "UPDATE sandbox_purges SET next_at = 1 WHERE organisation = ?", s.org)
            began = time.time()
            assert app.remove_conversation(s.org, conversation) == 1 and time.time() - began < 3
        assert len(app.purges(s.org)) == 8
        execute(s, "UPDATE sandbox_purges SET next_at = 1 WHERE organisation = ?", s.org)
        began = time.time()
        assert app.sweep()["waiting"] >= 8 and time.time() - began < 3
        assert sorted(p["tries"] for p in app.purges(s.org)) == [1] * 7 + [2]
        app.disconnect(s.org, c)  # nobody can be asked any more
        execute(s, "UPDATE sandbox_purges SET next_at = 1 WHERE organisation = ?", s.org)
        app.sweep()
        assert app.purges(s.org) == []
