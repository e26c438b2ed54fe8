#!/usr/bin/env python3
"""What goes wrong around a daemon: a clear answer, and nobody else is hurt (as root).

usage: faults.py [--build DIR] [NAME...]

Whole disks that are full or read-only, databases of other versions and descriptors that run out one
by one are in tests/fault/resources.py; a second daemon on one directory in lifecycle.py.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPException

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import Daemon  # noqa: E402
from suite import SLOW, Skip, test, until  # noqa: E402


def clear(status: int, answer, word: str) -> None:
    """An error whose text has the word in it."""
    assert status >= 400 and word in answer["detail"] and len(answer["detail"].split()) > 2, (status, answer)


@contextlib.contextmanager
def of_two(state: str | None = None, **env):
    """(daemon, a session, the other one, which must be well at the end)"""
    with tempfile.TemporaryDirectory(prefix="garret-faults-") as own:
        with Daemon(build=suite.BUILD, state=state or own, **env) as d:
            s, other = d.open("s"), d.open("other")
            other.sh("echo kept > f")
            yield d, s, other
            assert other.sh("cat f")["stdout"] == "kept\n"


def kill_and_start(d: Daemon, between=lambda: None) -> None:
    os.kill(d.pid, signal.SIGKILL)
    d.process.wait()
    between()
    os.unlink(d.log_path)
    d.start()


@contextlib.contextmanager
def small_directory(mib: int = 4):
    """A state directory with little room; workspaces are elsewhere."""
    with tempfile.TemporaryDirectory(prefix="garret-faults-") as top:
        os.chmod(top, 0o755)  # garretd is not root when it goes there
        state, workspaces = os.path.join(top, "state"), os.path.join(top, "workspaces")
        os.mkdir(state)
        os.mkdir(workspaces, 0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "garret-faults", state], check=True)
        try:
            yield state, workspaces
        finally:
            subprocess.run(["umount", "-l", state], check=True)


def fill(path: str) -> None:
    with open(path, "wb", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(b"x" * 4096):
            pass


@test
def no_room_for_the_database():
    with small_directory() as (state, root), of_two(state, SANDBOXD_WORKSPACE_ROOT=root) as (d, s, other):
        fill(f"{state}/ballast")
        refused = None
        for n in range(60):  # what the database has allocated is used up first
            status, answer = d.call("POST", "/sessions", {"session_id": f"n{n}"})
            if status != 200:
                refused = status, answer
                break
        assert refused and refused[0] == 507, refused
        assert re.search("[Nn]o space|full", refused[1]["detail"]), refused
        # The answer would be lost with garretd, but nothing else is wrong with the run.
        assert s.sh("echo hi > g; cat g")["stdout"] == "hi\n" and other.sh("cat f")["stdout"] == "kept\n"
        os.unlink(f"{state}/ballast")
        until(lambda: d.call("POST", "/sessions", {"session_id": "late", "reuse": True})[0] == 200)
        kill_and_start(d)
        assert s.sh("cat g")["stdout"] == "hi\n"


@test
def a_workspace_that_is_deleted_behind_our_back():
    with of_two() as (d, s, _):
        sleeper, gone = d.open("sleeper"), os.path.join(d.state, "workspaces", "sleeper")
        sleeper.sh("echo x > f")
        assert d.call("POST", "/v1/sessions/sleeper/sleep")[0] == 204
        shutil.rmtree(gone)
        status, answer = d.call("POST", "/sessions/sleeper/run", {"argv": ["true"], "run_id": "0" * 32}, sleeper.token)
        assert status == 410, (status, answer)
        clear(status, answer, "files of session sleeper are gone")
        assert sleeper.close() == 204
        fresh = d.open("sleeper")
        assert fresh.sh("cat f 2>&1; echo y > f; cat f")["stdout"].endswith("y\n")
        fresh.close()
        # Of one that is awake its processes go on; in the directory itself nothing can be made any more.
        s.sh("echo x > f")
        shutil.rmtree(os.path.join(d.state, "workspaces", "s"))
        assert "No such file" in s.sh("echo y > g")["stderr"]
        assert s.sh("cd /tmp && echo z > z && cat z")["stdout"] == "z\n"
        assert s.close() == 204
        fresh = d.open("s")
        assert fresh.sh("ls; echo y > f; cat f")["stdout"] == "y\n"


@test
def a_wake_that_fails_loses_nothing():
    with of_two() as (d, s, _):
        s.sh("echo w > f; echo h > ~/h")
        assert d.call("POST", "/v1/sessions/s/sleep")[0] == 204
        time.sleep(0.3)  # the stock is full again
        helpers = [p for p, parent in named(d, "garret-zygote").items() if parent in named(d, "garret-zygote")]
        assert helpers
        for p in helpers:
            os.kill(p, signal.SIGSTOP)
        got = []
        t = threading.Thread(target=lambda: got.append(d.call("POST", "/v1/sessions/s/wake")))
        t.start()
        time.sleep(0.3)
        for p in helpers:
            os.kill(p, signal.SIGKILL)
        t.join()
        clear(*got[0], "Cannot wake session s")
        until(lambda: d.call("POST", "/v1/sessions/s/wake")[0] == 204)
        assert s.sh("cat f ~/h")["stdout"] == "w\nh\n"


def named(d: Daemon, name: str) -> dict[int, int]:
    """Descendants of that name, with their parents."""
    parents, found = {}, {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{p}/stat") as f:
            text = f.read()
            parents[int(p)] = int(text.rsplit(")", 1)[1].split()[1])
            if text[text.index("(") + 1:text.rindex(")")] == name:
                found[int(p)] = parents[int(p)]

    def ours(p: int) -> bool:
        while p > 1 and p != d.pid:
            p = parents.get(p, 0)
        return p == d.pid

    return {p: parent for p, parent in found.items() if ours(p)}


@test
def a_slow_engine_costs_no_output():
    """Nothing is tidied up before it is known what belongs to whom."""
    with of_two() as (d, s, _):
        body = {"argv": ["sh", "-c", "echo >> marks; head -c 300000 /dev/zero | tr '\\0' x"], "run_id": "a" * 32}
        before = d.call("POST", "/sessions/s/run", body, s.token)

        def hold() -> None:
            # As long as another engine is thought to be at work this one waits.
            subprocess.Popen(["flock", os.path.join(d.state, "lock"), "sleep", "0.7"])
            until(lambda: subprocess.run(["flock", "-n", os.path.join(d.state, "lock"), "true"], check=False).returncode)

        kill_and_start(d, hold)
        assert d.call("POST", "/sessions/s/run", body, s.token) == before
        assert s.sh("wc -l < marks")["stdout"].strip() == "1"


@test
def a_sleep_that_is_cut_off():
    """Its session is found awake, and has all it needs for what its commands write."""
    with of_two() as (d, s, _):
        out = "head -c 300000 /dev/zero | tr '\\0' x"
        assert len(s.sh(out)["stdout"]) == 300000
        engine = next(iter(named(d, "garret-engine")))
        os.kill(engine, signal.SIGSTOP)
        t = threading.Thread(target=attempt, args=(d, "s/sleep", "/v1/sessions/"))
        t.start()
        time.sleep(0.2)
        os.kill(next(iter(named(d, "garret-keeper"))), signal.SIGKILL)
        kill_and_start(d, lambda: os.kill(engine, signal.SIGKILL))
        t.join()
        assert d.call("GET", "/sessions/s")[1]["state"] == "running"
        for _i in range(4):
            assert len(s.sh(out)["stdout"]) == 300000


@test
def what_sleeps_is_removed_by_the_next_engine():
    with of_two() as (d, s, other):
        s.sh("echo s > f")
        assert d.call("POST", "/v1/sessions/s/sleep")[0] == 204
        workspace = os.path.join(d.state, "workspaces", "s")
        assert os.path.isdir(workspace)
        engine = next(iter(named(d, "garret-engine")))
        os.kill(engine, signal.SIGSTOP)
        got = []
        t = threading.Thread(target=lambda: got.append(d.call("DELETE", "/sessions/s?purge=true")))
        t.start()
        time.sleep(0.3)
        os.kill(engine, signal.SIGKILL)
        t.join()
        assert got[0][0] == 204 and not os.path.exists(workspace), got
        until(lambda: other.sh("true")["exit_code"] == 0)


@test
def a_last_use_in_the_future():
    with of_two(SANDBOXD_IDLE_TIMEOUT="4", SANDBOXD_CLEANUP_INTERVAL="1", SANDBOXD_WORKSPACE_TTL="1000") as (d, s, other):
        def shift() -> None:
            db = sqlite3.connect(os.path.join(d.state, "daemon", "garret.db"))
            db.execute("UPDATE sessions SET used_at = used_at + 1e6")
            db.commit()
            db.close()
            for name in os.listdir(os.path.join(d.state, "daemon")):
                path = os.path.join(d.state, "daemon", name)
                os.chown(path, os.stat(os.path.join(d.state, "daemon")).st_uid, -1, follow_symlinks=False)
            os.utime(os.path.join(d.state, "workspaces", "s"), (time.time() + 1e6,) * 2)

        kill_and_start(d, shift)
        status, info = d.call("GET", "/sessions/s")
        assert status == 200 and info["alive"] and info["idle_seconds"] < 60, info
        # It counts from now: one that nobody uses ends all the same.
        end = time.time() + 15 * SLOW
        while d.call("GET", "/sessions/s")[0] == 200:
            assert time.time() < end, "it never ends"
            assert other.sh("true")["exit_code"] == 0
            time.sleep(0.3)
        assert d.call("GET", "/sessions/s", token=s.token)[0] == 410


@test
def opens_that_fail_push_no_token_out():
    """Of a name a few ended tokens are known; those of opens that nobody was told of aren't among them."""
    with of_two() as (d, s, _):
        assert s.close(purge=False) == 204
        for _i in range(6):
            engine = next(iter(named(d, "garret-engine")))
            os.kill(engine, signal.SIGSTOP)
            t = threading.Thread(target=attempt, args=(d, "s"))
            t.start()
            time.sleep(0.1)
            kill_and_start(d, lambda: os.kill(engine, signal.SIGCONT))  # noqa: B023
            t.join()
        assert d.call("GET", "/sessions/s", token=s.token)[0] == 410


