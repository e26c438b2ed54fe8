#!/usr/bin/env python3
"""The sandboxd provider when the service no longer knows a session's token: purged, reaped, restarted, made anew.

usage: sandboxd_lost.py BUILD [NAME...]     (GARRET_VENV: where the published service is)
"""

from __future__ import annotations

import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sandboxd import BUILD, NATIVE, VENV, Daemon, Published, code, hang_up, main, ok, provider  # noqa: E402
from fake_sandboxd import SESSION_TOKEN, TOKEN, Fake, ran, session  # noqa: E402

OLD = os.environ.get("GARRET_VENV_OLD", VENV + "-0.2.32")
TESTS = []


def test(f):
    TESTS.append(f)
    return f


OPERATIONS = {
    "read": lambda b: b.file("read", "f"), "write": lambda b: b.file("write", "g", "parents", b"1"), "stat": lambda b: b.file("stat", "f"),
    "list": lambda b: b.file("list", ""), "mkdir": lambda b: b.file("mkdir", "d", "parents"), "remove": lambda b: b.file("remove", "f", "tree"),
    "realpath": lambda b: b.file("realpath", "f"), "run": lambda b: b.sh("true"), "run in a directory": lambda b: b.sh("true", cwd="/tmp"),
    "usage": lambda b: b.driver.wait(b.begin("usage")), "walk": lambda b: b.file("walk", ""), "glob": lambda b: b.file("glob", "", pattern="*"),
    "grep": lambda b: b.file("grep", "", "fixed", pattern="x"), "rename": lambda b: b.file("rename", "f", to="h"),
    "copy": lambda b: b.file("copy", "f", to="h"), "chmod": lambda b: b.file("chmod", "f", mode=0o600), "digest": lambda b: b.file("digest", "f"),
    "append": lambda b: b.file("write", "f", "append", b"1"), "part": lambda b: b.file("read", "f", offset=1, length=1),
    "stat of a link": lambda b: b.file("stat", "f", "nofollow"), "text": lambda b: b.file("text", "f", length=5)}


def died(p):
    return [v for v in p.said if "died" in v]


# ---- the published service ----

def with_the_services(check):
    for how in ({}, {"native": False}, {"venv": OLD}):
        with Published(**how) as s, provider(s.url, session_name="w") as p, provider(s.url, session_name="w") as other:
            check(s, p, other)


@test
def each_operation_notices_a_purge():
    def check(_, p, other):
        for name, operation in OPERATIONS.items():
            p.said.clear()
            b = p.open()
            p.do("watch", box=b.number)
            ok(b.file("write", "f", "parents", b"xy"))
            assert other.do("forget", ref="w").keys() == {"id"}
            a = operation(b)
            assert code(a) == "GONE" and "w no longer exists" in a["error"]["msg"], (name, a)
            p.idle(0.05)
            assert len(died(p)) == 1, name
            for again in OPERATIONS.values():
                assert code(again(b)) == "GONE", name
            assert code(p.wait(b.begin("stream", argv=["true"]))) == "GONE"
            assert b.close().keys() == {"id"}
    with_the_services(check)


@test
def it_goes_on_over_the_files_that_a_restart_kept():
    def check(s, p, other):
        b = p.open()
        for name, operation in OPERATIONS.items():
            ok(b.file("write", "f", "parents", b"xy"))
            s.restart()
            a = operation(b)
            assert code(a) is None, (name, a)
            assert name not in ("read", "text") or a["data"] == b"xy", (name, a)
        # Several at once, and another client that is as surprised; each attaches once.
        ok(b.file("write", "f", "parents", b"xy"))
        c = other.open()
        s.restart()
        jobs = [(x, x.begin_file("read", "f")) for x in (b, c) * 4] + [(b, b.begin("run", argv=["cat", "f"])) for _ in range(3)]
        for x, n in jobs:
            a = x.driver.wait(n)
            assert (a.get("data") or a.get("stdout")) == b"xy", a
        assert b.close("purge").keys() == {"id"} and not os.path.exists(s.work)
    with_the_services(check)


@test
def a_session_made_anew_is_another_ones():
    def check(s, p, other):
        for name, operation in OPERATIONS.items():
            b = p.open()
            ok(b.file("write", "f", "parents", b"xy"))
            assert other.do("forget", ref="w").keys() == {"id"}
            c = other.open()
            ok(c.file("write", "f", "parents", b"theirs"))
            a = operation(b)
            assert code(a) == "GONE" and "another's now" in a["error"]["msg"], (name, a)
            assert code(b.sh("true")) == "GONE" and code(b.file("read", "f")) == "GONE"
            assert sorted(os.listdir(s.work)) == ["f"] and c.file("read", "f")["data"] == b"theirs", name
            assert b.close("purge").keys() == {"id"}
            assert c.file("read", "f")["data"] == b"theirs", "closing what was lost deleted another's files"
            assert c.close("purge").keys() == {"id"}
    with_the_services(check)


