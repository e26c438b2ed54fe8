#!/usr/bin/env python3
"""Service tokens: minting, scopes, rotation, revocation; what each may do with each route (as root).

usage: tokens.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from http.client import HTTPConnection
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import Daemon  # noqa: E402
from suite import SLOW, test  # noqa: E402


def mint(d, name, status=200, token=None, **fields):
    got, answer = d.call("POST", "/tokens", {"name": name, **fields}, token)
    assert got == status, (name, fields, got, answer)
    return answer["token"] if status == 200 else answer


def tokens(d):
    status, answer = d.call("GET", "/tokens")
    assert status == 200, answer
    return answer["tokens"]


def revoke(d, name, status=204):
    got, answer = d.call("DELETE", f"/tokens/{name}")
    assert got == status, answer


def run_body(*argv):
    return {"argv": list(argv), "run_id": uuid.uuid4().hex}


def garret(d, *args, code=0, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
    p = subprocess.run([os.path.join(suite.BUILD, "garret"), *args], capture_output=True, text=True, timeout=30,
                       env={**clean, "GARRET_URL": d.url, "SANDBOXD_TOKEN": d.token, **env})
    assert p.returncode == code, (args, p)
    return p


# ---- minting ----


@test
def a_token_is_shown_once_and_works(d):
    t = mint(d, "once", scope="all")
    assert re.fullmatch(r"grt_[A-Za-z0-9_-]{43}", t), t
    assert d.call("GET", "/policy", token=t)[0] == 200
    listed = [x for x in tokens(d) if x["name"] == "once"]
    assert len(listed) == 1 and listed[0]["scope"] == "all" and listed[0]["active"] and listed[0]["expires_at"] is None
    assert listed[0]["last_used_at"] and t not in str(tokens(d)) and t[4:] not in str(tokens(d))
    with open(os.path.join(d.state, "daemon", "garret.db-wal"), "rb") as f:
        assert t[4:].encode() not in f.read()
    # It may do what the first one may, also mint and revoke.
    mint(d, "by-once", token=t, scope="read")
    assert d.call("DELETE", "/tokens/by-once", token=t)[0] == 204
    assert d.call("PUT", "/policy", {}, t)[0] == 200
    revoke(d, "once")
    assert d.call("GET", "/policy", token=t) == d.call("GET", "/policy", token="never minted")
    revoke(d, "once", 404)
    assert not [x for x in tokens(d) if x["name"] == "once"][0]["active"]
    t2 = mint(d, "once", scope="all")  # the name is free again
    assert t2 != t and d.call("GET", "/policy", token=t2)[0] == 200
    revoke(d, "once")


@test
def what_is_wrong_is_named(d):
    for fields, loc, word in (({}, "scope", "give a scope"), ({"scope": "some"}, "scope", "one of"), ({"scope": 3}, "scope", "string_type"),
                              ({"scope": "tenant:"}, "scope", "no name"), ({"scope": "tenant:a/b"}, "scope", "no name"),
                              ({"scope": "tenant:" + "a" * 65}, "scope", "no name"), ({"scope": "tenant:a", "tenant": "b"}, "scope", "contradicts"),
                              ({"scope": "all", "read_only": True}, "scope", "neither"), ({"scope": "all", "tenant": "a"}, "scope", "neither"),
                              ({"tenant": "-"}, "tenant", "pattern"), ({"tenant": "a", "expires_in": 0}, "expires_in", "greater_than"),
                              ({"tenant": "a", "expires_in": -5}, "expires_in", "greater_than"),
                              ({"tenant": "a", "expires_in": "nan"}, "expires_in", "greater_than"),
                              ({"tenant": "a", "expires_in": "inf"}, "expires_in", "less_than"),
                              ({"tenant": "a", "expires_in": 1e12}, "expires_in", "less_than"), ({"tenant": "a", "read_only": 7}, "read_only", "bool")):
        answer = mint(d, "bad", 422, **fields)
        assert answer["detail"][0]["loc"] == ["body", loc] and word in str(answer), (fields, answer)
    for name in ("", "-a", "a b", "a" * 65, None, 5):
        assert d.call("POST", "/tokens", {"name": name, "scope": "all"})[0] == 422, name
    assert d.call("POST", "/tokens", {"scope": "all"})[0] == 422
    for path in ("/tokens/-a", "/tokens/a%20b"):
        assert d.call("DELETE", path)[0] == 422
    assert d.call("POST", "/tokens/nosuch/rotate", {})[0] == 404
    assert d.call("POST", "/tokens/nosuch/rotate", {"overlap_seconds": -1})[0] == 422
    mint(d, "twice", scope="read")
    assert mint(d, "twice", 409, scope="read")["reason"] == "exists"
    revoke(d, "twice")
    assert not [x for x in tokens(d) if x["name"] == "bad"]


@test
def expired_and_rotated(d):
    t = mint(d, "short", tenant="x", expires_in=1)
    assert d.call("GET", "/policy", token=t)[0] == 200
    time.sleep(1.1)
    assert d.call("GET", "/policy", token=t) == d.call("GET", "/policy", token="grt_" + "x" * 43)
    assert [x["active"] for x in tokens(d) if x["name"] == "short"] == [False]
    old = mint(d, "turns", scope="tenant:x+read", expires_in=1000)
    status, answer = d.call("POST", "/tokens/turns/rotate", {"overlap_seconds": 1.5})
    assert status == 200 and answer["info"]["scope"] == "tenant:x+read" and 998 < answer["info"]["expires_at"] - time.time() < 1001, answer
    new = answer["token"]
    assert new != old
    for t in (old, new):
        assert d.call("GET", "/policy", token=t)[0] == 200
    time.sleep(1.6)
    assert d.call("GET", "/policy", token=old)[0] == 401 and d.call("GET", "/policy", token=new)[0] == 200
    newer = d.call("POST", "/tokens/turns/rotate", {})[1]["token"]
    assert d.call("GET", "/policy", token=new)[0] == 401 and d.call("GET", "/policy", token=newer)[0] == 200
    overlapping = d.call("POST", "/tokens/turns/rotate", {"overlap_seconds": 100})[1]["token"]
    revoke(d, "turns")  # all of that name
    for t in (newer, overlapping):
        assert d.call("GET", "/policy", token=t)[0] == 401


# ---- scopes ----

RUN = "0" * 32
RUNS = "/sessions/{s}/runs/" + RUN
READS = [
    ("GET", "/policy", None), ("GET", "/sessions", None), ("GET", "/workspaces", None), ("GET", "/metrics", None), ("GET", "/v1/events", None), ("GET", "/sessions/{s}", None),
    ("GET", "/v1/sessions/{s}/usage", None), ("GET", "/sessions/{s}/runs", None), ("GET", RUNS, None), ("GET", RUNS + "/output", None), ("GET", RUNS + "/follow", None),
    ("GET", "/sessions/{s}/events", None), ("POST", "/sessions/{s}/files/read", {"path": "/workspace/f"}),
    ("POST", "/sessions/{s}/files/stat", {"path": "/workspace/f"}), ("POST", "/sessions/{s}/files/realpath", {"path": "/workspace/f"}),
    ("POST", "/sessions/{s}/files/list", {"path": "/workspace"}), ("POST", "/workspaces/{s}/ls", {"path": "."}),
    ("POST", "/workspaces/{s}/tree", {}), ("POST", "/workspaces/{s}/read", {"path": "f"}), ("POST", "/workspaces/{s}/read_bytes", {"path": "f"}),
    ("POST", "/workspaces/trees", {"sessions": ["{s}"]}), ("GET", "/v1/sessions/{s}/file?path=/workspace/f", None),
    ("GET", "/v1/sessions/{s}/tar?path=/workspace", None), ("POST", "/v1/sessions/{s}/files/stat", {"paths": ["/workspace/f"]}),
    ("POST", "/v1/sessions/{s}/files/read", {"paths": ["/workspace/f"]}), ("POST", "/v1/sessions/{s}/files/list", {"path": "/workspace"}),
    ("POST", "/v1/sessions/{s}/files/glob", {"pattern": "*"}), ("POST", "/v1/sessions/{s}/files/grep", {"pattern": "x"}),
    ("POST", "/v1/sessions/{s}/files/digest", {"path": "/workspace/f"}), ("POST", "/v1/sessions/{s}/files/realpath", {"path": "/workspace/f"}),
]
# Answers that don't end by themselves, and one that needs the number of a generation.
FOLLOWS = ["/v1/events/follow", "/v1/sessions/{s}/events/follow"]
KEPT_EVENTS = "/v1/events/{s}/1"
WRITES = [
    ("POST", "/sessions", {}), ("POST", "/sessions/{s}/run", run_body("true")), ("POST", RUNS + "/stop", None), ("POST", RUNS + "/stdin", b"x"),
    ("POST", RUNS + "/signal", {"signal": "TERM"}),
    ("POST", "/v1/sessions/{s}/sleep", None), ("POST", "/v1/sessions/{s}/wake", None), ("POST", "/v1/sessions/{s}/stream", {"argv": ["true"]}), ("POST", "/sessions/{s}/files/write?path=/workspace/g", b"x"),
    ("POST", "/sessions/{s}/files/mkdir", {"path": "/workspace/d"}), ("POST", "/sessions/{s}/files/remove", {"path": "/workspace/d"}),
    ("PUT", "/v1/sessions/{s}/file?path=/workspace/g", b"x"), ("PUT", "/v1/sessions/{s}/tar?path=/workspace/t", b""),
    ("POST", "/v1/sessions/{s}/files/mkdir", {"path": "/workspace/d"}), ("POST", "/v1/sessions/{s}/files/remove", {"path": "/workspace/d"}),
    ("POST", "/v1/sessions/{s}/files/rename", {"path": "/workspace/f", "to": "/workspace/h"}),
    ("POST", "/v1/sessions/{s}/files/copy", {"path": "/workspace/f", "to": "/workspace/h"}),
    ("POST", "/v1/sessions/{s}/files/chmod", {"path": "/workspace/f", "mode": "600"}),
    ("POST", "/v1/sessions/{s}/files/edit", {"path": "/workspace/f", "old": "a", "new": "b"}),
    ("DELETE", "/workspaces/{s}", None), ("DELETE", "/sessions/{s}", None),
]
ALL = [
    ("PUT", "/policy", {}), ("GET", "/tokens", None), ("POST", "/tokens", {"name": "x", "scope": "all"}), ("DELETE", "/tokens/x", None),
    ("POST", "/tokens/x/rotate", {}),
]


def status_of(d, path, token):
    """Only that: the answer may go on for ever."""
    u = urlsplit(d.url)
    c = HTTPConnection(u.hostname, u.port, timeout=20)
    try:
        c.request("GET", path, headers={"X-Sandbox-Token": token})
        return c.getresponse().status
    finally:
        c.close()


def fill(value, s):
    if isinstance(value, str):
        return value.replace("{s}", s)
    if isinstance(value, list):
        return [fill(v, s) for v in value]
    return {k: fill(v, s) for k, v in value.items()} if isinstance(value, dict) else value


def try_all(d, rows, sid, token):
    for method, path, body in rows:
        yield method, path, *d.call(method, fill(path, sid), fill(body, sid), token)


@test
def every_route_is_in_the_lists_above(d):
    doc = d.call("GET", "/openapi.json")[1]["paths"]
    others = [("GET", p, None) for p in (*FOLLOWS, KEPT_EVENTS)]
    listed = {(m, p.split("?")[0].replace("{s}/1", "{s}/{generation}").replace("{s}", "{session_id}").replace("/tokens/x", "/tokens/{name}")
               .replace(RUN, "{run_id}")) for m, p, _ in READS + WRITES + ALL + others}
    # Those of organisations are gone through in orgs.py.
    real = {(m.upper(), p) for p, ops in doc.items() for m, op in ops.items() if "security" in op and not p.startswith("/v1/orgs/")}
    assert listed == real, (listed - real, real - listed)


@test
def a_read_only_token_looks_and_nothing_else(d):
    s = d.open("ro", tenant="acme")
    s.sh("echo x > f", run_id=RUN)
    for fields, scope in (({"scope": "read"}, "read"), ({"tenant": "acme", "read_only": True}, "tenant:acme+read")):
        t = mint(d, "looks", **fields)
        for method, path, status, answer in try_all(d, READS, "ro", t):
            assert status == 200, (method, path, status, answer)
        for path in FOLLOWS:
            assert status_of(d, fill(path, "ro"), t) == 200, path
        assert d.call("GET", fill(KEPT_EVENTS, "ro"), token=t)[0] in (200, 404)
        for method, path, status, answer in try_all(d, WRITES + ALL, "ro", t):
            assert status == 403 and answer["scope"] == scope and scope in answer["detail"], (method, path, status, answer)
        revoke(d, "looks")
    assert s.sh("cat f; ls")["stdout"] == "x\nf\n"
    s.close()


@test
def a_tenants_token_stays_with_its_tenant(d):
    theirs, nobodys = d.open("t-theirs", tenant="other"), d.open("t-nobodys")
    for s in (theirs, nobodys):
        s.sh("echo secret > f; cat f", run_id=RUN)
    t = mint(d, "acme", tenant="acme")
    # Opening: the label is filled in, another one is refused.
    status, answer = d.call("POST", "/sessions", {"session_id": "t-mine"}, t)
    assert status == 200 and answer["session"]["tenant"] == "acme", answer
    status, refused = d.call("POST", "/sessions", {"session_id": "t-x", "tenant": "other"}, t)
    assert status == 403 and refused["scope"] == "tenant:acme", refused
    assert d.call("POST", "/sessions", {"session_id": "t-mine", "tenant": "acme", "reuse": True}, t)[0] == 200
    assert [x["session_id"] for x in d.call("GET", "/sessions", token=t)[1]["sessions"]] == ["t-mine"]
    assert d.call("POST", "/sessions/t-mine/run", {**run_body("sh", "-c", "echo x > f"), "run_id": RUN}, t)[0] == 200
    for method, path, status, answer in try_all(d, READS, "t-mine", t):
        assert status == 200, (method, path, status, answer)
    # What is of others isn't there, open or closed.
    for closed in (False, True):
        for name in ("t-theirs", "t-nobodys"):
            named = [row for row in READS + WRITES if "{s}" in row[1] + str(row[2])]
            for path in (FOLLOWS[1], KEPT_EVENTS):
                assert status_of(d, fill(path, name), t) == 404, path
            for method, path, status, answer in try_all(d, named, name, t):
                if path == "/workspaces/trees":
                    item = answer["results"][0]
                    assert status == 200 and item["status_code"] == 404 and item["tree"] is None and item["session_id"] == name, answer
                    continue
                assert status == 404, (method, path, status, answer)
            for how in ({"reuse": True}, {"attach": True}):
                status, answer = d.call("POST", "/sessions", {"session_id": name, **how}, t)
                assert status == 404 and "token" not in answer, answer
            status, answer = d.call("POST", "/sessions", {"session_id": name}, t)
            assert status == 409 and answer["reason"] == "exists" and "token" not in answer, answer
        seen = {w["session_id"] for w in d.call("GET", "/workspaces", token=t)[1]["workspaces"]}
        assert seen == {"t-mine"}, seen
        mixed = ["t-theirs", "t-mine", "t-nobodys", "nosuch", "t-mine", "t-theirs"]
        results = d.call("POST", "/workspaces/trees", {"sessions": mixed}, t)[1]["results"]
        assert [(r["session_id"], r["status_code"]) for r in results] == [(m, None if m == "t-mine" else 404) for m in mixed], results
        if not closed:
            assert theirs.close(purge=False) == 204 and nobodys.close(purge=False) == 204
    for method, path, status, answer in try_all(d, ALL, "t-mine", t):
        assert status == 403 and answer["scope"] == "tenant:acme", (method, path, status, answer)
    # Closed, what it kept is still its own; purged, the name is anybody's.
    assert d.call("DELETE", "/sessions/t-mine", token=t)[0] == 204
    assert d.call("POST", "/workspaces/t-mine/read", {"path": "f"}, t)[1]["content"] == "x"
    other = mint(d, "other", tenant="other")
    assert d.call("POST", "/workspaces/t-mine/read", {"path": "f"}, other)[0] == 404
    assert d.call("POST", "/sessions", {"session_id": "t-mine", "attach": True}, other)[0] == 404
    assert d.call("POST", "/workspaces/t-theirs/read", {"path": "f"}, other)[1]["content"] == "secret"
    assert d.call("DELETE", "/workspaces/t-mine", token=other)[0] == 404
    assert d.call("DELETE", "/workspaces/t-mine", token=t)[0] == 204
    status, answer = d.call("POST", "/sessions", {"session_id": "t-mine"}, other)
    assert status == 200, answer
    assert d.call("DELETE", "/sessions/t-mine?purge=true", token=other)[0] == 204
    for name in ("t-theirs", "t-nobodys"):
        assert d.call("DELETE", f"/workspaces/{name}")[0] == 204
    for name in ("acme", "other"):
        revoke(d, name)


@test
def the_operator_may_hand_files_over(d):
    d.open("handed", tenant="one").close(purge=False)
    d.open("handed", tenant="two").close(purge=False)
    one, two = mint(d, "one", tenant="one"), mint(d, "two", tenant="two")
    assert d.call("POST", "/workspaces/handed/ls", {"path": "."}, one)[0] == 404
    assert d.call("POST", "/workspaces/handed/ls", {"path": "."}, two)[0] == 200
    d.call("DELETE", "/workspaces/handed")
    revoke(d, "one")
    revoke(d, "two")


@test
def a_session_token_is_not_asked_for_its_scope(d):
    t = mint(d, "opens", tenant="acme")
    status, answer = d.call("POST", "/sessions", {"session_id": "own"}, t)
    assert status == 200
    revoke(d, "opens")  # the session lives on, with its own token
    assert d.call("POST", "/sessions/own/run", run_body("true"), answer["token"])[0] == 200
    assert d.call("DELETE", "/sessions/own?purge=true", token=answer["token"])[0] == 204


# ---- guessing, surviving ----


@test
def guesses_are_slowed_down_whatever_they_were(_):
    with Daemon(build=suite.BUILD) as d:
        gone = mint(d, "gone", scope="all")
        revoke(d, "gone")
        took = []
        for _ in range(14):
            start = time.time()
            assert d.call("GET", "/policy", token=gone)[0] == 401
            took.append(time.time() - start)
        assert took[-1] > 0.25 > took[0], took
        start = time.time()
        assert d.call("GET", "/policy")[0] == 200 and time.time() - start < 0.25 * SLOW


@test
def tokens_outlive_the_daemon(_):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with tempfile.TemporaryDirectory() as state:
            d = Daemon(build=suite.BUILD, state=state).start()
            good, gone = mint(d, "good", tenant="acme", read_only=True), mint(d, "gone", scope="all")
            made = d.open("kept", tenant="acme")
            made.sh("echo x > f")
            revoke(d, "gone")
            d.stop(sig)
            with Daemon(build=suite.BUILD, state=state) as d2:
                assert d2.call("GET", "/policy", token=good)[0] == 200 and d2.call("GET", "/policy", token=gone)[0] == 401
                assert [(t["name"], t["active"]) for t in tokens(d2)] == [("good", True), ("gone", False)]
                assert d2.call("POST", "/workspaces/kept/read", {"path": "f"}, good)[0] == 200
                assert d2.call("POST", "/tokens", {"name": "x", "scope": "all"}, good)[0] == 403


@test
def a_database_of_before_is_brought_up_to_date(_):
    with tempfile.TemporaryDirectory() as state:
        with Daemon(build=suite.BUILD, state=state) as d:
            for name, tenant in (("mine", "other"), ("mine", "acme"), ("theirs", "other"), ("nobodys", None)):
                d.open(name, tenant=tenant).close(purge=False)
            d.open("purged", tenant="acme").close()
        c = sqlite3.connect(os.path.join(state, "daemon", "garret.db"))
        columns = "id,generation,nonce,runtime,tenant,created_at,ended_at,purged"
        rows = c.execute(f"SELECT {columns} FROM sessions").fetchall()
        for (table,) in c.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'").fetchall():
            c.execute(f"DROP TABLE {table}")
        # The first version, as it was released.
        c.execute("CREATE TABLE sessions( id TEXT NOT NULL, generation INTEGER NOT NULL, nonce BLOB NOT NULL, runtime TEXT NOT NULL, tenant TEXT,"
                  " created_at REAL NOT NULL, ended_at REAL, purged INTEGER NOT NULL DEFAULT 0, UNIQUE(id, generation))")
        c.execute("CREATE INDEX sessions_ended ON sessions(ended_at)")
        c.executemany(f"INSERT INTO sessions({columns}) VALUES(?,?,?,?,?,?,?,?)", rows)
        c.execute("PRAGMA user_version=1")
        c.commit()
        c.close()
        for name in os.listdir(os.path.join(state, "daemon")):
            if name.startswith("garret.db"):
                shutil.chown(os.path.join(state, "daemon", name), 1862270975, 1862270975)
        with Daemon(build=suite.BUILD, state=state) as d:
            t = mint(d, "acme", tenant="acme")
            assert {w["session_id"] for w in d.call("GET", "/workspaces", token=t)[1]["workspaces"]} == {"mine"}
            assert d.call("POST", "/sessions", {"session_id": "nobodys"}, t)[0] == 409
            assert d.call("POST", "/sessions", {"session_id": "purged"}, t)[0] == 200


@test
def tokens_that_ended_are_not_kept_for_ever(d):
    for i in range(1010):
        mint(d, "again", scope="read")
        revoke(d, "again")
    assert len([t for t in tokens(d) if not t["active"]]) <= 1001


@test
def last_used_is_coarse(d):
    t = mint(d, "used", scope="read")
    assert [x["last_used_at"] for x in tokens(d) if x["name"] == "used"] == [None]
    d.call("GET", "/policy", token=t)
    first = [x["last_used_at"] for x in tokens(d) if x["name"] == "used"][0]
    assert abs(first - time.time()) < 5
    wal = os.path.getsize(os.path.join(d.state, "daemon", "garret.db-wal"))
    for _ in range(50):
        d.call("GET", "/policy", token=t)
    assert [x["last_used_at"] for x in tokens(d) if x["name"] == "used"] == [first]
    assert os.path.getsize(os.path.join(d.state, "daemon", "garret.db-wal")) == wal
    revoke(d, "used")


# ---- garret token ----


@test
def the_command(d):
    p = garret(d, "token", "add", "cli", "--tenant", "acme", "--read-only", "--expires", "30d")
    secret = p.stdout.strip()
    assert secret.startswith("grt_") and not p.stderr, p
    entry = [t for t in tokens(d) if t["name"] == "cli"][0]
    assert entry["scope"] == "tenant:acme+read" and abs(entry["expires_at"] - time.time() - 30 * 86400) < 60, entry
    assert d.call("GET", "/sessions", token=secret)[0] == 200
    p = garret(d, "token", "list")
    assert "cli" in p.stdout and "tenant:acme+read" in p.stdout and secret not in p.stdout and secret[4:] not in p.stdout
    p = garret(d, "token", "list", "--json")
    assert '"cli"' in p.stdout and secret[4:] not in p.stdout
    p = garret(d, "token", "rotate", "cli", "--overlap", "1h")
    new = p.stdout.strip()
    assert new != secret and not p.stderr and all(d.call("GET", "/sessions", token=t)[0] == 200 for t in (secret, new))
    p = garret(d, "token", "rotate", "cli", "--json")
    assert '"token"' in p.stdout and d.call("GET", "/sessions", token=new)[0] == 401
    p = garret(d, "token", "revoke", "cli")
    assert p.stdout == "" == p.stderr
    assert "No such token" in garret(d, "token", "revoke", "cli", code=4).stderr
    everything = garret(d, "token", "add", "cli-all").stdout.strip()
    assert garret(d, "token", "list", SANDBOXD_TOKEN=everything).returncode == 0
    assert "403" in garret(d, "token", "list", code=11, SANDBOXD_TOKEN=garret(d, "token", "add", "ro", "--read-only").stdout.strip()).stderr
    for args, word in ((("token", "add"), "name"), (("token", "add", "--nosuch", "n"), "nosuch"), (("token", "add", "a/b"), "a/b"),
                       (("token", "add", "n", "--expires", "soon"), "--expires"), (("token", "add", "n", "--expires", "0"), "expires"),
                       (("token", "rotate", "n", "--overlap", "x"), "--overlap"), (("token", "add", "a", "b"), "b"), (("token", "nosuch"), "nosuch")):
        assert word in garret(d, *args, code=2).stderr, args
    for name in ("cli-all", "ro"):
        revoke(d, name)


sys.exit(suite.main(shared=True))
