#!/usr/bin/env python3
"""What was done and what happened: activity, the service's log, following both, usage, metrics (as root).

usage: events.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite  # noqa: E402
from daemon import Daemon, Session  # noqa: E402
from suite import test  # noqa: E402


def restart(d: Daemon, *sessions, sig=signal.SIGKILL) -> None:
    os.kill(d.pid, sig)
    d.process.wait()
    d.start()
    for s in sessions:
        s.daemon = d


def until(condition, seconds: float = 10.0):
    end = time.time() + seconds
    while not (found := condition()):
        assert time.time() < end
        time.sleep(0.02)
    return found


class Follow:
    """Server-sent events, read as they come."""

    def __init__(self, d: Daemon, path: str, token: str | None = None, **headers: str) -> None:
        self.connection = HTTPConnection(urlsplit(d.url).netloc, timeout=20)
        self.connection.request("GET", path, headers={"X-Sandbox-Token": token or d.token, **headers})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.getheader("content-type") == "text/event-stream"
        self.buffer = b""

    def next(self) -> dict | None:
        while True:
            while b"\n\n" not in self.buffer:
                more = self.answer.read1(65536)
                if not more:
                    return None
                self.buffer += more
            one, _, self.buffer = self.buffer.partition(b"\n\n")
            if one.startswith(b":"):
                continue
            fields = dict(line.split(b": ", 1) for line in one.splitlines())
            event = json.loads(fields[b"data"])
            assert int(fields[b"id"]) == event["seq"]
            return event

    def close(self) -> None:
        self.connection.close()


def kinds(d: Daemon, **query) -> list[str]:
    q = "&".join(f"{k}={v}" for k, v in query.items())
    return [e["kind"] for e in d.call("GET", f"/v1/events?{q}")[1]["events"]]


@test
def activity_goes_on_after_a_kill_and_a_sleep(d):
    s = d.open("s")
    for i in range(230):
        s.run(["echo", str(i)])
    d.call("POST", "/sessions/s/files/stat", {"path": "/workspace/\udcff"}, s.token)
    before = d.call("GET", "/sessions/s/events", None, s.token)[1]
    assert (len(before["events"]), before["latest_seq"]) == (200, 231), before["latest_seq"]
    for how in ("kill", "sleep", "term"):
        if how == "sleep":
            assert d.call("POST", "/v1/sessions/s/sleep")[0] == 204
        else:
            restart(d, s, sig=signal.SIGKILL if how == "kill" else signal.SIGTERM)
        assert d.call("GET", "/sessions/s/events", None, s.token)[1] == before, how
    assert s.sh("echo next; exit 3")["exit_code"] == 3
    last = d.call("GET", "/sessions/s/events?after=231", None, s.token)[1]["events"]
    assert [(e["seq"], e["op"], e["target"], e["ok"], e["detail"]) for e in last] == \
        [(232, "run", "sh -c 'echo next; exit 3'", False, "exit 3")], last
    s.close()


@test
def what_happens_is_written_down(d):
    start = d.call("GET", "/v1/events?after=0&limit=10000")[1]["latest_seq"]
    s = d.open("a", tenant="t1")
    s.sh("setsid sleep 1000 >/dev/null 2>&1 & echo secret-output-marker; cat /dev/null")
    d.call("PUT", "/v1/sessions/a/file?path=/workspace/f", b"secret-content-marker", s.token)
    assert d.call("POST", "/v1/sessions/a/sleep")[0] == 204
    s.sh("true")
    restart(d, s)
    assert d.call("PUT", "/policy", {"idle_timeout": 1234})[0] == 200
    assert s.close(purge=False) == 204
    d.open("a").close(purge=True)
    got = d.call("GET", f"/v1/events?after={start}")[1]
    # What ran in the background ended with the sleep, which the next command's end shows.
    assert [k for k in (e["kind"] for e in got["events"]) if k != "background"] == \
        ["open", "sleep", "wake", "adopted", "policy", "close", "open", "purge"], got
    assert [e["detail"] for e in got["events"] if e["kind"] == "background"] == ["processes=1", "processes=0"], got
    seqs = [e["seq"] for e in got["events"]]
    assert seqs == list(range(start + 1, start + 1 + len(seqs))) and got["latest_seq"] == seqs[-1]
    assert {e["tenant"] for e in got["events"] if e["session_id"] == "a"} == {"t1", None}
    # After, limit, one session.
    assert [e["seq"] for e in d.call("GET", f"/v1/events?after={start + 2}&limit=3")[1]["events"]] == seqs[2:5]
    assert kinds(d, after=start, session_id="nobody") == []
    assert kinds(d, after=start, session_id="a", limit=1) == ["open"]
    # What was done in it can be read when it is gone; never what was written or shown.
    generation = got["events"][0]["detail"].split("generation=")[1]
    kept = d.call("GET", f"/v1/events/a/{generation}")[1]["events"]
    assert [e["op"] for e in kept][:2] == ["run", "write"], kept
    assert d.call("GET", f"/v1/events/a/{generation}?after=1&limit=1")[1]["events"] == kept[1:2]
    assert d.call("GET", "/v1/events/a/12345")[0] == 404 and d.call("GET", "/v1/events/a/x")[0] == 404
    for name in os.listdir(d.state + "/daemon/events"):
        with open(f"{d.state}/daemon/events/{name}", "rb") as f:
            data = f.read()
        assert b"secret-content-marker" not in data
        assert b"secret-output-marker\n" not in data


@test
def both_logs_are_followed(d):
    latest = d.call("GET", "/v1/events")[1]["latest_seq"]
    log = Follow(d, f"/v1/events/follow?after={latest}")
    s = d.open("f")
    assert (e := log.next())["kind"] == "open" and e["session_id"] == "f", e
    own = Follow(d, "/v1/sessions/f/events/follow", s.token)
    s.sh("echo one")
    assert (e := own.next())["seq"] == 1 and e["op"] == "run" and "duration_ms" in e
    s.sh("echo two")
    assert own.next()["seq"] == 2
    own.close()
    s.sh("echo three")
    again = Follow(d, "/v1/sessions/f/events/follow", s.token, **{"Last-Event-ID": "2"})
    assert again.next()["target"] == "sh -c 'echo three'"
    # A busy one loses nothing to who reads.
    threads = [threading.Thread(target=lambda: [s.run(["true"]) for _ in range(30)]) for _ in range(3)]
    for t in threads:
        t.start()
    assert [again.next()["seq"] for _ in range(90)] == list(range(4, 94))
    for t in threads:
        t.join()
    s.close()
    assert again.next() is None  # its session has ended
    assert log.next()["kind"] == "purge"
    # A restart ends streams; they go on behind what was seen.
    restart(d)
    d.open("g").close()
    log = Follow(d, f"/v1/events/follow?after={latest + 2}")
    assert [log.next()["kind"] for _ in range(2)] == ["open", "purge"]
    log.close()
    assert d.call("GET", "/v1/events/follow", None, "wrong")[0] == 401


@test
def usage_is_counted(d):
    s = d.open("u")
    s.sh("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
    code, u = d.call("GET", "/v1/sessions/u/usage", None, s.token)
    assert code == 200 and u["cpu_us"] > 50000 and u["memory_bytes"] > 0 and u["pids"] >= 1 and u["oom_kills"] == 0, u
    assert set(u) == {"memory_bytes", "memory_limit_bytes", "cpu_us", "pids", "oom_kills", "io_read_bytes", "io_written_bytes", "disk_bytes"}
    assert d.call("POST", "/v1/sessions/u/sleep")[0] == 204
    assert all(v is None for v in d.call("GET", "/v1/sessions/u/usage")[1].values())
    assert d.call("GET", "/sessions/u")[1]["state"] == "hibernated"
    s.close()


def metric(text: str, name: str) -> int:
    for line in text.splitlines():
        if line.rsplit(" ", 1)[0] == name:
            return int(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no {name} in\n{text}")


@test
def metrics_count(d):
    before = d.call("GET", "/metrics")[1].decode()
    s = d.open("m")
    s.run(["true"])
    s.run(["false"])
    d.call("POST", "/sessions/m/files/stat", {"path": "/workspace"}, s.token)
    d.call("POST", "/sessions/m/files/stat", {"path": "/absent"}, s.token)
    d.call("POST", "/v1/sessions/m/sleep")
    after = d.call("GET", "/metrics")[1].decode()
    for name, more in (('garret_runs_total{ok="true"}', 1), ('garret_runs_total{ok="false"}', 1), ('garret_file_operations_total{ok="true"}', 1),
                       ('garret_file_operations_total{ok="false"}', 1), ('garret_session_events_total{kind="open"}', 1),
                       ('garret_session_events_total{kind="sleep"}', 1), ('garret_sessions{state="hibernated"}', 1)):
        assert metric(after, name) == metric(before, name) + more, (name, before, after)
    assert metric(after, "garret_up") == 1
    seen = set()
    for line in after.splitlines():
        if line.startswith("# TYPE "):
            assert line.split()[2] not in seen and line.split()[3] in ("gauge", "counter")
            seen.add(line.split()[2])
        elif not line.startswith("#"):
            assert line.split("{")[0].split()[0] in seen, line
    assert d.call("GET", "/metrics", None, s.token)[0] == 401
    s.close()


@test
def logs_are_kept_for_their_time(_):
    with tempfile.TemporaryDirectory() as state:
        with Daemon(build=suite.BUILD, state=state, GARRET_EVENT_RETENTION="1") as d:
            s, live = d.open("old"), d.open("live")
            s.sh("true")
            live.sh("true")
            s.close()
            names = os.listdir(state + "/daemon/events")
            assert [n for n in names if n.startswith("old.")], names
            for n in names:
                os.utime(f"{state}/daemon/events/{n}", (1, 1))
            os.kill(d.pid, signal.SIGTERM)
            d.process.wait()
            d.start()
            until(lambda: not [n for n in os.listdir(state + "/daemon/events") if n.startswith("old.")])
            assert [n for n in os.listdir(state + "/daemon/events") if n.startswith("live.")]
            assert [n for n in os.listdir(state + "/daemon/events") if n.startswith("service.")]


@test
def names_that_look_like_our_own_files_are_no_exception(_):
    """Logs of sessions called as ours, with dots and digits, and of an earlier session of a name that is open."""
    names = ["service", "service.0000000000000000", "a", "a.0000000000000001", "a_b", "again"]
    with tempfile.TemporaryDirectory() as state:
        with Daemon(build=suite.BUILD, state=state, GARRET_EVENT_RETENTION="2") as d:
            for name in names:
                s = d.open(name)
                s.run(["echo", name])
                log = d.call("GET", f"/sessions/{name}/events")[1]["events"]
                assert [e["target"] for e in log] == [f"echo {name}"], log
                s.close(purge=False)
            live = d.open("again")
            live.sh("true")
            first = sorted(n for n in os.listdir(state + "/daemon/events") if n.startswith("again."))[1:]
            for n in os.listdir(state + "/daemon/events"):
                os.utime(f"{state}/daemon/events/{n}", (1, 1))
            restart(d, live)
            until(lambda: len(os.listdir(state + "/daemon/events")) == 2)
            assert set(os.listdir(state + "/daemon/events")) == {"service.0000000000000000", *first}


@test
def what_was_done_under_a_name_stays_its_tenants(d):
    """A name that was given back and taken by another tenant: he sees what he did himself."""
    mint = {t: d.call("POST", "/tokens", {"name": "of-" + t, "scope": "tenant:" + t})[1]["token"] for t in ("ann", "bob")}
    generations = []
    for tenant in ("ann", "bob"):
        code, answer = d.call("POST", "/sessions", {"session_id": "handed-on"}, mint[tenant])
        assert code == 200, answer
        s = Session(d, "handed-on", answer["token"])
        s.run(["echo", tenant])
        generations.append(d.call("GET", "/v1/events?session_id=handed-on", token=mint[tenant])[1]["events"][0]["detail"].rsplit("=", 1)[1])
        if tenant == "ann":
            assert s.close(purge=True) == 204
    assert d.call("GET", f"/v1/events/handed-on/{generations[0]}", token=mint["bob"])[0] == 404
    code, answer = d.call("GET", f"/v1/events/handed-on/{generations[1]}", token=mint["bob"])
    assert code == 200 and [e["target"] for e in answer["events"]] == ["echo bob"], answer
    for g, tenant in zip(generations, ("ann", "bob")):
        code, answer = d.call("GET", f"/v1/events/handed-on/{g}")
        assert code == 200 and [e["target"] for e in answer["events"]] == ["echo " + tenant], answer
    assert d.call("GET", f"/v1/events/handed-on/{generations[1]}", token=mint["ann"])[0] == 404
    s.close()


@test
def a_place_in_a_log_is_a_number(d):
    s = d.open("placed")
    for path in ("/v1/events/follow", "/v1/sessions/placed/events/follow"):
        for last in ("garbage", "-1", "1.5", "99999999999999999999", "1" * 5000):
            code, answer = d.call("GET", path, headers={"Last-Event-ID": last})
            assert code == 400 and "Last-Event-ID" in answer["detail"], (path, last[:20], code, answer)
    s.close()


def mix(h: int, word: int) -> int:
    h = ((h ^ word) * 0x9E3779B97F4A7C15) % (1 << 64)
    return h ^ h >> 29


def record(position: int, data: bytes) -> bytes:
    """As src/core/journal.c writes one, in a segment whose random number is 7."""
    h = mix(mix(7, position), 1 << 32 | len(data))
    for (word,) in struct.iter_unpack("<Q", data[:len(data) // 8 * 8]):
        h = mix(h, word)
    h = mix(mix(h, int.from_bytes(data[len(data) // 8 * 8:], "little")), 0x6A09E667F3BCC908)
    return struct.pack("<IHHQ", len(data), 1, 0, h) + data


def text(s: str) -> bytes:
    return struct.pack("<I", len(s)) + s.encode() + b"\0"


@test
def old_entries_are_found_where_they_are(_):
    """In a log of which not every entry's place is in memory: the next ones after any, and all of them for who follows."""
    with tempfile.TemporaryDirectory() as state:
        d = Daemon(build=suite.BUILD, state=state).start()
        assert d.stop() == 0
        owner = os.stat(state + "/daemon/events").st_uid
        position, last = 0, 0
        for _segment in range(3):
            start, out = position, bytearray(struct.pack("<IIQ", 0x4C4A5247, 1, 7))
            while len(out) < 1 << 20:
                last += 1
                out += record(start + len(out), struct.pack("<QQ", last, int(time.time() * 1e6)) + text("open") + text("s") + text("") + text("x"))
            position = start + len(out)
            path = f"{state}/daemon/events/service.{start:016x}"
            with open(path, "wb") as f:
                f.write(out)
            os.chown(path, owner, owner)
        assert last > 2 * 16384
        with Daemon(build=suite.BUILD, state=state) as d:
            d.open().close()
            for after in (0, 1, 1022, 1023, 1024, 1025, 5000, last - 16385, last - 16384, last - 16383, last - 1, last):
                events = d.call("GET", f"/v1/events?after={after}&limit=3")[1]["events"]
                seqs = [e["seq"] for e in events]
                assert seqs == list(range(after + 1, after + 1 + len(seqs))) and len(seqs) == min(3, last + 2 - after), (after, seqs)
            f = Follow(d, "/v1/events/follow")
            assert [f.next()["seq"] for _ in range(last + 2)] == list(range(1, last + 3))
            f.close()


sys.exit(suite.main(shared=True))
