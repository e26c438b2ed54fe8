#!/usr/bin/env python3
"""The list for a reviewer: what went wrong in other services of this kind, and that it doesn't here (as root).

usage: defects.py [--build DIR] [NAME...]

One test for each of the weaknesses 1-25 of the published service that its wire reference lists. Other files look
closer at most of them; here each stands alone and is short. What can't apply, because there are no containers:

    No.   why not
    4     Nothing is looked for by name in a list that is shared with other programs: a session is a directory and a
          control group below the state directory's own. That two daemons don't touch each other is tested all the same.
    21    There are no images of which a part could be hidden below the workspace.
    22    No user is put into an image: the host runtime's is 1000. Asking for another one is refused (24).
    23    There is no third party that pauses a session or half removes it. A session whose processes are stopped
          from outside is tested in its place.
    1, 5, 8, 9 (parts)   "container" reads "what a session has": its processes, its directory, its groups.
    20 (part)            No runtime in between writes into a command's output; what the kernel says is tested.
"""

from __future__ import annotations

import contextlib
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
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import TOP, Daemon, Session  # noqa: E402
from suite import SLOW, test  # noqa: E402

STARTED: list[Daemon] = []  # by the test that runs


def until(condition, seconds: float = 15.0):
    end = time.time() + seconds * SLOW
    while True:
        found = condition()
        if found or time.time() > end:
            assert found, "not so in time"
            return found
        time.sleep(0.01)


@contextlib.contextmanager
def kept_state():
    with tempfile.TemporaryDirectory(prefix="garret-defects-") as state:
        try:
            yield state
        finally:
            end_all()


def begin(state: str, **env) -> Daemon:
    STARTED.append(Daemon(build=suite.BUILD, state=state, **env))
    return STARTED[-1].start()


def end_all() -> None:
    """What a test that failed has left."""
    while STARTED:
        d = STARTED.pop()
        if d.process and d.process.poll() is None:
            d.process.send_signal(signal.SIGINT)
            try:
                d.process.wait(20)
            except subprocess.TimeoutExpired:
                d.process.kill()
                d.process.wait()


def kill_and_restart(d: Daemon, *sessions: Session, **env) -> None:
    os.kill(d.pid, signal.SIGKILL)
    d.process.wait()
    d.env.update(env)
    d.start()
    for s in sessions:
        s.daemon = d


def status(d: Daemon, sid: str) -> int:
    return d.call("GET", f"/sessions/{sid}")[0]


def try_run(s: Session, argv):
    return s.daemon.call("POST", f"/sessions/{s.id}/run", {"argv": argv, "run_id": uuid.uuid4().hex}, s.token)


def sleep_session(d: Daemon, sid: str) -> None:
    until(lambda: d.call("POST", f"/v1/sessions/{sid}/sleep")[0] == 204)


def raw_request(d: Daemon, method: str, path: str, body: bytes, token: str) -> tuple[int, dict, bytes]:
    """With the header fields; the body as it is."""
    u = urlsplit(d.url)
    with socket.create_connection((u.hostname, u.port), timeout=60) as c:
        c.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {token}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        got = b""
        while piece := c.recv(65536):
            got += piece
    head, _, data = got.partition(b"\r\n\r\n")
    first, *fields = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}, data


@test
def defect_01_the_token_of_an_ended_session_is_not_called_wrong():
    """Clients took the end of their session for a wrong password."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_IDLE_TIMEOUT="1", SANDBOXD_CLEANUP_INTERVAL="1")
        closed, idle = d.open(), d.open()
        assert closed.close() == 204
        assert try_run(closed, ["true"])[0] == 410
        until(lambda: status(d, idle.id) == 404)
        assert try_run(idle, ["true"])[0] == 410
        kill_and_restart(d)
        for s in (closed, idle):
            s.daemon = d
            assert try_run(s, ["true"])[0] == 410
            assert d.call("GET", f"/sessions/{s.id}", token="x" * 43)[0] == 401
        assert d.stop() == 0


@test
def defect_02_the_age_of_files_counts_from_their_last_use():
    """A session that was open for longer than the lifetime of files lost them when it idled out."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_WORKSPACE_TTL="4", SANDBOXD_IDLE_TIMEOUT="1", SANDBOXD_CLEANUP_INTERVAL="1")
        s, end = d.open("long"), time.time() + 6
        s.sh("echo kept > f")
        while time.time() < end:
            assert s.sh("cat f")["stdout"] == "kept\n"
            time.sleep(0.2)
        until(lambda: status(d, "long") == 404)
        ended, kept = time.time(), os.path.join(state, "workspaces/long/workspace/f")
        while time.time() < ended + 2:  # two sweeps
            assert os.path.exists(kept)
            time.sleep(0.1)
        until(lambda: not os.path.exists(kept))
        assert d.stop() == 0


