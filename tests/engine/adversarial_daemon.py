"""The part of adversarial.py that needs a garretd: a first process that lies, and output without end."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from http.client import HTTPException
from typing import Callable

from adversarial_base import BUILD, SLOW, TOP, g, read, test, wait_until

sys.path.insert(0, os.path.join(TOP, "tests", "wire"))
from daemon import Daemon, Session  # noqa: E402


def rss_kib(pid: int) -> int:
    return int(next(line for line in read(f"/proc/{pid}/status").splitlines() if line.startswith("VmRSS")).split()[1])


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def steady(what: Callable[[], int]) -> int:
    """Its value once it hasn't changed for a second."""
    value, since, end = what(), time.monotonic(), time.monotonic() + 20
    while time.monotonic() < min(since + 1, end):
        time.sleep(0.05)
        if what() != value:
            value, since = what(), time.monotonic()
    return value


def links(pid: int) -> list[str]:
    return sorted(os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))


def exit_body(cause=0, step=0, oom=0, spooled=(0, 0), code=0, sys_=0, index=0, background=0, totals=(0, 0)) -> bytes:
    return struct.pack("<BBBBBiIIIQQQQQQ", cause, step, oom, *spooled, code, sys_, index, background, *totals, 1, 1, 1, 1)


class FakeInit(threading.Thread):
    """Pid 1 of a session, taken over: behaves until `lie` is called with a run's id."""

    def __init__(self, listener: socket.socket, nonce: bytes, lie: Callable | None) -> None:
        super().__init__(daemon=True)
        self.listener, self.nonce, self.lie = listener, nonce, lie
        self.spools: list[tuple[int, list[int]]] = []

    def send(self, kind: int, body: bytes = b"", request: int = 0, fds=()) -> None:
        data = g.frame(kind, body, request)
        if fds:
            socket.send_fds(self.sock, [data], list(fds))
        else:
            self.sock.send(data)

    def run(self) -> None:
        try:
            self.sock = self.listener.accept()[0]
            self.serve()
        except OSError:
            pass
        finally:
            self.listener.close()
            for _, fds in self.spools:
                for fd in fds:
                    os.close(fd)
            if hasattr(self, "sock"):
                self.sock.close()

    def serve(self) -> None:
        while True:
            data, fds, _, _ = socket.recv_fds(self.sock, 65536, 8)
            if not data:
                return
            _, kind, _, request = struct.unpack("<IHHQ", data[:16])
            body = data[16:]
            if kind == g.I_HELLO:
                self.send(g.I_HELLO_OK, struct.pack("<HH", 1, 0) + body[4:20] + struct.pack("<I", 0), request)
            elif kind == g.I_SPOOL:
                self.spools.append((struct.unpack("<I", body[:4])[0], fds))
                fds = []
            elif kind == g.I_RUN:
                rid = body[:16]
                if self.lie:
                    self.lie(self, rid, request)
                    continue
                self.send(g.I_STARTED, rid + struct.pack("<I", 7), request)
                self.send(g.I_OUT, rid + struct.pack("<BQ", 1, 0) + b"hello\n", request)
                self.send(g.I_EXIT, rid + exit_body(totals=(6, 0)), request)
            for fd in fds:
                os.close(fd)


