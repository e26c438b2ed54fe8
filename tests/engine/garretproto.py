"""Clients of the two protocols, for tests: an engine, and the init of a session.

    with Engine(state_dir) as engine:          # starts `garret-engine --fd`
        session = engine.open("name")          # a connected session
        result = session.run(["sh", "-c", "echo hi"])
        assert result.stdout == b"hi\\n" and result.code == 0
        session.close()

`Engine.call()` and `Session.request()` send anything, well formed or not; the encoders
of proto/engine.h are plain functions (`open_body()`), so that a test can lie in any field.
Engine errors arrive as EngineError with `.code` (a name of include/garret/error.h).
"""

import os
import re
import select
import socket
import struct
import subprocess
import time

# proto/engine.h
HELLO, OPEN, CLOSE, USAGE, DOCTOR, WORKSPACES, PURGE, OWNER, ADOPT, SETTLE = range(1, 11)
SIZES = b"\x01"  # of a WORKSPACES
LIMITS = 12
L_MEMORY, L_SWAP, L_CPUS, L_SHARES, L_PIDS = 1, 2, 4, 8, 16
HELLO_OK, OPENED, DONE, ERROR, USAGE_OK, DOCTOR_ROW, DIED, WORKSPACE = range(64, 72)
NONE, HOST, BRIDGE = range(3)
CONNECTED, EPHEMERAL, ATTACH, FILES, DURABLE = 1, 2, 4, 8, 16
DEATHS = ["exit", "oom", "closed"]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include/garret/error.h")) as header:
    CODES = ["OK", *re.findall(r"X\((\w+), \d", header.read())]

# proto/init.h
I_HELLO, I_RUN, I_ATTACH, I_DETACH, I_ACK, I_STOP, I_SIGNAL, I_STDIN = range(1, 9)
I_FORGET, I_SPOOL, I_PING = 10, 11, 12
I_HELLO_OK, I_STARTED, I_OUT, I_SPOOLED, I_EXIT, I_ERROR, I_DONE, I_PONG = range(64, 72)
RUN_FDS, RUN_STREAM, RUN_PTY, RUN_STDIN = 1, 2, 4, 8
CAUSES = ["none", "timeout", "output_limit", "stop"]
NONCE = b"garret-test-nonc"


class EngineError(Exception):
    def __init__(self, code, sys, message):
        super().__init__(f"{code}: {message}")
        self.code, self.sys, self.message = code, sys, message


def text(s):
    """A string field: length, bytes, NUL."""
    b = os.fsencode(s)
    return struct.pack("<I", len(b)) + b + b"\0"


def purge_body(name, what=3, used_ms=0):
    return text(name) + struct.pack("<BQ", what, used_ms)


def frame(kind, body=b"", request=0):
    return struct.pack("<IHHQ", 16 + len(body), kind, 0, request) + body


def open_body(name, runtime="host", work_dir="/workspace", hostname="", nonce=NONCE, flags=CONNECTED,
              network=NONE, memory=0, memory_swap=0, cpu_millis=0, cpu_shares=0, pids=0, tmpfs=0, disk=0,
              volumes=()):
    """volumes: (path inside, read only) pairs."""
    body = text(name) + text(runtime) + text(work_dir) + text(hostname) + nonce
    body += struct.pack("<IBQQIIIQQI", flags, network, memory, memory_swap, cpu_millis, cpu_shares, pids,
                        tmpfs, disk, len(volumes))
    for inside, read_only in volumes:
        body += text(inside) + bytes([read_only])
    return body


class Sock:
    """Frames of 16 bytes of header over SEQPACKET."""

    def __init__(self, sock):
        self.sock = sock
        self.n = 0

    def send(self, kind, body=b"", fds=()):
        self.n += 1
        data = frame(kind, body, self.n)
        if fds:
            socket.send_fds(self.sock, [data], list(fds))
        else:
            self.sock.send(data)
        return self.n

    def receive(self, timeout=20):
        if not select.select([self.sock], [], [], timeout)[0]:
            raise TimeoutError("no frame")
        data, fds, _, _ = socket.recv_fds(self.sock, 65536, 4)
        assert not fds, "a descriptor from the other side"
        if not data:
            raise EOFError("closed")
        length, kind, _, request = struct.unpack("<IHHQ", data[:16])
        assert length == len(data)
        return kind, request, data[16:]