@test
def defect_03_a_sweep_removes_only_what_is_its_own():
    """Everything old in the root went, whosever it was, and now and then a workspace that was being opened."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_WORKSPACE_TTL="1", SANDBOXD_CLEANUP_INTERVAL="1")
        root = os.path.join(state, "workspaces")
        os.makedirs(f"{root}/lost+found")
        os.makedirs(f"{root}/foreign/workspace")
        open(f"{root}/a-file", "w").close()
        os.symlink("/etc", f"{root}/a-link")
        for name in os.listdir(root):
            if not name.startswith("."):
                os.utime(f"{root}/{name}", (1, 1), follow_symlinks=False)
        d.open("old").close(purge=False)
        os.utime(f"{root}/old", (1, 1))
        end = time.time() + 5
        while time.time() < end:  # a sweep may come before an open or after it, never into it
            s = d.open("opened", reuse=True)
            s.sh("echo x > f")
            time.sleep(0.02)
            assert s.sh("cat f")["stdout"] == "x\n"
            s.close(purge=False)
            with contextlib.suppress(FileNotFoundError):
                os.utime(f"{root}/opened", (1, 1))
        assert not os.path.exists(f"{root}/old")
        assert {"lost+found", "foreign", "a-file", "a-link"} <= set(os.listdir(root)) and os.path.isdir(f"{root}/foreign/workspace")
        assert d.stop() == 0


@test
def defect_04_another_daemons_sessions_are_not_touched():
    """What only had a similar name was removed."""
    with kept_state() as one, kept_state() as two:
        a, b = begin(one, SANDBOXD_WORKSPACE_TTL="1", SANDBOXD_CLEANUP_INTERVAL="1"), begin(two)
        theirs = b.open("same")
        theirs.sh("echo theirs > f; sleep 1000 & echo $! > pid")
        a.open("same").sh("echo ours > f")
        kill_and_restart(a)
        a.stop()
        a.start()
        time.sleep(1.5)
        a.stop()
        assert theirs.sh("cat f; kill -0 $(cat pid) && echo lives")["stdout"] == "theirs\nlives\n"
        b.stop()


@test
def defect_05_a_crash_leaves_nothing_that_nobody_counts():
    """After a kill what ran went on for ever and counted against no ceiling."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_MAX_SESSIONS="2", SANDBOXD_IDLE_TIMEOUT="3", SANDBOXD_CLEANUP_INTERVAL="1")
        s, other = d.open("a"), d.open("b")
        s.sh("sleep 1000.25 & echo $! > pid")
        kill_and_restart(d, s, other)
        d.open("c", status=429)
        assert s.sh("kill -0 $(cat pid) && echo lives")["stdout"] == "lives\n"
        until(lambda: status(d, "a") == 404 and status(d, "b") == 404)
        assert "1000.25" not in subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout
        d.open("c")
        assert d.stop() == 0