@test
def one_made_anew_that_a_restart_kept_is_too():
    def check(s, p, other):
        b = p.open()
        assert other.do("forget", ref="w").keys() == {"id"}
        ok(other.open().file("write", "f", "parents", b"theirs"))
        s.restart()
        assert code(b.file("read", "f")) == "GONE" and code(b.sh("true")) == "GONE"
    with_the_services(check)


@test
def garretd_with_another_key():
    """Its tokens outlive a restart; with the key gone it has never seen them."""
    first = Daemon(build=BUILD).start()
    try:
        port = first.url.rsplit(":", 1)[1]
        with provider(first.url, token=first.token, session_name="w") as p:
            b = p.open()
            ok(b.file("write", "f", "parents", b"xy"))
            for name, operation in {**OPERATIONS, "stream": lambda b: p.wait(b.begin("stream", argv=["true"]))}.items():
                ok(b.file("write", "f", "parents", b"xy"))
                first.stop()
                os.unlink(os.path.join(first.state, "daemon/key"))
                first.env["SANDBOXD_PORT"] = port
                first.start()
                a = operation(b)
                assert code(a) is None, (name, a)
            assert b.close("purge").keys() == {"id"}
    finally:
        first.stop()
        first.clean()


# ---- what is asked ----

class Restarted(Fake):
    """Knows a session under a new token; `anew` answers who attaches."""

    def __init__(self, **policy):
        super().__init__(**policy)
        self.token, self.births, self.renewed = SESSION_TOKEN, ["-"], threading.Event()
        self.on = {"POST /sessions": lambda n: (200, session(n.json["session_id"] or "s-made-up", self.token))}

    def lose(self, attach=None):
        self.token = SESSION_TOKEN + "-2" if self.token == SESSION_TOKEN else SESSION_TOKEN
        if attach:
            self.on["POST /sessions"] = attach
        self.forget()

    def refuse(self, note):
        if b'"late"' in note.raw:
            self.renewed.wait(10)
        return 401, {"detail": "Invalid or missing sandbox token"}

    def matching(self, note):
        if "/sessions/" in note.path and note.token not in (TOKEN, self.token):
            return self.refuse, note.path
        if note.path.endswith("/run") and note.json["argv"][-1].endswith("; pwd -P"):
            birth = self.births.pop(0) if len(self.births) > 1 else self.births[0]
            return (lambda n: birth if isinstance(birth, tuple) else (200, ran(f"{birth}\n/workspace\n"))), note.path
        return super().matching(note)


@test
def once_for_all_and_each_again_once():
    with Restarted(**NATIVE) as s, provider(s.url, runtime="rt", tenant="me", session_name="n", env=["E=1"]) as p:
        s.births = ["2026-01-01 00:00:00.5 +0000"]
        s.on.update({"POST /sessions/*/files/write": lambda n: (204, b""), "POST /sessions/*/files/read": lambda n: (200, b"xy")})
        b = p.open()

        def slowly(note):
            time.sleep(0.5)
            return 200, session("n", s.token)

        s.lose(slowly)
        jobs = [b.begin("run", argv=["a"]), b.begin("run", argv=["b"]), b.begin_file("read", "f"), b.begin_file("write", "f", "parents", b"\0body"),
                b.begin("usage")]
        s.on["GET /sessions/*"] = lambda n: (200, session("n")["session"])
        assert all(code(p.wait(n)) is None for n in jobs)
        opened = s.asked("POST", "/sessions")
        assert len(opened) == 1 and opened[0].token == TOKEN, opened
        assert opened[0].json == {"session_id": "n", "runtime": "rt", "tenant": "me", "reuse": False, "attach": True}
        where = [n for n in s.asked("POST", "/run") if n.json["argv"][0] == "/bin/sh"]
        assert len(where) == 1 and where[0].token == s.token and where[0].json["env"] == {"E": "1"}
        for ending, n in (("/run", 2), ("/read", 1), ("/write", 1)):
            sent = [x for x in s.asked("POST", ending) if x not in where]
            assert [x.token for x in sent] == [SESSION_TOKEN] * n + [s.token] * n, (ending, [x.token for x in sent])
            assert sorted(x.raw for x in sent[:n]) == sorted(x.raw for x in sent[n:]), "it is not what was refused"
        s.forget()
        assert code(b.run(["c"])) is None and len(s.notes) == 1  # from now on that one
        # A refusal that comes when there is another token already.
        s.lose(lambda n: (200, session("n", s.token)))
        late = b.begin("run", argv=["late"])
        assert code(b.run(["d"])) is None
        s.renewed.set()
        assert code(p.wait(late)) is None and len(s.asked("POST", "/sessions")) == 1
        # Refused again: that is all.
        s.on["POST /sessions/*/run"] = lambda n: (401, {"detail": f"no {s.token}"})
        s.forget()
        a = b.run(["d"])
        assert code(a) == "UNAUTHORIZED" and s.token not in a["error"]["msg"] and "****" in a["error"]["msg"], a
        assert len(s.asked("POST", "/sessions")) == 1 and len([n for n in s.asked("POST", "/run") if n.json["argv"] == ["d"]]) == 2