class Engine(Sock):
    """A private engine of its own; `died` collects (handle, why) of sessions that ended."""

    def __init__(self, state, program=None, args=(), peer_uid=None, hello=True, env=None, stderr=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        program = program or os.environ["GARRET_ENGINE"]
        argv = [program, "--fd", str(theirs.fileno()), "--state", str(state), *args]
        if peer_uid is not None:
            argv += ["--peer-uid", str(peer_uid)]
        self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env=env,
                                        stdin=subprocess.DEVNULL, stderr=stderr)
        theirs.close()
        self.died = []
        if hello:
            body = self.call(HELLO, struct.pack("<HH", 1, 0), want=HELLO_OK)
            (self.major, self.minor, self.cgroup, self.networks, self.limits, self.seccomp,
             self.max_memory, self.max_cpu_millis, self.max_pids, self.max_sessions,
             self.max_tmpfs) = struct.unpack("<HHBBBBQIIIQ", body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, timeout=20):
        """Close the socket, as an owner does; the engine's exit status."""
        self.sock.close()
        return self.process.wait(timeout)

    def answer(self, request, timeout=20):
        """The frame that answers a request, whatever it is."""
        while True:
            kind, number, body = self.receive(timeout)
            if kind == DIED:
                handle, why = struct.unpack("<QB", body)
                self.died.append((handle, DEATHS[why]))
            elif number == request:
                return kind, body

    def call(self, kind, body=b"", fds=(), want=DONE, timeout=20):
        got, body = self.answer(self.send(kind, body, fds), timeout)
        if got == ERROR:
            code, sys, n = struct.unpack("<III", body[:12])
            raise EngineError(CODES[code], sys, body[12:12 + n].decode())
        assert got == want, (got, want)
        return body

    def wait_died(self, handle, timeout=20):
        end = time.monotonic() + timeout
        while True:
            for h, why in self.died:
                if h == handle:
                    return why
            kind, _, body = self.receive(end - time.monotonic())
            assert kind == DIED
            h, why = struct.unpack("<QB", body)
            self.died.append((h, DEATHS[why]))

    def doctor(self):
        """[(level, name, text)]"""
        rows = []
        request = self.send(DOCTOR)
        while True:
            kind, body = self.answer(request)
            if kind == DONE:
                return rows
            assert kind == DOCTOR_ROW, kind
            n = struct.unpack("<I", body[1:5])[0]
            name, rest = body[5:5 + n].decode(), body[6 + n:]
            rows.append((body[0], name, rest[4:-1].decode()))

    def workspaces(self, request=None):
        """{id: (bytes, files, time of last use in s, partial)}"""
        found = {}
        request = request or self.send(WORKSPACES, SIZES)
        while True:
            kind, body = self.answer(request, 60)
            if kind == DONE:
                return found
            assert kind == WORKSPACE, (kind, body)
            n = struct.unpack("<I", body[:4])[0]
            name = body[4:4 + n].decode()
            size, files, used, _, ours, partial = struct.unpack("<QQQQBB", body[5 + n:])
            assert ours in (0, 1)
            assert name not in found
            found[name] = (size, files, used / 1000, partial)

    def purge(self, name):
        self.call(PURGE, purge_body(name))

    def open(self, name, volumes=(), **fields):
        """A connected session.  volumes: (host path, path inside, read only)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [theirs.fileno()]
        opened = []
        try:
            for host, _, _ in volumes:
                fd = host if isinstance(host, int) else os.open(host, os.O_PATH)
                opened += [] if isinstance(host, int) else [fd]
                fds.append(fd)
            body = open_body(name, volumes=[(inside, ro) for _, inside, ro in volumes], **fields)
            body = self.call(OPEN, body, fds, want=OPENED)
        finally:
            theirs.close()
            for fd in opened:
                os.close(fd)
        return Session(self, ours, *struct.unpack("<QIQQIB", body)[:5])

    def relimit(self, handle, which, memory=0, swap=0, cpu_millis=0, cpu_shares=0, pids=0, timeout=40):
        self.call(LIMITS, struct.pack("<QBQQIII", handle, which, memory, swap, cpu_millis, cpu_shares, pids), timeout=timeout)

    def usage(self, handle):
        body = self.call(USAGE, struct.pack("<Q", handle), want=USAGE_OK)
        return dict(zip("memory memory_limit cpu_us pids oom_kills io_read io_written disk".split(), struct.unpack("<8Q", body)))


class Result:
    def __init__(self):
        self.stdout, self.stderr = b"", b""
        self.code = self.cause = self.pid = self.exit = None

    def __repr__(self):
        return f"Result(code={self.code}, cause={self.cause}, out={self.stdout!r}, err={self.stderr!r})"


class Session(Sock):
    """The owner of one session, on its init's socket."""

    def __init__(self, engine, sock, handle, pid, start_time, pid_namespace, build_us):
        super().__init__(sock)
        self.engine, self.handle, self.pid, self.build_us = engine, handle, pid, build_us
        self.start_time, self.pid_namespace = start_time, pid_namespace
        self.runs = {}
        self.sock.settimeout(20)
        request = self.send(I_HELLO, struct.pack("<HH", 1, 0) + NONCE)
        kind, number, body = self.receive()
        assert kind == I_HELLO_OK and number == request and body[4:20] == NONCE, (kind, body)

    def start(self, argv, env=(), cwd="", timeout=None, limit=0, flags=RUN_STREAM, fds=()):
        """Begin a run; its id."""
        rid = os.urandom(16)
        strings = b"".join(text(s) for s in [*argv, *env])
        body = rid + struct.pack("<IIQHHII", flags, int((timeout or 0) * 1000), limit, 24, 80, len(argv),
                                 len(env))
        body += text(cwd) + struct.pack("<I", len(strings)) + strings
        self.runs[rid] = Result()
        request = self.send(I_RUN, body, fds)
        self.runs[rid].request = request
        return rid

    def step(self, timeout=20):
        kind, request, body = self.receive(timeout)
        rid, rest = body[:16], body[16:]
        if kind == I_ERROR:
            code, sys, n = struct.unpack("<III", body[:12])
            raise EngineError(CODES[code], sys, body[12:12 + n].decode())
        if kind == I_STARTED:
            self.runs[rid].pid = struct.unpack("<I", rest)[0]
        elif kind == I_OUT:
            stream, offset = struct.unpack("<BQ", rest[:9])
            if stream == 1:
                self.runs[rid].stdout += rest[9:]
            else:
                self.runs[rid].stderr += rest[9:]
            self.send(I_ACK, rid + struct.pack("<BQ", stream, offset + len(rest) - 9))
        elif kind == I_EXIT:
            r = self.runs[rid]
            r.exit = rest
            r.cause, r.code = CAUSES[rest[0]], struct.unpack("<i", rest[5:9])[0]
            r.oom = rest[2]
        return kind, request, body

    def finish(self, rid, timeout=30):
        end = time.monotonic() + timeout
        r = self.runs[rid]
        while r.exit is None:
            self.step(end - time.monotonic())
        self.send(I_FORGET, rid)
        return self.runs.pop(rid)

    def run(self, argv, timeout=30, **more):
        return self.finish(self.start(argv, timeout=timeout, **more), timeout + 5)

    def sh(self, command, **more):
        return self.run(["sh", "-c", command], **more)

    def close(self, purge=False):
        self.engine.call(CLOSE, struct.pack("<QB", self.handle, purge))
        self.sock.close()