class FakeEngine(threading.Thread):
    """An engine that builds nothing: each session's first process is a FakeInit."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self.lies: dict[str, Callable] = {}
        self.closed: list[int] = []
        self.handles: dict[int, FakeInit] = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen()

    def run(self) -> None:
        sock = self.listener.accept()[0]
        while True:
            data, fds, _, _ = socket.recv_fds(sock, 65536, 40)
            if not data:
                return
            _, kind, _, request = struct.unpack("<IHHQ", data[:16])
            body = data[16:]
            if kind == g.HELLO:
                sock.send(g.frame(g.HELLO_OK, struct.pack("<HHBBBBQIIIQ", 1, 0, 3, 1, 31, 1, 1 << 34, 8000, 9999, 100,
                                                          1 << 34), request))
            elif kind == g.OPEN:
                n = struct.unpack("<I", body[:4])[0]
                name = body[4:4 + n].decode()
                handle = len(self.handles) + 1
                self.handles[handle] = FakeInit(socket.socket(fileno=fds.pop(0)), b"", self.lies.get(name))
                self.handles[handle].start()
                sock.send(g.frame(g.OPENED, struct.pack("<QIQQIB", handle, 4242, 1, 2, 300, 0), request))
            elif kind == g.CLOSE:
                self.closed.append(struct.unpack("<Q", body[:8])[0])
                sock.send(g.frame(g.DONE, b"", request))
            elif kind in (g.OWNER, g.SETTLE, g.PURGE):
                sock.send(g.frame(g.DONE, b"", request))
            elif kind == g.USAGE:
                sock.send(g.frame(g.USAGE_OK, struct.pack("<8Q", 1, 2, 3, 4, 5, 6, 7, 8), request))
            for fd in fds:
                os.close(fd)


# What a taken-over first process may try.  True: the session must end by it.

def one_descriptor(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_STARTED, rid + struct.pack("<I", 7), request, [0])


def flood_of_descriptors(init: FakeInit, rid: bytes, request: int) -> None:
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(253)]
    try:
        for _ in range(200):
            init.send(g.I_PONG, struct.pack("<II", 0, 0), 0, fds)
    finally:
        for fd in fds:
            os.close(fd)


def descriptors_in_an_empty_frame(init: FakeInit, rid: bytes, request: int) -> None:
    socket.send_fds(init.sock, [b"\0"], [0, 1, 2])


def random_bytes(init: FakeInit, rid: bytes, request: int) -> None:
    for _ in range(50):
        init.sock.send(os.urandom(random.randrange(1, 65536)))


def long_frames(init: FakeInit, rid: bytes, request: int) -> None:
    init.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    init.sock.send(g.frame(g.I_OUT, rid + struct.pack("<BQ", 1, 0) + bytes(100000), request))


def false_length(init: FakeInit, rid: bytes, request: int) -> None:
    init.sock.send(struct.pack("<IHHQ", 0xFFFFFFFF, g.I_OUT, 0, request) + rid)


def short_header(init: FakeInit, rid: bytes, request: int) -> None:
    init.sock.send(b"\x05\0\0\0\x42")


def unknown_type(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(9999, rid, request)


def a_second_greeting(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_HELLO_OK, struct.pack("<HH", 1, 0) + bytes(16) + struct.pack("<I", 0), request)


def a_third_stream(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_OUT, rid + struct.pack("<BQ", 3, 0) + b"x", request)


def exit_out_of_bounds(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_EXIT, rid + exit_body(cause=77, code=-5), request)


def exit_cut_short(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_EXIT, rid + exit_body()[:20], request)


def closes_at_once(init: FakeInit, rid: bytes, request: int) -> None:
    init.sock.shutdown(socket.SHUT_RDWR)


def more_output_than_it_may_keep(init: FakeInit, rid: bytes, request: int) -> None:
    for i in range(2000):
        init.send(g.I_OUT, rid + struct.pack("<BQ", 1, i * 60000) + bytes(60000), request)
    init.send(g.I_EXIT, rid + exit_body(totals=(2000 * 60000, 1 << 63)), request)


def output_out_of_order(init: FakeInit, rid: bytes, request: int) -> None:
    for offset in (1 << 63, 5, (1 << 64) - 1, 0):
        init.send(g.I_OUT, rid + struct.pack("<BQ", 1, offset) + b"x", request)
    init.send(g.I_EXIT, rid + exit_body(totals=((1 << 64) - 1, 0)), request)


def others_runs(init: FakeInit, rid: bytes, request: int) -> None:
    for _ in range(3000):
        other = os.urandom(16)
        init.send(g.I_STARTED, other + struct.pack("<I", 7), request + 5)
        init.send(g.I_EXIT, other + exit_body(), request + 6)
        init.send(g.I_DONE, b"", random.getrandbits(64))
    init.send(g.I_EXIT, rid + exit_body(), request)
    init.send(g.I_EXIT, rid + exit_body(code=9), request)


def a_spool_that_is_a_hole(init: FakeInit, rid: bytes, request: int) -> None:
    wait_until(lambda: init.spools or init.take_spool())
    index, fds = init.spools[0]
    for fd in fds:
        os.ftruncate(fd, 1 << 43)
    init.send(g.I_EXIT, rid + exit_body(cause=2, spooled=(1, 1), index=index, totals=(1 << 62, (1 << 64) - 1)), request)


def a_spool_that_is_empty(init: FakeInit, rid: bytes, request: int) -> None:
    wait_until(lambda: init.spools or init.take_spool())
    index, _ = init.spools[0]
    init.send(g.I_EXIT, rid + exit_body(spooled=(1, 1), index=index, totals=(5 << 20, 5 << 20)), request)


def a_spool_that_was_never_given(init: FakeInit, rid: bytes, request: int) -> None:
    init.send(g.I_EXIT, rid + exit_body(spooled=(1, 1), index=4000000000, totals=(1 << 40, 9)), request)


def take_spool(self: FakeInit) -> bool:
    """Spool files come after the request."""
    data, fds, _, _ = socket.recv_fds(self.sock, 65536, 8)
    if data and struct.unpack("<IHHQ", data[:16])[1] == g.I_SPOOL:
        self.spools.append((struct.unpack("<I", data[16:20])[0], fds))
    return bool(self.spools)


FakeInit.take_spool = take_spool  # type: ignore[attr-defined]

FATAL = [one_descriptor, flood_of_descriptors, descriptors_in_an_empty_frame, random_bytes, long_frames, false_length,
         short_header, unknown_type, a_second_greeting, a_third_stream, exit_out_of_bounds, exit_cut_short, closes_at_once]
HARMLESS = [more_output_than_it_may_keep, output_out_of_order, others_runs, a_spool_that_is_a_hole,
            a_spool_that_is_empty, a_spool_that_was_never_given]


def drive(daemon: Daemon, engine: FakeEngine, good: Session, lie: Callable, fatal: bool) -> None:
    name = f"{lie.__name__.replace('_', '-')[:50]}-{len(engine.handles)}"
    engine.lies[name] = lie
    evil = daemon.open(name)
    answer: list = []
    body = {"argv": ["true"], "run_id": os.urandom(16).hex(), "timeout_seconds": 10}

    def ask() -> None:
        try:
            answer.append(daemon.call("POST", f"/sessions/{evil.id}/run", body, evil.token, timeout=40))
        except HTTPException as e:
            answer.append((0, e))  # a spool that isn't there shows when the answer has begun: it is broken off

    waiting = threading.Thread(target=ask, daemon=True)
    waiting.start()
    assert good.run(["true"])["stdout"] == "hello\n"
    waiting.join(30)
    assert answer, f"{name}: no answer"
    status, said = answer[0]
    if fatal:
        # Whatever was asked of it has an answer, and the session is over for everybody.
        assert status != 200 or said["exit_code"] != 0, (name, status, said)
        assert wait_until(lambda: daemon.call("POST", f"/sessions/{evil.id}/run", body, evil.token)[0] in (401, 404, 410)), name
    else:
        assert status in (0, 200, 410, 500, 502, 503), (name, status, said)
        assert status != 200 or len(said["stdout"]) <= 10 << 20, name
        daemon.call("DELETE", f"/sessions/{evil.id}?purge=true", None, evil.token)
    assert good.run(["true"])["stdout"] == "hello\n", name


@test
def d17_a_first_process_that_lies_ends_its_session_only() -> None:
    with tempfile.TemporaryDirectory(prefix="garret-attack-") as top:
        os.chmod(top, 0o755)
        engine = FakeEngine(os.path.join(top, "engine"))
        engine.start()
        with Daemon(build=os.path.relpath(BUILD, TOP), GARRET_ENGINE=os.path.join(top, "engine")) as daemon:
            good = daemon.open("good")
            assert good.run(["true"])["stdout"] == "hello\n"
            before = memory = 0
            for round_ in range(3):
                for lie in FATAL + HARMLESS:
                    try:
                        drive(daemon, engine, good, lie, lie in FATAL)
                        assert not before or wait_until(lambda: descriptors(daemon.pid) <= before), (before, links(daemon.pid))
                    except Exception as e:
                        raise AssertionError(f"{lie.__name__}: {e}") from e
                if not before:
                    # What it keeps ready for the next session has its full number now.
                    before, memory = steady(lambda: descriptors(daemon.pid)), rss_kib(daemon.pid)
            grown = rss_kib(daemon.pid) - memory
            print(f"    {len(FATAL) + len(HARMLESS)} lies, three times: {before} descriptors as before, memory +{grown} KiB")
            assert grown < 24 * 1024 * SLOW, grown
            assert daemon.process and daemon.process.poll() is None


@test
def d14_ten_gigabytes_leave_the_daemon_as_it_was() -> None:
    with Daemon(build=os.path.relpath(BUILD, TOP)) as daemon:
        s = daemon.open("a")
        s.sh("head -c 1M /dev/zero")
        before, peak, stop = rss_kib(daemon.pid), [0], threading.Event()

        def watch() -> None:
            while not stop.wait(0.02):
                peak[0] = max(peak[0], rss_kib(daemon.pid))

        threading.Thread(target=watch, daemon=True).start()
        for command in ("head -c 10G /dev/zero", "yes", "cat /dev/zero >&2", "yes >&2 & yes"):
            begin = time.monotonic()
            answer = s.sh(command, timeout=30)
            assert time.monotonic() - begin < 15 * SLOW, command
            assert len(answer["stdout"]) + len(answer["stderr"]) <= 10 << 20, command
            assert answer["exit_code"] != 0, command
        answer = s.sh("exec >&- 2>&-; exit 3")
        assert answer["exit_code"] == 3
        begin = time.monotonic()
        assert s.sh("(sleep 8; echo late) & echo early")["stdout"] == "early\n"
        assert time.monotonic() - begin < 3 * SLOW
        stop.set()
        print(f"    memory {before} KiB, at most {peak[0]} KiB meanwhile")
        assert peak[0] - before < 48 * 1024 * SLOW, (before, peak)
