#!/usr/bin/env python3
"""Routes of organisations: connections, workspaces, documents, files, the log, runs; and whom they answer.

usage: tests/wire/orgs.py [--build DIR] [NAME...]     (as root)
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon  # noqa: E402

tests = []


def test(fn):
    tests.append(fn)
    return fn


def new() -> str:
    return uuid.uuid4().hex


class Org:
    """An organisation that nobody else has, and a token of it."""

    def __init__(self, d: Daemon, read_only: bool = False) -> None:
        self.d, self.id = d, new()
        self.token = self.mint(read_only)

    def mint(self, read_only: bool = False) -> str:
        status, body = self.d.call("POST", "/tokens", {"name": "t" + new(), "tenant": self.id, "read_only": read_only})
        assert status == 200, body
        return body["token"]

    def ask(self, method, tail, body=None, want=200, token=None, org=None):
        status, answer = self.d.call(method, f"/v1/orgs/{org or self.id}/{tail}", body, token or self.token)
        assert status == want, (method, tail, status, answer)
        return answer

    def connect(self, **more) -> str:
        """To the daemon itself."""
        return self.ask("POST", "connections", {"kind": "sandboxd", "name": new()[:8], "address": self.d.url, "token": self.d.token, **more})["id"]

    def run(self, **sandbox):
        return self.ask("POST", "runs", {"agent": new(), "run": new(), "conversation": new(), "sandbox": sandbox or None})


@test
def who_may_ask(d):
    o, other = Org(d), Org(d)
    o.ask("GET", "workspaces")
    o.ask("GET", "workspaces", token=d.token)  # the service's own speaks for all
    o.ask("GET", "workspaces", org=str(uuid.UUID(o.id)).upper())  # another way to write it
    o.ask("GET", "workspaces", token=other.token, want=404)
    o.ask("GET", "workspaces", token="wrong", want=401)
    o.ask("GET", "workspaces", org="not-an-id", token=d.token, want=422)
    status, _ = d.call("POST", "/tokens", {"name": "named", "tenant": "a-label"})
    named = _["token"]
    o.ask("GET", "workspaces", token=named, want=404)
    looks = o.mint(read_only=True)
    o.ask("GET", "workspaces", token=looks)
    # Every route that there is: nobody else's token, and one that may only look changes nothing.
    top = "/v1/orgs/{organisation}/"
    gone_through = 0
    for path, operations in d.call("GET", "/openapi.json")[1]["paths"].items():
        if not path.startswith(top):
            continue
        tail = path[len(top):]
        for word in ("connection_id", "conversation", "run", "key"):
            tail = tail.replace("{" + word + "}", new())
        for method in operations:
            query = "?path=x" if tail.endswith("/file") else f"?agent={new()}&run={new()}" if tail == "key" else ""
            body = {} if method in ("post", "put") else None
            o.ask(method.upper(), tail + query, body, token=other.token, want=404)
            o.ask(method.upper(), tail + query, body, token="wrong", want=401)
            if method != "get" or tail.startswith("runs/"):
                o.ask(method.upper(), tail + query, body, token=looks, want=403)
            gone_through += 1
    assert gone_through >= 21, gone_through


@test
def connections(d):
    o = Org(d)
    assert o.ask("GET", "connections") == {"connections": []}
    a = o.ask("POST", "connections", {"kind": "sandboxd", "name": "a", "address": "http://10.0.0.1:8080", "token": "of-a-marker", "runtime": "py"})
    assert (a["kind"], a["address"], a["is_default"], a["has_token"], a["runtime"]) == ("sandboxd", "http://10.0.0.1:8080", True, True, "py")
    assert "of-a-marker" not in json.dumps(o.ask("GET", "connections")) + d.log()
    b = o.ask("PUT", f"connections/{a['id']}", {"name": "b"})
    assert b == {**a, "name": "b"}, "only what is given changes"
    assert o.ask("GET", f"connections/{a['id']}") == b
    for body, names in (({"kind": "sandboxd", "name": "x", "token": "t"}, "address"), ({"kind": "x", "name": "x"}, "kind"), ({"name": "x"}, "kind"),
                        ({"kind": "sandboxd", "name": "x", "address": "http://h"}, "token"), ({"kind": "sandboxd", "name": 5}, "name"),
                        ({"kind": "sandboxd", "name": "x", "address": "http://h", "token": "t", "secret": 1}, "secret"),
                        ({"kind": "sandboxd", "name": "n" * 65, "address": "http://h", "token": "t"}, "name")):
        answer = o.ask("POST", "connections", body, want=400)
        assert names in answer["detail"], answer
    o.ask("POST", "connections", {"kind": "sandboxd", "name": "b", "address": "http://h", "token": "t"}, want=400)  # EXISTS
    Org(d).ask("GET", f"connections/{a['id']}", want=404)
    o.ask("DELETE", f"connections/{a['id']}", want=204)
    o.ask("DELETE", f"connections/{a['id']}", want=404)


@test
def places_of_this_machine_are_the_operators(d):
    o = Org(d)
    for kind, address in (("native", "/tmp/x"), ("docker", "unix:///run/docker.sock"), ("docker", "tcp://127.0.0.1:2375"),
                          ("sandboxd", "unix:///run/garret.sock")):
        body = {"kind": kind, "name": "x", "address": address, "token": "t"}
        o.ask("POST", "connections", body, want=403)
        c = o.ask("POST", "connections", {**body, "name": new()[:9]}, token=d.token)
        o.ask("PUT", f"connections/{c['id']}", {"name": "mine"}, want=403)
    harmless = o.connect()
    o.ask("PUT", f"connections/{harmless}", {"address": "unix:///run/garret.sock"}, want=403)


@test
def two_who_change_a_connection_keep_each_others_changes(d):
    o = Org(d)
    path = "connections/" + o.ask("POST", "connections", {"kind": "sandboxd", "name": "n", "address": "http://h", "token": "t"})["id"]
    wrong = []

    def change(field):
        for i in range(200):
            o.ask("PUT", path, {field: f"{field}{i}"})
            now = o.ask("GET", path)
            if now[field] != f"{field}{i}":
                wrong.append((i, now))

    threads = [threading.Thread(target=change, args=(field,)) for field in ("name", "runtime")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong


@test
def a_token_goes_to_no_other_address(d):
    """Not by who never saw it: an organisation's token may move a connection, but with a token that it knows."""
    o = Org(d)
    c = o.ask("POST", "connections", {"kind": "sandboxd", "name": "a", "address": "http://a", "token": "the-operators"}, token=d.token)
    path = f"connections/{c['id']}"
    for move in ({"address": "http://b"}, {"kind": "daytona", "address": "https://b"}, {"address": "http://b", "token": None}):
        assert "token" in o.ask("PUT", path, move, want=400)["detail"], move
        assert o.ask("GET", path) == c
    assert o.ask("PUT", path, {"address": "http://a", "name": "b"}) == {**c, "name": "b"}
    assert o.ask("PUT", path, {"address": "http://b", "token": "our-own"})["address"] == "http://b"
    assert o.ask("PUT", path, {"address": "http://c"}, token=d.token)["address"] == "http://c", "the operator knows what it does"


