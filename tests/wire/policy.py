#!/usr/bin/env python3
"""PUT /policy and the overrides file: what is refused, what is in force at once, what outlives the daemon (as root).

usage: policy.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import Daemon  # noqa: E402
from suite import test, until  # noqa: E402

MIB = 1 << 20
MEMORY = ("memory.limit_in_bytes", "memory.max")

FIELDS = ("runtimes default_runtime max_sessions max_open_sessions max_sessions_per_tenant evict_idle_after mem_limit memswap_limit "
          "cpus cpu_shares pids_limit network_mode oci_runtime work_dir idle_timeout execute_timeout max_read_bytes "
          "persist_containers sandbox_uid workspace_ttl container_ttl tmpfs_size prewarm buildkit native_files native_writes "
          "native_realpath").split()


def policy(d):
    status, answer = d.call("GET", "/policy")
    assert status == 200, answer
    return answer


def put(d, body, status=200, token=None):
    got, answer = d.call("PUT", "/policy", body, token)
    assert got == status, (body, got, answer)
    return answer


def rows(state):
    """The changes that are recorded, from a copy: the daemon has the database to itself."""
    with tempfile.TemporaryDirectory() as at:
        for name in ("garret.db", "garret.db-wal"):
            path = os.path.join(state, "daemon", name)
            if os.path.exists(path):
                shutil.copy(path, at)
        c = sqlite3.connect(os.path.join(at, "garret.db"))
        try:
            return c.execute("SELECT made_by, change, overlay, file FROM policy ORDER BY seq").fetchall()
        finally:
            c.close()


def limit_files(state, names):
    """Control files of the only session over a state directory; slots that wait for one have no limit yet."""
    slots = set(os.listdir(os.path.join(state, "sessions")))
    groups = [d for d, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(d) in slots]
    for d in groups:
        for path in (os.path.join(d, n) for n in MEMORY):
            if os.path.exists(path) and open(path).read().strip() not in ("max", "9223372036854771712"):
                mine = os.path.basename(d)
    return [os.path.join(d, n) for d in groups for n in names if os.path.basename(d) == mine and os.path.exists(os.path.join(d, n))]


def limits(state, *names):
    out = set()
    for path in limit_files(state, names):
        with open(path) as f:
            out.add(f.read().strip())
    return out


@contextlib.contextmanager
def kept_state():
    with tempfile.TemporaryDirectory(prefix="garret-policy-") as state:
        os.chmod(state, 0o755)
        yield state


# ---- refused ----

WRONG = [
    # body, status, where, type or a word of the text
    ({"nosuch": 1}, 422, ["body", "nosuch"], "extra_forbidden"),
    ({"network_mode": "host"}, 422, ["body", "network_mode"], "extra_forbidden"),
    ({"work_dir": "/x", "max_sessions": 3}, 422, ["body", "work_dir"], "extra_forbidden"),
    ({"max_sessions": "many"}, 422, ["body", "max_sessions"], "int_parsing"),
    ({"max_sessions": 1.5}, 422, ["body", "max_sessions"], "int_from_float"),
    ({"max_sessions": [1]}, 422, ["body", "max_sessions"], "int_type"),
    ({"max_sessions": -1}, 422, ["body", "max_sessions"], "greater_than_equal"),
    ({"max_sessions": 10**30}, 422, None, "json_invalid"),
    ({"idle_timeout": -1}, 422, ["body", "idle_timeout"], "greater_than_equal"),
    ({"idle_timeout": 10**12}, 422, ["body", "idle_timeout"], "less_than_equal"),
    ({"execute_timeout": 0}, 422, ["body", "execute_timeout"], "greater_than"),
    ({"max_read_bytes": 0}, 422, ["body", "max_read_bytes"], "greater_than"),
    ({"idle_timeout": None}, 422, ["body", "idle_timeout"], "int_type"),
    ({"execute_timeout": None}, 422, ["body", "execute_timeout"], "int_type"),
    ({"max_read_bytes": None}, 422, ["body", "max_read_bytes"], "int_type"),
    ({"default_runtime": None}, 422, ["body", "default_runtime"], "string_type"),
    ({"default_runtime": "nosuch"}, 400, None, "Unknown runtime: nosuch"),
    ({"cpus": 0}, 422, ["body", "cpus"], "greater_than"),
    ({"cpus": "nan"}, 422, ["body", "cpus"], "greater_than"),
    ({"cpus": "inf"}, 422, ["body", "cpus"], "at most"),
    ({"cpus": 0.001}, 422, ["body", "cpus"], "at least"),
    ({"cpus": 100000}, 422, ["body", "cpus"], "at most"),
    ({"cpu_shares": 0}, 422, ["body", "cpu_shares"], "greater_than"),
    ({"cpu_shares": 1}, 422, ["body", "cpu_shares"], "at least"),
    ({"cpu_shares": 10**7}, 422, ["body", "cpu_shares"], "at most"),
    ({"pids_limit": 1}, 422, ["body", "pids_limit"], "at least"),
    ({"pids_limit": 10**9}, 422, ["body", "pids_limit"], "at most"),
    ({"mem_limit": 5}, 422, ["body", "mem_limit"], "string_type"),
    ({"mem_limit": "lots"}, 422, ["body", "mem_limit"], "size"),
    ({"mem_limit": ""}, 422, ["body", "mem_limit"], "size"),
    ({"mem_limit": "0"}, 422, ["body", "mem_limit"], "size"),
    ({"mem_limit": "-5m"}, 422, ["body", "mem_limit"], "size"),
    ({"mem_limit": "512m\u0000"}, 422, ["body", "mem_limit"], "NUL"),
    ({"mem_limit": "0" * 100000 + "512m"}, 422, ["body", "mem_limit"], "size"),
    ({"mem_limit": "1k"}, 422, ["body", "mem_limit"], "at least"),
    ({"mem_limit": "900t"}, 422, ["body", "mem_limit"], "at most"),
    ({"tmpfs_size": "1"}, 422, ["body", "tmpfs_size"], "at least"),
    ({"tmpfs_size": "900t"}, 422, ["body", "tmpfs_size"], "at most"),
    ({"memswap_limit": "900m"}, 422, ["body", "memswap_limit"], "at least mem_limit"),
    ({"mem_limit": None, "memswap_limit": "1g"}, 422, ["body", "memswap_limit"], "needs a mem_limit"),
    ({"max_open_sessions": 99}, 422, ["body", "max_open_sessions"], "at least max_sessions"),
    ({"max_open_sessions": 200, "max_sessions": 300}, 422, ["body", "max_open_sessions"], "at least max_sessions"),
    ({"max_open_sessions": 200, "max_sessions": None}, 422, ["body", "max_open_sessions"], "at least max_sessions"),
    ({"runtimes": [1]}, 422, ["body", "runtimes"], "dict_type"),
    ({"runtimes": {"nosuch": {}}}, 400, None, "Unknown runtime: nosuch"),
    ({"max_sessions": 7, "runtimes": {"nosuch": {"cpus": 1}}}, 400, None, "Unknown runtime: nosuch"),
    ({"runtimes": {"host": None}}, 422, ["body", "runtimes", "host"], "model_attributes_type"),
    ({"runtimes": {"host": {"image": "x"}}}, 422, ["body", "runtimes", "host", "image"], "extra_forbidden"),
    ({"runtimes": {"host": {"cpus": "x"}}}, 422, ["body", "runtimes", "host", "cpus"], "float_parsing"),
    ({"runtimes": {"host": {"mem_limit": "900t"}}}, 422, ["body", "runtimes", "host", "mem_limit"], "at most"),
    ({"runtimes": {"host": {"memswap_limit": "900m"}}}, 422, ["body", "runtimes", "host", "memswap_limit"], "at least mem_limit"),
    ({"runtimes": {"host": {"cpus": 1}}, "idle_timeout": "x"}, 422, ["body", "idle_timeout"], "int_parsing"),
    ([], 422, ["body"], "model_attributes_type"),
    ("x", 422, ["body"], "model_attributes_type"),
    (b"", 422, ["body"], "missing"),
    (b"{", 422, None, "json_invalid"),
    (b'{"cpus": NaN}', 422, None, "json_invalid"),
    (b'{"max_sessions": Infinity}', 422, None, "json_invalid"),
    (b'{"cpus": 1e999}', 422, None, "json_invalid"),
    (b'{"runtimes":' * 5000, 422, None, "json_invalid"),
    (b'{"runtimes":' * 900 + b"{}" + b"}" * 900, 422, ["body", "runtimes", "runtimes", "runtimes"], "extra_forbidden"),
    (b'{"mem_limit":' + b"[" * 1500 + b"]" * 1500 + b"}", 422, ["body", "mem_limit"], "string_type"),
    (b"\xff{}", 400, None, "parsing the body"),
    (b'{"a":"' + b"x" * (2 << 20) + b'"}', 413, None, "larger"),
]


@test
def a_refused_change_leaves_everything_as_it_was(d):
    before, recorded = policy(d), rows(d.state)
    for body, status, loc, word in WRONG:
        got, answer = d.call("PUT", "/policy", body)
        assert got == status, (str(body)[:80], got, answer)
        text = json.dumps(answer)
        assert word in text and len(text) < 20000, (str(body)[:80], text[:500])
        if loc:
            assert answer["detail"][0]["loc"] == loc, (str(body)[:80], answer)
        assert policy(d) == before, body
    assert rows(d.state) == recorded


@test
def several_mistakes_are_all_named(d):
    answer = put(d, {"zz": 1, "cpus": "x", "idle_timeout": None, "runtimes": {"host": {"q": 1, "pids_limit": "y"}}}, 422)
    at = [e["loc"] for e in answer["detail"]]
    assert at == [["body", "idle_timeout"], ["body", "cpus"], ["body", "zz"], ["body", "runtimes", "host", "pids_limit"],
                  ["body", "runtimes", "host", "q"]], at


@test
def who_may(d):
    s = d.open("policy-who")
    for token in ("wrong", s.token):
        assert d.call("PUT", "/policy", {}, token)[0] == 401
    s.close()


# ---- in force at once ----


@test
def the_answer_is_the_whole_policy(d):
    before = policy(d)
    assert list(before) == FIELDS
    assert put(d, {}) == before
    got = put(d, {"max_sessions_per_tenant": "7", "cpus": 1, "mem_limit": "512M", "runtimes": None})
    assert (got["max_sessions_per_tenant"], got["cpus"], got["mem_limit"]) == (7, 1.0, "512M") and list(got) == FIELDS
    assert got["runtimes"][0]["mem_limit"] == "512M" and policy(d) == got
    got = put(d, {"runtimes": {"host": {"mem_limit": "256m", "cpu_shares": 512}}})
    assert got["mem_limit"] == "512M" and got["runtimes"][0]["mem_limit"] == "256m" and got["runtimes"][0]["cpu_shares"] == 512
    # null takes the runtime's own away, and of the service's there is none any more.
    got = put(d, {"runtimes": {"host": {"mem_limit": None, "cpu_shares": None}}, "cpus": None})
    assert got["runtimes"][0]["mem_limit"] == "512M" and got["runtimes"][0]["cpu_shares"] is None and got["cpus"] is None
    put(d, {"max_sessions_per_tenant": None, "cpus": 2, "mem_limit": "1g"})
    assert policy(d) == before


@test
def ceilings_count_at_once_in_both_directions(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MAX_SESSIONS="2") as d:
        a, b = d.open("a", tenant="t"), d.open("b", tenant="t")
        assert "limit of 2" in d.open("c", status=429)["detail"]
        put(d, {"max_sessions": 3})
        c = d.open("c")
        put(d, {"max_sessions": 1})
        assert "limit of 1" in d.open("e", status=429)["detail"]
        assert a.sh("echo alive")["stdout"] == "alive\n"  # nobody is thrown out
        put(d, {"max_sessions": 10, "max_sessions_per_tenant": 2})
        assert "tenant" in d.open("e", status=429, tenant="t")["detail"]
        put(d, {"max_sessions_per_tenant": None, "max_open_sessions": 10})
        e = d.open("e", tenant="t")
        assert d.call("GET", "/sessions")[1]["open_limit"] == 10 and d.call("GET", "/healthz")[1]["limit"] == 10
        put(d, {"max_sessions": 0, "max_open_sessions": None})
        assert d.open("f", status=429)
        put(d, {"max_sessions": None})
        for s in (a, b, c, e, d.open("f")):
            assert s.close() == 204


@test
def timeouts_and_sizes_count_at_once(d):
    s = d.open("policy-times")
    put(d, {"execute_timeout": 1})
    assert s.run(["sleep", "5"])["timed_out"] and s.run(["sleep", "5"], timeout=4)["timed_out"]
    put(d, {"execute_timeout": 300})
    assert s.run(["sleep", "1.5"])["exit_code"] == 0
    s.sh("head -c 5000 /dev/zero > f")
    put(d, {"max_read_bytes": 4999})
    assert d.call("POST", "/workspaces/policy-times/read_bytes", {"path": "f"})[0] == 400
    put(d, {"max_read_bytes": 8388608})
    assert d.call("POST", "/workspaces/policy-times/read_bytes", {"path": "f"})[0] == 200
    s.close()
    with Daemon(build=suite.BUILD, SANDBOXD_CLEANUP_INTERVAL="1") as e:
        idle = e.open("idle")
        put(e, {"idle_timeout": 1})
        until(lambda: e.call("GET", "/sessions/idle")[0] == 404)
        assert e.call("GET", "/sessions/idle", token=idle.token)[0] == 410


@test
def new_sessions_get_the_new_limits(_):
    with Daemon(build=suite.BUILD) as d:
        put(d, {"mem_limit": "200m", "tmpfs_size": "1m", "default_runtime": "host"})
        s = d.open("new")
        assert str(200 * MIB) in limits(d.state, *MEMORY)
        r = s.sh("head -c 2000000 /dev/zero > /tmp/x")
        assert r["exit_code"] != 0 and "space" in r["stderr"], r
        s.close()


# ---- sessions that live already ----


@test
def limits_reach_living_sessions(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MEM_LIMIT="100m", SANDBOXD_PIDS_LIMIT="64") as d:
        s = d.open("living")
        eat = ["python3", "-c", "b = bytearray(200 << 20); b[::4096] = b'x' * len(b[::4096]); print('had it')"]
        assert s.run(eat)["exit_code"] != 0
        assert str(100 * MIB) in limits(d.state, *MEMORY)
        put(d, {"mem_limit": "400m"})
        until(lambda: str(400 * MIB) in limits(d.state, *MEMORY))
        assert s.run(eat)["stdout"] == "had it\n"
        swap = limits(d.state, "memory.memsw.limit_in_bytes", "memory.swap.max")
        assert swap <= {str(400 * MIB), "0"}, swap
        put(d, {"memswap_limit": "500m"})
        until(lambda: limits(d.state, "memory.memsw.limit_in_bytes", "memory.swap.max") <= {str(500 * MIB), str(100 * MIB)})
        put(d, {"mem_limit": "450m", "memswap_limit": "1g"})
        until(lambda: str(450 * MIB) in limits(d.state, *MEMORY))
        put(d, {"mem_limit": "100m", "memswap_limit": "100m"})
        until(lambda: str(100 * MIB) in limits(d.state, *MEMORY))
        until(lambda: limits(d.state, "memory.memsw.limit_in_bytes", "memory.swap.max") <= {str(100 * MIB), "0"})
        assert s.run(eat)["exit_code"] != 0
        # Processes: more than before, then fewer.
        many = "for i in $(seq 100); do sleep 3 & done 2>/dev/null; jobs -r | wc -l; kill $(jobs -p)"
        put(d, {"pids_limit": 300})
        until(lambda: limits(d.state, "pids.max") == {"301"})
        assert int(s.run(["bash", "-c", many])["stdout"]) == 100
        put(d, {"pids_limit": 50})
        until(lambda: limits(d.state, "pids.max") == {"51"})
        r = s.sh("for i in $(seq 100); do sleep 3 & done; echo all")
        assert "all" not in r["stdout"] and "fork" in r["stderr"], r
        put(d, {"cpus": 0.5, "cpu_shares": 512})
        until(lambda: limits(d.state, "cpu.cfs_quota_us", "cpu.max") & {"50000", "50000 100000"})
        put(d, {"cpus": None, "cpu_shares": None})
        until(lambda: not limits(d.state, "cpu.cfs_quota_us", "cpu.max") & {"50000", "50000 100000"})
        assert "limits_failed" not in d.log(), d.log()
        s.close()


@test
def what_the_policy_did_not_change_stays(_):
    with Daemon(build=suite.BUILD, SANDBOXD_RUNTIMES="one=host,two=host;mem_limit=300m") as d:
        s = d.open("keeps", runtime="two")
        files = [f for f in limit_files(d.state, MEMORY)]
        put(d, {"mem_limit": "500m"})  # of the service: this runtime has its own
        put(d, {"runtimes": {"one": {"mem_limit": "200m"}}})
        put(d, {"cpus": 1})
        until(lambda: limits(d.state, "cpu.cfs_quota_us", "cpu.max") & {"100000", "100000 100000"})
        assert str(300 * MIB) in limits(d.state, *MEMORY) and files
        put(d, {"runtimes": {"two": {"mem_limit": None}}})
        until(lambda: str(500 * MIB) in limits(d.state, *MEMORY))
        s.close()


@test
def memory_that_is_in_use_is_not_taken_away(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MEM_LIMIT="400m") as d:
        s = d.open("uses")
        s.sh("head -c 60000000 /dev/zero > /tmp/x")
        held = s.run(["sh", "-c", "python3 -c \"import time; b = bytearray(150 << 20); b[::4096] = b'x' * len(b[::4096]);"
                      " open('ready', 'w'); time.sleep(60)\" > /dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.05; done"])
        assert held["exit_code"] == 0, held
        answer = put(d, {"mem_limit": "100m"})
        assert answer["mem_limit"] == "100m"
        event = until(lambda: [e for e in d.call("GET", "/sessions/uses/events")[1]["events"] if e["op"] == "limits"])[0]
        assert not event["ok"] and "memory" in event["target"] and event["detail"] == "in use", event
        assert "limits_failed session=uses" in d.log()
        assert str(400 * MIB) in limits(d.state, *MEMORY)
        assert s.sh("pgrep -c python3")["stdout"] == "1\n"  # nobody was killed for it
        s.sh("pkill python3")
        until(lambda: put(d, {}) and str(100 * MIB) in limits(d.state, *MEMORY))  # any change tries again
        # Page cache is: it can be taken back.
        put(d, {"mem_limit": "400m"})
        until(lambda: str(400 * MIB) in limits(d.state, *MEMORY))
        s.sh("rm /tmp/x; head -c 250000000 /dev/zero > cache")
        put(d, {"mem_limit": "120m"})
        until(lambda: str(120 * MIB) in limits(d.state, *MEMORY))
        assert s.sh("stat -c %s cache")["stdout"] == "250000000\n"
        s.close()


@test
def sessions_of_an_earlier_daemon_are_reached(_):
    with kept_state() as state, tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        path = os.path.join(base, "policy.json")
        env = {"SANDBOXD_MEM_LIMIT": "100m", "SANDBOXD_POLICY_OVERRIDES": path}
        d = Daemon(build=suite.BUILD, state=state, **env).start()
        try:
            s = d.open("stays")
            put(d, {"mem_limit": "150m", "cpus": 1})
            until(lambda: str(150 * MIB) in limits(state, *MEMORY))
            for sig in (signal.SIGKILL, signal.SIGTERM):
                d.stop(sig)
                d = Daemon(build=suite.BUILD, state=state, **{**env, "SANDBOXD_PIDS_LIMIT": "100"}).start()
                s.daemon = d
                assert s.sh("echo here")["stdout"] == "here\n"
                # What it was opened with stays, although the setting is another one now.
                assert limits(state, "pids.max") == {"513"} and policy(d)["pids_limit"] == 100
                before = 150 if sig == signal.SIGKILL else 200
                assert str(before * MIB) in limits(state, *MEMORY)
                put(d, {"mem_limit": "200m", "cpus": 0.5 if sig == signal.SIGKILL else 0.7})
                until(lambda: str(200 * MIB) in limits(state, *MEMORY))
                until(lambda: limits(state, "cpu.cfs_quota_us", "cpu.max") & {"50000", "50000 100000", "70000", "70000 100000"})
                assert limits(state, "pids.max") == {"513"}
            # What the file says since also reaches it.
            d.stop(signal.SIGTERM)
            write_file(path, {"mem_limit": "250m", "pids_limit": 300})
            d = Daemon(build=suite.BUILD, state=state, **env).start()
            s.daemon = d
            until(lambda: str(250 * MIB) in limits(state, *MEMORY) and limits(state, "pids.max") == {"301"})
            until(lambda: "300 " in s.sh("grep processes /proc/self/limits")["stdout"])
            assert "limits_failed" not in d.log()
            s.close()
        finally:
            d.stop()  # also its sessions


@test
def sessions_that_sleep_wake_with_the_new_limits(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MEM_LIMIT="100m") as d:
        s = d.open("sleeper")
        assert d.call("POST", "/v1/sessions/sleeper/sleep")[0] == 204
        put(d, {"mem_limit": "300m"})
        assert s.sh("echo up")["stdout"] == "up\n"
        assert str(300 * MIB) in limits(d.state, *MEMORY)
        put(d, {"max_sessions": 1, "evict_idle_after": 0})
        time.sleep(0.1)
        other = d.open("other")
        assert d.call("GET", "/sessions/sleeper")[1]["state"] == "hibernated"
        assert policy(d)["evict_idle_after"] == 0
        put(d, {"max_sessions": 5, "evict_idle_after": None})
        assert s.sh("echo again")["stdout"] == "again\n"
        for x in (s, other):
            assert x.close() == 204


@test
def retention_counts_at_once(_):
    with Daemon(build=suite.BUILD, SANDBOXD_CLEANUP_INTERVAL="1") as d:
        d.open("old", tenant="acme").close(purge=False)
        assert [w["session_id"] for w in d.call("GET", "/workspaces")[1]["workspaces"]] == ["old"]
        status, answer = d.call("POST", "/tokens", {"name": "t", "tenant": "other"})
        assert status == 200 and d.call("POST", "/sessions", {"session_id": "old"}, answer["token"])[0] == 409
        put(d, {"workspace_ttl": 1})
        until(lambda: d.call("GET", "/workspaces")[1].get("workspaces") == [])  # 409 while it is swept
        # Nothing is left that would be anybody's.
        until(lambda: d.call("POST", "/sessions", {"session_id": "old"}, answer["token"])[0] == 200)
        d.call("DELETE", "/sessions/old?purge=true")


# ---- what stays ----


@test
def a_change_outlives_the_daemon(_):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with kept_state() as state:
            d = Daemon(build=suite.BUILD, state=state).start()
            put(d, {"max_sessions": 5, "cpus": 1.5, "runtimes": {"host": {"mem_limit": "300m"}}})
            after = put(d, {"cpus": None, "runtimes": {"host": {"pids_limit": 99}}})
            d.stop(sig)
            with Daemon(build=suite.BUILD, state=state) as d2:
                assert policy(d2) == after, (policy(d2), after)
                assert d2.call("GET", "/healthz")[1]["limit"] == 5
                got = rows(state)
                assert len(got) == 2 and got[0][0] == "service token", got
                assert json.loads(got[1][2]) == {"max_sessions": 5, "cpus": None, "runtimes": {"host": {"mem_limit": "300m", "pids_limit": 99}}}


@test
def what_can_no_longer_be_had_is_left_out(_):
    with kept_state() as state:
        with Daemon(build=suite.BUILD, state=state, SANDBOXD_RUNTIMES="one=host,two=host") as d:
            put(d, {"max_sessions": 50, "max_open_sessions": 60, "idle_timeout": 77, "default_runtime": "two",
                    "runtimes": {"two": {"mem_limit": "300m"}, "one": {"mem_limit": "200m"}}})
        with Daemon(build=suite.BUILD, state=state, SANDBOXD_RUNTIMES="one=host") as d:
            p = policy(d)
            assert p["idle_timeout"] == 77 and p["max_open_sessions"] == 60 and p["default_runtime"] == "one"
            assert p["runtimes"][0]["mem_limit"] == "200m"
            log = d.log()
            assert log.count("policy_skipped") == 2 and "Unknown runtime: two" in log, log
        # It wasn't forgotten.
        with Daemon(build=suite.BUILD, state=state, SANDBOXD_RUNTIMES="one=host,two=host") as d:
            assert policy(d)["default_runtime"] == "two" and "policy_skipped" not in d.log()


@test
def a_full_disk_changes_nothing(_):
    with kept_state() as base:
        state = os.path.join(base, "disk")
        os.mkdir(state)
        image, filler = os.path.join(base, "image"), os.path.join(state, "filler")
        with open(image, "wb") as f:
            f.truncate(32 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, state], check=True)
        try:
            with Daemon(build=suite.BUILD, state=state) as d:
                put(d, {"max_sessions": 9})
                before = policy(d)
                with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
                    while True:
                        f.write(b"x" * 4096)
                # The log may have room for a few more.
                for i in range(2000):
                    status, answer = d.call("PUT", "/policy", {"max_sessions": 10 + i, "default_runtime": "host"})
                    if status != 200:
                        break
                    before = answer
                assert status == 507 and "as it was" in answer["detail"], (status, answer)
                assert policy(d) == before
                os.unlink(filler)
                assert put(d, {"max_sessions": 3})["max_sessions"] == 3
            with Daemon(build=suite.BUILD, state=state) as d:
                assert policy(d)["max_sessions"] == 3
        finally:
            until(lambda: subprocess.run(["umount", state], capture_output=True).returncode == 0)


@test
def changes_at_once_are_made_one_after_the_other(d):
    import threading

    before, n = policy(d), len(rows(d.state))
    answers = []

    def change(i):
        answers.append(put(d, {"max_sessions": 1000 + i, "max_open_sessions": 1000 + i})["max_sessions"])

    threads = [threading.Thread(target=change, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(answers) == list(range(1000, 1020)) and len(rows(d.state)) == n + 20
    assert policy(d)["max_sessions"] == policy(d)["max_open_sessions"]
    put(d, {"max_sessions": before["max_sessions"], "max_open_sessions": None})


# ---- the overrides file ----


def write_file(path, body, mode=0o644):
    with open(path + ".new", "w") as f:
        f.write(body if isinstance(body, str) else json.dumps(body))
    os.chmod(path + ".new", mode)
    os.rename(path + ".new", path)


@test
def the_overrides_file(_):
    with kept_state() as state, tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        path = os.path.join(base, "policy.json")
        env = {"SANDBOXD_POLICY_OVERRIDES": path, "SANDBOXD_CLEANUP_INTERVAL": "1"}
        with Daemon(build=suite.BUILD, state=state, **env) as d:  # missing: normal
            assert policy(d)["max_sessions"] == 100 and "policy_file" not in d.log()
            write_file(path, {"max_sessions": 11, "idle_timeout": 600})
            until(lambda: policy(d)["max_sessions"] == 11)
            put(d, {"max_sessions": 12})  # the last one counts
            time.sleep(1.5)
            assert policy(d)["max_sessions"] == 12
            before = policy(d)
            for i, bad in enumerate(("{", "", '{"max_sessions": 13, "image": "x"}', '{"max_sessions": 13, "runtimes": {"nosuch": {}}}',
                                     '{"max_sessions": 13, "idle_timeout": null}', "[]", '{"cpus": NaN}')):
                write_file(path, bad)
                until(lambda: d.log().count("is ignored") == i + 1)
                assert policy(d) == before, bad
            time.sleep(1.5)
            assert d.log().count("is ignored") == 7  # said once
            os.unlink(path)
            time.sleep(1.2)
            assert policy(d) == before
            os.mkfifo(path)
            until(lambda: "not a file" in d.log())
            os.unlink(path)
            write_file(path, {"max_sessions": 14})
            until(lambda: policy(d)["max_sessions"] == 14)
            assert rows(state)[-1][0] == "overrides file"
        with Daemon(build=suite.BUILD, state=state, **env) as d:
            # Read already: a change that was made later would still count.
            put(d, {"max_sessions": 15})
        with Daemon(build=suite.BUILD, state=state, **env) as d:
            assert policy(d)["max_sessions"] == 15
        write_file(path, {"max_sessions": 16})
        with Daemon(build=suite.BUILD, state=state, **env) as d:
            assert policy(d)["max_sessions"] == 16  # before anybody was served
        with Daemon(build=suite.BUILD, state=state) as d:
            assert policy(d)["max_sessions"] == 16
        write_file(path, {"max_sessions": 17}, mode=0o600)  # root's: garretd isn't
        with Daemon(build=suite.BUILD, state=state, **env) as d:
            assert policy(d)["max_sessions"] == 16 and "Permission denied" in d.log()


# ---- start ----


@test
def settings_that_make_no_sense_are_refused_by_name(_):
    rows_ = [(n, v) for n in ("MAX_SESSIONS", "MAX_OPEN_SESSIONS", "MAX_SESSIONS_PER_TENANT", "EVICT_IDLE_AFTER", "IDLE_TIMEOUT",
                              "CLEANUP_INTERVAL", "EXECUTE_TIMEOUT", "MAX_READ_BYTES", "MAX_RUNNING_COMMANDS", "MAX_WORKERS", "CPU_SHARES",
                              "PIDS_LIMIT", "CPUS", "WORKSPACE_TTL", "CONTAINER_TTL", "SANDBOX_UID", "PORT", "MEM_LIMIT", "TMPFS_SIZE")
             for v in ("-1", "x")]
    rows_ += [("EXECUTE_TIMEOUT", "0"), ("CLEANUP_INTERVAL", "0"), ("IDLE_TIMEOUT", "0"), ("MAX_READ_BYTES", "0"), ("CPUS", "0"),
              ("EXECUTE_TIMEOUT", "99999999999"), ("CLEANUP_INTERVAL", "99999999999"), ("MEM_LIMIT", "0"), ("MEMSWAP_LIMIT", "1m"),
              ("RUNTIMES", "a=@nosuch"), ("RUNTIMES", "a=host;mem_limit=2g;memswap_limit=1g"), ("RUNTIMES", "a=host;pids_limit=-5"),
              ("DEFAULT_RUNTIME", "nosuch"), ("MAX_OPEN_SESSIONS", "5"), ("POLICY_OVERRIDES", "policy.json")]
    for name, value in rows_:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
        env[f"SANDBOXD_{name}"] = value
        p = subprocess.run([os.path.join(suite.BUILD, "garretd"), "--check"], env=env, capture_output=True, text=True, timeout=20)
        assert p.returncode == 1 and f"SANDBOXD_{name}" in p.stderr, (name, value, p)


sys.exit(suite.main(shared=True))