@test
def defect_06_a_restart_changes_nothing_about_a_session():
    """It came back with the default runtime, the old limits, and without its tenant."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_RUNTIMES="a=host,b=host;mem_limit=96m")
        s = d.open("s", runtime="b", tenant="t")
        kill_and_restart(d, s)
        info = d.call("GET", "/sessions/s?usage=true")[1]
        assert (info["runtime"], info["tenant"], info["usage"]["memory_limit_bytes"]) == ("b", "t", 96 << 20), info
        assert d.call("POST", "/sessions", {"session_id": "s", "reuse": True, "runtime": "a"})[1]["reason"] == "runtime"
        code, again = d.call("POST", "/sessions", {"session_id": "s", "attach": True})
        assert (code, again["token"], again["session"]["runtime"]) == (200, s.token, "b"), again
        # Of a runtime that isn't there any more it ends, and is nothing else under its name.
        kill_and_restart(d, s, SANDBOXD_RUNTIMES="a=host")
        assert try_run(s, ["true"])[0] == 410
        assert d.stop() == 0


@test
def defect_07_who_makes_room_has_no_command_admitted():
    """A command that was admitted, but not begun, had its session put to sleep under it, and was told that it is gone."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_MAX_SESSIONS="2", SANDBOXD_EVICT_IDLE_AFTER="0", SANDBOXD_MAX_OPEN_SESSIONS="40")
        first, second = d.open("first"), d.open("second")
        codes: dict = {}
        end = time.time() + 6 * SLOW

        def command(s: Session) -> None:
            n = 0
            while time.time() < end:
                n += 1
                code, answer = try_run(s, ["echo", str(n)])
                codes[("run", code)] = codes.get(("run", code), 0) + 1
                assert code == 429 or (code == 200 and answer["stdout"] == f"{n}\n" and answer["exit_code"] == 0), (code, answer)

        def opener(k: int) -> None:
            n = 0
            while time.time() < end:
                n += 1
                code, answer = d.call("POST", "/sessions", {"session_id": f"o{k}-{n % 3}", "reuse": True})
                codes[("open", code)] = codes.get(("open", code), 0) + 1
                assert code in (200, 429) or (code == 409 and answer["reason"] == "opening"), (code, answer)

        failed = []

        def guarded(fn, arg) -> None:
            try:
                fn(arg)
            except Exception as e:  # noqa: BLE001
                failed.append(e)

        threads = [threading.Thread(target=guarded, args=x) for x in
                   ((command, first), (command, first), (command, second), (opener, 1), (opener, 2), (opener, 3))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print(f"     {codes}")
        assert not failed, failed
        slept = d.log().count("kind=sleep session=first") + d.log().count("kind=sleep session=second")
        assert codes[("run", 200)] > 20 and codes[("open", 200)] > 5 and slept > 3, (codes, slept)
        assert d.stop() == 0


@contextlib.contextmanager
def system_engine():
    """An engine of its own, that can be taken away and come back: the functions to do so, and its socket."""
    with tempfile.TemporaryDirectory(prefix="garret-defects-") as top:
        os.chmod(top, 0o755)
        conf, sock = os.path.join(top, "engine.conf"), os.path.join(top, "engine.sock")
        with open(conf, "w") as f:
            f.write(f"state_dir = {top}/engine\nallow_uids = 1862270975\n")
        life: list = []

        def start() -> None:
            life.append(subprocess.Popen([os.path.join(TOP, suite.BUILD, "garret-engine"), "--system", "--socket", sock, "--config", conf],
                                         stderr=subprocess.DEVNULL))
            until(lambda: os.path.exists(sock))
            os.chown(sock, 0, 1862270975)

        def stop(sig=signal.SIGKILL) -> None:
            life[-1].send_signal(sig)
            life[-1].wait(20)
            if os.path.exists(sock):
                os.unlink(sock)

        start()
        try:
            yield start, stop, sock
        finally:
            if life[-1].poll() is None:
                stop(signal.SIGTERM)


@test
def defect_08_an_engine_that_is_away_is_not_a_session_that_died():
    """Any hiccup of what is asked whether a session lives was its death."""
    with system_engine() as (start, stop, sock), kept_state() as state:
        d = begin(state, GARRET_ENGINE=sock)
        awake, asleep = d.open("awake"), d.open("asleep")
        awake.sh("sleep 1000 & echo $! > pid")
        asleep.sh("echo kept > f; echo kept > ~/f")
        sleep_session(d, "asleep")
        stop()
        until(lambda: not d.call("GET", "/healthz")[1]["ready"])
        for method, path, body in (("POST", "/sessions", b"{}"), ("POST", "/v1/sessions/asleep/wake", b""),
                                   ("POST", "/sessions/asleep/run", json.dumps({"argv": ["true"], "run_id": uuid.uuid4().hex}).encode())):
            code, fields, data = raw_request(d, method, path, body, d.token)
            assert code == 503 and int(fields["retry-after"]) > 0, (path, code, fields, data)
        assert awake.sh("kill -0 $(cat pid) && echo lives")["stdout"] == "lives\n"
        assert {x["session_id"]: x["alive"] for x in d.call("GET", "/sessions")[1]["sessions"]} == {"awake": True, "asleep": False}
        start()
        until(lambda: d.call("GET", "/healthz")[1]["ready"])
        assert awake.sh("kill -0 $(cat pid) && echo lives")["stdout"] == "lives\n"
        assert asleep.sh("cat f ~/f")["stdout"] == "kept\nkept\n"
        assert d.call("GET", "/healthz")[1]["open_sessions"] == 2
        assert awake.close() == 204 and asleep.close() == 204
        assert d.stop() == 0


@test
def defect_09_a_failed_wake_leaves_a_session():
    """What could not be brought back was neither alive nor asleep, and nothing ever ended it."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_IDLE_TIMEOUT="4", SANDBOXD_CLEANUP_INTERVAL="1")
        s, closed, left = d.open("s"), d.open("closed"), d.open("left")
        s.sh("echo kept > f; echo kept > ~/f")
        for x in ("s", "closed", "left"):
            sleep_session(d, x)
        ways = [os.path.join(state, "workspaces", x) for x in ("s", "closed", "left")]
        for way in ways:
            os.rename(way, way + ".away")
        for _ in range(3):
            code, answer = try_run(s, ["true"])
            assert code == 410 and "gone" in answer["detail"], (code, answer)
            assert d.call("GET", "/sessions/s")[1]["state"] == "hibernated"
        os.rename(ways[0] + ".away", ways[0])
        assert s.sh("cat f ~/f")["stdout"] == "kept\nkept\n"
        assert closed.close(purge=False) == 204 and status(d, "closed") == 404
        assert d.call("POST", "/v1/sessions/left/wake")[0] == 410
        until(lambda: status(d, "left") == 404)  # reaped, as any that sleeps
        assert d.stop() == 0


@test
def defect_09_a_wake_that_fails_late_takes_nothing_along():
    """The same, where the environment is already being built: home and /var/tmp must not go with the attempt."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        s.sh("echo kept > ~/f; echo kept > /var/tmp/f")
        sleep_session(d, "s")
        part = os.path.join(state, "layers/s/vartmp")
        os.rename(part, part + ".away")
        code, answer = try_run(s, ["true"])
        assert code == 502 and "wake" in answer["detail"], (code, answer)
        os.rename(part + ".away", part)
        assert s.sh("cat ~/f /var/tmp/f")["stdout"] == "kept\nkept\n"
        s.close()
        assert d.stop() == 0


ESCAPES = [
    "rm -rf /tmp/* /tmp/.[!.]* /var/tmp/*; {}",
    "trap '' TERM INT HUP; {}",
    "setsid sh -c '{}' & wait",
    "(setsid sh -c 'trap \"\" TERM; {}' &) ; sleep 100",
    "cat /dev/zero > /tmp/full 2>/dev/null; {}",
    "kill -STOP 1 2>/dev/null; kill -KILL 1 2>/dev/null; {}",
    "python3 -c 'import os\nfor _ in range(3):\n if os.fork(): os._exit(0)\n os.setsid()\nos.execvp(\"sh\", [\"sh\", \"-c\", \"\"\"{}\"\"\"])'; sleep 100",
]


@test
def defect_10_nothing_inside_escapes_the_deadline_or_a_stop():
    """Whoever removed a file in /tmp, or began a session of processes of his own, was out of reach."""
    with kept_state() as state:
        d = begin(state)
        for i, way in enumerate(ESCAPES):
            for stopped in (False, True):
                s = d.open()
                loop = f"while :; do date +%s.%N >> /workspace/beat; sleep 0.05; done"
                rid, got = uuid.uuid4().hex, {}
                t = threading.Thread(target=lambda: got.update(s.run(["sh", "-c", way.format(loop)], timeout=60 if stopped else 1, run_id=rid)))
                t.start()
                until(lambda: s.sh("wc -l < beat 2>/dev/null")["stdout"].strip() not in ("", "0"))
                t0 = time.time()
                if stopped:
                    assert s.stop(rid) == 204
                t.join(15 * SLOW)
                assert not t.is_alive() and time.time() - t0 < 8 * SLOW, (i, stopped)
                assert got["timed_out"] is not stopped, (i, stopped, got)
                # What has left the group is a process in the background, as published; it is the session's, and ends with it.
                background = "setsid" in way
                beats = [s.sh("wc -l < beat; sleep 0.5; wc -l < beat")["stdout"].split() for _ in range(1)][0]
                assert background or beats[0] == beats[1], (i, stopped, beats)
                beat = os.path.join(state, "workspaces", s.id, "workspace", "beat")
                s.close(purge=False)
                size = os.path.getsize(beat)
                time.sleep(0.2)
                assert os.path.getsize(beat) == size, (i, stopped)
        assert d.stop() == 0


@test
def defect_11_commands_leave_no_files_inside_and_share_no_id():
    """Files of killed commands stayed in /tmp, and an id that was used twice stopped the wrong one."""
    with kept_state() as state:
        d = begin(state)
        s, rid, got = d.open(), uuid.uuid4().hex, {}
        for i in range(5):
            assert s.sh("sleep 60", timeout=0.2)["timed_out"]
        t = threading.Thread(target=lambda: got.update(s.sh("sleep 60", run_id=rid)))
        t.start()
        until(lambda: d.call("GET", f"/sessions/{s.id}/runs/{rid}", token=s.token)[0] == 200)
        code, _ = d.call("POST", f"/sessions/{s.id}/run", {"argv": ["echo", "another"], "run_id": rid}, s.token)
        assert code == 409
        assert s.stop(rid) == 204
        t.join(20)
        assert got["exit_code"] in (128 + 15, 128 + 9), got  # the latter when it had not begun yet
        assert s.sh("find /tmp /var/tmp ~ /workspace /run /dev/shm -type f")["stdout"] == ""
        assert d.stop() == 0


@test
def defect_12_a_command_ends_when_its_client_has_gone():
    """It ran on, to its deadline, for nobody."""
    with kept_state() as state:
        d = begin(state)
        s = d.open()
        body = json.dumps({"argv": ["sh", "-c", "while :; do date >> beat; sleep 0.05; done"], "run_id": uuid.uuid4().hex}).encode()
        u = urlsplit(d.url)
        with socket.create_connection((u.hostname, u.port)) as c:
            c.sendall(f"POST /sessions/{s.id}/run HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {s.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: s.sh("cat beat 2>/dev/null")["stdout"])
        time.sleep(4.5 * SLOW)  # the time to come back, and that of the stop
        first, second = s.sh("wc -l < beat; sleep 0.5; wc -l < beat")["stdout"].split()
        assert first == second
        assert d.stop() == 0


@test
def defect_13_a_policy_is_checked_whole_counts_at_once_and_is_kept():
    """Half of a refused change stayed, ceilings kept their old value, null broke later requests, and a restart forgot it all."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_MAX_SESSIONS="2", SANDBOXD_EVICT_IDLE_AFTER="3600")
        before = d.call("GET", "/policy")[1]
        for body in ({"max_sessions": 1, "mem_limit": "many"}, {"max_sessions": 1, "idle_timeout": None}, {"idle_timeout": 5, "execute_timeout": None},
                     {"max_sessions": 5, "default_runtime": "none"}, {"max_sessions": 5, "max_open_sessions": 3}, {"cpus": 1, "pids_limit": -1}):
            assert d.call("PUT", "/policy", body)[0] in (400, 422), body
            assert d.call("GET", "/policy")[1] == before, body
        assert d.call("PUT", "/policy", {"max_sessions": 3})[0] == 200
        d.open(), d.open(), d.open()
        d.open(status=429)
        assert d.call("PUT", "/policy", {"max_sessions": 1, "execute_timeout": 1})[0] == 200
        d.open(status=429)
        kill_and_restart(d)
        now = d.call("GET", "/policy")[1]
        assert (now["max_sessions"], now["execute_timeout"]) == (1, 1), now
        assert d.stop() == 0


@test
def defect_14_who_is_refused_costs_nobody_his_session():
    """A sleeper was thrown out for an open that was then refused, or failed."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_MAX_SESSIONS="2", SANDBOXD_EVICT_IDLE_AFTER="0", SANDBOXD_MAX_OPEN_SESSIONS="2", SANDBOXD_MAX_SESSIONS_PER_TENANT="1")
        d.open("a", tenant="t")
        d.open("sleeper")
        sleep_session(d, "sleeper")
        os.makedirs(os.path.join(state, "workspaces/fails/workspace"))  # root's: can't be had
        for body, want in (({"tenant": "t"}, 429), ({"session_id": "none", "attach": True}, 404), ({"runtime": "none"}, 400), ({"session_id": "fails"}, 502)):
            code, answer = d.call("POST", "/sessions", body)
            assert code == want, (body, code, answer)
            assert status(d, "sleeper") == 200, body
        d.open("c")
        assert status(d, "sleeper") == 404
        assert d.stop() == 0


@test
def defect_15_the_end_of_a_command_and_an_attach_are_use():
    """A session was reaped just after its long command, because only the beginning counted."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_IDLE_TIMEOUT="2", SANDBOXD_CLEANUP_INTERVAL="1")
        runs, attached = d.open("runs"), d.open("attached")
        t = threading.Thread(target=lambda: runs.sh("sleep 4"))
        t.start()
        end = time.time() + 4
        while time.time() < end:
            assert d.call("POST", "/sessions", {"session_id": "attached", "attach": True})[0] == 200
            assert d.call("POST", "/sessions", {"session_id": "attached", "reuse": True})[1]["token"] == attached.token
            time.sleep(0.5)
        t.join()
        ended = time.time()
        while time.time() < ended + 1.5:
            assert status(d, "runs") == 200
            time.sleep(0.1)
        until(lambda: status(d, "runs") == 404 and status(d, "attached") == 404)
        assert d.stop() == 0


@test
def defect_16_a_name_that_is_not_utf8_breaks_no_listing():
    """One such file made a listing, and a whole page of trees, an internal error."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        s.run(["python3", "-c", "open(b'/workspace/a\\xff', 'w').write('x'); open(b'/workspace/b', 'w').write('y')"])
        for path, body in (("/sessions/s/files/list", {"path": "/workspace"}), ("/workspaces/s/ls", {"path": "."}),
                           ("/v1/sessions/s/files/list", {"path": "/workspace"})):
            code, answer = d.call("POST", path, body)
            entries = answer if isinstance(answer, list) else answer["entries"]
            assert code == 200 and sorted(e["name"] for e in entries) == ["a\ufffd", "b"], (path, answer)
        for path, body in (("/workspaces/s/tree", {}), ("/workspaces/trees", {"sessions": ["s", "none"]})):
            code, answer = d.call("POST", path, body)
            assert code == 200 and "a\ufffd" in json.dumps(answer, ensure_ascii=False), (path, answer)
        assert d.stop() == 0


@test
def defect_17_no_text_poisons_the_log():
    """A lone surrogate in a path or an argument made the log unreadable until it had scrolled out."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        texts = (rb"\ud800", rb"a\udfffb", rb"\udc80\ud800", rb"\ud83d", rb"\u0007\u001b[31m", rb"\ufffe\uffff")
        for text in texts:
            for path, body in (("/sessions/s/files/stat", b'{"path": "/workspace/%s"}' % text), ("/sessions/s/files/mkdir", b'{"path": "/workspace/%s"}' % text),
                               ("/sessions/s/run", b'{"argv": ["echo", "%s"], "run_id": "%s"}' % (text, uuid.uuid4().hex.encode())),
                               ("/sessions/s/run", b'{"argv": ["true"], "env": {"%s": "%s"}, "run_id": "%s"}' % (text, text, uuid.uuid4().hex.encode())),
                               ("/v1/sessions/s/files/glob", b'{"pattern": "%s"}' % text)):
                code, _, data = raw_request(d, "POST", path, body, s.token)
                assert code < 500, (path, text, code, data)
                code, _, data = raw_request(d, "GET", "/sessions/s/events", b"", s.token)
                assert code == 200 and json.loads(data.decode("utf-8")), (path, text)
        for path in ("/sessions/s/runs", "/v1/events"):
            code, _, data = raw_request(d, "GET", path, b"", d.token)
            assert code == 200 and json.loads(data.decode("utf-8"))
        kill_and_restart(d, s)
        code, events = d.call("GET", "/sessions/s/events")
        assert code == 200 and len(events["events"]) > len(texts), events
        assert d.stop() == 0


@test
def defect_18_files_that_nobody_may_read_are_read_and_removed():
    """What the session had closed to others was an internal error, and a purge left it and said that it had not."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        s.sh("echo secret > closed; chmod 600 closed; mkdir -p dir/deep; echo x > dir/deep/f; chmod 000 dir/deep; echo y > none; chmod 000 none")
        s.close(purge=False)
        assert d.call("POST", "/workspaces/s/read_bytes", {"path": "closed"})[0] == 200
        long = "n" * 300
        for op, path in (("read_bytes", "none"), ("read", "none"), ("ls", "dir/deep"), ("read", long), ("ls", "/".join(["x" * 200] * 30)), ("read", "dir"), ("ls", "closed")):
            code, answer = d.call("POST", f"/workspaces/s/{op}", {"path": path})
            assert code < 500, (op, path[:20], code, answer)
        code, answer = d.call("POST", "/workspaces/trees", {"sessions": ["s"]})
        assert code == 200 and "closed" in json.dumps(answer), answer
        s = d.open("s", attach=True)
        assert s.close(purge=True) == 204
        assert not os.path.exists(os.path.join(state, "workspaces/s"))
        until(lambda: not os.listdir(os.path.join(state, "workspaces/.trash")))
        assert d.stop() == 0


@test
def defect_18_a_purge_that_could_not_be_is_said():
    """A place where something is mounted can't be moved away: whoever purges hears of it, and it stays his."""
    with kept_state() as state:
        d = begin(state)
        other = d.call("POST", "/tokens", {"name": "other", "scope": "tenant:other"})[1]
        for how in ("awake", "asleep", "closed"):
            s = d.open(how, tenant="t")
            s.sh("echo secret > f")
            way = os.path.join(state, "workspaces", how)
            if how == "asleep":
                sleep_session(d, how)
            elif how == "closed":
                s.close(purge=False)
            subprocess.run(["mount", "--bind", way, way], check=True)
            try:
                code, answer = d.call("DELETE", f"/workspaces/{how}" if how == "closed" else f"/sessions/{how}?purge=true")
                assert code in (409, 500) and os.path.exists(way + "/workspace/f"), (how, code, answer)
                assert d.call("POST", "/sessions", {"session_id": how}, other["token"])[0] == 409
            finally:
                subprocess.run(["umount", way], check=False)
        assert d.stop() == 0


@test
def defect_19_no_errno_is_an_internal_error():
    """Names too long, a full disk and the like were 500 on the file routes."""
    with kept_state() as state:
        d = begin(state, SANDBOXD_TMPFS_SIZE="1m")
        s = d.open("s")
        s.sh("ln -s loop loop; mkdir d; touch d/f f; mkfifo p")
        long = "/workspace/" + "n" * 300
        deep = "/workspace/" + "/".join(["d" * 100] * 60)
        for path in (long, deep, "/workspace/loop", "/workspace/loop/x", "/workspace/f/x", "/workspace/d", "/workspace/p", "/proc/self/mem", "/proc/1/mem",
                     "/dev/full", "/proc/kmsg", "/root/x", "/usr/x", "/"):
            for op in ("read", "stat", "realpath", "list", "mkdir", "remove"):
                if (op, path) in (("remove", "/workspace/d"), ("mkdir", deep)):
                    continue
                code, answer = d.call("POST", f"/sessions/s/files/{op}", {"path": path}, s.token)
                assert code < 500, (op, path[:40], code, answer)
        big = b"x" * (2 << 20)
        for path in ("/tmp/big", long, deep, "/dev/full", "/usr/x", "/workspace/f/x", "/workspace/d", "/workspace/loop"):
            code, answer = d.call("POST", f"/sessions/s/files/write?path={path}", big, s.token)
            assert code < 500 and (code >= 400), (path[:40], code, answer)
        code, answer = d.call("POST", "/sessions/s/files/write?path=/tmp/big", big, s.token, headers={"X-Garret-Errors": "1"})
        assert code == 507, (code, answer)
        assert s.sh("ls -A /tmp")["stdout"] == ""
        assert d.stop() == 0


@test
def defect_20_what_cannot_be_started_says_so_on_stderr():
    """The message stood in the output of a program that never ran."""
    with kept_state() as state:
        d = begin(state)
        s = d.open()
        s.sh("echo '#!/nowhere/interpreter' > script; chmod 755 script; echo text > plain; mkdir dir; printf '\\177ELFxx' > elf; chmod 755 elf")
        for argv, code in ((["no-such-program"], 127), (["/no/such"], 127), (["/workspace/plain"], 126), (["/workspace/dir"], 126), (["/workspace/elf"], (126, 127)),
                           (["/workspace/script"], (126, 127)), ([""], (126, 127))):
            r = s.run(argv)
            assert r["exit_code"] in (code if isinstance(code, tuple) else (code,)) and r["stdout"] == "" and r["stderr"], (argv, r)
        for argv in (["true", "x" * (200 << 10)], ["true"] + ["y" * 1000] * 3000, ["true"] + ["z"] * 60000 + ["w" * 1000] * 1900):
            code, answer = try_run(s, argv)
            assert code == 413 and answer["detail"], (len(argv), code, answer)
        assert s.run(["echo", "x" * 100000])["stdout"] == "x" * 100000 + "\n"
        assert d.stop() == 0


@test
def defect_23_a_session_that_stands_still_is_not_dead():
    """What was paused counted as dead, and starting it again was refused."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        s.sh("echo kept > f; sleep 1000 & echo $! > pid")
        init = int(re.findall(r"session_opened session=s pid=(\d+)", d.log())[-1])
        os.kill(init, signal.SIGSTOP)
        try:
            assert d.call("GET", "/sessions/s")[1]["alive"] is True
            code, answer = d.call("POST", "/sessions", {"session_id": "s", "reuse": True})
            assert code == 200 and answer["token"] == s.token, (code, answer)
        finally:
            os.kill(init, signal.SIGCONT)
        assert s.sh("cat f; kill -0 $(cat pid) && echo lives")["stdout"] == "kept\nlives\n"
        assert d.stop() == 0


@test
def defect_23_a_session_that_stands_still_for_good_can_be_got_rid_of():
    """After a restart one whose first process says nothing must not hold its name and its place for ever."""
    with kept_state() as state:
        d = begin(state)
        s, other = d.open("s"), d.open("other")
        s.sh("echo kept > f")
        init = int(re.findall(r"session_opened session=s pid=(\d+)", d.log())[-1])
        os.kill(init, signal.SIGSTOP)
        kill_and_restart(d, s, other)
        assert other.sh("echo fine")["stdout"] == "fine\n"
        assert try_run(s, ["true"])[0] == 503
        until(lambda: try_run(s, ["true"])[0] == 410, 45)
        until(lambda: not os.path.exists(f"/proc/{init}") and d.call("GET", "/sessions/s")[1]["alive"] is False)
        again = d.open("s", reuse=True)
        assert again.sh("cat f")["stdout"] == "kept\n"
        assert d.stop() == 0


@test
def defect_24_settings_that_make_no_sense_are_refused_at_the_start():
    """Negative numbers, no time at all and runtimes that don't exist were found out much later."""
    wrong = [("SANDBOXD_EXECUTE_TIMEOUT", "0"), ("SANDBOXD_EXECUTE_TIMEOUT", "-5"), ("SANDBOXD_CLEANUP_INTERVAL", "0"), ("SANDBOXD_CLEANUP_INTERVAL", "-1"),
             ("SANDBOXD_MAX_SESSIONS", "-1"), ("SANDBOXD_MAX_SESSIONS", "two"), ("SANDBOXD_IDLE_TIMEOUT", "-1"), ("SANDBOXD_CPUS", "-1"), ("SANDBOXD_CPUS", "nan"),
             ("SANDBOXD_CPUS", "inf"), ("SANDBOXD_PIDS_LIMIT", "-1"), ("SANDBOXD_MEM_LIMIT", "-1g"), ("SANDBOXD_MEM_LIMIT", "much"), ("SANDBOXD_PORT", "65536"),
             ("SANDBOXD_RUNTIMES", "x=@nothing"), ("SANDBOXD_DEFAULT_RUNTIME", "nothing"), ("SANDBOXD_MAX_RUNNING_COMMANDS", "0"), ("SANDBOXD_WORK_DIR", "../x"),
             ("SANDBOXD_WORKSPACE_TTL", "-1"), ("SANDBOXD_CONTAINER_TTL", "-1"), ("SANDBOXD_EVICT_IDLE_AFTER", "-1"), ("SANDBOXD_SANDBOX_UID", "1001"),
             ("SANDBOXD_MEMSWAP_LIMIT", "1m"), ("GARRET_RUN_RETENTION", "-1"), ("GARRET_EVENT_RETENTION", "-1"), ("GARRET_SLEEP_AFTER", "-1")]
    with kept_state() as state:
        for name, value in wrong:
            try:
                d = begin(state, **{name: value})
            except RuntimeError as e:
                assert "ended with 1" in str(e) and name in str(e), (name, value, str(e))
            else:
                d.stop()
                raise AssertionError(f"{name}={value} was taken")


@test
def defect_25_a_refusal_is_json_and_no_larger_than_it_must_be():
    """NaN in a refused body was an internal error, and a large value came back whole."""
    with kept_state() as state:
        d = begin(state)
        s = d.open("s")
        rid = uuid.uuid4().hex.encode()
        for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"[NaN]", b'{"a": NaN}'):
            for path, body in (("/sessions", b'{"session_id": %s}' % number), ("/sessions", b'{"reuse": %s}' % number),
                               ("/sessions/s/run", b'{"argv": %s, "run_id": "%s"}' % (number, rid)),
                               ("/sessions/s/run", b'{"argv": ["true"], "timeout_seconds": %s, "run_id": "%s"}' % (number, rid))):
                code, fields, data = raw_request(d, "POST", path, body, d.token)
                assert code == 422 and fields["content-type"].startswith("application/json"), (path, body, code, data)
                json.loads(data, parse_constant=lambda x: (_ for _ in ()).throw(AssertionError(x)))
        for value in (b'"' + b"x" * (1 << 20) + b'"', b"[" + b"1," * 60000 + b"1]", b'{"k": "' + b"\\u0001" * 100000 + b'"}', b"[" * 200 + b"]" * 200):
            for path, body in (("/sessions", b'{"reuse": %s}' % value), ("/sessions/s/run", b'{"argv": ["true"], "env": {"A": %s}, "run_id": %s}' % (value, value)),
                               ("/sessions/s/files/stat", b'{"path": %s, "more": %s}' % (value, value))):
                code, fields, data = raw_request(d, "POST", path, body, d.token)
                assert code in (413, 422, 404, 400, 409) and len(data) < 16384, (path, code, len(data))
        assert d.stop() == 0


sys.exit(suite.main())