@test
def what_attaching_again_can_say():
    opening, other = {"detail": "Session is opening: n"}, {"detail": "Session n is open on runtime 'a', not 'b'."}
    for how, want in (((404, {}), "GONE"), ((410, {}), "GONE"), ((401, {"detail": "bad service token"}), "UNAUTHORIZED"), ((403, {}), "DENIED"),
                      ((429, {}), "EXHAUSTED"), ((500, {}), "UNAVAILABLE"), ((502, {}), "UNAVAILABLE"), ((409, other), "CONFLICT"),
                      ((409, opening), "CONFLICT"), ((400, {}), "INVALID"), ((200, b"{"), "PROTOCOL"), ((200, session("other")), "PROTOCOL"),
                      ((200, session("n", token="a\r\nb: c")), "PROTOCOL"), (hang_up, "UNAVAILABLE"), (lambda n: time.sleep(2.5), "UNAVAILABLE")):
        with Restarted(**NATIVE) as s, provider(s.url, session_name="n", request_ms=1000, opening_ms=1500) as p:
            b = p.open()
            p.do("watch", box=b.number)
            s.on["POST /sessions/*/files/read"] = lambda n: (200, b"xy")
            s.lose(how if callable(how) else lambda n, how=how: how)
            jobs = [b.begin("run", argv=["a"]), b.begin_file("read", "f"), b.begin_file("walk", ""), b.begin("usage")]
            assert [code(p.wait(n)) for n in jobs] == [want] * 4, (how, want)
            p.idle(0.1)
            assert not s.asked("POST", "/stop") or want == "UNAVAILABLE", "what was refused is stopped"
            assert len(died(p)) == (want == "GONE"), how
            s.on["POST /sessions"] = lambda n: (200, session("n", s.token))
            s.forget()
            a = b.file("read", "f")
            assert code(a) == ("GONE" if want == "GONE" else None), (how, a)
            assert len(s.notes) == (0 if want == "GONE" else 3)
            if want == "GONE":
                s.token = "yet another"
                assert code(p.wait(b.begin("usage"))) == "GONE" and not s.asked("POST", "/sessions"), "it is attached to again"
            s.forget()
            assert b.close("purge").keys() == {"id"} and len(s.notes) == (0 if want == "GONE" else 1), how


@test
def another_client_that_attaches_at_the_same_time_is_waited_for():
    with Restarted() as s, provider(s.url, session_name="n") as p:
        b = p.open()
        answers = [(409, {"detail": "Session is opening: n"})] * 3
        s.lose(lambda n: answers.pop() if answers else (200, session("n", s.token)))
        assert code(b.run(["a"])) is None and len(s.asked("POST", "/sessions")) == 4


@test
def whose_files_they_are():
    one, two = "2026-01-01 00:00:00.5 +0000", "2026-01-01 00:00:00.6 +0000"
    for before, after, want in ((one, one, None), (one, two, "GONE"), ("-", two, None), (one, "-", None), ("?", two, None), (one, "?", None),
                                ("1970-01-01 00:00:00.0 +0000", two, None), (one, (404, {}), "GONE"), (one, (410, {}), "GONE"),
                                (one, (500, {"detail": "x"}), "UNAVAILABLE"), (one, (401, {}), "UNAUTHORIZED"), (one, (200, b"{"), "PROTOCOL"),
                                (one, (200, ran("")), "PROTOCOL"), (one, (200, {}), "PROTOCOL"), (one, (200, ran("a\nb")), "PROTOCOL")):
        with Restarted() as s, provider(s.url, session_name="n") as p:
            s.births = [before, after]
            b = p.open()
            p.do("watch", box=b.number)
            assert b.work == "/workspace"
            s.lose()
            a = b.run(["a"])
            assert code(a) == want, (before, after, a)
            p.idle(0.05)
            assert len(died(p)) == (want == "GONE")
            # Nothing was done in it before its files were known to be ours.
            assert len([n for n in s.asked("POST", "/run") if n.json["argv"] == ["a"]]) == (1 if want else 2)
            s.births = [before]
            assert code(b.run(["a"])) == (want if want == "GONE" else None)