def attempt(d: Daemon, name: str, path: str = "") -> None:
    """A request that nobody will answer."""
    with contextlib.suppress(OSError, HTTPException):
        d.call("POST", *((path + name,) if path else ("/sessions", {"session_id": name})))


@test
def no_memory_in_one_session():
    with of_two(SANDBOXD_MEM_LIMIT="64m") as (d, s, other):
        kept = s.run(["sh", "-c", "echo kept > f; setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"])["stdout"].strip()
        r = s.run(["python3", "-c", "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1"], timeout=60)
        if r["exit_code"] == 0:
            raise Skip("memory can't be limited here")
        assert r["exit_code"] in (1, 137), r
        assert s.sh("cat f; echo ok")["stdout"] == "kept\nok\n", kept
        assert d.call("GET", "/sessions/s")[1]["alive"]


@test
def no_processes_in_one_session():
    with of_two(SANDBOXD_PIDS_LIMIT="16") as (d, s, other):
        s.sh("for i in $(seq 40); do sleep 600 >/dev/null 2>&1 </dev/null & done; exit 0")
        until(lambda: d.call("POST", "/sessions/s/run", {"argv": ["sleep", "600"], "run_id": os.urandom(16).hex(), "detach": True}, s.token)[0] == 429)
        status, answer = d.call("POST", "/sessions/s/run", {"argv": ["true"], "run_id": os.urandom(16).hex()}, s.token)
        assert status == 429, (status, answer)
        clear(status, answer, "pids exhausted: session s")


