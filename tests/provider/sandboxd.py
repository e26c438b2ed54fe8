#!/usr/bin/env python3
"""The sandboxd provider against our own daemon, the published service, and one that lies.

usage: sandboxd.py BUILD [NAME...]     (GARRET_VENV: where the published service is)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "wire")]
import fake_sandboxd  # noqa: E402
from daemon import Daemon  # noqa: E402
from driver import TOP, Driver, code, main  # noqa: E402
from fake_sandboxd import SESSION_TOKEN, TOKEN, Fake, ran, session  # noqa: E402

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
VENV = os.environ.get("GARRET_VENV", os.path.join(TOP, "build/venv"))
TESTS = []


def test(f):
    TESTS.append(f)
    return f


def provider(url, **config):
    return Driver(BUILD, url=url, **{"token": TOKEN, **config})


class Published:
    """As another user where we are root: what commands do to this machine is bounded by that."""

    def __init__(self, native=True, name="w", venv=VENV):
        self.native, self.name, self.venv, self.port = native, name, venv, 0

    def start(self):
        who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        words = [] if "0.2.32" in self.venv else ["native" if self.native else "shell"]
        self.process = subprocess.Popen([os.path.join(self.venv, "bin/python"), "-B", os.path.join(TOP, "tests/provider/published_service.py"), TOKEN,
                                         self.root, self.name, str(self.port), *words], stdout=subprocess.PIPE,
                                        env={"PATH": "/usr/bin:/bin", "HOME": self.root}, **who)
        self.port = int(self.process.stdout.readline())
        self.url, self.work = f"http://127.0.0.1:{self.port}", os.path.join(self.root, self.name, "workspace")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        """At the same address, over the files that it kept."""
        self.stop()
        self.start()

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="sandboxd-provider-")
        self.root = self.directory.name
        if os.geteuid() == 0:
            os.chown(self.root, 65534, 65534)
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()
        self.directory.cleanup()


@contextlib.contextmanager
def published(**more):
    with Published(**more) as s:
        yield s.url, s.work


def ok(answer):
    assert "error" not in answer, answer["error"]
    return answer


# ---- what every service must give ----

def check_commands(b):
    a = b.run(["sh", "-c", 'echo "$1"; echo err >&2; exit 7', "sh", "a b $HOME;`x`"])
    assert (a["stdout"], a["stderr"], a["exit_code"]) == (b"a b $HOME;`x`\n", b"err\n", 7), a
    assert b.run(["no-such-program"])["exit_code"] == 127
    assert b.sh("read x || echo eof")["stdout"] == b"eof\n"
    assert b.sh("echo $A $B", env=["A=call", "B=too"])["stdout"] == b"call too\n"
    assert b.sh("pwd", cwd="/tmp")["stdout"] == b"/tmp\n"
    a = b.sh("echo part; sleep 60", timeout_ms=1000)
    assert a["timed_out"] and a["stdout"] == b"part\n" and not a["limit_ms"], a
    a = b.sh("head -c 12000000 /dev/zero | tr '\\0' x", timeout_ms=50000)
    assert a["output_limited"] and a["limit_bytes"] == 10 << 20 and len(a["stdout"]) == 65536, a
    a = b.sh("head -c 5000 /dev/zero | tr '\\0' x", output_limit=1000)
    assert a["output_limited"] and a["limit_bytes"] == 1000 and len(a["stdout"]) == 1000, a
    a = b.run(["sh", "-c", "kill -9 $$"])
    assert a["exit_code"] == 137 and not a["gone"], a
    mark = f"/tmp/left-{os.getpid()}"
    n = b.begin("run", argv=["sh", "-c", f"sleep 61 & echo $! >{mark}; wait"])
    time.sleep(0.7)
    b.driver.send(do="leave", on=n)
    assert b.driver.wait(n)["left"]
    for _ in range(60):
        if b.sh(f"kill -0 $(cat {mark}) 2>/dev/null && echo alive; true")["stdout"] == b"":
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a command that was given up runs on")
    n = b.begin("run", argv=["sleep", "60"])
    time.sleep(0.5)
    b.driver.send(do="stop", on=n)
    a = b.driver.wait(n, 10)
    assert a["stopped"] and not code(a), a


def check_files(b):
    odd = b"odd \xff\n name"
    ok(b.file("write", odd, "parents", b"\0\xff" * 10))
    assert b.file("read", odd)["data"] == b"\0\xff" * 10
    a = b.file("write", "deep/er/file", "parents", b"one")
    assert a["info"]["size"] == 3, a
    ok(b.file("write", "deep/er/file", "parents", b""))
    assert b.file("read", "deep/er/file")["data"] == b""
    big = os.urandom(1 << 20) * 8
    ok(b.file("write", "big", "parents", big))
    a = b.file("read", "big")
    assert a["data"] == big and a["info"]["size"] == len(big)
    assert b.file("read", "big", offset=4_000_001, length=70000)["data"] == big[4_000_001:4_070_001]
    assert b.file("read", "big", "from_end", length=9)["data"] == big[-9:]
    assert b.file("read", "big", offset=len(big) + 5)["data"] == b""
    assert code(b.file("read", "big", max_bytes=100)) == "TOO_LARGE"
    assert b.sh("wc -c <big; mkdir seen; ln -s ../big seen/l; ln -s self seen/self; mkfifo fifo; echo cmd >bycmd")["exit_code"] == 0
    assert b.file("read", "bycmd")["data"] == b"cmd\n"
    assert b.file("read", "seen/l")["info"]["size"] == len(big)
    a = b.file("list", "seen")
    assert [(e["name"], e["type"]) for e in a["entries"]] == [(b"l", "file"), (b"self", "dangling")], a
    assert {e["name"] for e in b.file("list", "")["entries"]} >= {odd, b"big", b"fifo", b"deep"}
    for name, op, more, want in (
            ("none", "read", {}, "NOT_FOUND"), ("none", "stat", {}, "NOT_FOUND"), ("none", "list", {}, "NOT_FOUND"),
            ("none", "remove", {"flags": "tree"}, "NOT_FOUND"), ("deep", "read", {}, "IS_DIRECTORY"), ("big", "list", {}, "NOT_DIRECTORY"),
            ("deep", "write", {"flags": "parents", "body": b"x"}, "IS_DIRECTORY"), ("fifo", "read", {}, "NOT_REGULAR"),
            ("big/x", "write", {"flags": "parents", "body": b"x"}, "NOT_DIRECTORY"), ("big", "mkdir", {"flags": "parents"}, "EXISTS"),
            ("big/x", "mkdir", {"flags": "parents"}, "NOT_DIRECTORY"), (".", "remove", {"flags": "tree"}, "INVALID"),
            ("", "remove", {"flags": "tree"}, "INVALID"), ("..", "remove", {"flags": "tree"}, "INVALID"),
            ("/", "remove", {"flags": "tree"}, "INVALID")):
        a = b.file(op, name, **more)
        assert code(a) == want, (op, name, want, a.get("error"))
    assert b.sh("ln -s big link")["exit_code"] == 0
    ok(b.file("write", "link", "parents", b"through"))
    assert b.sh("cat big; readlink link")["stdout"] == b"throughbig\n"
    assert b.file("realpath", "deep/../link/../none/x")["path"].endswith(b"/none/x")
    assert b.file("realpath", "link")["path"] == b.path("big")
    ok(b.file("mkdir", "a/b/c", "parents"))
    ok(b.file("mkdir", "a/b/c", "parents"))
    a = b.file("stat", "a/b")
    assert a["info"]["type"] == "directory", a
    ok(b.file("rename", "bycmd", to="a/moved"))
    ok(b.file("copy", "a", "tree", to="a2"))
    assert b.sh("cat a2/moved a/moved; test -d a2/b/c")["stdout"] == b"cmd\ncmd\n"
    ok(b.file("chmod", "a2/moved", mode=0o700))
    assert b.sh("stat -c %a a2/moved")["stdout"] == b"700\n"
    a = b.file("digest", "a/moved")
    assert a["digest"] == hashlib.sha256(b"cmd\n").digest(), a
    assert [e["name"] for e in b.file("walk", "a")["entries"]] == [b"b", b"moved", b"b/c"]
    ok(b.file("write", "log", "append", b"1"))
    ok(b.file("write", "log", "append", b"2"))
    assert b.file("read", "log")["data"] == b"12"
    assert code(b.file("write", "log", "exclusive", b"x")) == "EXISTS"
    tag = b.file("stat", "log", "nofollow")["info"]["tag"]
    ok(b.file("write", "log", "if_match", b"new", tag=tag))
    assert code(b.file("write", "log", "if_match", b"newer", tag=tag)) == "CHANGED"
    edit = b"\0" + b"\3\0\0\0" + b"new" + b"\5\0\0\0" + b"older"
    a = b.file("edit", "log", body=edit)
    assert code(a) is None and a["count"] == 1 and b.file("read", "log")["data"] == b"older", a
    a = b.file("edit", "log", body=edit)
    assert code(a) == "CONFLICT" and a["count"] == 0, a
    assert b.file("text", "log", offset=0, length=5)["data"] == b"older"
    assert code(b.file("remove", "a2", "tree")) is None and code(b.file("stat", "a2")) == "NOT_FOUND"
    assert b.sh("ls -A | grep -c '^.garret-'")["stdout"] == b"0\n"


@test
def our_own_service_gives_all():
    with Daemon(build=BUILD) as d, provider(d.url, token=d.token) as p:
        b = p.open()
        assert b.answer["ours"] and b.work == "/workspace"
        assert p.said[0].get("named") == b.ref
        check_commands(b)
        check_files(b)
        a = b.sh("printf '\\377\\376'; printf '\\377' >&2")
        assert (a["stdout"], a["stderr"]) == (b"\xff\xfe", b"\xff"), a
        assert "matches" not in ok(b.file("grep", "", "fixed", pattern="ol.er", include="log"))
        a = b.file("grep", "", pattern="ol.er")
        assert [m[:4] for m in a["matches"]] == [[b"log", 1, 1, 5]], a
        assert b.file("glob", "", pattern="l*g")["entries"][0]["name"] == b"log"
        tar = b.file("tar_out", "a")["data"]
        a = b.file("tar_in", "unpacked", "parents", tar)
        assert code(a) is None and a["count"] >= 3, a
        assert b.sh("cat unpacked/moved")["stdout"] == b"cmd\n"
        assert b.driver.wait(b.begin("usage"))["memory"] != 0
        assert b.close("purge").keys() == {"id"}


@test
def live_streams_and_input():
    with Daemon(build=BUILD) as d, provider(d.url, token=d.token) as p:
        b = p.open()
        n = b.begin("run", argv=["sh", "-c", "wc -c; cat >&2; echo end"], input=True)
        for _ in range(8):
            p.send(do="input", on=n, data=os.urandom(65536).hex())
        p.send(do="input", on=n, data="")
        a = p.wait(n)
        assert (a["stdout"], a["exit_code"]) == (b"524288\nend\n", 0), a
        n = b.begin("stream", argv=["sh", "-c", "trap 'echo int; exit 9' INT; echo on; while :; do sleep 0.1; done"])
        time.sleep(0.5)
        p.send(do="signal", on=n, signal=2)
        a = p.wait(n)
        assert (a["stdout"], a["exit_code"]) == (b"on\nint\n", 9), a
        n = b.begin("stream", argv=["sh", "-c", "stty size; read x; stty size; cat /dev/zero | head -c 3000000"], tty=True)
        time.sleep(0.3)
        p.send(do="winch", on=n)
        p.send(do="input", on=n, data=b"\n".hex())
        a = p.wait(n)
        assert a["stdout"].startswith(b"30 100\r\n\r\n50 120\r\n") and len(a["stdout"]) == 3000000 + 18, a["stdout"][:60]
        n = b.begin("stream", argv=["sh", "-c", "echo $$ >/tmp/pid; exec sleep 60"])
        time.sleep(0.5)
        p.send(do="leave", on=n)
        p.wait(n)
        time.sleep(3)
        assert b.sh("kill -0 $(cat /tmp/pid)")["exit_code"] == 1
        n = b.begin("run", argv=["cat", "/dev/zero"], input=True, output_limit=100000)
        a = p.wait(n)
        assert a["output_limited"] and a["limit_bytes"] == 100000, a["limit_bytes"]
        n = b.begin("run", argv=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], input=True)
        time.sleep(0.3)
        p.send(do="stop", on=n)
        a = p.wait(n)
        assert a["stopped"] and a["exit_code"] == 137, a
        assert code(p.wait(b.begin("stream", argv=["x"] * 3, env=["=bad"]))) == "INVALID"


@test
def names_and_refs_on_our_service():
    with Daemon(build=BUILD) as d:
        with provider(d.url, token=d.token, session_name="team", env=["BASE=1", "A=low"]) as p, \
                provider(d.url, token=d.token, session_name="team") as other:
            jobs = [p.begin("open") for _ in range(5)]
            assert {p.wait(n)["ref"] for n in jobs} == {"team"}
            b, c = p.open(), other.open()
            assert b.ref == c.ref == "team", (b.answer, c.answer)
            assert b.sh("echo $BASE $A", env=["A=high"])["stdout"] == b"1 high\n"
            ok(b.file("write", "shared", "parents", b"x"))
            assert c.file("read", "shared")["data"] == b"x"
            assert b.close("leave").keys() == {"id"} and c.sh("true")["exit_code"] == 0
            assert code(other.open(runtime="elsewhere").answer) == "INVALID"
            # A closed session whose files are kept attaches; a ref to nothing doesn't.
            assert c.close("plain").keys() == {"id"}
            again = other.open(ref="team")
            assert again.file("read", "shared")["data"] == b"x"
            assert code(other.open(ref="never-was").answer) == "GONE"
            assert code(other.open(ref="../../etc").answer) == "GONE"
            # Destroyed under a command, and destroying twice is fine.
            n = again.begin("run", argv=["sleep", "60"])
            other.do("watch", box=again.number)
            time.sleep(0.5)
            assert p.do("forget", ref="team").keys() == {"id"}
            a = other.wait(n, 20)
            assert a["gone"] and code(a) == "GONE", a
            other.idle(0.3)
            assert any("died" in v for v in other.said)
            assert code(again.sh("true")) == "GONE" and code(again.file("stat", "shared")) == "GONE"
            assert p.do("forget", ref="team").keys() == {"id"}
            assert code(p.open(ref="team").answer) == "GONE"


def with_published(native, venv=VENV):
    with published(native=native, venv=venv) as (url, work), provider(url, session_name="w") as p:
        b = p.open()
        assert not b.answer["ours"] and b.work == os.path.realpath(work), b.answer
        check_commands(b)
        check_files(b)
        a = b.sh("printf '\\377'; printf '\\376' >&2")
        assert (a["stdout"], a["stderr"]) == ("\ufffd".encode(),) * 2, a
        assert code(p.wait(b.begin("stream", argv=["true"]))) == "UNSUPPORTED"
        assert code(b.file("tar_out", "a")) == "UNSUPPORTED"
        assert code(p.open(runtime="other").answer) == "CONFLICT"
        assert code(p.open(runtime="unknown").answer) == "INVALID"
        assert p.do("forget").keys() == {"id"}
        assert code(p.open(ref="w").answer) == "GONE"


@test
def the_published_service_natively():
    with_published(True)


@test
def the_published_service_by_commands():
    with_published(False)


@test
def the_older_published_service():
    with_published(False, os.environ.get("GARRET_VENV_OLD", VENV + "-0.2.32"))


# ---- what goes to the service, and what its answers mean ----

@test
def the_wire_is_the_published_one():
    with Fake(prefix="/sand/box") as s, provider(s.url + "//", runtime="rt", tenant="me", env=["E=1"]) as p:
        b = p.open()
        first = s.notes[0]
        assert first.json == {"session_id": None, "runtime": "rt", "tenant": "me", "reuse": False, "attach": False}, first.json
        assert first.token == TOKEN and s.asked("GET", "/policy")[0].token == TOKEN and len(s.asked("GET", "/policy")) == 1
        assert s.asked("GET", "/")[0].token is None
        b.run(["x", "y"], timeout_ms=1500, env=["F=2"])
        run = s.asked("POST", "/run")[-1]
        assert run.token == SESSION_TOKEN and run.path == "/sand/box/sessions/s-made-up/run"
        body = run.json
        assert len(body.pop("run_id")) == 32
        assert body == {"argv": ["x", "y"], "env": {"E": "1", "F": "2"}, "timeout_seconds": 1.5}, body
        b.run(["x"])
        assert s.asked("POST", "/run")[-1].json["timeout_seconds"] is None
        p.open(ref="kept")
        assert s.asked("POST", "/sessions")[-1].json == {"session_id": "kept", "runtime": "rt", "tenant": "me", "reuse": False, "attach": True}
        b.file("write", "/workspace/x", "parents", b"1")
        assert not [n for n in s.notes if "/files/" in n.path], "a service without native files was asked for them"
        assert b.close("plain").keys() == {"id"}
        d = s.asked("DELETE", "/s-made-up")[0]
        assert d.token == TOKEN and not d.query
    with Fake() as s, provider(s.url, session_name="n") as p:
        p.open()
        assert s.notes[0].json["session_id"] == "n" and s.notes[0].json["reuse"] is True
        s.forget()
        assert p.do("forget").keys() == {"id"}
        assert [(n.method, n.path, n.query) for n in s.notes] == [("POST", "/sessions", {}), ("DELETE", "/sessions/n", {"purge": ["true"]})]
        assert s.notes[0].json["attach"] is True and {n.token for n in s.notes} == {TOKEN}


@test
def purging_nothing_asks_nothing():
    with Fake() as s, provider(s.url) as p:
        assert p.do("forget").keys() == {"id"} and not s.notes


@test
def purging():
    with Fake() as s, provider(s.url) as p:
        for status, want in ((404, None), (410, None), (500, "UNAVAILABLE"), (401, "UNAUTHORIZED"), (429, "EXHAUSTED"), (403, "DENIED")):
            for key in ("POST /sessions", "DELETE /sessions/*"):
                s.on = {key: lambda n, status=status: (status, {"detail": "because"})}
                a = p.do("forget", ref="x")
                assert code(a) == want, (key, status, a)
                assert want is None or "because" in a["error"]["msg"]


@test
def bad_settings_are_refused_early():
    for config in ({"session_name": "-x"}, {"session_name": "a/b"}, {"session_name": "x" * 65}, {"token": "a b"}, {"token": "a\r\nb: c"},
                   {"token": ""}, {"url": "ftp://x"}, {"url": "http://u:p@x"}, {"url": "nothing"}):
        p = provider(config.pop("url", "http://127.0.0.1:1"), **config)
        a = p.process.stdout.readline()
        assert b'"INVALID"' in a, (config, a)
        p.close(check=False)


@test
def opening_says_what_went_wrong():
    with Fake() as s, provider(s.url, session_name="n", request_ms=2000) as p:
        for status, want in ((400, "INVALID"), (401, "UNAUTHORIZED"), (403, "DENIED"), (404, "UNAVAILABLE"), (429, "EXHAUSTED"),
                             (500, "UNAVAILABLE"), (502, "UNAVAILABLE"), (503, "UNAVAILABLE"), (302, "PROTOCOL"), (201, "PROTOCOL")):
            s.on = {"POST /sessions": lambda n, status=status: (status, {"detail": "the cause"})}
            a = p.open().answer
            assert code(a) == want and "the cause" in a["error"]["msg"], (status, a)
        for status in (404, 410):
            s.on = {"POST /sessions": lambda n, status=status: (status, {"detail": "x"})}
            a = p.open(ref="old").answer
            assert code(a) == "GONE" and "old no longer exists" in a["error"]["msg"], a
        # The name is told before the policy fails.
        p.said.clear()
        for status, body, want in ((500, {}, "UNAVAILABLE"), (404, {}, "UNAVAILABLE"), (200, {"execute_timeout": "60"}, "PROTOCOL"),
                                   (200, [], "PROTOCOL"), (200, {"execute_timeout": -1}, "PROTOCOL"), (200, b"{", "PROTOCOL")):
            s.on = {"GET /policy": lambda n, status=status, body=body: (status, body)}
            assert code(p.open().answer) == want, (status, body)
        assert [v["named"] for v in p.said if "named" in v] == ["n"] * 6
        s.on = {"POST /sessions/*/run": lambda n: (200, ran(exit_code=1))}
        assert code(p.open().answer) == "GONE"
        s.on = {"POST /sessions/*/run": lambda n: (200, ran(exit_code=124, timed_out=True))}
        assert code(p.open(ref="old").answer) == "UNAVAILABLE", "what is slow isn't lost"
    with provider("http://127.0.0.1:1") as p:
        assert code(p.open().answer) == "UNAVAILABLE"


@test
def a_name_that_is_being_opened_is_waited_for():
    texts = ({"detail": "Session is opening: n"}, {"detail": "whatever", "reason": "opening"})
    with Fake() as s, provider(s.url, session_name="n", request_ms=1000, opening_ms=1500) as p:
        for body in texts:
            times = []

            def busy(note, body=body, times=times):
                times.append(time.time())
                return (409, body) if len(times) < 4 else (200, session("n"))

            s.on = {"POST /sessions": busy}
            assert p.open().ref == "n" and len(times) == 4
            assert all(0.15 < b - a < 0.5 for a, b in zip(times, times[1:])), times
        s.on = {"POST /sessions": lambda n: (409, texts[0])}
        start = time.time()
        a = p.open().answer
        assert code(a) == "CONFLICT" and 1 < time.time() - start < 3, a
        for body in ({"detail": "Session n runs a, not b", "reason": "runtime"}, {"detail": "Session exists: n", "reason": "exists"},
                     {"detail": "Session n is open on runtime 'a', not 'b'. Close it before changing runtime."}, {"detail": "?"}):
            s.forget()
            s.on = {"POST /sessions": lambda n, body=body: (409, body)}
            assert code(p.open().answer) == "CONFLICT" and len(s.notes) == 1, body


@test
def a_slow_open_is_announced_once():
    with Fake() as s, provider(s.url, request_ms=1000, opening_ms=60000) as p:
        p.open()
        p.idle(3.2)
        assert not [v for v in p.said if "waiting" in v]
        s.on = {"POST /sessions": lambda n: (time.sleep(3.6), (200, session("late")))[1]}
        assert p.open().ref == "late"  # longer than a plain request may take
        assert len([v for v in p.said if "waiting" in v]) == 1


# ---- commands ----

@test
def a_limit_above_the_services_names_the_services():
    with Fake(execute_timeout=2) as s, provider(s.url) as p:
        b = p.open()
        s.on = {"POST /sessions/*/run": lambda n: (200, ran("some", exit_code=None, timed_out=True))}
        assert b.run(["x"], timeout_ms=1000)["limit_ms"] == 0
        assert b.run(["x"], timeout_ms=3000)["limit_ms"] == 2000
        a = b.run(["x"])
        assert a["limit_ms"] == 2000 and a["stdout"] == b"some" and a["timed_out"], a
        s.on = {"POST /sessions/*/run": lambda n: (200, ran(exit_code=None, output_limited=True, output_limit=77))}
        assert b.run(["x"])["limit_bytes"] == 77
        s.on = {"POST /sessions/*/run": lambda n: (200, ran(exit_code=None, output_limited=True))}
        assert b.run(["x"])["limit_bytes"] == 10 << 20


@test
def refused_commands():
    for status, want in ((404, "GONE"), (410, "GONE"), (401, "UNAUTHORIZED"), (429, "EXHAUSTED"), (500, "UNAVAILABLE"),
                         (501, "UNSUPPORTED"), (422, "INVALID"), (502, "UNAVAILABLE"), (204, "PROTOCOL")):
        with Fake() as s, provider(s.url) as p:
            b = p.open()
            p.do("watch", box=b.number)
            s.on = {"POST /sessions/*/run": lambda n, status=status: (status, {"detail": "the reason"})}
            a = b.run(["x"])
            assert code(a) == want and (status == 204 or "the reason" in a["error"]["msg"]), (status, a)
            assert a["gone"] == (want == "GONE")
            p.idle(0.1)
            assert any("died" in v for v in p.said) == (want == "GONE")


@test
def malformed_answers_of_run():
    with Fake() as s, provider(s.url) as p:
        b = p.open()
        for body in (b"", b"null", b"[]", b"{", {"stdout": 1, "stderr": "", "exit_code": 0}, {"stdout": "", "exit_code": 0}, ran(exit_code="0"),
                     ran(exit_code=None), ran(exit_code=-1), ran(exit_code=1 << 40), ran(exit_code=True), b'{"stdout":"\xff"}', b"[" * 100000):
            s.on = {"POST /sessions/*/run": lambda n, body=body: (200, body)}
            assert code(b.run(["x"])) == "PROTOCOL", body
        s.on = {"POST /sessions/*/run": lambda n: (200, ran("a\0b"))}
        assert b.run(["x"])["stdout"] == b"a\0b"
        assert code(b.run(["x"], env=["no-name"])) == "INVALID"


def hang_up(note):
    note.handler.close_connection = True


def cut(note):
    note.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"stdout":')
    note.handler.close_connection = True


def endless(note):
    note.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        note.wfile.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")


@test
def a_run_that_is_not_answered_is_stopped():
    with Fake() as s, provider(s.url) as p:
        b = p.open()
        for how, want in ((hang_up, "UNAVAILABLE"), (cut, "UNAVAILABLE"), (endless, "PROTOCOL")):
            s.forget()
            s.on = {"POST /sessions/*/run": how, "POST /sessions/*/runs/*/stop": lambda n: (500, {})}
            a = b.run(["x"])
            assert code(a) == want and not a["gone"], (how, a)
            p.idle(0.3)
            run, stop = s.asked("POST", "/run"), s.asked("POST", "/stop")
            assert len(stop) == 1 and run[-1].json["run_id"] in stop[0].path and stop[0].token == SESSION_TOKEN, how
        s.forget()
        waiting = threading.Event()
        s.on = {"POST /sessions/*/run": lambda n: (waiting.wait(20), (200, ran()))[1]}
        n = b.begin("run", argv=["x"])
        p.idle(0.3)
        p.send(do="leave", on=n)
        p.wait(n)
        p.idle(0.3)
        assert len(s.asked("POST", "/stop")) == 1
        # Who closes and ends at once has still stopped what it gave up.
        s.forget()
        s.on["POST /sessions/*/runs/*/stop"] = lambda n: (time.sleep(0.5), (204, b""))[1]
        n = b.begin("run", argv=["x"])
        p.idle(0.2)
        p.send(do="leave", on=n)
        start = time.time()
        b.close("leave")
        assert 0.4 < time.time() - start < 3 and len(s.asked("POST", "/stop")) == 1
        waiting.set()


@test
def a_service_that_is_silent_is_given_up():
    with Fake(execute_timeout=0.5) as s, provider(s.url, request_ms=1000, opening_ms=1500) as p:
        b = p.open()
        quiet = threading.Event()
        s.on = {"POST /sessions/*/run": lambda n: (quiet.wait(30), (200, ran()))[1], "POST /sessions": lambda n: (quiet.wait(30), (500, {}))[1]}
        start = time.time()
        assert code(p.open().answer) == "UNAVAILABLE" and 1 < time.time() - start < 4
        start = time.time()
        a = b.run(["x"], timeout_ms=60000)
        assert code(a) == "UNAVAILABLE" and not a["timed_out"] and 10 < time.time() - start < 13, a
        quiet.set()


# ---- hostile openings ----

@test
def malformed_sessions():
    with Fake() as s, provider(s.url, session_name="n") as p:
        for body in (b"", b"null", b"[]", b"{", {}, {"session": [], "token": "x"}, {"session": {"session_id": 1}, "token": "x"},
                     session("other"), session("n", token=""), session("n", token="a\r\nX: y"), session("n", token=1),
                     session("n", token="x" * 5000), session("../n"), b"\xff\xfe", b"{" * 100000):
            s.on = {"POST /sessions": lambda n, body=body: (200, body)}
            assert code(p.open().answer) == "PROTOCOL", body
        for how, want in ((hang_up, "UNAVAILABLE"), (cut, "UNAVAILABLE"), (endless, "TOO_LARGE")):
            s.on = {"POST /sessions": how}
            assert code(p.open().answer) == want, how
    with Fake() as s, provider(s.url) as p:
        s.on = {"POST /sessions": lambda n: (200, session("../../policy"))}
        assert code(p.open().answer) == "PROTOCOL"


@test
def tokens_are_in_no_error():
    with Fake() as s, provider(s.url) as p:
        b = p.open()
        s.on = {f"POST {path}": lambda n: (500, {"detail": f"{TOKEN} and {SESSION_TOKEN}\x1b[31m\n" + "x" * 5000})
                for path in ("/sessions", "/sessions/*/run")}
        for a in (p.open().answer, b.run(["x"]), p.do("forget", ref="x"), b.file("read", "/workspace/x")):
            text = a["error"]["msg"]
            assert TOKEN not in text and "****" in text and "\x1b" not in text and len(text) < 505, text
        assert SESSION_TOKEN not in b.run(["x"])["error"]["msg"]


# ---- native files ----

NATIVE = {"native_files": True, "native_writes": True, "native_realpath": True}


def entry(name, is_dir=False, size=None):
    return {"name": name, "path": f"/workspace/{name}", "is_dir": is_dir, "size": size, "modified_at": None}


@test
def each_native_operation_is_one_request():
    with Fake(**NATIVE) as s, provider(s.url) as p:
        b = p.open()
        s.on = {"POST /sessions/*/files/read": lambda n: (200, b"\0\1content"), "POST /sessions/*/files/stat": lambda n: (200, entry("x", size=9)),
                "POST /sessions/*/files/list": lambda n: (200, [entry("b"), entry("a", True)]),
                "POST /sessions/*/files/realpath": lambda n: (200, {"path": "/workspace/real"}),
                **{f"POST /sessions/*/files/{op}": lambda n: (204, b"") for op in ("write", "mkdir", "remove")}}
        s.forget()
        assert b.file("read", "x")["data"] == b"\0\1content"
        assert b.file("read", "x", offset=2, length=3)["data"] == b"con"
        assert b.file("stat", "x")["info"]["size"] == 9
        assert [(e["name"], e["type"], e["size"]) for e in b.file("list", "")["entries"]] == [(b"a", "directory", -1), (b"b", "file", -1)]
        assert b.file("realpath", "x")["path"] == b"/workspace/real"
        ok(b.file("write", "a b\u00e9", "parents", b"\xff\0"))
        ok(b.file("mkdir", "x", "parents"))
        ok(b.file("remove", "x", "tree"))
        assert len(s.notes) == 8 and not s.asked("POST", "/run") and {n.token for n in s.notes} == {SESSION_TOKEN}
        write = s.asked("POST", "/write")[0]
        assert write.query == {"path": ["/workspace/a b\u00e9"]} and write.raw == b"\xff\0"
        assert write.headers["content-type"] == "application/octet-stream"


@test
def a_409_is_done_by_commands_that_once():
    with Fake(**NATIVE) as s, provider(s.url) as p:
        b = p.open()
        s.on = {f"POST /sessions/*/files/{op}": lambda n: (409, {"detail": "use the shell"})
                for op in ("read", "stat", "list", "realpath", "write", "mkdir", "remove")}
        for op, more in (("read", {}), ("stat", {}), ("list", {}), ("realpath", {}), ("write", {"flags": "parents", "body": b"12"}),
                         ("mkdir", {"flags": "parents"}), ("remove", {"flags": "tree"})):
            s.forget()
            a = b.file(op, "x", **more)
            assert len(s.asked("POST", f"/files/{op}")) == 1 and s.asked("POST", "/run"), op
            assert code(a) in ("PROTOCOL", "UNSUPPORTED"), (op, a)  # this service's commands say nothing
    with Fake(**{**NATIVE, "native_writes": False}) as s, provider(s.url) as p:
        b = p.open()
        s.on = {"POST /sessions/*/files/read": lambda n: (200, b"x")}
        assert b.file("read", "x")["data"] == b"x"
        b.file("write", "x", "parents", b"1")
        assert not s.asked("POST", "/files/write") and s.asked("POST", "/run")


@test
def errors_of_native_files():
    names = {"FileNotFoundError": "NOT_FOUND", "IsADirectoryError": "IS_DIRECTORY", "NotADirectoryError": "NOT_DIRECTORY",
             "FileExistsError": "EXISTS", "ValueError": "INVALID"}
    for name, want in names.items():
        with Fake(**NATIVE) as s, provider(s.url) as p:
            b = p.open()
            s.on = {"POST /sessions/*/files/stat": lambda n, name=name: (404 if "NotFound" in name else 400,
                                                                        {"detail": {"error": name, "message": "it says"}})}
            a = b.file("stat", "x")
            assert code(a) == want and "it says" in a["error"]["msg"], (name, a)
    for status, body, want in ((404, {"detail": "No such session"}, "GONE"), (410, {"detail": "gone"}, "GONE"), (401, {}, "UNAUTHORIZED"),
                               (500, {}, "UNAVAILABLE"), (500, {"detail": {"error": "FileNotFoundError", "message": ""}}, "UNAVAILABLE"),
                               (200, [], "PROTOCOL"), (200, {"name": 1}, "PROTOCOL"), (200, b"nope", "PROTOCOL"),
                               (200, entry("x", size="9"), "PROTOCOL"), (429, {}, "EXHAUSTED")):
        with Fake(**NATIVE) as s, provider(s.url) as p:
            b = p.open()
            s.on = {"POST /sessions/*/files/stat": lambda n, status=status, body=body: (status, body)}
            a = b.file("stat", "x")
            assert code(a) == want, (status, body, a)
            if want == "GONE":
                assert code(b.run(["x"])) == "GONE"
    with Fake(**NATIVE) as s, provider(s.url) as p:
        b = p.open()
        for body in ({}, [1], [entry("a/b")], [entry("")], [entry("x" * 5000)]):
            s.on = {"POST /sessions/*/files/list": lambda n, body=body: (200, body)}
            assert code(b.file("list", "")) == "PROTOCOL", body
        for how in (hang_up, cut, endless):
            s.on = {"POST /sessions/*/files/read": how}
            assert code(b.file("read", "x")) in ("UNAVAILABLE", "TOO_LARGE"), how


@test
def a_service_that_claims_to_be_ours_is_not_believed():
    with Fake() as s, provider(s.url) as p:
        s.on = {"GET /": lambda n: (200, {"endpoints": ["/v1/sessions/{session_id}/file"]})}
        b = p.open()
        assert b.answer["ours"]
        v1 = "/v1/sessions/*/"
        for body in (b"", b"[]", {"results": [{}]}, {"results": [{"entry": {"type": "file", "mode": "0644", "etag": "x"}}]}, {"results": 1}):
            s.on[f"POST {v1}files/stat"] = lambda n, body=body: (200, body)
            assert code(b.file("stat", "x")) == "PROTOCOL", body
        good = {"type": "file", "mode": "0644", "etag": '"1-2-3-4"', "link_target": None}
        for body in ({"entries": 1}, {"entries": [{"path": "/etc/passwd", **good}]}, {"entries": [{"path": "/workspacex", **good}]}):
            s.on[f"POST {v1}files/list"] = lambda n, body=body: (200, body)
            assert code(b.file("list", "")) == "PROTOCOL", body
        for body in ({"matches": [{}]}, {"matches": [{"path": "/x", "line": 1, "text": "t"}]}, {}):
            s.on[f"POST {v1}files/grep"] = lambda n, body=body: (200, body)
            assert code(b.file("grep", "", pattern="x")) == "PROTOCOL", body
        s.on[f"GET {v1}file"] = lambda n: (200, b"no etag")
        assert code(b.file("read", "x")) == "PROTOCOL"
        s.on[f"GET {v1}file"] = cut
        assert code(b.file("read", "x")) == "PROTOCOL"

        def more(note):
            note.wfile.write(b'HTTP/1.1 200 OK\r\nEtag: "1-3-3-4"\r\nContent-Length: 9\r\n\r\n123456789')

        s.on[f"GET {v1}file"] = more
        assert b.file("read", "x")["data"] == b"123"

        def less(note):
            note.wfile.write(b'HTTP/1.1 200 OK\r\nEtag: "1-9-3-4"\r\nContent-Length: 3\r\n\r\n123')

        s.on[f"GET {v1}file"] = less
        assert code(b.file("read", "x")) == "CHANGED"
        s.on[f"PUT {v1}file"] = lambda n: (200, {"etag": 5})
        assert code(b.file("write", "x", "parents", b"1")) == "PROTOCOL"
        for how in (hang_up, cut, lambda n: (200, {})):
            s.on[f"POST {v1}stream"] = how
            a = p.wait(b.begin("stream", argv=["x"]))
            assert code(a) in ("UNAVAILABLE", "PROTOCOL"), a
        for frames in (b"\x09\0\0\0\0", b"\x01\xff\xff\xff\xff", b"\x03\0\0\0\2[]", b"\x03\0\0\0\2{}", b"\x04\0\0\0\1x", b""):
            def go_over(note, frames=frames):
                note.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: garret-stream/1\r\n\r\n" + frames)
                note.handler.close_connection = True

            s.on[f"POST {v1}stream"] = go_over
            a = p.wait(b.begin("stream", argv=["x"]))
            assert code(a) == ("PROTOCOL" if frames else "UNAVAILABLE"), (frames, a)


if __name__ == "__main__":
    sys.exit(main(TESTS))
