"""Opening and closing, delegates: D3, D7, and of D12 the lines 67 to 80."""

from __future__ import annotations

import ctypes
import hashlib
import json
import socket
import time

from applib import SCOPES, text
from log import execute
from scene import ANY, LIVE, SERVICE, new, refused, test


# ---- D3: opening ----

@test(ANY)
def D03_a_conversation_comes_back_to_its_files(s):
    r = s.run()
    key = r.info()["key"]
    r.write("dir/notes.txt", "größe".encode())
    r.close()
    r = s.run()
    assert r.info()["key"] == key and r.read("dir/notes.txt") == "größe".encode()
    r.close()
    other = s.run(conversation=new())
    assert not other.exists("dir/notes.txt")
    other.close()


@test(SERVICE)
def D03_an_untouched_workspace_costs_nothing(s):
    r = s.run()
    info = r.info()
    r.close()
    row = s.app.row(s.org, info["key"])
    assert row["session_id"] == "" and not info["attached"]
    refused("NOT_FOUND", s.app.visit, s.org, info["key"], names="session")


@test(ANY)
def D03_rows_say_what_they_are(s):
    for scope, more in (("conversation", {}), ("channel", {"channel": "C1"}), ("user", {"user": "U1"}), ("agent", {})):
        r = s.run(session_scope=scope, **more)
        key = r.info()["key"]
        r.close()
        row = s.app.row(s.org, key)
        assert SCOPES[row["scope"]] == scope and row["agent"] == s.agent
        assert row["conversation"] == (s.conversation if scope == "conversation" else "")
        assert row["owner"] == (hashlib.sha256(b"U1").hexdigest() if scope == "user" else "")
        assert row["backend"] == s.w.service and (row["connection_id"] != "") == s.w.service
    rows, total = s.app.rows(s.org)
    assert total == len(rows) == 4 and len(s.app.rows(s.org, 1, 2)[0]) == 2
    assert [r["last_used_at"] for r in rows] == sorted((r["last_used_at"] for r in rows), reverse=True)
    refused("INVALID", s.app.rows, s.org, 0, 0, names="max")
    refused("INVALID", s.app.rows, s.org, 0, 1001, names="max")


@test(ANY)
def D10_2_nothing_of_another_organisation_is_read(s):
    """Whatever a history names: the run has the workspace that was opened for it, under its own organisation's key."""
    key = s.once()
    other = new()
    r = s.run(org=other)
    assert r.info()["key"] != key and not r.exists("seed")
    own = r.info()["key"]
    r.write("mine", b"1")
    r.close()
    for ask in (s.app.row, s.app.visit, s.app.document, s.app.remove):
        refused("NOT_FOUND", ask, other, key)
    assert s.app.remove_conversation(other, new()) == 0
    refused("NOT_FOUND", s.app.put_document, other, key, {"files": {}, "directories": []})
    r = s.run()
    assert r.list() == ["seed"]
    r.close()
    s.app.remove(other, own)


@test(SERVICE)
def D10_3_a_ref_of_another_connection_is_not_taken(s):
    r = s.run()
    provider, name = r.info()["ref"]
    assert provider.endswith(":" + r.info()["connection_id"])
    refused("INVALID", r.report, (provider, name + "x"), names="ref")
    r.close()


@test(SERVICE)
def D12_70_moving_to_another_host_opens_a_new_one(s):
    key = s.once()
    there = s.app.connect(s.org, s.w.kind, s.w.address(), s.w.token(), name="moved", **s.w.fields())["id"]
    r = s.run(connection_id=there)
    assert r.info()["key"] != key and not r.info()["attached"]
    assert r.info()["key"].split("-")[1] == key.split("-")[1] and r.info()["key"].split("-")[2] == there[:8]
    r.close()
    r = s.run()
    assert r.info()["key"] == key and r.read("seed") == b"planted"
    r.close()


@test()
def D12_71_the_connections_runtime_when_the_spec_names_none(s):
    c = s.app.connect(s.org, "sandboxd", "http://127.0.0.1:1", "t", name="c", runtime="python-ml")
    for given, want in ((None, "python-ml"), ("node", "node")):
        r = s.app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": c["id"], **({"runtime": given} if given else {})},
                      conversation=new())
        assert r.info()["runtime"] == want
        r.close()


@test(ANY)
def D12_68_a_run_of_its_own_needs_no_row(s):
    r = s.run(session_scope="run")
    r.write("f", b"1")
    assert r.read("f") == b"1"
    r.close()
    assert s.app.rows(s.org) == ([], 0)


@test(SERVICE)
def D12_73_a_run_scoped_sandbox_is_released(s):
    r = s.run(session_scope="run")
    key = r.info()["key"]
    r.write("f", b"1")
    r.close()
    again = s.app.run(s.org, s.agent, key.rsplit("-", 1)[1], s.w.options(s.app, s.org, session_scope="run"))
    assert again.info()["key"] == key and not again.exists("f")
    again.close()
    assert s.app.purges(s.org) == [] and s.app.told("workspace_purge_failed") == []


@test(ANY)
def D12_74_a_conversation_scoped_one_outlives_the_run(s):
    key = s.once()
    s.end(s.app)
    s.app = s.another()
    r = s.run()
    assert r.info()["key"] == key and r.read("seed") == b"planted"
    r.close()