@test
def a_document_and_its_files(d):
    o = Org(d)
    r = o.run()
    key = r["key"]
    assert (r["backend"], r["session_scope"], r["tenant"], r["connection"], r["ref"]) == (
        "state", "conversation", o.id, None, {"provider": "state", "id": key})
    assert o.ask("GET", f"workspaces/{key}/document") == {"files": {}, "directories": []}
    entry = {"content": ["größe", ""], "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}
    many = {"files": {"/a/b.txt": entry, "/lines": {**entry, "content": ["x"] * 100000}, "/skills/s/SKILL.md": entry}, "directories": ["/d"]}
    o.ask("PUT", f"workspaces/{key}/document", many, want=204)
    assert o.ask("GET", f"workspaces/{key}/document") == many
    files = o.ask("GET", f"workspaces/{key}/files")
    assert [e["path"] for e in files["entries"]] == ["a", "a/b.txt", "d", "lines"] and files["unreadable"] is None, files
    got = o.ask("GET", f"workspaces/{key}/file?path=a/b.txt")
    assert base64.b64decode(got["content_b64"]) == "größe\n".encode() and got["size"] == 8
    o.ask("GET", f"workspaces/{key}/file?path=none", want=404)
    o.ask("GET", f"workspaces/{key}/file", want=422)
    for bad in (b"{", b"[]", b'{"files":{"x":1}}'):
        o.ask("PUT", f"workspaces/{key}/document", bad, want=400)
    big = {"files": {"/f": {**entry, "content": ["x" * (5 << 20)]}}, "directories": []}
    assert "4194304" in o.ask("PUT", f"workspaces/{key}/document", big, want=507)["detail"]
    assert o.ask("GET", f"workspaces/{key}/document") == many
    Org(d).ask("GET", f"workspaces/{key}/document", want=404)
    Org(d).ask("PUT", f"workspaces/{key}/document", {"files": {}}, want=404)
    row = o.ask("GET", f"workspaces/{key}")
    assert row["version"] == 2 and o.ask("GET", "workspaces") == {"workspaces": [row], "total": 1}
    assert o.ask("GET", "workspaces?limit=1&offset=1") == {"workspaces": [], "total": 1}
    o.ask("GET", "workspaces?limit=0", want=422)
    o.ask("DELETE", f"workspaces/{key}", want=204)
    o.ask("DELETE", f"workspaces/{key}", want=404)


@test
def a_session_of_a_client_of_its_own(d):
    """The application opens it with the service's own client, and reports."""
    o = Org(d)
    o.connect()
    conversation, agent, run = new(), new(), new()
    r = o.ask("POST", "runs", {"agent": agent, "run": run, "conversation": conversation, "sandbox": {"backend": "service"}})
    assert not r["attached"] and r["connection"]["address"] == d.url and r["ref"]["provider"] == f"sandboxd:{r['connection']['id']}"
    s = d.open(r["ref"]["id"], reuse=True, tenant=r["tenant"])
    s.run(["sh", "-c", "echo hello > f"])
    r = o.ask("POST", f"runs/{run}/report", {"opened": True})
    assert r["attached"] and o.ask("GET", f"workspaces/{r['key']}")["session_id"] == r["key"]
    o.ask("DELETE", f"runs/{run}", want=204)
    o.ask("DELETE", f"runs/{run}", want=404)
    files = o.ask("GET", f"workspaces/{r['key']}/files")
    assert [e["path"] for e in files["entries"]] == ["f"]
    assert base64.b64decode(o.ask("GET", f"workspaces/{r['key']}/file?path=f")["content_b64"]) == b"hello\n"
    # Lost: its files are gone, the run knows, the next one begins anew.
    assert d.call("DELETE", f"/sessions/{s.id}?purge=true")[0] == 204
    assert "unreadable" in o.ask("GET", f"workspaces/{r['key']}/files")["unreadable"]
    run = new()
    r = o.ask("POST", "runs", {"agent": agent, "run": run, "conversation": conversation, "sandbox": {"backend": "service"}})
    assert r["attached"]
    assert o.ask("POST", f"runs/{run}/report", {"lost": True})["lost"]
    assert o.ask("GET", f"runs/{run}")["lost"], "another worker knows it too"
    assert o.ask("GET", f"workspaces/{r['key']}")["session_id"] is None
    o.ask("DELETE", f"runs/{run}?parked=1", want=204)
    o.ask("DELETE", f"runs/{run}", want=204)
    # A conversation goes with what it recorded.
    run = new()
    r = o.ask("POST", "runs", {"agent": agent, "run": run, "conversation": conversation, "sandbox": {"backend": "service"}})
    s = d.open(r["ref"]["id"], reuse=True, tenant=r["tenant"])
    o.ask("POST", f"runs/{run}/report", {"opened": True})
    o.ask("DELETE", f"runs/{run}", want=204)
    assert o.ask("DELETE", f"conversations/{conversation}") == {"workspaces": 1}
    assert d.call("GET", f"/sessions/{s.id}")[0] == 404 and o.ask("GET", "purges") == {"purges": []}


@test
def runs_are_checked_by_name(d):
    o = Org(d)
    fine = {"agent": new(), "run": new(), "conversation": new()}
    for change, names in (({"agent": "x"}, "agent"), ({"run": None}, "run"), ({"conversation": None}, "conversation"), ({"more": 1}, "more"),
                          ({"sandbox": {"backend": "x"}}, "backend"), ({"sandbox": {"session_scope": "user"}}, "user"),
                          ({"sandbox": {"more": 1}}, "more"), ({"sandbox": 5}, "sandbox"), ({"user": 5}, "user"),
                          ({"user": "a\0b"}, "user"), ({"sandbox": {"runtime": "a\0b"}}, "runtime")):
        assert names in o.ask("POST", "runs", {**fine, **change}, want=400)["detail"], names
    assert "no connection" in o.ask("POST", "runs", {**fine, "sandbox": {"backend": "service"}}, want=404)["detail"]
    o.ask("POST", "runs", fine)
    o.ask("POST", "runs", fine)  # its request may have been sent twice: it is the same run
    o.ask("POST", "runs", {**fine, "sandbox": {"session_scope": "agent"}}, want=409)
    # What isn't Unicode is replaced on the way: two users would have one key.
    for bad in ("\\ud800", "\\udfff"):
        body = json.dumps({**fine, "user": "U", "sandbox": {"session_scope": "user"}}).replace('"U"', f'"u{bad}"').encode()
        assert "user" in o.ask("POST", "runs", body, want=400)["detail"]
    assert "user" in o.ask("GET", f"key?agent={fine['agent']}&run={fine['run']}&scope=user&user=%ff", want=400)["detail"]
    o.ask("POST", "runs", b"5", want=422)
    o.ask("GET", f"runs/{new()}", want=404)
    Org(d).ask("GET", f"runs/{fine['run']}", want=404)
    assert o.ask("GET", f"key?agent={fine['agent']}&run={fine['run']}&scope=agent")["key"] == f"da-{o.id[:8]}-{fine['agent']}"
    assert "channel" in o.ask("GET", f"key?agent={fine['agent']}&run={fine['run']}&scope=channel", want=400)["detail"]


@test
def the_log_is_there(d):
    o = Org(d)
    c = o.connect()
    r = o.run(backend="service", connection_id=c)
    assert o.ask("GET", "log") == {"operations": [], "total": 0} and o.ask("GET", "log/names") == {"names": []}
    o.ask("GET", "log?ok=perhaps", want=400)
    o.ask("GET", "log?limit=1001", want=422)
    o.ask("GET", "log?agent=x", want=400)
    assert r["key"].startswith("xc-")


@test
def it_outlives_the_daemon(d):
    """Workers end with it; the next one finds all of it, and sweeps."""
    o = Org(d)
    r = o.run()
    entry = {"content": ["x"], "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}
    o.ask("PUT", f"workspaces/{r['key']}/document", {"files": {"/f": entry}, "directories": []}, want=204)
    for sig in (signal.SIGTERM, signal.SIGKILL):
        d.stop(sig)
        d.start()
        assert o.ask("GET", f"workspaces/{r['key']}/document")["files"] == {"/f": entry}
        assert o.ask("GET", f"runs/{r['run']}")["key"] == r["key"]


@test
def a_host_that_does_not_answer_is_its_organisations_own_trouble(d):
    o, other = Org(d), Org(d)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        o.ask("POST", "connections", {"kind": "sandboxd", "name": "s", "address": f"http://127.0.0.1:{silent.getsockname()[1]}", "token": "t"})
        keys = []
        for _ in range(6):
            r = o.run(backend="service")
            keys.append(o.ask("POST", f"runs/{r['run']}/report", {"opened": True})["key"])
        answers = []
        waiting = [threading.Thread(target=lambda k=k: answers.append(o.ask("GET", f"workspaces/{k}/files"))) for k in keys]
        for t in waiting:
            t.start()
        time.sleep(0.5)
        began = time.time()
        for _ in range(20):
            other.ask("GET", "workspaces")
        assert time.time() - began < 5 and not answers
    for t in waiting:  # the server is gone: all are refused at once
        t.join(60)
    assert len(answers) == len(keys) and all(a["unreadable"] for a in answers), answers


@test
def it_is_swept_while_requests_come(d):
    """A service that is never idle isn't one that never cleans up."""
    with Daemon(build=d.build, SANDBOXD_CLEANUP_INTERVAL="1") as busy:
        o = Org(busy)
        c = o.ask("POST", "connections", {"kind": "sandboxd", "name": "down", "address": "http://127.0.0.1:1", "token": "t"})["id"]
        conversation, run = new(), new()
        o.ask("POST", "runs", {"agent": new(), "run": run, "conversation": conversation, "sandbox": {"backend": "service"}})
        o.ask("POST", f"runs/{run}/report", {"opened": True})
        o.ask("DELETE", f"runs/{run}", want=204)
        o.ask("DELETE", f"conversations/{conversation}")
        assert [p["connection_id"] for p in o.ask("GET", "purges")["purges"]] == [c]
        o.ask("DELETE", f"connections/{c}", want=204)
        with sqlite3.connect(os.path.join(busy.state, "daemon", "app", "app.db")) as db:
            db.execute("UPDATE sandbox_purges SET next_at = 0")
        end = time.time() + 20
        while o.ask("GET", "purges")["purges"]:
            assert time.time() < end, "never swept"
            time.sleep(0.05)


@test
def a_worker_that_is_killed_fails_one_request_at_most(d):
    o = Org(d)
    o.ask("GET", "workspaces")

    def workers():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    s = f.read()
                if "(garret-app)" in s and int(s.rsplit(")", 1)[1].split()[1]) == d.pid:
                    found.append(int(pid))
            except OSError:
                pass
        return found
    before = workers()
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    end = time.time() + 20
    while True:
        status, body = d.call("GET", f"/v1/orgs/{o.id}/workspaces", None, o.token)
        if status == 200:
            break
        assert status == 503 and "application layer" in body["detail"] and time.time() < end, (status, body)
        time.sleep(0.1)
    assert workers() != before


@test
def without_its_program_it_says_so(d):
    with tempfile.TemporaryDirectory() as build:
        for program in ("garretd", "garret-engine", "garret-init"):
            shutil.copy2(os.path.join(d.build, program), build)
        with Daemon(build=build) as bare:
            began = time.time()
            for _ in range(3):
                answer = bare.call("GET", f"/v1/orgs/{new()}/workspaces")
                assert answer[0] == 503 and "application layer" in answer[1]["detail"], answer
            assert time.time() - began < 5 and bare.call("GET", "/healthz")[0] == 200


@test
def settings_reach_it(d):
    with Daemon(build=d.build, SANDBOX_STATE_MAX_BYTES="1000") as small:
        o = Org(small)
        key = o.run()["key"]
        entry = {"content": ["x" * 1000], "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}
        assert "1000" in o.ask("PUT", f"workspaces/{key}/document", {"files": {"/f": entry}}, want=507)["detail"]
    for name, value in (("GARRET_APP_DATABASE", "mysql://h"), ("SANDBOX_STATE_MAX_BYTES", "0"), ("SANDBOX_INLINE_IMAGE_MAX_BYTES", "x")):
        try:
            Daemon(build=d.build, **{name: value}).start()
            raise AssertionError(f"{name}={value} was taken")
        except RuntimeError as e:
            assert name in str(e), e


@test
def many_at_once_are_answered(d):
    o = Org(d)
    wrong = []

    def work():
        for _ in range(10):
            r = d.call("GET", f"/v1/orgs/{o.id}/workspaces", None, o.token)
            if r[0] != 200:
                wrong.append(r)
    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]


@test
def the_description_has_them(d):
    paths = d.call("GET", "/openapi.json")[1]["paths"]
    for path, methods in (("connections", "get post"), ("connections/{connection_id}", "get put delete"), ("workspaces", "get"),
                          ("workspaces/{key}", "get delete"), ("workspaces/{key}/document", "get put"), ("workspaces/{key}/files", "get"),
                          ("workspaces/{key}/file", "get"), ("conversations/{conversation}", "delete"), ("log", "get"), ("log/names", "get"),
                          ("purges", "get"), ("runs", "post"), ("runs/{run}", "get delete"), ("runs/{run}/report", "post"), ("key", "get")):
        described = paths["/v1/orgs/{organisation}/" + path]
        assert sorted(described) == sorted(methods.split()), (path, sorted(described))
        for m in described.values():
            assert m["summary"] and {"400", "401", "404", "503"} <= set(m["responses"]), path


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.environ.get("GARRET_BUILD", "build"))
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    passed = failed = 0
    with Daemon(build=os.path.abspath(a.build)) as d:
        for fn in tests:
            if a.names and not any(n in fn.__name__ for n in a.names):
                continue
            began = time.time()
            try:
                fn(d)
                passed += 1
                print(f"ok   {fn.__name__} ({time.time() - began:.1f} s)", flush=True)
            except Exception:  # noqa: BLE001
                failed += 1
                print(f"FAIL {fn.__name__} ({time.time() - began:.1f} s)\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
