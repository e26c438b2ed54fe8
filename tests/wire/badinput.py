#!/usr/bin/env python3
"""What clients may not do, and what a daemon must survive: one daemon for all, over TCP and a Unix
socket; at the end its descriptors and its memory are as they were.

usage: badinput.py [--build DIR] [NAME...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import TOP, Daemon, crowd  # noqa: E402

TESTS = []
SLOW = 4.0 if os.environ.get("GARRET_SANITIZED") else 1.0
MIB = 1 << 20


def test(fn):
    TESTS.append(fn)
    return fn


# ---- a client that may do anything ----


class Wire:
    """A connection; unix=True goes through the socket file."""

    def __init__(self, d, unix=False, timeout=30.0, rcvbuf=None):
        self.d = d
        if unix:
            self.s = socket.socket(socket.AF_UNIX)
        else:
            self.s = socket.socket()
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.settimeout(timeout)
        u = urlsplit(d.url)
        self.s.connect(d.socket_path if unix else (u.hostname, u.port))
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.s.close()

    def send(self, data):
        self.s.sendall(data)
        return self

    def more(self):
        piece = self.s.recv(65536)
        self.rest += piece
        return bool(piece)

    def until(self, mark):
        while mark not in self.rest:
            if not self.more():
                return None
        head, self.rest = self.rest.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.rest) < n and self.more():
            pass
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def answer(self, head=False):
        """(status, headers, body), or None when the connection ended without one."""
        try:
            top = self.until(b"\r\n\r\n")
        except ConnectionResetError:
            return None
        if top is None:
            return None
        lines = top.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:])}
        if status == 100 or head or status == 101:
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                n = int(self.until(b"\r\n"), 16)
                body += self.exactly(n)
                self.exactly(2)
                if not n:
                    return status, headers, body
        return status, headers, self.exactly(int(headers.get("content-length", 0)))

    def closed(self, seconds=5.0):
        """True when the other side ends the connection."""
        self.s.settimeout(seconds)
        try:
            while self.s.recv(65536):
                pass
            return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def request(d, method, path, body=b"", token=None, headers="", version="1.1"):
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    t = d.token if token is None else token
    text = f"{method} {path} HTTP/{version}\r\nHost: x\r\n"
    if t:
        text += f"X-Sandbox-Token: {t}\r\n"
    if body:
        text += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return (text + headers + "\r\n").encode("latin-1") + body


def ask(d, *args, unix=False, **kw):
    with Wire(d, unix) as w:
        a = w.send(request(d, *args, **kw)).answer()
    assert a, f"no answer to {args[:2]}"
    return a


def detail(a):
    return json.loads(a[2])["detail"]


def one_item(a):
    """The only item of a 422."""
    items = detail(a)
    assert a[0] == 422 and isinstance(items, list) and items, a
    return items[0]


def is_well(d, seconds=1.0):
    """Others are served, soon."""
    t = time.time()
    assert ask(d, "GET", "/healthz")[0] == 200
    took = time.time() - t
    assert took < seconds * SLOW, f"healthz took {took:.2f} s"
    return took


def links(d):
    out = []
    for name in os.listdir(f"/proc/{d.pid}/fd"):
        try:
            out.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{d.pid}/fd/{name}")))
        except OSError:
            pass
    return sorted(out)


def fds(d):
    return len(links(d))


def rss(d):
    with open(f"/proc/{d.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024


def run_body(argv, **more):
    return {"argv": argv, "run_id": uuid.uuid4().hex, **more}


# ---- who calls, and where to ----


@test
def tokens(d, s):
    for unix in (False, True):
        for path in ("/sessions", "/policy", f"/sessions/{s.id}"):
            for token in ("", *("wrong", "x" * 8000, d.token[:-1], d.token + "x", "\x01\x02")[unix * 3:][:3]):
                a = ask(d, "GET", path, token=token, unix=unix)
                assert a[0] == 401 and detail(a) == "Invalid or missing sandbox token", (path, token[:9], a)
    assert ask(d, "GET", "/sessions", token=s.token)[0] == 401  # a session's token is for its session
    other = d.open("tokens-other")
    assert ask(d, "GET", f"/sessions/{s.id}", token=other.token)[0] == 401
    assert other.close() == 204
    a = ask(d, "GET", "/sessions/tokens-other", token=other.token)
    assert a[0] == 410, a
    assert ask(d, "GET", "/sessions/nosuch")[0] == 404
    # The token comes first: nobody gets his body read without one.
    with Wire(d) as w:
        w.send(b"POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n")
        assert w.answer()[0] == 401


@test
def routes_and_methods(d, s):
    for path in ("/nosuch", "/sessions/a/b/c", "/sessions/a/nosuch", "/..", "/%2e%2e/etc/passwd", "//", "/sessions//run", "/v1/sessions", "/%00",
                 "/" + "a" * 6000, "/\xff\xfe", "/?a=b&" * 100):
        a = ask(d, "GET", path)
        assert a[0] in (200, 404) and (a[0] == 404) == (path[:2] != "/?"), (path[:20], a)
    for method, path, allow in (("PUT", "/sessions", "POST"), ("PATCH", f"/sessions/{s.id}", "GET"), ("GET", f"/sessions/{s.id}/run", "POST"),
                                ("DELETE", "/healthz", "GET"), ("BREW", "/policy", "GET"), ("TRACE", "/", "GET")):
        a = ask(d, method, path)
        assert a[0] == 405 and a[1]["allow"] == allow, (method, path, a)
    assert ask(d, "GET", "/sessions/")[0] == 307


@test
def session_ids(d, s):
    bad = ["", ".", "..", "-a", "_a", "a b", "a/b", "a\u0000b", "ä", "a" * 65, "a\n", " a", "a%00", "..%2f", "a?b", "\ud800"]
    for sid in bad:
        a = ask(d, "POST", "/sessions", {"session_id": sid})
        assert one_item(a)["loc"] == ["body", "session_id"], (sid, a)
    for sid in ("%2e", "..", "-a", "a%20b", "a%00b", "%c3%a4", "a" * 65, "%ff", "a%2Fb"):
        for method, tail in (("GET", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/v1")):
            a = ask(d, method, f"/sessions/{sid}{tail}", {"argv": ["true"]} if method == "POST" else b"")
            assert a[0] in (404, 422), (sid, a)
    for sid in (1, None, [], {}, True, 1.5):
        a = ask(d, "POST", "/sessions", {"session_id": sid, "runtime": "nosuch"})
        assert a[0] in (400, 422), a  # None is allowed, the runtime isn't
    for rid in ("", "x", "A" * 32, "0" * 31, "0" * 33, "g" * 32, "0" * 31 + "\u0000", 7, None):
        a = ask(d, "POST", f"/sessions/{s.id}/run", {"argv": ["true"], "run_id": rid})
        assert one_item(a)["loc"] == ["body", "run_id"], (rid, a)
    for rid in ("x", "0" * 31, "%30" * 32 + "0", "0" * 31 + "%00"):
        assert ask(d, "POST", f"/sessions/{s.id}/runs/{rid}/stop")[0] == 422, rid


@test
def runtimes(d, s):
    for r in ("nosuch", "HOST", "host ", "../host", "host\u0000", "x" * 5000):
        a = ask(d, "POST", "/sessions", {"session_id": "runtimes", "runtime": r})
        assert a[0] in (400, 404, 422), (r[:9], a)
        assert "nosuch" not in r or "nosuch" in json.dumps(detail(a)), a
    assert ask(d, "GET", "/sessions/runtimes")[0] == 404


# ---- bodies ----


@test
def bad_json(d, s):
    path = f"/sessions/{s.id}/run"
    rows = [b"{", b"nonsense", b"{\"argv\":[\"true\"],}", b"{'a':1}", b"[1,2", b"\"", b"{\"a\":1}x", b"\x00", b"{\"argv\":NaN}", b"{\"a\":1e999}",
            b"[" * 5000, b"[" * 60000, b"{\"a\":" * 3000, b"1" * 100000, b"\"\\x\"", b"\"\\u12\"", b"{\"a\":\"\x01\"}", b"tru", b"\xef\xbb\xbf", b" " * 50000]
    for body in rows:
        a = ask(d, "POST", path, body)
        assert one_item(a)["type"] == "json_invalid", (body[:20], a)
    for body in (b"\xff", b"{\"a\":\"\xc3\"}", b"\xc0\x80", b"{\"a\":\"\xed\xa0\x80\"}"):
        a = ask(d, "POST", path, body)
        assert a[0] in (400, 422), (body, a)
    for body in (b"[]", b"null", b"1", b"\"x\"", b"true", b"{}", b"{\"argv\":{}}"):
        a = ask(d, "POST", path, body)
        assert one_item(a), (body, a)
    a = ask(d, "POST", path)
    assert one_item(a)["type"] == "missing", a


@test
def wrong_types(d, s):
    good = run_body(["true"])
    rows = [("argv", x) for x in ("true", [], [1], [None], ["a", []], {}, None, 5, ["a\u0000b"], [""] * 0, [["true"]])]
    rows += [("env", x) for x in ("A=1", [], {"A": 1}, {"": "x"}, {"A=B": "x"}, {"A": "x\u0000"}, {"A": None}, {"=": ""}, 3)]
    rows += [("timeout_seconds", x) for x in ("x", 0, -1, [], {}, "", "0", -1e308)]
    rows += [("keep", x) for x in ("maybe", 2, [], {}, "")]
    for key, value in rows:
        for tail in ("run",) + (("stream",) if key != "keep" else ()):
            p = f"/sessions/{s.id}/run" if tail == "run" else f"/v1/sessions/{s.id}/stream"
            a = ask(d, "POST", p, {**good, key: value})
            assert one_item(a)["loc"][:2] == ["body", key], (key, value, a)
    a = ask(d, "POST", f"/sessions/{s.id}/run", {**good, "env": {"A\u0000": "x"}})
    assert one_item(a)["type"] == "json_invalid" and "NUL" in json.dumps(a[2].decode()), a
    for key, value in (("rows", 0), ("rows", "x"), ("columns", -1), ("columns", 1.5), ("tty", "x")):
        a = ask(d, "POST", f"/v1/sessions/{s.id}/stream", {"argv": ["true"], key: value})
        assert one_item(a)["loc"] == ["body", key], a
    for key, value in (("reuse", "x"), ("attach", []), ("tenant", "a b"), ("tenant", 5), ("runtime", 5), ("runtime", [])):
        a = ask(d, "POST", "/sessions", {"session_id": "wrong-types", key: value})
        assert one_item(a)["loc"] == ["body", key], a
    for q in ("after=x", "after=-1", "after=99999999999999999999", "after=", "after=1.5"):
        a = ask(d, "GET", f"/sessions/{s.id}/events?{q}")
        assert one_item(a)["loc"] == ["query", "after"], (q, a)
    assert ask(d, "GET", "/sessions/wrong-types")[0] == 404


@test
def more_than_the_kernel_takes(d, s):
    path = f"/sessions/{s.id}/run"
    word = "x" * 131071
    a = ask(d, "POST", path, run_body(["sh", "-c", "printf %s ${#1}", "x", word]))
    assert a[0] == 200 and json.loads(a[2])["stdout"] == "131071", a
    rows = [
        (run_body(["echo", word + "x"]), "131071"),
        (run_body(["true"], env={"A": word}), "131071"),
        (run_body(["true"] + ["x" * 100000] * 20), "1992294"),
        (run_body(["true"] + ["x"] * 400000), ""),
        (run_body(["true"] + ["x"] * 20000), "16384"),
    ]
    for body, limit in rows:
        for unix in (False, True):
            a = ask(d, "POST", path, body, unix=unix)
            assert a[0] in (413, 422) and limit in a[2].decode(), (limit, a[0], a[2][:300])
        a = ask(d, "POST", f"/v1/sessions/{s.id}/stream", {k: v for k, v in body.items() if k != "run_id"},
                headers="Connection: Upgrade\r\nUpgrade: garret-stream/1\r\n")
        assert a[0] in (413, 422), (limit, a[0], a[2][:300])
    is_well(d)


@test
def bodies_that_are_too_large(d, s):
    run = f"/sessions/{s.id}/run"
    for path, limit in (("/sessions", MIB), (run, 12 * MIB), (f"/v1/sessions/{s.id}/stream", 12 * MIB)):
        # Announced: answered at once, before a byte of it was sent.
        for n in (limit + 1, 1 << 31, 1 << 40, (1 << 63) - 1):
            with Wire(d) as w:
                w.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {d.token}\r\nContent-Length: {n}\r\n\r\n".encode())
                a = w.answer()
                assert a and a[0] == 413 and str(limit) in detail(a), (path, n, a)
        # With Expect: there is no 100 first.
        with Wire(d) as w:
            w.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {d.token}\r\nExpect: 100-continue\r\nContent-Length: {limit + 1}\r\n\r\n".encode())
            a = w.answer()
            assert a and a[0] == 413, a
        # In pieces without a length: at its end.
        with Wire(d) as w:
            w.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {d.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
            for _ in range(limit // 65536 + 2):
                w.send(piece)
            a = w.send(b"0\r\n\r\n").answer()
            assert a and a[0] == 413, (path, a)
    # More than is read on for: cut off.
    with Wire(d) as w:
        w.send(f"POST /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {d.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"100000\r\n" + b" " * MIB + b"\r\n"
        try:
            for _ in range(80):
                w.send(piece)
            raise AssertionError("80 MiB were read")
        except (BrokenPipeError, ConnectionResetError):
            pass


@test
def bodies_that_are_expensive(d, s):
    """Nothing that a body can hold keeps the others waiting or makes the daemon large."""
    path = f"/sessions/{s.id}/run"
    before = rss(d)
    n = 11 * MIB
    rows = {
        "lists": b"[" + b"[]," * (n // 3) + b"[]]",
        "objects": b"[" + b"{}," * (n // 3) + b"{}]",
        "numbers": b"[" + b"1," * (n // 2) + b"1]",
        "digits": b"1" * n,
        "blanks": b" " * n,
        "letters": b"\"" + b"x" * n + b"\"",
        "escapes": b"\"" + b"\\u0061" * (n // 6) + b"\"",
        "pairs": b"\"" + b"\\ud83d\\ude00" * (n // 12) + b"\"",
        "words": b"[" + b"\"abc\"," * (n // 6) + b"1]",
        "keys": b"{" + b"".join(b"\"%x\":1," % i for i in range(n // 12)) + b"\"a\":1}",
        "one key": b"{\"" + b"x" * n + b"\":1}",
        "broken at the end": b"\"" + b"x" * n,
        "argv": json.dumps(run_body(["true"] + ["x" * 120000] * 80)).encode(),
    }
    slowest, peak = {}, 0
    for name, body in rows.items():
        worst, done = 0.0, threading.Event()

        def other():
            nonlocal worst, peak
            while not done.is_set():
                t = time.time()
                assert ask(d, "GET", "/healthz")[0] == 200
                worst = max(worst, time.time() - t)
                peak = max(peak, rss(d))

        thread = threading.Thread(target=other)
        thread.start()
        try:
            a = ask(d, "POST", path, body)
        finally:
            done.set()
            thread.join()
        assert a[0] in (413, 422), (name, a[0], a[2][:200])
        slowest[name] = worst
    print("     longest wait of another client, ms: " + ", ".join(f"{k} {v * 1000:.0f}" for k, v in slowest.items()))
    print(f"     memory: {before / MIB:.0f} MiB before, {peak / MIB:.0f} at most, {rss(d) / MIB:.0f} after")
    assert max(slowest.values()) < 0.15 * SLOW * crowd(), slowest
    assert peak - before < 80 * MIB * SLOW, (before, peak)


# ---- HTTP itself ----


@test
def malformed_requests(d, s):
    t = f"X-Sandbox-Token: {d.token}\r\n"
    rows = [
        # bytes, what may be answered (None: the connection is ended)
        (b"\r\n\r\n\r\n", {None, 400}),
        (b"GET\r\n\r\n", {None, 400}),
        (b"GET /healthz\r\n\r\n", {None, 400}),
        (b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n", {None, 200, 400, 505}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60 + b"\r\n\r\n", {None, 400}),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {None, 400, 404, 405, 505}),
        (b"GET /healthz HTTP/1.1\r\n\r\n", {400}),  # no host
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", {None, 200, 400}),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", {None, 200, 400}),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n folded: x\r\n\r\n", {None, 200, 400}),
        (b"GET  /healthz  HTTP/1.1\r\nHost: x\r\n\r\n", {None, 200, 400, 404}),
        (b"GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404, 405}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Content-Length: -1\r\n\r\n", {None, 400, 413, 422}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Content-Length: 99999999999999999999999\r\n\r\n", {None, 400, 413}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Content-Length: 5x\r\n\r\nabcde", {None, 400, 422}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", {400}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}", {None, 400, 422}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", {None, 400}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", {None, 400, 413}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", {None, 400, 413}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n", {None, 400, 422}),
        (b"POST /sessions HTTP/1.1\r\nHost: x\r\n" + t.encode() + b"Transfer-Encoding: gzip\r\n\r\n", {None, 400, 422, 501}),
        (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {None, 400, 414, 431}),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 20000 + b"\r\n\r\n", {None, 431}),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: x\r\n" % i for i in range(3000)) + b"\r\n", {None, 431}),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100000 + b"\r\n", {None, 431}),
        (b"GET /healthz?" + b"&" * 400 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
        (b"GET /healthz?" + b"a=b&" * 300 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
        # More parameters than the library has memory for: it means to answer 431, and forgets to.
        (b"GET /healthz?" + b"a=b&" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {None, 431}),
    ]
    for unix in (False, True):
        for data, allowed in rows:
            with Wire(d, unix, timeout=3) as w:
                try:
                    w.send(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                try:
                    a = w.answer()
                except TimeoutError:
                    a = "silence"
            got = a if a in (None, "silence") else a[0]
            # What isn't complete yet may be waited for; what is must be answered.
            assert got in allowed or (got == "silence" and (None in allowed or 400 in allowed)), (data[:90], a)
    is_well(d)


@test
def random_requests(d, s):
    seed = int.from_bytes(os.urandom(4), "big")
    r = random.Random(seed)
    print(f"     seed {seed}")
    good = [request(d, "POST", "/sessions", {"session_id": "-"}), request(d, "GET", f"/sessions/{s.id}"), request(d, "POST", f"/sessions/{s.id}/run", {"argv": []}),
            b"POST /sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"]
    for _ in range(600):
        data = bytearray(r.choice(good))
        for _ in range(r.randint(1, 8)):
            at = r.randrange(len(data))
            match r.randrange(4):
                case 0:
                    data[at] = r.randrange(256)
                case 1:
                    del data[at:at + r.randint(1, 20)]
                case 2:
                    data[at:at] = r.choice([b"\r\n", b"\x00", b"\r\n\r\n", b":", b"%", b"\xff" * 5, b" ", b"0"])
                case _:
                    data[at:at] = data[:r.randint(0, 50)]
            data = data or bytearray(b"\r\n")
        with Wire(d, unix=r.random() < 0.5) as w:
            try:
                w.send(bytes(data) + b"\r\n\r\n")
                w.s.settimeout(0.03)
                a = w.answer()
                assert not a or a[0] < 500 or a[0] in (501, 505), (bytes(data), a)
            except (OSError, ValueError):  # it waits for more, or ended; a number that we cut in two
                pass
    is_well(d)


@test
def pipelined_requests(d, s):
    for unix in (False, True):
        with Wire(d, unix) as w:
            one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
            two = request(d, "POST", "/sessions", {"session_id": "-"})
            three = request(d, "GET", f"/sessions/{s.id}")
            w.send((one + two + three) * 200)
            for _ in range(200):
                assert [w.answer()[0] for _ in range(3)] == [200, 422, 200]
            run = request(d, "POST", f"/sessions/{s.id}/run", run_body(["echo", "hi"]))
            w.send(run + one)
            assert json.loads(w.answer()[2])["stdout"] == "hi\n" and w.answer()[0] == 200


@test
def chunked_and_expected_bodies(d, s):
    body = json.dumps(run_body(["echo", "hi"])).encode()
    head = f"POST /sessions/{s.id}/run HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {s.token}\r\n".encode()
    for unix in (False, True):
        with Wire(d, unix) as w:
            w.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1;ext=\"x\"\r\n%c\r\n" % c for c in body) + b"0\r\nTrailer: x\r\n\r\n")
            assert json.loads(w.answer()[2])["stdout"] == "hi\n"
            w.send(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert w.answer()[0] == 100
            assert json.loads(w.send(body).answer()[2])["stdout"] == "hi\n"
            for c in head + b"Content-Length: %d\r\n\r\n" % len(body) + body:
                w.send(bytes([c]))
            assert json.loads(w.answer()[2])["stdout"] == "hi\n"
        with Wire(d, unix) as w:
            w.send(head.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert json.loads(w.answer()[2])["stdout"] == "hi\n" and w.closed()


# ---- clients that behave badly ----


@test
def half_closed_connections(d, s):
    for unix in (False, True):
        with Wire(d, unix) as w:
            w.send(request(d, "GET", "/healthz"))
            w.s.shutdown(socket.SHUT_WR)
            assert w.answer()[0] == 200
    # It counts as gone: what it waits for is stopped.
    with Wire(d) as w:
        w.send(request(d, "POST", f"/sessions/{s.id}/run", run_body(["sleep", "6079"])))
        while not subprocess.run(["pgrep", "-fx", "sleep 6079"], capture_output=True).stdout:
            time.sleep(0.02)
        w.s.shutdown(socket.SHUT_WR)
        end = time.time() + 6 * SLOW
        while subprocess.run(["pgrep", "-fx", "sleep 6079"], capture_output=True).stdout:
            assert time.time() < end, "the run goes on"
            time.sleep(0.05)


@test
def five_thousand_connections(d, s):
    half = request(d, "POST", "/sessions", {"session_id": "-"})
    linger = struct.pack("ii", 1, 0)
    t = time.time()
    for i in range(5000):
        with Wire(d, unix=i % 2 == 0) as w:
            match i % 5:
                case 0:
                    pass
                case 1:
                    assert w.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").answer()[0] == 200
                case 2:
                    w.send(half[:i % len(half)])
                case 3:
                    w.send(half)
                    w.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                case _:
                    w.send(b"\xff" * (i % 300))
    print(f"     {5000 / (time.time() - t):.0f} connections a second")
    is_well(d)


def background(d, s):
    """The slow clients: all wait at once, in threads, while the other tests go on."""
    results, threads = {}, []
    t = f"X-Sandbox-Token: {d.token}\r\n"

    def dribble(name, first, piece, pause, unix, low, high):
        start = time.time()
        with Wire(d, unix, timeout=120) as w:
            w.send(first)
            w.s.settimeout(pause)
            while time.time() - start < high + 5:
                try:
                    w.send(piece)
                    if not w.s.recv(4096):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        took = time.time() - start
        results[name] = low <= took <= high * (1 if SLOW == 1 else 1.5), took

    def never_reads(name, unix):
        """A 10 MiB answer, every byte escaped, to a client that takes nothing."""
        with Wire(d, unix, timeout=120, rcvbuf=4096) as w:
            rid = uuid.uuid4().hex
            body = {"argv": ["sh", "-c", "head -c 10485700 /dev/zero"], "run_id": rid}
            w.send(request(d, "POST", f"/sessions/{s.id}/run", body))
            start, got = time.time(), 0
            while time.time() - start < 60:
                time.sleep(1)
                # Closed by the other side?  Nothing is read: the state tells.
                if not unix:
                    if w.s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1:
                        break
                else:
                    import select
                    p = select.poll()
                    p.register(w.s, select.POLLRDHUP | select.POLLHUP)
                    if p.poll(0):
                        break
            took = time.time() - start
            w.s.settimeout(5)
            try:
                while (n := len(w.s.recv(MIB))):
                    got += n
            except OSError:
                pass
        results[name] = 15 <= took <= 40 * SLOW and got < 60 * MIB, took

    def half(name, data, unix, limit):
        """What isn't complete and never will be."""
        t = time.time()
        with Wire(d, unix) as w:
            w.send(data)
            w.s.shutdown(socket.SHUT_WR)
            ok = w.closed(limit * SLOW)
        results[name] = ok and ask(d, "GET", "/sessions/half")[0] == 404, time.time() - t

    def start(fn, *args):
        threads.append(threading.Thread(target=fn, args=args))
        threads[-1].start()

    for unix in (False, True):
        u = " (unix)" if unix else ""
        for i in range(3):
            start(dribble, f"slow headers {i}{u}", b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n", 0.5, unix, 9, 14)
        start(dribble, "nothing sent" + u, b"", b"", 1, unix, 9, 14)
        start(dribble, "slow body" + u, (f"POST /sessions HTTP/1.1\r\nHost: x\r\n{t}Content-Length: 900000\r\n\r\n").encode(), b" " * 100, 0.5, unix, 4, 9)
        start(dribble, "slow chunks" + u, (f"POST /sessions HTTP/1.1\r\nHost: x\r\n{t}Transfer-Encoding: chunked\r\n\r\n").encode(), b"1\r\n \r\n", 0.5, unix, 4, 9)
        start(never_reads, "never reads" + u, unix)
        start(half, "half-closed in the headers" + u, request(d, "GET", "/healthz")[:20], unix, 14)
        start(half, "half-closed in the body" + u, request(d, "POST", "/sessions", {"session_id": "half"})[:-5], unix, 9)
    return threads, results


@test
def connections_are_at_their_maximum(d0, s0):
    with Daemon(build=BUILD, GARRET_MAX_CONNECTIONS="20") as d:
        s = d.open()
        idle = [Wire(d) for _ in range(20)]
        for w in idle:
            assert w.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").answer()[0] == 200
        for _ in range(5):  # the longest idle makes room
            is_well(d, 2)
        for w in idle:
            w.s.close()
        busy = [Wire(d) for _ in range(20)]
        for w in busy:
            w.send(request(d, "POST", f"/sessions/{s.id}/run", run_body(["sleep", "2"])))
        time.sleep(0.5)
        t = time.time()
        assert ask(d, "GET", "/healthz")[0] == 200  # waits for one of them
        assert 0.5 < time.time() - t < 6 * SLOW, time.time() - t
        for w in busy:
            assert w.answer()[0] == 200
            w.s.close()
    with Daemon(build=BUILD, GARRET_MAX_CONNECTIONS_PER_ADDRESS="5") as d:
        held = [Wire(d) for _ in range(5)]
        for w in held:
            assert w.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").answer()[0] == 200
        with Wire(d) as w:
            assert w.closed()
        for w in held:
            w.s.close()
        time.sleep(0.2)
        is_well(d)


# ---- live streams ----

UPGRADE = "Connection: Upgrade\r\nUpgrade: garret-stream/1\r\n"


def frame(kind, data=b""):
    return struct.pack(">BI", kind, len(data)) + data


def stream(d, s, argv, more=b"", unix=False, **kw):
    body = {"argv": argv, **kw}
    w = Wire(d, unix)
    w.send(request(d, "POST", f"/v1/sessions/{s.id}/stream", body, token=s.token, headers=UPGRADE) + more)
    a = w.answer()
    assert a and a[0] == 101 and a[1]["upgrade"] == "garret-stream/1" and a[1]["connection"].lower() == "upgrade", a
    return w


def frames(w):
    """{type: bytes} until the end."""
    out = {1: b"", 2: b"", 3: b"", 4: b""}
    while True:
        head = w.exactly(5)
        if not head:
            return out
        assert len(head) == 5, head
        kind, n = struct.unpack(">BI", head)
        assert kind in out and n <= 65536, (kind, n)
        data = w.exactly(n)
        assert len(data) == n
        out[kind] += data


@test
def streams(d, s):
    for unix in (False, True):
        with stream(d, s, ["cat"], frame(0, b"early") + frame(0, b" data") + frame(0), unix=unix) as w:
            out = frames(w)
            assert out[1] == b"early data" and json.loads(out[3]) == {"exit_code": 0, "timed_out": False, "gone": False}, out
        with stream(d, s, ["sh", "-c", "stty size; read x; stty size"], unix=unix, tty=True, rows=7, columns=9) as w:
            seen = w.exactly(5 + 3)[5:]
            w.rest = frame(1, w.exactly(2)) + w.rest  # the end of that frame
            w.send(frame(1, struct.pack(">HH", 30, 100)) + frame(0, b"\n"))
            out = frames(w)
            assert seen.startswith(b"7 9") and b"30 100" in out[1], out
        with stream(d, s, ["sh", "-c", "echo; exec sleep 60"], unix=unix) as w:
            w.exactly(6)
            w.send(frame(2, b"\x0f"))
            assert json.loads(frames(w)[3])["exit_code"] == 143
        with stream(d, s, ["sleep", "60"], unix=unix, timeout_seconds=0.2) as w:
            assert json.loads(frames(w)[3]) == {"exit_code": None, "timed_out": True, "gone": False}
    # What isn't an upgrade.
    body, path = {"argv": ["true"]}, f"/v1/sessions/{s.id}/stream"
    for headers in ("", "Upgrade: garret-stream/1\r\n", "Connection: Upgrade\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n",
                    "Connection: Upgrade\r\nUpgrade: garret-stream/12\r\n"):
        a = ask(d, "POST", path, body, headers=headers)
        assert a[0] == 426 and "garret-stream/1" in detail(a) and a[1]["upgrade"] == "garret-stream/1", a
    assert ask(d, "POST", path, body, headers=UPGRADE, version="1.0")[0] == 426
    a = ask(d, "POST", path, body, headers="Connection: keep-alive, Upgrade\r\nUpgrade: h2c, garret-stream/1\r\n")
    assert a[0] == 101, a
    assert ask(d, "POST", path, {**body, "rows": 65536}, headers=UPGRADE)[0] == 422
    assert ask(d, "POST", path, body, token="wrong", headers=UPGRADE)[0] == 401
    assert ask(d, "POST", "/v1/sessions/nosuch/stream", body, headers=UPGRADE)[0] == 404


@test
def bad_frames(d, s):
    rows = [frame(9), frame(3, b"x"), frame(255, b"x" * 100), struct.pack(">BI", 0, 65537), struct.pack(">BI", 0, 0xFFFFFFFF), frame(1, b"x"),
            frame(1), frame(1, b"x" * 5), frame(2), frame(2, b"\x00"), frame(2, b"\xff"), frame(2, b"\x01\x02"), frame(0) + frame(0, b"x"), frame(0) + frame(0),
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"]
    for i, data in enumerate(rows):
        for early in (False, True):
            w = stream(d, s, ["sleep", "6080"], data if early else b"", unix=i % 2 == 1)
            with w:
                if not early:
                    w.send(data)
                assert w.closed(3 * SLOW), data
    end = time.time() + 3 * SLOW
    while subprocess.run(["pgrep", "-fx", "sleep 6080"], capture_output=True).stdout:
        assert time.time() < end, "commands outlive their bad clients"
        time.sleep(0.05)
    is_well(d)


@test
def streams_whose_clients_vanish(d, s):
    """At any moment, in any way: the commands end, nothing is left."""
    before, r = fds(d), random.Random(7)
    linger = struct.pack("ii", 1, 0)
    for i in range(120):
        body = {"argv": r.choice([["sleep", "6081"], ["yes"], ["cat"], ["true"], ["sh", "-c", "trap '' TERM; sleep 6081"]])}
        data = request(d, "POST", f"/v1/sessions/{s.id}/stream", body, token=s.token, headers=UPGRADE) + frame(0, b"x" * r.randint(0, 60000))
        with Wire(d, unix=i % 2 == 0) as w:
            w.send(data[:r.randint(len(data) // 2, len(data))] if i % 3 == 0 else data)
            if i % 4:
                w.answer()
                time.sleep(r.random() * 0.02)
            if i % 5 == 0 and i % 2:
                w.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    end = time.time() + 5 * SLOW
    while fds(d) > before or subprocess.run(["pgrep", "-fx", "sleep 6081|yes"], capture_output=True).stdout:
        assert time.time() < end, (before, fds(d))
        time.sleep(0.05)
    is_well(d)


@test
def streams_that_nobody_reads(d, s):
    """Output and input wait where they are: the daemon doesn't grow."""
    before = rss(d)
    ws = [stream(d, s, ["sh", "-c", "yes & yes >&2"], unix=i % 2 == 0) for i in range(20)]
    full = []
    for i in range(10):
        w = stream(d, s, ["sleep", "60"], unix=i % 2 == 0)
        w.s.settimeout(0.3)
        try:
            for _ in range(400):
                w.send(frame(0, b"x" * 65536))
            raise AssertionError("25 MiB of input went into a command that reads nothing")
        except TimeoutError:
            pass
        full.append(w)
    time.sleep(1)
    grown = rss(d) - before
    print(f"     30 connections: {grown / MIB:.1f} MiB")
    assert grown < 40 * MIB * SLOW, grown
    is_well(d)
    for w in ws + full:
        w.s.close()
    end = time.time() + 6 * SLOW
    while subprocess.run(["pgrep", "-fx", "yes"], capture_output=True).stdout:
        assert time.time() < end
        time.sleep(0.05)


# ---- settings ----


@test
def settings(d, s):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
    names = ["SANDBOXD_MAX_SESSIONS", "SANDBOXD_MAX_OPEN_SESSIONS", "SANDBOXD_MAX_SESSIONS_PER_TENANT", "SANDBOXD_PIDS_LIMIT", "SANDBOXD_CPUS",
             "SANDBOXD_EXECUTE_TIMEOUT", "SANDBOXD_IDLE_TIMEOUT", "SANDBOXD_MAX_RUNNING_COMMANDS", "SANDBOXD_MEM_LIMIT", "SANDBOXD_TMPFS_SIZE",
             "SANDBOXD_MAX_READ_BYTES", "SANDBOXD_CPU_SHARES", "GARRET_MAX_CONNECTIONS", "GARRET_MAX_CONNECTIONS_PER_ADDRESS"]
    for name in names:
        for value in ("0", "-1", "-99999999999999999999", "abc", "1e5x", "99999999999999999999999"):
            if name == "SANDBOXD_CPUS" and value[:1] == "9":
                continue  # a number of CPUs has no bound of its own
            r = subprocess.run([os.path.join(TOP, BUILD, "garretd"), "--check"], env={**clean, name: value}, capture_output=True, text=True, timeout=30)
            assert r.returncode == 1 and name in r.stderr and len(r.stderr.splitlines()) == 1, (name, value, r)


def settled(read, limit, seconds):
    """The value once it is at most limit, or what it is in the end."""
    end = time.time() + seconds
    while (v := read()) > limit and time.time() < end:
        time.sleep(0.1)
    return v


def main() -> int:
    global BUILD
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.environ.get("GARRET_BUILD", "build"))
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    BUILD = args.build
    passed = failed = 0

    def say(name, error, took):
        nonlocal passed, failed
        passed, failed = passed + (not error), failed + bool(error)
        print(f"{'FAIL' if error else 'ok  '} {name} ({took:.1f} s)" + (f"\n{error}" if error else ""), flush=True)

    directory = tempfile.mkdtemp(prefix="garret-wire-")
    os.chmod(directory, 0o777)
    path = os.path.join(directory, "sock")
    try:
        with Daemon(build=BUILD, GARRET_SOCKET=path) as d:
            d.socket_path = path
            s = d.open("bad")
            for _ in range(20):
                s.sh("true")
                is_well(d)
            time.sleep(0.5)  # what is made ahead is there
            fds0, rss0, links0 = fds(d), rss(d), links(d)
            threads, results = background(d, s) if not args.names else ([], {})
            for fn in TESTS:
                if args.names and not any(n in fn.__name__ for n in args.names):
                    continue
                t = time.time()
                try:
                    fn(d, s)
                    say(fn.__name__, None, time.time() - t)
                    if os.environ.get("GARRET_TEST_VERBOSE"):
                        print(f"     memory {rss(d) / MIB:.1f} MiB, {fds(d)} descriptors")
                except Exception:  # noqa: BLE001
                    say(fn.__name__, traceback.format_exc(), time.time() - t)
            for t in threads:
                t.join()
            for name, (ok, took) in sorted(results.items()):
                say(name, None if ok else f"ended after {took:.1f} s", took)
            for other in d.call("GET", "/sessions")[1]["sessions"]:  # random requests open some
                if other["session_id"] != s.id:
                    d.call("DELETE", f"/sessions/{other['session_id']}?purge=true")
            fds1, rss1 = settled(lambda: fds(d), fds0, 10), settled(lambda: rss(d), rss0 + 8 * MIB, 5)
            print(f"     descriptors: {fds0} before, {fds1} after; memory: {rss0 / MIB:.1f} MiB before, {rss1 / MIB:.1f} after")
            say("descriptors are as before", None if fds1 <= fds0 else f"{links0}\n{links(d)}", 0)
            limit = 8 * MIB if SLOW == 1 else 400 * MIB  # a sanitizer keeps what was freed
            say("memory is as before", None if rss1 - rss0 <= limit else f"{rss0}, {rss1}", 0)
    except Exception:  # noqa: BLE001
        say("the daemon ends well", traceback.format_exc(), 0)
    finally:
        subprocess.run(["rm", "-rf", directory], check=False)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


BUILD = "build"
sys.exit(main())
