#!/usr/bin/env python3
"""Starting, stopping, killing; ceilings, tokens and names: a daemon's life, through HTTP (as root).

usage: lifecycle.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import TOKEN, Daemon, Session  # noqa: E402
from suite import SLOW, test  # noqa: E402


def children(pid: int) -> set[int]:
    """All descendants."""
    kids: dict[int, list[int]] = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                kids.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(p))
        except OSError:
            continue
    todo, found = [pid], set()
    while todo:
        for k in kids.get(todo.pop(), []):
            found.add(k)
            todo.append(k)
    return found


def starts(pids) -> dict[int, str]:
    out = {}
    for p in pids:
        try:
            fields = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
            if fields[0] != "Z":
                out[p] = fields[19]
        except OSError:
            pass
    return out


def all_gone(before: dict[int, str], seconds: float) -> None:
    end = time.time() + seconds
    while True:
        left = {p for p, s in starts(before).items() if before[p] == s}
        if not left:
            return
        assert time.time() < end, left
        time.sleep(0.02)


def cgroups_of(state: str) -> set[str]:
    """Slot directories of the engine over a state directory: its sessions' names tell them."""
    names = set(os.listdir(os.path.join(state, "sessions"))) if os.path.isdir(os.path.join(state, "sessions")) else set()
    found = set()
    for d, dirs, _ in os.walk("/sys/fs/cgroup"):
        found |= {os.path.join(d, x) for x in dirs if x in names}
    return found


