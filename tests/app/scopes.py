"""Options, connections, and who shares files with whom: D1, D2."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import stat
import uuid

from applib import SCOPES, App, Facts, Failure, Sandbox, text
from scene import new, refused, test


# ---- D1: options ----

@test()
def D01_options_have_defaults_and_round_trip(s):
    p = s.l.parse({})
    assert (p.backend, p.connection_id, SCOPES[p.session_scope], p.runtime, p.include_execute) == (0, b"", "conversation", b"", True)
    given = {"backend": "service", "connection_id": new(), "session_scope": "user", "runtime": "r" * 64, "include_execute": False}

    assert json.loads(s.l.take(s.l.app.garret_app_sandbox_format(ctypes.byref(s.l.parse(given))))) == given
    dashed = str(uuid.uuid4())
    assert s.l.parse({"connection_id": dashed}).connection_id.decode() == dashed.replace("-", "")
    assert s.l.parse({"runtime": None, "connection_id": None}).runtime == b""


@test()
def D01_a_bad_option_is_named(s):
    for options, name in (({"backend": "docker"}, "backend"), ({"backend": 1}, "backend"), ({"session_scope": "team"}, "session_scope"),
                          ({"runtime": "r" * 65}, "runtime"), ({"runtime": ""}, "runtime"), ({"runtime": "a\nb"}, "runtime"),
                          ({"connection_id": "http://host"}, "connection_id"), ({"include_execute": "yes"}, "include_execute"),
                          ({"token": "x"}, "token"), ({"address": "http://x"}, "address")):
        refused("INVALID", s.l.parse, options, names=name)
    for text in ("", "[]", "{", '{"backend":"state","backend":"service"}', "null"):


        refused("INVALID", s.l.ask, "garret_app_sandbox_parse", text.encode(), ctypes.byref(Sandbox()))


@test()
def D01_the_capability_is_data(s):
    d = json.loads(s.l.app.garret_app_catalogue())
    assert (d["id"], d["name"], d["permission"]) == ("sandbox", "Files & shell", "sandbox:execute")
    assert [t["name"] for t in d["tools"]] == ["ls", "read_file", "glob", "grep", "write_file", "edit_file", "execute"]
    assert [t["name"] for t in d["tools"] if t["side_effects"]] == ["execute"]
    assert d["console"] == {"profile": "agent", "images": True, "documents": True, "ask_fallback": "deny"}
    assert d["permissions"]["default"] == "allow" and d["summary"].count(".") == 1
    for op in ("read", "write", "edit"):
        denied = {r["pattern"] for r in d["permissions"]["operations"][op]["rules"] if r["action"] == "deny"}
        assert {"**/.env", "**/*.pem", "**/.ssh/**", "/etc/**", "/proc/**"} <= denied, op


# ---- D1, D3: connections ----

@test()
def D03_connections_are_checked_by_name(s):
    put = s.app.connect
    for kind, address, more, name in (("sandboxd", "", {}, "address"), ("sandboxd", "/relative", {}, "address"), ("sandboxd", "host:80", {}, "address"),
                                      ("sandboxd", "http://user@host", {}, "address"), ("sandboxd", "http://", {}, "address"),
                                      ("native", "relative", {}, "address"), ("docker", "http://x", {}, "address"), ("docker", "unix://", {}, "address"),
                                      ("sandboxd", "http://h", {"account": "x"}, "account"), ("sandboxd", "http://h", {"name": ""}, "name"),
                                      ("sandboxd", "http://h", {"runtime": "a\tb"}, "runtime"), ("sandboxd", "http://h", {"token": "a\nb"}, "token"),
                                      ("daytona", "http://plain", {"token": "k"}, "address"), ("daytona", "", {}, "token"), ("sandboxd", "http://h", {}, "token"),
                                      ("sandboxd", "http://h", {"token": "t" * 4097}, "token")):
        refused("INVALID", put, s.org, kind, address, names=name, **more)
    assert s.app.connections(s.org) == []
    refused("INVALID", put, "org", "sandboxd", "http://h", names="organisation")


@test()
def D03_one_default_and_names_that_are_there_once(s):
    a = s.app.connect(s.org, "sandboxd", "http://a", "t", name="a")
    b = s.app.connect(s.org, "sandboxd", "http://b", "t", name="b")
    assert a["is_default"] and not b["is_default"] and s.app.connection(s.org)["id"] == a["id"]
    b = s.app.connect(s.org, "sandboxd", "http://b2", name="b", id=b["id"], is_default=True)
    assert b["is_default"] and [x["is_default"] for x in s.app.connections(s.org)] == [False, True]
    refused("EXISTS", s.app.connect, s.org, "sandboxd", "http://c", "t", name="a", names="name")
    refused("NOT_FOUND", s.app.connect, s.org, "sandboxd", "http://c", "t", name="z", id=new(), names="connection_id")
    s.app.disconnect(s.org, a["id"])
    refused("NOT_FOUND", s.app.disconnect, s.org, a["id"], names="connection_id")
    refused("NOT_FOUND", s.app.connection, s.org, a["id"])
    assert [x["name"] for x in s.app.connections(s.org)] == ["b"]


@test()
def D03_a_change_of_what_was_changed_since_is_refused(s):
    a = s.app.connect(s.org, "sandboxd", "http://a", "t", name="a")
    s.app.connect(s.org, "sandboxd", "http://b", name="b", id=a["id"], changes=a["changes"])
    refused("CHANGED", s.app.connect, s.org, "sandboxd", "http://evil", name="a", id=a["id"], changes=a["changes"], names="since it was read")
    b = s.app.connection(s.org, a["id"])
    assert (b["name"], b["address"]) == ("b", "http://b") and b["changes"] > a["changes"]
    s.app.connect(s.org, "sandboxd", "http://c", name="c", id=a["id"])  # whatever it is by now


@test()
def D03_another_organisation_has_none_of_it(s):
    a = s.app.connect(s.org, "sandboxd", "http://a", "secret", name="a")
    other = new()
    refused("NOT_FOUND", s.app.connection, other)
    refused("NOT_FOUND", s.app.connection, other, a["id"])
    refused("NOT_FOUND", s.app.disconnect, other, a["id"])
    refused("NOT_FOUND", s.app.connect, other, "sandboxd", "http://evil", "t", name="a", id=a["id"])
    refused("NOT_FOUND", s.app.run, other, s.agent, new(), {"backend": "service", "connection_id": a["id"]}, conversation=new(), names="connection_id")
    refused("NOT_FOUND", s.app.run, other, s.agent, new(), {"backend": "service"}, conversation=new(), names="no connection")
    assert s.app.connection(s.org)["address"] == "http://a" and s.app.connections(other) == []


@test()
def D03_a_token_is_sealed_and_never_told(s):
    a = s.app.connect(s.org, "sandboxd", "http://a", "marker-of-a-secret", name="a")
    assert a["has_token"] and s.app.connection(s.org)["has_token"]
    everything = b"".join(open(os.path.join(d, f), "rb").read() for d, _, fs in os.walk(s.dir) for f in fs)
    assert b"marker-of-a-secret" not in everything
    key = os.path.join(s.dir, "app", "key")
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600 and stat.S_IMODE(os.stat(os.path.dirname(key)).st_mode) == 0o700
    refused("INVALID", s.app.connect, s.org, "sandboxd", "http://a", "", name="a", id=a["id"], names="token")
    assert not s.app.connect(s.org, "docker", "unix:///run/docker.sock", "", name="a", id=a["id"])["has_token"]
    assert s.app.connect(s.org, "sandboxd", "http://a", "again", name="a", id=a["id"])["has_token"]
    assert s.app.connect(s.org, "sandboxd", "http://b", None, name="a", id=a["id"])["has_token"]  # None leaves it


@test()
def D03_a_token_of_another_key_is_refused(s):
    if s.database:
        other = s.another(os.path.join(s.dir, "other"))  # another machine, with a key of its own
    else:
        os.mkdir(os.path.join(s.dir, "other"), 0o700)
        other = App(s.l, os.path.join(s.dir, "other"), f"sqlite:{s.dir}/app/app.db")
        s.apps.append(other)
    s.app.connect(s.org, "sandboxd", "http://a", "token", name="a")
    refused("DENIED", other.run, s.org, s.agent, new(), {"backend": "service"}, conversation=new(), names="key")


@test()
def D12_72_daytona_has_the_organisations_own_key(s):
    os.environ["DAYTONA_API_KEY"] = "of-the-deployment"
    try:
        refused("INVALID", s.app.connect, s.org, "daytona", names="token")
        d = s.app.connect(s.org, "daytona", "https://app.daytona.io/api".replace("/api", ""), "own", account="eu", name="cloud")
        assert d["has_token"] and d["account"] == "eu"
        refused("INVALID", s.app.connect, s.org, "daytona", "", "", account="eu", name="cloud", id=d["id"], names="token")
        assert s.app.connection(s.org)["has_token"]
        refused("UNSUPPORTED", s.app.run, s.org, s.agent, new(), {"backend": "service"}, conversation=new(), names="daytona")
    finally:
        del os.environ["DAYTONA_API_KEY"]


# ---- D2: scopes ----

def key_of(s, scope: str, connection: str | None = None, **facts) -> str:
    f = Facts(size=ctypes.sizeof(Facts), **{k: text(v) for k, v in facts.items()})
    out = ctypes.create_string_buffer(65)
    s.l.ask("garret_app_scope_key", ctypes.byref(f), SCOPES.index(scope), text(connection), out)
    return out.value.decode()


FACTS = {"organisation": "0123456789abcdef0123456789abcdef", "agent": "a9e27000000040008000000000000001", "run": "70000000000040008000000000000002",
         "conversation": "c0000000000040008000000000000003", "channel": "C042/general", "user": "U-17@example.org"}


@test()
def D02_keys_are_those_of_the_vectors(s):
    def hashed(t):
        return "a9e27000" + hashlib.sha256(t.encode()).hexdigest()[:24]
    subjects = {"run": FACTS["run"], "conversation": FACTS["conversation"], "agent": FACTS["agent"], "channel": hashed("C042/general"),
                "user": hashed("U-17@example.org")}
    assert hashed("C042/general") == "a9e27000" + "4c4ac6a3b5bd4d3f2f1d7a7d"[:0] + hashlib.sha256(b"C042/general").hexdigest()[:24]
    connection = "fedcba98765432100123456789abcdef"
    for scope, letter in (("run", "r"), ("conversation", "c"), ("channel", "h"), ("user", "u"), ("agent", "a")):
        assert key_of(s, scope, **FACTS) == f"d{letter}-01234567-{subjects[scope]}"
        assert key_of(s, scope, connection, **FACTS) == f"x{letter}-01234567-fedcba98-{subjects[scope]}"
        assert len(key_of(s, scope, connection, **FACTS)) <= 64
    # Written down, so that a change of the rule is seen.
    assert key_of(s, "user", **FACTS) == "du-01234567-a9e27000" + hashlib.sha256(b"U-17@example.org").hexdigest()[:24]
    assert key_of(s, "conversation", connection, **FACTS) == "xc-01234567-fedcba98-c0000000000040008000000000000003"


@test()
def D02_who_shares_files_with_whom(s):
    def key(scope, **more):
        return key_of(s, scope, **{**FACTS, **more})
    assert key("conversation") != key("conversation", organisation=new())
    assert key("conversation") == key("conversation", run=new(), agent=new(), user="x")
    assert key("run") != key("run", run=new())
    assert key("user") != key("user", agent=new()) and key("user") == key("user", conversation=new())
    assert key("channel") != key("channel", agent=new()) and key("channel") == key("channel", conversation=new(), user="z")
    assert key("channel", channel="a-b") != key("channel", channel="a.b") != key("channel", channel="a b")
    assert key("agent") == key("agent", run=new(), conversation=new())
    one, two = new(), new()
    assert key_of(s, "agent", one, **FACTS) != key_of(s, "agent", two, **FACTS) != key("agent")


@test()
def D02_a_missing_fact_is_refused_by_name(s):
    for scope, fact in (("conversation", "conversation"), ("channel", "channel"), ("user", "user")):
        facts = {k: v for k, v in FACTS.items() if k != fact}
        refused("INVALID", key_of, s, scope, names=fact, **facts)
        refused("INVALID", s.app.run, FACTS["organisation"], FACTS["agent"], new(), {"session_scope": scope}, names=fact,
                **{k: v for k, v in facts.items() if k in ("conversation", "channel", "user")})
        # Before any connection is looked for: there is none here.
        refused("INVALID", s.app.run, FACTS["organisation"], FACTS["agent"], new(), {"backend": "service", "session_scope": scope}, names=fact)
    for fact in ("organisation", "agent", "run"):
        refused("INVALID", key_of, s, "agent", names=fact, **{k: v for k, v in FACTS.items() if k != fact})
        refused("INVALID", key_of, s, "agent", names=fact, **{**FACTS, fact: "not-an-id"})
    refused("INVALID", key_of, s, "user", names="user", **{**FACTS, "user": ""})
    refused("INVALID", key_of, s, "channel", names="channel", **{**FACTS, "channel": "c" * 1025})
    assert s.app.rows(FACTS["organisation"]) == ([], 0)


# ---- opening the application itself ----

@test()
def A_state_dir_of_others_is_refused(s):
    d = os.path.join(s.dir, "open")
    os.mkdir(d, 0o755)
    refused("DENIED", App, s.l, d, s.database, names="state_dir")
    refused("INVALID", App, s.l, "relative", s.database, names="state_dir")
    os.symlink(os.path.join(s.dir, "app"), os.path.join(s.dir, "link"))
    refused("INTERNAL" if False else "NOT_DIRECTORY", App, s.l, os.path.join(s.dir, "link"), s.database, names="state_dir")
    ours = os.path.join(s.dir, "spoiled")
    App(s.l, ours, s.database).close()
    os.truncate(os.path.join(ours, "key"), 5)
    refused("DENIED", App, s.l, ours, s.database, names="key")
    os.unlink(os.path.join(ours, "key"))
    os.mkdir(os.path.join(ours, "key"))
    try:
        App(s.l, ours, s.database)
        raise AssertionError("a directory for a key")
    except Failure as e:
        assert "key" in e.text


@test()
def A_bad_settings_are_named(s):
    refused("INVALID", App, s.l, os.path.join(s.dir, "x"), "mysql://host/db", names="database")
    refused("INVALID", App, s.l, os.path.join(s.dir, "x"), s.database, lease=-1.0, names="lease")