@test
def waiting_can_be_given_up():
    for how in ("leave", "close", "end"):
        with Restarted(**NATIVE) as s, provider(s.url, session_name="n") as p:
            b = p.open()
            quiet = threading.Event()
            s.lose(lambda n: (quiet.wait(20), (200, session("n", s.token)))[1])
            jobs = [b.begin("run", argv=["a"]), b.begin_file("read", "f"), b.begin("usage")]
            p.idle(0.3)
            if how == "leave":
                for n in jobs[:2]:
                    p.send(do="leave", on=n)
                    assert p.wait(n)["left"]
                quiet.set()
                assert code(b.run(["b"])) is None
                assert [n.json["argv"] for n in s.asked("POST", "/run")] == [["a"], ["b"], ["b"]], "what was given up is not asked again"
            elif how == "close":
                assert b.close("leave").keys() == {"id"}
                assert code(p.wait(jobs[0])) == code(p.wait(jobs[1])) == "GONE"
            quiet.set()


# ---- our own service: transfers and streams ----

ETAG = b'Etag: "1-2-3-4"\r\n'


@test
def transfers_and_streams_of_our_own_service():
    with Restarted() as s, provider(s.url, session_name="n") as p:
        written = {"etag": '"1-3-3-4"', "mode": "0644"}

        def content(note):
            note.wfile.write(b"HTTP/1.1 200 OK\r\n" + ETAG + b"Content-Length: 2\r\n\r\nxy")

        def go_over(note):
            note.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: garret-stream/1\r\n\r\n")
            note.got = note.handler.rfile.read(5 + 2 + 5)
            note.wfile.write(b"\1\0\0\0\2hi\3\0\0\0\x0f" + b'{"exit_code":7}')
            note.handler.close_connection = True

        v1 = "/v1/sessions/n/"
        s.on.update({"GET /": lambda n: (200, {"endpoints": ["/v1/sessions/{session_id}/file"]}), f"GET {v1}file": content,
                     f"PUT {v1}file": lambda n: (200, written), f"POST {v1}stream": go_over})
        b = p.open()
        assert b.answer["ours"]
        for ending, operation, same in (
                ("/file", lambda: ok(b.file("read", "f"))["data"] == b"xy", lambda n: n.headers["range"]),
                ("/file", lambda: code(b.file("write", "f", "parents", b"abc")) is None, lambda n: n.raw)):
            s.lose()
            assert operation()
            sent = [n for n in s.notes if n.path.endswith(ending)]
            assert len(sent) == 2 and same(sent[0]) == same(sent[1]) and sent[1].token == s.token, ending
            assert len(s.asked("POST", "/sessions")) == 1
        for what, more in (("stream", {}), ("run", {"input": True})):
            s.lose()
            n = b.begin(what, argv=["cat"], **more)
            p.send(do="input", on=n, data=b"in".hex())
            p.send(do="input", on=n, data="")
            a = p.wait(n)
            assert (a["stdout"], a["exit_code"]) == (b"hi", 7), a
            sent = s.asked("POST", "/stream")
            assert len(sent) == 2 and sent[0].raw == sent[1].raw and sent[1].got == b"\0\0\0\0\2in\0\0\0\0\0", sent[1].got
        # A stream's beginning is gone: it is for the caller to try again.
        s.lose()
        s.on[f"PUT {v1}file"] = lambda n: (401, {})
        a = b.file("write", "f", "parents", b"x" * (1 << 20))
        assert code(a) == "UNAVAILABLE" and "try again" in a["error"]["msg"], a
        assert len(s.asked("POST", "/sessions")) == 1
        s.on[f"PUT {v1}file"] = lambda n: (200, written)
        s.forget()
        ok(b.file("write", "f", "parents", b"x" * (1 << 20)))
        assert len(s.notes) == 1 and s.notes[0].token == s.token
        # Refused twice, and gone.
        s.on.update({f"GET {v1}file": lambda n: (401, {}), f"POST {v1}stream": lambda n: (401, {})})
        assert code(b.file("read", "f")) == code(p.wait(b.begin("stream", argv=["x"]))) == "UNAUTHORIZED"
        n = b.begin("stream", argv=["x"])
        p.send(do="leave", on=n)
        p.wait(n)
        s.lose(lambda n: (404, {}))
        assert code(b.file("read", "f")) == "GONE"
        assert code(p.wait(b.begin("stream", argv=["x"]))) == "GONE"
    for lost in (lambda b: b.driver.wait(b.begin("stream", argv=["x"])), lambda b: b.file("write", "f", "parents", b"x" * (1 << 20))):
        with Restarted() as s, provider(s.url, session_name="n") as p:
            s.on["GET /"] = lambda n: (200, {"endpoints": ["/v1/sessions/{session_id}/file"]})
            b = p.open()
            s.lose(lambda n: (404, {}))
            assert code(lost(b)) == "GONE" and code(b.sh("true")) == "GONE"


if __name__ == "__main__":
    sys.exit(main(TESTS))