@test
def sigterm_answers_what_runs_and_leaves_nothing(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        s = d.open("work")
        s.sh("echo kept > f")
        got = {}

        def long_run():
            got["r"] = s.sh("sleep 1; echo done")

        t = threading.Thread(target=long_run)
        t.start()
        time.sleep(0.3)
        mine = starts(children(d.pid) | {d.pid})
        groups = cgroups_of(state)
        assert groups, "the test looks in the wrong place"
        assert d.stop() == 0, d.log()
        t.join(30)
        assert got["r"]["stdout"] == "done\n", got
        all_gone(mine, 5)
        assert not [g for g in groups if os.path.exists(g)]
        with Daemon(build=suite.BUILD, state=state) as d2:
            s2 = d2.open("work", attach=True)
            assert s2.sh("cat f")["stdout"] == "kept\n"
            assert s2.token != s.token
            # The token of the ended generation says so, one that never was doesn't.
            assert d2.call("GET", "/sessions/work", token=s.token)[0] == 410
            assert d2.call("GET", "/sessions/work", token="x" * 43)[0] == 401
            s2.close()


@test
def after_sigkill_sessions_go_on_and_an_end_leaves_nothing(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        sessions = [d.open() for _ in range(5)]
        for s in sessions:
            s.sh("setsid sleep 1000 >/dev/null 2>&1 & sleep 0.1")
        mine = starts(children(d.pid))
        groups = cgroups_of(state)
        assert len(mine) > 10 and groups, (mine, groups)
        d.stop(signal.SIGKILL)
        with Daemon(build=suite.BUILD, state=state) as d2:
            assert {x["session_id"] for x in d2.call("GET", "/sessions")[1]["sessions"]} == {s.id for s in sessions}
            for s in sessions:
                s.daemon = d2
                assert s.sh("echo on")["stdout"] == "on\n"
        all_gone(mine, 10)
        assert not [g for g in groups if os.path.exists(g)]
        with Daemon(build=suite.BUILD, state=state) as d3:
            assert d3.call("GET", "/sessions")[1]["sessions"] == []
            for s in sessions:
                assert d3.call("POST", f"/sessions/{s.id}/run", {"argv": ["true"], "run_id": uuid.uuid4().hex}, s.token)[0] == 410
            end = time.time() + 10
            while os.listdir(os.path.join(state, "trash")):
                assert time.time() < end, os.listdir(os.path.join(state, "trash"))
                time.sleep(0.05)
            d3.open().close()


@test
def a_second_daemon_on_the_same_state_is_refused(d):
    p = subprocess.run([os.path.join(d.build, "garretd")], env={**os.environ, "GARRET_STATE_DIR": d.state, "SANDBOXD_PORT": "0", "SANDBOXD_TOKEN": TOKEN},
                       capture_output=True, text=True, timeout=30)
    assert p.returncode == 1 and "another garretd" in p.stderr, p
    assert d.call("GET", "/healthz")[0] == 200


@test
def garretd_is_not_root_and_has_no_capability(d):
    status = open(f"/proc/{d.pid}/status").read()
    assert re.search(r"^Uid:\s+1862270975\s+1862270975", status, re.M), status
    assert re.search(r"^CapEff:\s+0+$", status, re.M) and re.search(r"^CapPrm:\s+0+$", status, re.M), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M) and re.search(r"^Groups:\s*$", status, re.M), status
    assert os.stat(os.path.join(d.state, "daemon")).st_mode & 0o777 == 0o700
    assert all(os.stat(f).st_mode & 0o77 == 0 for f in glob.glob(os.path.join(d.state, "daemon", "*")))


@test
def a_token_is_made_once_and_kept(_):
    with tempfile.TemporaryDirectory() as state:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
        os.chmod(state, 0o755)
        tokens = []
        for _i in range(2):
            p = subprocess.Popen([os.path.join(suite.BUILD, "garret"), "serve", "--port", "0", "--state", state], env=env, stderr=subprocess.PIPE, text=True)
            log = ""
            while " ready " not in log:
                line = p.stderr.readline()
                assert line, log
                log += line
            url = re.search(r"url=(\S+)", log)[1]
            tokens.append(open(os.path.join(state, "daemon", "token")).read())
            assert "token" in log and tokens[-1] not in log
            r = subprocess.run([os.path.join(suite.BUILD, "garret"), "session", "list"], env={**env, "GARRET_URL": url, "GARRET_STATE_DIR": state}, capture_output=True, text=True)
            assert r.returncode == 0, r
            p.terminate()
            assert p.wait(30) == 0
            p.stderr.close()
        assert len(tokens[0]) == 43 and tokens[0] == tokens[1]
        assert os.stat(os.path.join(state, "daemon", "token")).st_mode & 0o777 == 0o600


@test
def any_id_is_a_session(d):
    """Also one that can't be the name of a host as it is."""
    for sid in ("a_b", "x" * 64, "a" * 63 + "_", "A.b-c_d", "0", "a.", "a-", "9_"):
        s = d.open(sid)
        host = sid[:63].replace("_", "-")
        assert s.sh("hostname; getent hosts $(hostname) >/dev/null && echo known")["stdout"] == f"{host}\nknown\n", sid
        s.sh("echo x > f")
        assert s.close(purge=False) == 204
        assert d.call("POST", f"/workspaces/{sid}/read", {"path": "f"})[0] == 200, sid
        assert d.call("DELETE", f"/workspaces/{sid}")[0] == 204


@test
def ceilings_are_429_and_give_nothing_up(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MAX_SESSIONS="3", SANDBOXD_MAX_SESSIONS_PER_TENANT="2") as d:
        a = [d.open(tenant="t"), d.open(tenant="t")]
        d.open(tenant="t", status=429)
        a.append(d.open(tenant="u"))
        no = d.open(status=429)
        assert "3" in no["detail"], no
        assert all(s.sh("true")["exit_code"] == 0 for s in a)
        a.pop().close()
        a.append(d.open())
        assert d.call("GET", "/healthz")[1]["sessions"] == 3
        # At once: never more than the ceiling.
        a.pop().close()
        got = []
        threads = [threading.Thread(target=lambda: got.append(d.call("POST", "/sessions", {})[0])) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert sorted(got) == [200] + [429] * 7, got


@test
def one_name_is_one_session(d):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(d.call("POST", "/sessions", {"session_id": "same", "reuse": True}))) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    codes = sorted(a[0] for a in answers)
    assert codes[0] == 200 and set(codes) <= {200, 409}, codes
    assert len({a[1]["token"] for a in answers if a[0] == 200}) == 1
    assert all(a[1]["reason"] == "opening" for a in answers if a[0] == 409), answers
    code, a = d.call("POST", "/sessions", {"session_id": "same"})
    assert code == 409 and a["reason"] == "exists", a
    code, a = d.call("POST", "/sessions", {"session_id": "same", "reuse": True, "runtime": "nope"})
    assert code == 400 and "Unknown runtime" in a["detail"], a
    assert d.call("POST", "/sessions", {"session_id": "never-was", "attach": True})[0] == 404
    assert d.call("POST", "/sessions", {"attach": True})[0] == 400
    first = Session(d, "same", next(a[1]["token"] for a in answers if a[0] == 200))
    first.sh("echo x > kept")
    assert first.close(purge=False) == 204
    assert d.call("GET", "/sessions/same")[0] == 404
    again = d.open("same", attach=True)
    assert again.sh("cat kept")["stdout"] == "x\n" and again.token != first.token
    assert again.close(purge=True) == 204
    assert d.call("POST", "/sessions", {"session_id": "same", "attach": True})[0] == 404
    assert not os.path.exists(os.path.join(d.state, "workspaces", "same"))


@test
def a_killed_init_ends_its_session_only(d):
    a, b = d.open("dies"), d.open("lives")
    a.sh("echo x > kept")
    pid = a.run(["sh", "-c", "cut -d' ' -f1 /proc/self/stat; sleep 0.1"])  # the session works
    assert pid["exit_code"] == 0
    inits = [p for p in children(d.pid) if "garret-init" in open(f"/proc/{p}/comm").read()]
    # Which one is a's: the one whose child runs a marked sleep.
    rid, got = uuid.uuid4().hex, {}
    t = threading.Thread(target=lambda: got.update(r=d.call("POST", f"/sessions/dies/run", {"argv": ["sleep", "987.5"], "run_id": rid}, a.token)))
    t.start()
    end = time.time() + 10
    victim = None
    while victim is None and time.time() < end:
        for p in children(d.pid):
            try:
                if "987.5" in open(f"/proc/{p}/cmdline").read():
                    victim = int(open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
        time.sleep(0.02)
    assert victim in inits, (victim, inits)
    os.kill(victim, signal.SIGKILL)
    t.join(20)
    assert got["r"][0] == 410, got
    assert d.call("POST", "/sessions/dies/run", {"argv": ["true"], "run_id": uuid.uuid4().hex}, a.token)[0] == 410
    info = d.call("GET", "/sessions/dies")[1]
    assert info["alive"] is False and info["state"] == "running", info
    assert b.sh("echo fine")["stdout"] == "fine\n"
    c = d.open("dies", reuse=True)
    assert c.token != a.token and c.sh("cat kept")["stdout"] == "x\n"
    assert d.call("GET", "/sessions/dies", token=a.token)[0] == 410
    b.close()
    c.close()


@test
def idle_sessions_end_and_busy_ones_stay(_):
    with Daemon(build=suite.BUILD, SANDBOXD_IDLE_TIMEOUT="2", SANDBOXD_CLEANUP_INTERVAL="1") as d:
        idle, busy = d.open("idle"), d.open("busy")
        t = threading.Thread(target=lambda: busy.sh("sleep 5"))
        t.start()
        time.sleep(4.5)
        assert [s["session_id"] for s in d.call("GET", "/sessions")[1]["sessions"]] == ["busy"]
        assert d.call("GET", "/sessions/idle", token=idle.token)[0] == 410
        t.join()


@test
def usage_and_events_tell_the_truth(d):
    s = d.open("usage", tenant="acme")
    s.sh("exit 3")
    s.run(["no such program"])
    s.sh("sleep 60", timeout=0.2)
    s.run(["python3", "-c", "x = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; open('/tmp/x','w').write('y'); time.sleep(0)"])
    code, ev = d.call("GET", "/sessions/usage/events", token=s.token)
    assert [e["detail"] for e in ev["events"]] == ["exit 3", "exit 127", "timed out", "exit 0"], ev
    assert [e["seq"] for e in ev["events"]] == [1, 2, 3, 4] and ev["latest_seq"] == 4
    assert ev["events"][1]["target"] == "'no such program'" and ev["events"][0]["op"] == "run"
    assert d.call("GET", "/sessions/usage/events?after=3")[1]["events"][0]["seq"] == 4
    info = d.call("GET", "/sessions/usage?usage=true")[1]
    assert info["tenant"] == "acme" and info["usage"]["pids"] >= 1 and info["usage"]["memory_limit_bytes"] == 1 << 30, info
    assert info["usage"]["memory_bytes"] > 0
    time.sleep(0.2)
    info = d.call("GET", "/sessions/usage?usage=true")[1]
    assert info["usage"]["cpu_percent"] is not None and info["usage"]["cpu_percent"] >= 0, info
    s.close()


@test
def the_log_keeps_the_newest_two_hundred(d):
    s = d.open()
    for i in range(1, 421):
        s.run(["true"])
        if i in (1, 7, 8, 9, 199, 200, 201, 420):
            ev = d.call("GET", f"/sessions/{s.id}/events", token=s.token)[1]
            assert [e["seq"] for e in ev["events"]] == list(range(max(1, i - 199), i + 1)), i
            assert ev["latest_seq"] == i and all(e["target"] == "true" for e in ev["events"])
    s.close()


@test
def the_unix_socket_serves_as_well(_):
    with tempfile.TemporaryDirectory() as t:
        os.chmod(t, 0o777)
        path = os.path.join(t, "s")
        for _i in range(2):  # the second one replaces what the first one left
            Daemon(build=suite.BUILD, GARRET_SOCKET=path).start().stop()
        with Daemon(build=suite.BUILD, GARRET_SOCKET=path) as d:
            c = socket.socket(socket.AF_UNIX)
            c.connect(path)
            c.sendall(f"GET /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {d.token}\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while piece := c.recv(65536):
                got += piece
            c.close()
            assert b"200 OK" in got and json.loads(got.split(b"\r\n\r\n", 1)[1])["sessions"] == [], got


@test
def an_unprivileged_daemon_uses_the_system_engine(_):
    uid = 54321
    with tempfile.TemporaryDirectory() as t:
        os.chmod(t, 0o755)
        conf, sock, state = (os.path.join(t, n) for n in ("engine.conf", "engine.sock", "daemon-state"))
        with open(conf, "w") as f:
            f.write(f"state_dir = {t}/engine\nallow_uids = {uid}\nmax_memory = 512m\n")
        os.mkdir(state, 0o755)
        os.chown(state, uid, uid)
        engine = subprocess.Popen([os.path.join(suite.BUILD, "garret-engine"), "--system", "--socket", sock, "--config", conf])
        try:
            end = time.time() + 20
            while not os.path.exists(sock):
                assert time.time() < end and engine.poll() is None
                time.sleep(0.02)
            os.chown(sock, 0, uid)  # as --group would
            with Daemon(build=suite.BUILD, state=state, before=["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"],
                        GARRET_ENGINE=sock, SANDBOXD_MEM_LIMIT="256m") as d:
                s = d.open("theirs")
                assert s.sh("id -u; echo x > f; cat f")["stdout"] == "1000\nx\n"
                assert f"Uid:\t{uid}\t{uid}" in open(f"/proc/{d.pid}/status").read()
                s.close(purge=False)
                assert os.path.exists(os.path.join(t, "engine", "workspaces", "theirs"))
            # Above the operator's bound: refused by the engine, whatever the daemon is told.
            with Daemon(build=suite.BUILD, state=state, before=["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"],
                        GARRET_ENGINE=sock, SANDBOXD_MEM_LIMIT="1g") as d:
                code, a = d.call("POST", "/sessions", {})
                assert code == 502 and "memory" in a["detail"], (code, a)
        finally:
            engine.terminate()
            assert engine.wait(20) == 0


@test
def readiness_is_notified(_):
    with tempfile.TemporaryDirectory() as t:
        os.chmod(t, 0o777)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(os.path.join(t, "notify"))
        os.chmod(os.path.join(t, "notify"), 0o777)
        s.settimeout(10)
        with Daemon(build=suite.BUILD, NOTIFY_SOCKET=os.path.join(t, "notify")):
            assert s.recv(100) == b"READY=1"
        assert s.recv(100) == b"STOPPING=1"
        s.close()


@test
def more_commands_than_allowed_wait_within_their_deadline(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MAX_RUNNING_COMMANDS="2") as d:
        s, got = d.open(), []
        threads = [threading.Thread(target=lambda: got.append(s.sh("sleep 0.5; echo ok", timeout=30))) for _ in range(6)]
        t0 = time.time()
        for t in threads:
            t.start()
        time.sleep(0.1)
        late = s.sh("echo never", timeout=0.2)
        assert late["timed_out"] and late["stdout"] == "", late
        for t in threads:
            t.join()
        assert all(r["stdout"] == "ok\n" for r in got) and 1.4 < time.time() - t0 < 10 * SLOW, (got, time.time() - t0)
        s.close()


def raw(d, method, path, token, body=b""):
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body


def connect(d):
    return socket.create_connection(("127.0.0.1", int(d.url.rsplit(":", 1)[1])), timeout=60)


def read_all(c) -> bytes:
    got = b""
    while piece := c.recv(65536):
        got += piece
    c.close()
    return got


@test
def a_run_and_the_close_of_its_session_in_one_breath(d):
    answers = set()
    for _ in range(60):
        s = d.open()
        run = raw(d, "POST", f"/sessions/{s.id}/run", s.token, json.dumps({"argv": ["true"], "run_id": uuid.uuid4().hex}).encode())
        end = raw(d, "DELETE", f"/sessions/{s.id}", s.token)
        a, b = connect(d), connect(d)
        a.sendall(run[:-1])
        b.sendall(end[:-1])
        time.sleep(0.01)
        a.sendall(run[-1:])
        b.sendall(end[-1:])
        answers.add(read_all(a)[9:12])
        read_all(b)
        assert d.process.poll() is None, d.log()[-2000:]
    assert answers <= {b"200", b"410", b"404"}, answers


@test
def a_token_must_be_good_when_the_body_is_here(d):
    s = d.open("changes-hands")
    run = raw(d, "POST", "/sessions/changes-hands/run", s.token, json.dumps({"argv": ["cat", "secret"], "run_id": uuid.uuid4().hex}).encode())
    c = connect(d)
    c.sendall(run[:-5])
    time.sleep(0.1)
    s.close()
    other = d.open("changes-hands")
    other.sh("echo secret > secret")
    c.sendall(run[-5:])
    got = read_all(c)
    assert b" 410 " in got.split(b"\r\n")[0] and b"exit_code" not in got, got
    other.close()


@test
def half_sent_bodies_are_bounded_in_sum(d):
    s, conns = d.open(), []
    for _ in range(40):
        c = connect(d)
        c.sendall(raw(d, "POST", f"/sessions/{s.id}/run", s.token, b"x" * 11534336)[:-1])
        conns.append(c)
    rss = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{d.pid}/status").read())[1])
    assert rss < 300 * 1024 * (3 if SLOW > 1 else 1), f"{rss} KiB"
    conns[-1].sendall(b"x")
    assert b" 503 " in conns[-1].recv(64)
    for c in conns:
        c.close()
    assert s.sh("echo fine")["stdout"] == "fine\n"
    s.close()


@test
def one_session_does_not_keep_others_from_running(_):
    with Daemon(build=suite.BUILD, SANDBOXD_MAX_RUNNING_COMMANDS="8") as d:
        crowd, other = d.open(), d.open()
        threads = [threading.Thread(target=lambda: crowd.sh("sleep 2")) for _ in range(30)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        t0 = time.time()
        assert other.run(["true"], timeout=5)["exit_code"] == 0
        assert time.time() - t0 < 1 * SLOW, time.time() - t0
        for t in threads:
            t.join()


@test
def an_init_that_says_nothing_loses_its_session(d):
    s = d.open("silent")
    rid, got = uuid.uuid4().hex, {}
    t = threading.Thread(target=lambda: got.update(r=d.call("POST", "/sessions/silent/run", {"argv": ["sleep", "876.5"], "run_id": rid, "timeout_seconds": 1}, s.token)))
    t.start()
    end, victim = time.time() + 10, None
    while victim is None and time.time() < end:
        for p in children(d.pid):
            try:
                if "876.5" in open(f"/proc/{p}/cmdline").read():
                    victim = int(open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    os.kill(victim, signal.SIGSTOP)
    t0 = time.time()
    t.join(60)
    assert got["r"][0] == 410 and 25 < time.time() - t0 < 45, (got, time.time() - t0)
    assert d.call("GET", "/sessions/silent")[0] == 404
    assert d.open().sh("true")["exit_code"] == 0


def init_of(d, sid) -> int:
    end = time.time() + 10
    while not (found := re.findall(rf"session_opened session={re.escape(sid)} pid=(\d+)", d.log())):
        assert time.time() < end, d.log()[-2000:]
        time.sleep(0.02)  # the engine's line may come a moment after the answer
    return int(found[-1])


@test
def what_a_client_sends_to_a_silent_session_is_bounded(d):
    s = d.open("quiet")
    body = json.dumps({"argv": ["sleep", "60"]}).encode()
    c = connect(d)
    c.sendall(f"POST /v1/sessions/quiet/stream HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {s.token}\r\nConnection: Upgrade\r\n"
              f"Upgrade: garret-stream/1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    assert b" 101 " in c.recv(1000)
    init = init_of(d, "quiet")
    os.kill(init, signal.SIGSTOP)
    rss = lambda: int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{d.pid}/status").read())[1])  # noqa: E731
    before, sent, end = rss(), 0, time.time() + 10
    c.settimeout(1)
    # Signals and sizes aren't acknowledged: only reading no more can bound them.
    frames = (b"\x02\0\0\0\x01\x1c" + b"\x01\0\0\0\x04\0\x18\0\x50") * 4000
    try:
        while time.time() < end:
            sent += c.send(frames)
    except TimeoutError:
        pass
    grown = rss() - before
    print(f"     {sent >> 10} KiB were taken, memory grew by {grown} KiB")
    assert time.time() < end, f"{sent >> 20} MiB went in, and there was no end"
    assert grown < 8192 * (4 if SLOW > 1 else 1), f"{grown} KiB"
    os.kill(init, signal.SIGCONT)
    c.close()
    assert s.sh("echo there")["stdout"] == "there\n"
    s.close()


COUNTED = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
n = 0
while libc.inotify_init1(0) >= 0:
    n += 1
queues = 0
while libc.mq_open(b"/q%d" % queues, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
    queues += 1
print(n, queues)
import time
time.sleep(3)
"""


@test
def what_the_kernel_counts_by_user_is_counted_apart(d):
    """A session at its limit of watches or queues takes nothing from the host or from another one."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    s, other, got = d.open(), d.open(), {}
    t = threading.Thread(target=lambda: got.update(r=s.run(["python3", "-c", COUNTED])))
    t.start()
    time.sleep(1.5 * SLOW)
    fd = libc.inotify_init1(0)
    assert fd >= 0, "the host has no watches left"
    os.close(fd)
    r = other.run(["python3", "-c", COUNTED.replace("time.sleep(3)", "")])
    t.join()
    mine, theirs = [int(x) for x in got["r"]["stdout"].split()], [int(x) for x in r["stdout"].split()]
    assert 0 < mine[0] <= 1024 and theirs[0] >= mine[0], (mine, theirs)
    assert theirs[1] >= mine[1], (mine, theirs)
    # A trigger on the host's pressure is a timer in the kernel that lasts.
    for name in ("memory", "cpu", "io"):
        r = s.sh(f"[ ! -e /proc/pressure/{name} ] || echo 'some 150000 1000000' > /proc/pressure/{name} && echo made")
        assert "made" not in r["stdout"] or not os.path.exists(f"/proc/pressure/{name}"), r
    s.close()
    other.close()


@test
def a_database_that_cannot_be_used_is_refused_not_overwritten(_):
    for content, word in ((b"not a database at all" * 100, "not a database"), (None, "newer")):
        with tempfile.TemporaryDirectory() as state:
            Daemon(build=suite.BUILD, state=state).start().stop()
            db = os.path.join(state, "daemon", "garret.db")
            if content is None:
                import sqlite3

                c = sqlite3.connect(db)
                c.execute("PRAGMA user_version=99")
                c.commit()
                c.close()
                for f in glob.glob(db + "*"):
                    os.chown(f, 1862270975, 1862270975)
                content = open(db, "rb").read()
            else:
                for f in glob.glob(db + "-*"):
                    os.unlink(f)
                open(db, "wb").write(content)
            try:
                Daemon(build=suite.BUILD, state=state).start()
                raise AssertionError("it started")
            except RuntimeError as e:
                assert word in str(e), e
            assert open(db, "rb").read() == content


sys.exit(suite.main(shared=True))