KILL_WORKERS = """
import os, time
n, end = 0, time.time() + 4
while time.time() < end:
    for p in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open(f'/proc/{p}/comm').read() == 'garret-files\\n':
                os.kill(int(p), 9)
                n += 1
        except OSError:
            pass
    time.sleep(0.02)
print(n)
"""


@test
def a_session_that_kills_its_file_workers():
    """They run as its user, so it may.  Each request is answered in time all the same, if with an error."""
    seen, failed, over = collections.Counter(), [], threading.Event()
    with of_two() as (d, s, _):
        s.sh("mkdir d; echo inside > d/f")
        calls = [("stat", "/workspace/d/f"), ("list", "/workspace/d"), ("read", "/workspace/d/f"), ("mkdir", "/workspace/d")]

        def ask(n: int) -> None:
            try:
                while not over.is_set():
                    op, path = calls[n % len(calls)]
                    status, answer = d.call("POST", f"/sessions/s/files/{op}", {"path": path}, s.token, timeout=10 * SLOW, headers={"x-garret-errors": "1"})
                    assert status in (200, 204, 503), (op, status, answer)
                    seen[status] += 1
                    n += 1
            except (OSError, HTTPException, AssertionError) as e:
                failed.append(repr(e))

        # More of them than a session has workers.
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        r = s.run(["python3", "-c", KILL_WORKERS], timeout=100)
        over.set()
        for t in threads:
            t.join()
        assert not failed, (failed, seen)
        assert r["exit_code"] == 0 and int(r["stdout"]) > 20 and seen[200] > 20, (r, seen)
        assert d.call("POST", "/sessions/s/files/read", {"path": "/workspace/d/f"}, s.token) == (200, b"inside\n")


@test
def no_descriptors_in_garretd():
    with of_two() as (d, s, _):
        most = max(map(int, os.listdir(f"/proc/{d.pid}/fd"))) + 1
        uid = os.stat(os.path.join(d.state, "daemon")).st_uid

        def limit(n) -> None:
            subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "prlimit", "--pid", str(d.pid),
                            f"--nofile={n}:"], check=True)

        refused = []
        with open(f"/proc/{d.pid}/limits") as f:
            before = next(line for line in f if line.startswith("Max open files")).split()[3]
        limit(most + 2)  # for the connection and one more
        try:
            for n in range(12):
                status, answer = d.call("POST", "/sessions", {"session_id": f"n{n}"})
                if status != 200:
                    refused.append((status, answer))
        finally:
            limit(before)
        assert refused, "the limit didn't bite"
        for status, answer in refused:
            clear(status, answer, "open files")
            assert status in (429, 503), (status, answer)
        d.open("late").close()


sys.exit(suite.main())
