#!/usr/bin/env python3
"""Runs that outlive their client, their session and their daemon, through HTTP (as root).

usage: runs.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from http.client import HTTPConnection
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import Daemon, Session  # noqa: E402
from suite import SLOW, test  # noqa: E402

# Almost 10 MiB that can be told apart at any offset, with a pause in between: `lines` below.
COUNT = 655000  # a little less: the limit is that of both streams together
SCRIPT = "seq -f '%015.0f' 1 {half}; sleep {pause}; seq -f '%015.0f' {next} {all}"


def lines(n: int) -> bytes:
    return b"".join(b"%015d\n" % i for i in range(1, n + 1))


def script(pause: float, n: int = COUNT) -> str:
    return SCRIPT.format(half=n // 2, next=n // 2 + 1, all=n, pause=pause)


def new_id() -> str:
    return uuid.uuid4().hex


def detach(s: Session, argv, **more) -> str:
    rid = more.pop("run_id", None) or new_id()
    answer = s.run(argv, run_id=rid, detach=True, status=202, **more)
    assert answer == {"run_id": rid, "state": answer["state"]}, answer
    return rid


def info(s: Session, rid: str, status=200, token=None):
    code, answer = s.daemon.call("GET", f"/sessions/{s.id}/runs/{rid}", token=token or s.token)
    assert code == status, (code, answer)
    return answer


def until_exited(s: Session, rid: str, seconds=60.0):
    end = time.time() + seconds * SLOW
    while True:
        i = info(s, rid)
        if i["state"] == "exited":
            return i
        assert time.time() < end, i
        time.sleep(0.02)


def raw(d: Daemon, path: str, token: str, method="GET"):
    """(status, headers, bytes)"""
    u = urlsplit(d.url)
    c = HTTPConnection(u.hostname, u.port, timeout=60)
    try:
        c.request(method, path, None, {"X-Sandbox-Token": token})
        r = c.getresponse()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
    finally:
        c.close()


def output(s: Session, rid: str, offset=0, limit=None, stream="stdout", token=None):
    path = f"/sessions/{s.id}/runs/{rid}/output?stream={stream}&offset={offset}" + (f"&limit={limit}" if limit else "")
    return raw(s.daemon, path, token or s.token)


def events(s: Session, rid: str, out=0, err=0, most=None, token=None):
    """The events of a follow; `most`: cut the connection off after so many bytes of output."""
    u = urlsplit(s.daemon.url)
    c = HTTPConnection(u.hostname, u.port, timeout=60)
    got, n = [], 0
    try:
        c.request("GET", f"/sessions/{s.id}/runs/{rid}/follow?stdout={out}&stderr={err}", None, {"X-Sandbox-Token": token or s.token})
        r = c.getresponse()
        assert r.status == 200 and r.getheader("content-type") == "text/event-stream", (r.status, r.read())
        event = None
        while line := r.readline():
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                if event == "output":
                    data["data"] = base64.b64decode(data["data"])
                    n += len(data["data"])
                got.append((event, data))
                if most is not None and n >= most:
                    break
            else:
                assert not line or line.startswith(": "), line
        return got
    finally:
        c.close()


def join(got, stream="stdout", offset=0) -> bytes:
    """The bytes of a stream; offsets follow each other."""
    all_bytes = b""
    for event, data in got:
        if event == "output" and data["stream"] == stream:
            assert data["offset"] == offset + len(all_bytes), data["offset"]
            all_bytes += data["data"]
    return all_bytes


def give(s: Session, rid: str, data: bytes, offset=None, eof=False, status=200):
    query = [f"offset={offset}"] if offset is not None else []
    query += ["eof=true"] if eof else []
    code, answer = s.daemon.call("POST", f"/sessions/{s.id}/runs/{rid}/stdin?" + "&".join(query), data, s.token)
    assert code == status, (code, answer)
    return answer.get("stdin_bytes", answer)


def send_signal(s: Session, rid: str, what, status=204):
    code, answer = s.daemon.call("POST", f"/sessions/{s.id}/runs/{rid}/signal", {"signal": what}, s.token)
    assert code == status, (code, answer)
    return answer


def runs_dir(d: Daemon) -> str:
    return os.path.join(d.state, "daemon", "runs")


def dirs_of(d: Daemon, sid: str) -> list[str]:
    return [n for n in os.listdir(runs_dir(d)) if n.rsplit(".", 1)[0] == sid]


def size_of(path: str) -> int:
    return sum(os.path.getsize(os.path.join(p, f)) for p, _, files in os.walk(path) for f in files)


# ---- detached runs ----


@test
def a_detached_run_is_read_at_offsets_while_it_runs_and_after(d):
    s, whole = d.open(), lines(COUNT)
    begin = time.time()
    rid = detach(s, ["sh", "-c", script(1.5)])
    assert time.time() - begin < 1 * SLOW
    end = time.time() + 20 * SLOW
    while info(s, rid)["stdout_bytes"] < len(whole) // 2:
        assert time.time() < end
        time.sleep(0.02)
    i = info(s, rid)
    assert i["state"] == "running" and i["exit_code"] is None and i["usage"] is None and i["ended_at"] is None, i
    assert abs(i["started_at"] - time.time()) < 20 * SLOW
    status, headers, got = output(s, rid)
    assert status == 200 and headers["x-garret-final"] == "false" and int(headers["x-garret-total"]) == len(got)
    assert got == whole[:len(got)] and len(got) == len(whole) // 2, len(got)
    assert output(s, rid, len(got))[2] == b""
    assert output(s, rid, 12345, 1000)[2] == whole[12345:13345]
    assert output(s, rid, len(got) - 10, 1000)[2] == whole[len(got) - 10:len(got)]
    status, headers, answer = output(s, rid, len(got) + 1)
    assert status == 416 and headers["x-garret-final"] == "false", answer
    i = until_exited(s, rid)
    assert i["exit_code"] == 0 and i["stdout_bytes"] == len(whole) and i["stderr_bytes"] == 0, i
    assert i["usage"]["wall_ms"] >= 1500 and i["usage"]["user_ms"] > 0 and i["usage"]["max_rss_bytes"] > 100000 and not i["usage"]["oom"], i
    assert i["ended_at"] - i["started_at"] > 1.4 and i["asked_at"] <= i["started_at"]
    status, headers, got = output(s, rid)
    assert status == 200 and headers["x-garret-final"] == "true" and int(headers["content-length"]) == len(whole)
    assert hashlib.sha256(got).digest() == hashlib.sha256(whole).digest()
    for at, n in ((0, 1), (65535, 3), (len(whole) - 1, 5), (5 << 20, 2 << 20)):
        assert output(s, rid, at, n)[2] == whole[at:at + n], at
    assert output(s, rid, len(whole))[2] == b""
    status, headers, answer = output(s, rid, len(whole) + 1)
    assert status == 416 and headers["x-garret-final"] == "true", answer
    assert output(s, rid, stream="sideways")[0] == 422
    s.close()


@test
def short_output_of_both_streams_is_there_at_once(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "printf 'a\\0\\377'; printf oops >&2; sleep 1"])
    end = time.time() + 5
    while info(s, rid)["stderr_bytes"] < 4:
        assert time.time() < end
        time.sleep(0.01)
    assert output(s, rid)[2] == b"a\0\xff" and output(s, rid, 1, stream="stderr")[2] == b"ops"
    until_exited(s, rid)
    assert output(s, rid)[2] == b"a\0\xff" and output(s, rid, 1, stream="stderr")[2] == b"ops"
    # The answer of a run that is waited for is the same execution.
    code, answer = d.call("POST", f"/sessions/{s.id}/run", {"argv": ["sh", "-c", "printf 'a\\0\\377'; printf oops >&2; sleep 1"], "run_id": rid}, s.token)
    assert code == 200 and answer["stdout"] == "a\0\ufffd" and answer["stderr"] == "oops"
    s.close()


@test
def one_id_is_one_execution(d):
    s = d.open()
    rid = new_id()
    argv = ["sh", "-c", "echo x >> count; sleep 0.5; cat count"]
    detach(s, argv, run_id=rid)
    assert detach(s, argv, run_id=rid) == rid
    assert s.run(argv, run_id=rid)["stdout"] == "x\n"
    assert s.run(argv, run_id=rid, detach=True, status=202)["state"] == "exited"
    assert s.run(argv, run_id=rid)["stdout"] == "x\n"
    for other in ({"argv": ["true"]}, {"cwd": "/tmp"}, {"env": {"A": "b"}}, {"detach": True, "stdin": True}, {"timeout_seconds": 7}):
        answer = s.run(**{"argv": argv, "run_id": rid, "status": 409, **other})
        assert "another command" in answer["detail"], answer
    s.close()


@test
def what_it_is_started_with(d):
    s = d.open()
    assert s.sh("pwd", cwd="/tmp")["stdout"] == "/tmp\n"
    assert s.sh("pwd", cwd=None)["stdout"] == "/workspace\n"
    assert s.sh("pwd", cwd="/nowhere")["exit_code"] == 126
    assert s.sh("pwd", cwd="tmp", status=422)["detail"].startswith("cwd")
    assert s.sh("pwd", cwd="/" + 5000 * "x", status=422)["detail"].startswith("cwd")
    assert s.sh("cat", stdin=True, status=422)["detail"] == "stdin needs detach"
    rid = detach(s, ["/no/such/program"])
    i = until_exited(s, rid)
    assert i["exit_code"] == 127 and i["stderr_bytes"], i
    rid = detach(s, ["sleep", "100"], timeout=0.5)
    i = until_exited(s, rid)
    assert i["timed_out"] and i["exit_code"] is None, i
    rid = detach(s, ["sh", "-c", "head -c 11000000 /dev/zero"])
    i = until_exited(s, rid)
    assert i["output_limited"] and i["exit_code"] is None and i["stdout_bytes"] == 10 << 20, i
    assert len(output(s, rid)[2]) == 10 << 20  # /run shows 64 KiB of it, this shows all
    s.close()


@test
def the_list_is_newest_first_and_bounded(d):
    s = d.open()
    ids = [detach(s, ["true"]) for _ in range(5)]
    live = detach(s, ["sleep", "100"])
    code, answer = d.call("GET", f"/sessions/{s.id}/runs", token=s.token)
    assert code == 200 and [r["run_id"] for r in answer["runs"]] == [live, *reversed(ids)], answer
    assert answer["runs"][0] == info(s, live)
    code, answer = d.call("GET", f"/sessions/{s.id}/runs?limit=2", token=s.token)
    assert [r["run_id"] for r in answer["runs"]] == [live, ids[-1]]
    assert d.call("GET", f"/sessions/{s.id}/runs?limit=1001", token=s.token)[0] == 422
    assert s.stop(live) == 204
    i = info(s, live)
    assert i["state"] == "exited" and i["stopped"] and i["exit_code"] == 143, i
    info(s, new_id(), status=404)
    assert d.call("GET", f"/sessions/{s.id}/runs/xyz", token=s.token)[0] == 422
    s.close()


# ---- following ----


@test
def follow_goes_on_where_it_was_cut(d):
    s, whole = d.open(), lines(COUNT)
    rid = detach(s, ["sh", "-c", script(1.0) + "; echo end >&2; exit 3"])
    got, pieces, cuts = b"", 0, 0
    while True:
        part = events(s, rid, out=len(got), most=1500000)
        got += join(part, offset=len(got))
        pieces += 1
        if part[-1][0] == "exit":
            break
        cuts += 1
    assert cuts > 4 and hashlib.sha256(got).digest() == hashlib.sha256(whole).digest(), (cuts, len(got))
    last = part[-1][1]
    assert last == info(s, rid) and last["exit_code"] == 3, last
    assert join(events(s, rid, out=len(whole)), "stderr") == b"end\n"
    assert join(events(s, rid, out=len(whole), err=2), "stderr", 2) == b"d\n"
    assert events(s, rid, out=len(whole), err=4) == [("exit", last)]
    s.close()


@test
def follow_tells_soon(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "for i in 1 2 3 4 5; do date +%s.%N; sleep 0.3; done"])
    u = urlsplit(d.url)
    c = HTTPConnection(u.hostname, u.port, timeout=60)
    c.request("GET", f"/sessions/{s.id}/runs/{rid}/follow", None, {"X-Sandbox-Token": s.token})
    r, late, n = c.getresponse(), 0.0, 0
    while line := r.readline():
        if line.startswith(b"data: ") and b'"data"' in line:
            n += 1
            if n > 1:  # the first was there before we asked
                said = base64.b64decode(json.loads(line[6:])["data"]).split()[-1]
                late = max(late, time.time() - float(said))
    c.close()
    assert n == 5 and late < 0.2 * SLOW, (n, late)
    s.close()


@test
def followers_that_leave_cost_nothing(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "sleep 2; echo done"])
    u = urlsplit(d.url)
    open_fds = len(os.listdir(f"/proc/{d.pid}/fd"))
    socks = []
    for _ in range(20):
        k = socket.create_connection((u.hostname, u.port))
        k.sendall(f"GET /sessions/{s.id}/runs/{rid}/follow HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {s.token}\r\n\r\n".encode())
        assert k.recv(100).startswith(b"HTTP/1.1 200")
        socks.append(k)
    for k in socks[:10]:
        k.close()
    time.sleep(0.3)
    assert until_exited(s, rid)["exit_code"] == 0
    for k in socks[10:]:
        text = b""
        while b"event: exit" not in text:
            piece = k.recv(65536)
            assert piece, text
            text += piece
        k.close()
    end = time.time() + 5
    while len(os.listdir(f"/proc/{d.pid}/fd")) > open_fds + 9:  # it makes sockets ahead meanwhile
        assert time.time() < end, [os.readlink(f"/proc/{d.pid}/fd/{n}") for n in os.listdir(f"/proc/{d.pid}/fd")]
        time.sleep(0.05)
    s.close()


# ---- input and signals ----


@test
def input_is_taken_once_whatever_is_sent_again(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "cat > got; sha256sum < got"], stdin=True)
    data = os.urandom(3 << 20)
    at = 0
    while at < len(data):
        n = min(1 + int.from_bytes(os.urandom(3), "big") % 700000, len(data) - at)
        back = min(at, 100000)
        assert give(s, rid, data[at - back:at + n], at - back) == at + n
        at += n
    assert "missing" in give(s, rid, b"x", at + 1, status=409)["detail"]
    assert info(s, rid)["stdin_bytes"] == len(data)
    assert give(s, rid, b"", at, eof=True) == at
    assert until_exited(s, rid)["exit_code"] == 0
    assert output(s, rid)[2].split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert give(s, rid, b"x", at, status=409)["reason"] == "exited"
    assert info(s, rid)["stdin_bytes"] == len(data)
    s.close()


@test
def input_waits_for_a_run_that_does_not_read(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "sleep 1; wc -c"], stdin=True)
    begin = time.time()
    assert give(s, rid, bytes(100000), 0) == 100000  # held inside, though nobody reads
    assert time.time() - begin < 0.7 * SLOW
    assert give(s, rid, bytes(1000000), eof=True) == 1100000
    assert time.time() - begin > 0.7
    assert until_exited(s, rid)["exit_code"] == 0 and output(s, rid)[2].strip() == b"1100000"
    # Who leaves in the middle sends again from where he was.
    rid = detach(s, ["sh", "-c", "sleep 1; sha256sum"], stdin=True)
    data = os.urandom(900000)
    u = urlsplit(d.url)
    k = socket.create_connection((u.hostname, u.port))
    k.sendall(f"POST /sessions/{s.id}/runs/{rid}/stdin?offset=0 HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {s.token}\r\n"
              f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    time.sleep(0.3)
    k.close()
    assert give(s, rid, data, 0, eof=True) == len(data)
    until_exited(s, rid)
    assert output(s, rid)[2].split()[0].decode() == hashlib.sha256(data).hexdigest()
    s.close()


@test
def input_is_refused_by_name(d):
    s = d.open()
    rid = detach(s, ["sleep", "100"])
    assert give(s, rid, b"x", status=409)["reason"] == "input"
    assert s.stop(rid) == 204
    rid = detach(s, ["sh", "-c", "sleep 100"], stdin=True)
    assert give(s, rid, b"", eof=True) == 0
    assert give(s, rid, b"x", status=409)["reason"] == "ended"
    assert "1048576" in give(s, rid, bytes((1 << 20) + 1), status=413)["detail"]
    assert s.stop(rid) == 204
    assert "No such run" in give(s, new_id(), b"x", status=404)["detail"]
    # What a run leaves unread goes with it, as with a pipe; it doesn't keep the client waiting.
    rid = detach(s, ["sh", "-c", "sleep 0.5"], stdin=True)
    code, _ = d.call("POST", f"/sessions/{s.id}/runs/{rid}/stdin", bytes(900000), s.token)
    assert code in (200, 409), code
    assert until_exited(s, rid)["exit_code"] == 0
    s.close()


@test
def signals_reach_the_group(d):
    s = d.open()
    rid = detach(s, ["sh", "-c", "trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done"])
    end = time.time() + 5
    while not info(s, rid)["stdout_bytes"]:
        assert time.time() < end
        time.sleep(0.01)
    send_signal(s, rid, "USR1")
    time.sleep(0.2)
    send_signal(s, rid, "SIGINT")
    assert until_exited(s, rid)["exit_code"] == 9
    assert output(s, rid)[2] == b"ready\nusr1\nint\n"
    assert send_signal(s, rid, "TERM", status=409)["reason"] == "exited"
    rid = detach(s, ["sleep", "100"])
    for bad in ("NOPE", 0, 65, -1, None, 1.5, True):
        send_signal(s, rid, bad, status=422)
    send_signal(s, rid, 9)
    assert until_exited(s, rid)["exit_code"] == 137
    send_signal(s, new_id(), 9, status=404)
    s.close()


# ---- what is kept ----


@test
def output_is_read_when_the_session_is_closed(d):
    s, other = d.open(), d.open()
    whole = lines(COUNT // 4)
    big = detach(s, ["sh", "-c", script(0, COUNT // 4)])
    until_exited(s, big)
    small = new_id()
    s.sh("echo small; echo err >&2; exit 4", run_id=small)
    live = detach(s, ["sh", "-c", "echo begun; sleep 100"])
    while not info(s, live)["stdout_bytes"]:
        time.sleep(0.01)
    before = info(s, big)
    assert s.close(purge=False) == 204
    for token in (s.token, d.token):
        assert info(s, big, token=token) == before
        assert output(s, big, token=token)[2] == whole
        assert output(s, small, stream="stderr", token=token)[2] == b"err\n"
        i = info(s, live, token=token)
        assert i["gone"] and i["state"] == "exited" and i["exit_code"] is None and output(s, live, token=token)[2] == b"begun\n", i
        assert [e for e, _ in events(s, small, token=token)] == ["output", "output", "exit"]
        code, answer = d.call("GET", f"/sessions/{s.id}/runs", token=token)
        assert code == 200 and [r["run_id"] for r in answer["runs"]] == [live, small, big]
        info(s, new_id(), status=404, token=token)
    # Nothing else is open to it, and nothing to anybody else's.
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", f"/runs/{big}/stop"), ("POST", f"/runs/{big}/stdin"), ("DELETE", "")):
        assert d.call(method, f"/sessions/{s.id}{path}", token=s.token)[0] == 410, path
    assert d.call("GET", f"/sessions/{s.id}/runs", token=other.token)[0] == 401
    # A later session of that name has its own runs; its token sees no others, the service's sees all.
    again = d.open(s.id)
    assert d.call("GET", f"/sessions/{s.id}/runs", token=again.token)[1]["runs"] == []
    info(s, small, status=404, token=again.token)
    again.sh("echo small; echo err >&2; exit 4", run_id=small)
    assert info(again, small)["asked_at"] > info(s, small)["asked_at"]
    code, answer = d.call("GET", f"/sessions/{s.id}/runs", token=d.token)
    assert [r["run_id"] for r in answer["runs"]] == [small, live, small, big]
    assert output(s, big)[2] == whole
    assert len(dirs_of(d, s.id)) == 2
    # Purging takes what is kept of all generations.
    assert again.close(purge=True) == 204
    assert dirs_of(d, s.id) == []
    assert d.call("GET", f"/sessions/{s.id}/runs", token=s.token)[0] == 410
    assert d.call("GET", f"/sessions/{s.id}/runs", token=d.token)[0] == 404
    s = d.open()
    s.sh("echo x")
    s.close(purge=False)
    assert len(dirs_of(d, s.id)) == 1
    assert d.call("DELETE", f"/workspaces/{s.id}", token=d.token)[0] == 204
    assert dirs_of(d, s.id) == []
    other.close()


@test
def an_answer_outlasts_what_it_is_made_from(d):
    s = d.open()
    whole = lines(COUNT)
    rid = detach(s, ["sh", "-c", script(0)])
    until_exited(s, rid)
    u = urlsplit(d.url)
    k = socket.create_connection((u.hostname, u.port))
    k.sendall(f"GET /sessions/{s.id}/runs/{rid}/output HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Sandbox-Token: {s.token}\r\n\r\n".encode())
    time.sleep(0.3)
    assert s.close(purge=True) == 204 and dirs_of(d, s.id) == []
    got = b""
    while piece := k.recv(1 << 20):
        got += piece
    assert got.split(b"\r\n\r\n", 1)[1] == whole


@test
def what_is_old_or_too_much_goes(_):
    with Daemon(build=suite.BUILD, GARRET_RUN_RETENTION="2", GARRET_RUN_BYTES="1000000") as d:
        s = d.open()
        ids = [new_id() for _ in range(60)]
        for rid in ids:
            s.sh("head -c 60000 /dev/zero", run_id=rid)
        code, answer = d.call("GET", f"/sessions/{s.id}/runs?limit=1000", token=s.token)
        assert [r["run_id"] for r in answer["runs"]] == ids[:-17:-1], len(answer["runs"])
        info(s, ids[0], status=404)
        assert size_of(runs_dir(d)) < 4 << 20, size_of(runs_dir(d))
        for _ in range(3):
            rid = detach(s, ["sh", "-c", "head -c 900000 /dev/zero"])
            until_exited(s, rid)
        assert [r["run_id"] for r in d.call("GET", f"/sessions/{s.id}/runs", token=s.token)[1]["runs"]] == [rid]
        time.sleep(2.1)
        info(s, rid, status=404)
        # Gone means that it may be started again.
        assert s.sh("head -c 60000 /dev/zero | wc -c", run_id=ids[0])["stdout"] == "60000\n"
        s.sh("echo last", run_id=rid)
        s.close(purge=False)
        assert info(s, rid)["stdout_bytes"] == 5
        end = time.time() + 5 * SLOW
        while os.listdir(runs_dir(d)):
            assert time.time() < end, os.listdir(runs_dir(d))
            time.sleep(0.1)
        assert d.call("GET", f"/sessions/{s.id}/runs/{rid}", token=s.token)[0] == 410


@test
def many_runs_are_bounded_on_disk_and_in_memory(d):
    s = d.open()
    stop = threading.Event()

    def some():
        for _ in range(300):
            s.run(["true"])

    threads = [threading.Thread(target=some) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    stop.set()
    code, answer = d.call("GET", f"/sessions/{s.id}/runs?limit=1000", token=s.token)
    assert code == 200 and len(answer["runs"]) == 1000
    # A run that lasts keeps its place in the log, not everything behind it.
    live = detach(s, ["sleep", "100"])
    for _ in range(120):
        s.sh("head -c 60000 /dev/urandom | base64 -w0 | head -c 65000")
    folder = os.path.join(runs_dir(d), dirs_of(d, s.id)[0])
    assert size_of(folder) < 12 << 20, size_of(folder)
    assert info(s, live)["state"] == "running"
    s.close()


@test
def what_cannot_be_recorded_is_refused_only_when_it_would_be_lost(_):
    # As a full disk does, and without one: garretd may make nothing there.
    with Daemon(build=suite.BUILD) as d:
        before, kept, rid = d.open(), new_id(), new_id()
        before.sh("echo kept", run_id=kept)
        owner = os.stat(runs_dir(d))
        os.chown(runs_dir(d), 0, 0)
        os.chmod(runs_dir(d), 0o755)
        s = d.open()
        for _ in range(2):  # asked again it is the same one
            assert s.sh("echo attended; date +%s.%N > stamp; cat stamp | wc -l", run_id=rid)["stdout"] == "attended\n1\n"
        first = s.sh("cat stamp")["stdout"]
        assert s.run(["sh", "-c", "true"], detach=True, status=507)["detail"].startswith("The run can't be recorded")
        assert "run_unrecorded" in d.log()
        os.chown(runs_dir(d), owner.st_uid, owner.st_gid)
        assert until_exited(s, detach(s, ["true"]))["exit_code"] == 0
        assert s.sh("cat stamp")["stdout"] == first and output(before, kept)[2] == b"kept\n"
        s.close()


@test
def sessions_that_sleep_keep_their_runs(d):
    s = d.open()
    big, small = new_id(), new_id()
    s.sh("head -c 200000 /dev/zero", run_id=big)
    s.sh("echo small", run_id=small)
    sleeps = lambda: d.call("POST", f"/v1/sessions/{s.id}/sleep", token=s.token)[0]  # noqa: E731
    assert sleeps() == 204
    assert len(output(s, big)[2]) == 200000 and output(s, small)[2] == b"small\n"
    assert d.call("GET", f"/sessions/{s.id}", token=s.token)[1]["state"] == "hibernated"
    # Awake again it has new files for output, and the same answers.
    for n in (1, 2, 3):
        assert len(s.sh(f"head -c {200000 + n} /dev/zero")["stdout"]) == 200000 + n
    assert s.sh("echo small", run_id=small)["stdout"] == "small\n"
    assert sleeps() == 204
    assert s.close(purge=False) == 204
    assert len(output(s, big)[2]) == 200000 and output(s, small)[2] == b"small\n"
    assert len(d.call("GET", f"/sessions/{s.id}/runs", token=s.token)[1]["runs"]) == 5
    d.open(s.id).close(purge=True)
    assert dirs_of(d, s.id) == []


@test
def a_spool_file_is_never_another_runs(_):
    with Daemon(build=suite.BUILD, GARRET_RUN_BYTES="300000") as d:
        s = d.open()
        a, b = new_id(), new_id()
        s.sh("head -c 200000 /dev/zero | tr '\\0' a", run_id=a)
        for _ in range(6):
            s.sh("head -c 60000 /dev/zero")
        info(s, a, status=404)
        folder = os.path.join(runs_dir(d), dirs_of(d, s.id)[0])
        for n in range(2):
            assert d.call("POST", f"/v1/sessions/{s.id}/sleep", token=s.token)[0] == 204
            assert sorted(x for x in os.listdir(folder) if not x.startswith("log.")) == (["0.err", "0.out"] if n else []), os.listdir(folder)
            info(s, a, status=404)
            assert s.sh("head -c 200000 /dev/zero | tr '\\0' b", run_id=b)["stdout"] == 200000 * "b"
        assert output(s, b)[2] == 200000 * b"b"
        s.close()


# ---- the daemon is killed ----


def restarted(d: Daemon) -> Daemon:
    d.stop(signal.SIGKILL)
    return Daemon(build=suite.BUILD, state=d.state).start()


def is_open(d: Daemon, sid: str) -> bool:
    return d.call("GET", f"/sessions/{sid}", token=d.token)[0] == 200


@test
def finished_runs_outlive_the_daemon(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        s, closed = d.open(), d.open()
        whole = lines(COUNT // 4)
        big, small = detach(s, ["sh", "-c", script(0, COUNT // 4)]), new_id()
        assert s.sh("echo small; exit 5", run_id=small)["exit_code"] == 5
        before = until_exited(s, big)
        closed.sh("echo of a closed one", run_id=small)
        closed.close(purge=False)
        os.mkdir(os.path.join(runs_dir(d), "stranger.00000000000000ff"))
        d = restarted(d)
        try:
            for x in (s, closed):
                x.daemon = d
            for token in (s.token, d.token):
                assert info(s, big, token=token) == before
                assert output(s, big, token=token)[2] == whole
                assert output(s, small, token=token)[2] == b"small\n" and info(s, small, token=token)["exit_code"] == 5
            assert output(closed, small)[2] == b"of a closed one\n"
            end = time.time() + 5
            while len(os.listdir(runs_dir(d))) > 2:
                assert time.time() < end, os.listdir(runs_dir(d))
                time.sleep(0.05)
            assert d.call("DELETE", f"/workspaces/{closed.id}", token=d.token)[0] == 204
            assert d.call("GET", f"/sessions/{closed.id}/runs", token=d.token)[0] == 404
        finally:
            d.stop()


@test
def a_torn_log_loses_only_its_end(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        s = d.open()
        first, second = new_id(), new_id()
        s.sh("echo first", run_id=first)
        s.sh("echo second", run_id=second)
        s.close(purge=False)
        d.stop(signal.SIGKILL)
        folder = os.path.join(runs_dir(d), os.listdir(runs_dir(d))[0])
        log = os.path.join(folder, next(n for n in os.listdir(folder) if n.startswith("log.")))
        os.truncate(log, os.path.getsize(log) - 3)
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s.daemon = d
            assert output(s, first)[2] == b"first\n"
            i = info(s, second)
            assert i["gone"] and i["state"] == "exited" and i["ended_at"] is None, i
            assert "journal_cut" in d.log()
        finally:
            d.stop()


@test
def kill_and_resume(_):
    """Whatever the instant of the kill: one execution, all of its output, the exit code."""
    whole = lines(COUNT)
    want = hashlib.sha256(whole).digest()
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s = d.open()
            argv = ["sh", "-c", "echo x >> count; " + script(1.0) + "; cat count >&2; exit 7"]
            attended = ["sh", "-c", "echo y >> other; sleep 2; cat other; head -c 100000 /dev/zero; exit 3"]
            for delay in (0.0, 0.02, 0.1, 0.3, 1.1, 1.5):
                rid, other, fed = new_id(), new_id(), new_id()
                s.sh("rm -f count other")
                detach(s, argv, run_id=rid)
                detach(s, ["sh", "-c", "cat; exit 2"], run_id=fed, stdin=True)
                assert give(s, fed, b"before ", 0) == 7
                t = threading.Thread(target=lambda: quiet(s, attended, other))
                t.start()
                part = b""
                time.sleep(delay)
                if delay > 0.1:
                    part = output(s, rid)[2]
                d = restarted(d)
                t.join()
                s.daemon = d
                assert is_open(d, s.id)
                assert give(s, fed, b"before after", 0, eof=True) == 12
                got = b""
                while True:
                    more = events(s, rid, out=len(got), most=2500000)
                    got += join(more, offset=len(got))
                    if more[-1][0] == "exit":
                        break
                assert got[:len(part)] == part and hashlib.sha256(got).digest() == want, (delay, len(got))
                i = info(s, rid)
                assert i["exit_code"] == 7 and not i["gone"] and i["stdout_bytes"] == len(whole), i
                assert output(s, rid, stream="stderr")[2] == b"x\n" and hashlib.sha256(output(s, rid)[2]).digest() == want
                answer = s.run(attended, run_id=other)
                assert answer["exit_code"] == 3 and answer["stdout"] == "y\n" + 100000 * "\0", answer["stdout"][:10]
                assert s.run(["true"], run_id=other, status=409)
                assert until_exited(s, fed)["exit_code"] == 2 and output(s, fed)[2] == b"before after"
            # Spool files of the daemon before are none of the new one's.
            assert len(set(os.listdir(os.path.join(runs_dir(d), os.listdir(runs_dir(d))[0])))) < 60
            s.close()
        finally:
            d.stop()


@test
def no_instant_loses_or_repeats_a_run(_):
    """Clients that ask again until they are answered, and a daemon that is killed again and again."""
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        s = d.open()
        over, wrong, answered = threading.Event(), [], []

        def client(n: int) -> None:
            while not over.is_set():
                rid = new_id()
                size = (0, 100, 70000, 300000)[len(answered) % 4]
                argv = ["sh", "-c", f"echo {rid} >> count; echo {rid}; head -c {size} /dev/zero | tr '\\0' x; exit {n + 1}"]
                while True:
                    try:
                        code, r = s.daemon.call("POST", f"/sessions/{s.id}/run", {"argv": argv, "run_id": rid}, s.token)
                    except Exception:  # it was killed: the port is nobody's, or the answer breaks off
                        time.sleep(0.005)
                        continue
                    if code != 200 or r["exit_code"] != n + 1 or r["stdout"] != rid + "\n" + size * "x":
                        wrong.append((code, {k: (v[:80] if isinstance(v, str) else v) for k, v in r.items()}))
                    answered.append(rid)
                    break

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        try:
            for _ in range(12):
                time.sleep(0.05 + int.from_bytes(os.urandom(2), "big") / 65536 * 0.3)
                d = restarted(d)
                s.daemon = d
            time.sleep(0.5)
            over.set()
            [t.join(60) for t in threads]
            count = s.sh("cat count")["stdout"].split()
            print(f"     {len(answered)} runs, {len(count)} executions, 12 kills")
            assert not wrong, wrong[:3]
            assert len(answered) > 100 and sorted(count) == sorted(answered), (len(count), len(set(count)), len(answered))
            s.close()
        finally:
            over.set()
            d.stop()


@test
def followers_do_not_keep_a_daemon_from_ending(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        s = d.open()
        rid = detach(s, ["sh", "-c", "echo begun; sleep 3; echo end"])
        got = []
        t = threading.Thread(target=lambda: got.append(events(s, rid)))
        t.start()
        time.sleep(0.5)
        begin = time.time()
        assert d.stop(signal.SIGTERM) == 0 and time.time() - begin < 2 * SLOW, time.time() - begin
        t.join(10)
        assert [e for e, _ in got[0]] == ["output"], got
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s.daemon = d
            more = events(s, rid, out=6)
            assert join(more, offset=6) == b"end\n" and more[-1][1]["exit_code"] == 0
            s.close()
        finally:
            d.stop()


@test
def starts_that_fail_lose_nothing(_):
    with tempfile.TemporaryDirectory() as state, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        d = Daemon(build=suite.BUILD, state=state).start()
        s, small = d.open(), new_id()
        s.sh("echo small", run_id=small)
        live = detach(s, ["sh", "-c", "echo begun; sleep 5; echo end"])
        d.stop(signal.SIGKILL)
        for env in ({"SANDBOXD_PORT": str(taken.getsockname()[1])}, {"SANDBOXD_NETWORK_MODE": "host"}):
            try:
                Daemon(build=suite.BUILD, state=state, **env).start()
            except RuntimeError:
                continue
            raise AssertionError("it started")
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s.daemon = d
            assert output(s, small)[2] == b"small\n"
            i = until_exited(s, live)
            assert i["exit_code"] == 0 and output(s, live)[2] == b"begun\nend\n", i
            s.close()
        finally:
            d.stop()


@test
def a_token_of_another_tenant_sees_none(d):
    mint = lambda name, **more: d.call("POST", "/tokens", {"name": name, **more})[1]["token"]  # noqa: E731
    s = d.open(tenant="ours")
    rid = detach(s, ["sh", "-c", "echo x; cat"], stdin=True)
    ours, theirs, looks = mint("runs-ours", tenant="ours"), mint("runs-theirs", tenant="theirs"), mint("runs-looks", read_only=True)
    for closed in (False, True):
        for path in ("", f"/{rid}", f"/{rid}/output", f"/{rid}/follow"):
            if not closed and path.endswith("follow"):
                continue
            assert raw(d, f"/sessions/{s.id}/runs{path}", theirs)[0] == 404, path
            assert raw(d, f"/sessions/{s.id}/runs{path}", ours)[0] == 200, path
            assert raw(d, f"/sessions/{s.id}/runs{path}", looks)[0] == 200, path
        if not closed:
            for path in ("stdin", "signal", "stop"):
                body = {"signal": "TERM"} if path == "signal" else None
                assert d.call("POST", f"/sessions/{s.id}/runs/{rid}/{path}", body, looks)[0] == 403
                assert d.call("POST", f"/sessions/{s.id}/runs/{rid}/{path}", body, theirs)[0] == 404
        s.close(purge=False)
    for name in ("runs-ours", "runs-theirs", "runs-looks"):
        d.call("DELETE", f"/tokens/{name}")


@test
def a_run_without_a_record_goes_on_as_well(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s = d.open()
            owner = os.stat(runs_dir(d))
            for pause in (0, 1):
                rid = new_id()
                argv = ["sh", "-c", f"echo x >> count{pause}; echo begun; sleep 2; echo end"]
                os.chown(runs_dir(d), 0, 0)
                os.chmod(runs_dir(d), 0o755)
                t = threading.Thread(target=lambda: quiet(s, argv, rid))
                t.start()
                time.sleep(0.5)
                os.chown(runs_dir(d), owner.st_uid, owner.st_gid)
                d = restarted(d)
                t.join()
                s.daemon = d
                time.sleep(pause)
                assert s.run(argv, run_id=rid)["stdout"] == "begun\nend\n" and s.sh(f"cat count{pause}")["stdout"] == "x\n"
                assert s.run(argv, run_id=rid)["stdout"] == "begun\nend\n"
                assert "another command" in s.run(["true"], run_id=rid, status=409)["detail"]
                s.close()
                s = d.open(s.id)
            s.close()
        finally:
            d.stop()


@test
def a_live_stream_ends_with_its_daemon(_):
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        try:
            s = d.open()
            u = urlsplit(d.url)
            body = json.dumps({"argv": ["sleep", "98765"]}).encode()
            k = socket.create_connection((u.hostname, u.port))
            k.sendall(f"POST /v1/sessions/{s.id}/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: garret-stream/1\r\n"
                      f"X-Sandbox-Token: {s.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert k.recv(100).startswith(b"HTTP/1.1 101")
            rid = detach(s, ["sleep", "97531"])
            there = lambda: s.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]  # noqa: E731
            assert "98765" in there()
            d = restarted(d)
            s.daemon = d
            end = time.time() + 10
            while "98765" in there():
                assert time.time() < end
                time.sleep(0.05)
            assert "97531" in there() and info(s, rid)["state"] == "running"
            k.close()
            s.close()
        finally:
            d.stop()


def quiet(s: Session, argv, rid: str) -> None:
    """A client whose daemon is killed under it."""
    try:
        s.run(argv, run_id=rid)
    except (OSError, AssertionError, EOFError):
        pass
    except Exception:  # http.client has its own ways to say so
        pass


sys.exit(suite.main(shared=True))