@test()
def D12_75_closing_nothing_is_no_error(s):
    assert s.l.app.garret_app_run_close(None, 0) is None
    assert s.l.app.garret_app_free(None) is None


@test()
def D12_67_an_agent_without_a_sandbox_opens_nothing(s):
    """The delegate of a parent: no workspace, no row, no run."""
    r = s.app.run(s.org, s.agent, new(), {}, conversation=s.conversation)
    assert r.delegate(new(), new(), shares=False) is None
    r.close()
    assert s.app.rows(s.org)[1] == 1


@test(ANY)
def D03_a_run_is_open_once(s):
    run = new()
    r = s.run(run=run)
    refused("CONFLICT", s.run, run=run, names="run")
    refused("CONFLICT", s.run, run=run, session_scope="agent", names="run")
    r.close()
    s.run(run=run).close()


@test(ANY)
def D03_no_commands_means_none(s):
    r = s.run(include_execute=False)
    assert not r.info()["include_execute"]
    r.write("f", b"1")
    refused("UNSUPPORTED" if s.w.service else "MISUSE", r.sh, "true")
    r.close()


# ---- D7: delegates ----

@test(ANY)
def D07_the_table_of_who_gets_what(s):
    r = s.run()
    r.write("of-the-parent", b"1")
    own = s.w.options(s.app, s.org)
    for shares, binding, want in ((True, None, "shared"), (True, own, "shared"), (False, own, "own"), (False, None, None)):
        d = r.delegate(new(), new(), shares, binding)
        if want is None:
            assert d is None
            continue
        assert d.exists("of-the-parent") == (want == "shared"), want
        d.write("of-the-delegate", b"1")
        info = d.info()
        assert (info["key"] == r.info()["key"]) == (want == "shared") and (want == "shared" or info["scope"] == "run")
        d.close()
        if want == "shared":
            assert r.read("of-the-delegate") == b"1"
            r.remove("of-the-delegate")
        assert not r.exists("of-the-delegate")
    r.close()


@test(ANY)
def D10_4_a_delegates_file_lands_with_the_parent_only_when_shared(s):
    r = s.run()
    r.write("f", b"1")
    shared = r.delegate(new(), new(), True)
    nested = shared.delegate(new(), new(), True)
    nested.write("deep", b"1")
    fresh = nested.delegate(new(), new(), False, s.w.options(s.app, s.org))
    assert not fresh.exists("deep")
    fresh.write("elsewhere", b"1")
    for d in (fresh, nested, shared):
        d.close()
    assert r.list() == ["deep", "f"]
    if s.w.service:
        named = {x["agent"] for x in s.app.log(s.org, op="write")[0]}
        assert len(named) == 3, "each delegate's operations are its own"
    r.close()


@test(LIVE)
def D07_a_delegates_loss_is_the_parents(s):
    key = s.once()
    r = s.run()
    d = r.delegate(new(), new(), True)
    s.w.purge(key)
    refused("GONE", d.exists, "seed")
    assert r.lost and d.lost and s.app.row(s.org, key)["session_id"] == ""
    d.close()
    r.close()


@test()
def D07_what_may_be_shared(s):
    def check(shared, bound):
        def words(x):
            return (ctypes.c_char_p * len(x))(*map(text, x)), ctypes.c_size_t(len(x))
        return s.l.ask("garret_app_delegate_check", *words(shared), *words(bound))
    check(["sandbox"], ["sandbox", "delegation"])
    check([], [])
    refused("INVALID", check, ["delegation"], ["sandbox", "delegation"], names="delegation")
    refused("INVALID", check, ["sandbox", "sandbox"], ["sandbox"], names="twice")
    refused("INVALID", check, ["sandbox"], ["search"], names="sandbox")


@test()
def D03_a_service_that_does_not_answer_is_waited_for_as_long_as_was_said(s):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = s.another(opening_timeout=0.5)
        c = app.connect(s.org, "sandboxd", f"http://127.0.0.1:{silent.getsockname()[1]}", "t")["id"]
        r = app.run(s.org, s.agent, new(), {"backend": "service", "connection_id": c}, conversation=s.conversation)
        began = time.time()
        refused("UNAVAILABLE", r.read, "f")
        assert 0.4 < time.time() - began < 10 and not r.lost
        r.close()
        execute(s, "DELETE FROM sandbox_runs WHERE organisation = ?", s.org)  # others' sweeps would ask that host
    refused("INVALID", s.another, opening_timeout=-1.0, names="opening_timeout")


@test(SERVICE)
def D03_a_connection_that_is_renamed_hinders_no_run(s):
    r = s.run()
    r.write("f", b"kept")
    c = r.info()["connection_id"]
    was = s.app.connection(s.org, c)["name"]
    s.app.connect(s.org, s.w.kind, s.w.address(), None, name="renamed", id=c, **s.w.fields())
    try:
        other = s.run(**({"runtime": "another"} if s.w.name == "native" else {}))
        assert other.read("f") == b"kept"
        other.close()
    finally:
        s.app.connect(s.org, s.w.kind, s.w.address(), None, name=was, id=c, **s.w.fields())
        r.close()
