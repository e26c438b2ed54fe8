#!/usr/bin/env python3
"""The engine against a garretd that was taken over.  usage: hostile.py BUILD [NAME...]

The driver speaks the engine's protocol as garretd's user: every message and every field wrong, every
kind of descriptor, links in each directory that this user can write.  Afterwards the engine serves a
new session (or has ended the connection and itself), and the host is what it was: a digest of /etc, of
the engine's directories and of a tree of canaries doesn't change.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import select
import signal
import socket
import stat
import struct
import sys
import time
import traceback
from typing import Callable, Iterator

import adversarial_base as base
from adversarial_base import BUILD, PEER, SLOW, TOP, Bench, g, read, test, wait_until

sys.path.insert(0, os.path.join(TOP, "tests", "wire"))
from daemon import Daemon  # noqa: E402

OTHER = 54321  # a user that is nobody's
SEED = int(os.environ.get("GARRET_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


# ---- the host, and what must not happen to it ----

def digest(top: str, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Path -> type, mode, owner, size, time and content of everything below top."""
    found = {}

    def add(path: str) -> None:
        st = os.lstat(path)
        what = f"{stat.filemode(st.st_mode)} {st.st_uid}:{st.st_gid} {st.st_rdev}"
        if stat.S_ISREG(st.st_mode):
            what += f" {st.st_size} {st.st_mtime_ns}"
            if st.st_size < 1 << 20:
                with open(path, "rb") as f:
                    what += " " + hashlib.sha256(f.read()).hexdigest()
        elif stat.S_ISLNK(st.st_mode):
            what += " " + os.readlink(path)
        elif stat.S_ISDIR(st.st_mode):
            what += " " + " ".join(sorted(os.listdir(path)))
        found[path] = what

    add(top)
    for where, dirs, files in os.walk(top):
        dirs[:] = [d for d in dirs if os.path.join(where, d) not in skip]
        for name in dirs + files:
            try:
                add(os.path.join(where, name))
            except FileNotFoundError:
                pass
    return found


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return [f"{k}: {a.get(k)} -> {b.get(k)}" for k in sorted(set(a) | set(b)) if a.get(k) != b.get(k)]


class Host:
    """A bench with canaries, a directory of garretd's full of links, and the digest."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.canary = os.path.join(bench.dir, "canary")
        self.state = os.path.join(bench.dir, "state")
        self.own = os.path.join(self.state, "daemon")
        self.shadow = os.path.join(self.canary, "closed")
        os.makedirs(self.shadow)
        for name, mode in (("file", 0o644), ("secret", 0o600), ("script", 0o755), ("suid", 0o4755), ("open", 0o666),
                           ("closed/inner", 0o644)):
            path = os.path.join(self.canary, name)
            with open(path, "w") as f:
                f.write(f"canary {name}\n")
            os.chmod(path, mode)
        os.chmod(self.shadow, 0o700)
        os.mkdir(os.path.join(self.canary, "wide"))
        os.chmod(os.path.join(self.canary, "wide"), 0o777)
        os.mkfifo(os.path.join(self.canary, "fifo"))
        os.mkdir(self.state, 0o755)
        os.mkdir(self.own, 0o700)
        os.chown(self.own, PEER, PEER)
        self.plant(self.own)

    def plant(self, top: str) -> None:
        """Links in every place that garretd's user can write."""
        targets = {"etc": "/etc", "root": "/", "up": "../..", "canary": self.canary, "file": self.canary + "/file",
                   "secret": self.canary + "/secret", "self": "/proc/self/fd", "sessions": self.state + "/sessions",
                   "workspaces": self.state + "/workspaces", "loop": "loop",
                   "near": "deep", "inside": "../tmp", "inside-proc": "../proc/sys"}
        for where in (top, top + "/ctl", top + "/runs", top + "/own", top + "/own/deep", top + "/own/deep/there"):
            os.makedirs(where, exist_ok=True)
            os.lchown(where, PEER, PEER)
            for name, to in targets.items():
                os.symlink(to, os.path.join(where, name))
                os.lchown(os.path.join(where, name), PEER, PEER)

    def digest(self) -> dict[str, str]:
        found = digest("/etc") | digest(self.canary) | digest(self.state, tuple(
            os.path.join(self.state, d) for d in ("sessions", "workspaces", "trash", "daemon")))
        found[self.own] = ""
        return found


def as_user(fn: Callable[[], object], uid: int = PEER) -> None:
    """In a child that has become uid; its failure is ours."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its own /proc is its own
            fn()
            status = 0
        except BaseException:
            os.write(w, traceback.format_exc().encode()[-60000:])
        os._exit(status)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    assert os.waitpid(pid, 0)[1] == 0, text


def ended(engine: g.Engine) -> bool:
    """It has ended by itself, cleanly."""
    try:
        return engine.process.wait(15) == 0
    except Exception:
        return False


def with_engine(fn: Callable[[Host, g.Engine], None], alive: bool = True, config: str = "") -> None:
    """fn as garretd's user on an engine's socket; then a session opens and the host is as it was."""
    with Bench() as b:
        host = Host(b)
        engine = b.engine(config, peer_uid=PEER)
        engine.open("before").close()
        before, mounts = host.digest(), base.mounts()
        as_user(lambda: fn(host, engine))
        if alive:
            assert engine.process.poll() is None, "the engine has ended"
            engine.n += 1 << 20  # requests of the child
            s = engine.open("after")
            assert s.sh("echo fine").stdout == b"fine\n"
            s.close()
        else:
            assert ended(engine), engine.process.returncode
        assert base.mounts() == mounts
        changed = differences(before, host.digest())
        assert not changed, changed[:5]


def settle(engine: g.Engine, request: int) -> int:
    """The answer's type; a session that was opened is closed again."""
    kind, body = engine.answer(request)
    if kind == g.OPENED:
        try:
            engine.call(g.CLOSE, struct.pack("<QB", struct.unpack("<Q", body[:8])[0], 1))
        except g.EngineError as e:
            assert e.code == "NOT_FOUND", e  # it ended by itself
    return kind


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def try_open(engine: g.Engine, body: bytes, fds: list[int] | None = None) -> int:
    ours, theirs = pair()
    try:
        return settle(engine, engine.send(g.OPEN, body, [theirs.fileno()] if fds is None else fds))
    finally:
        ours.close()
        theirs.close()


# ---- messages ----

HEADERS = [
    b"", b"\0", b"\x10\0\0", bytes(15), bytes(16), bytes(17), struct.pack("<IHHQ", 17, 2, 0, 1),
    struct.pack("<IHHQ", 15, 1, 0, 1), struct.pack("<IHHQ", 0xFFFFFFFF, 2, 0, 1), struct.pack("<IHHQ", 16, 3, 0, 1) + b"x",
    b"\x21" + os.urandom(300), b"\x21" + os.urandom(32767),
    struct.pack("<IHHQ", 32769, 2, 0, 1) + bytes(32753), struct.pack("<IHHQ", 65536, 2, 0, 1) + bytes(65520),
]


@test
def false_headers_end_the_connection() -> None:
    with Bench() as b:
        host = Host(b)
        before = host.digest()
        for i, data in enumerate(HEADERS):
            engine = b.engine(peer_uid=PEER, state=f"state{i}", hello=bool(i % 2))
            as_user(lambda: engine.sock.send(data))
            if not data:
                engine.sock.close()
            assert ended(engine), (data[:20], engine.process.returncode)
        assert not differences(before, host.digest())


@test
def every_type_with_every_length() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        lengths = [0, 1, 3, 4, 5, 7, 8, 9, 10, 36, 37, 38, 79, 80, 81, 1000, g_frame_max() - 16]
        for kind in [*range(0, 14), 62, *range(64, 72), 255, 256, 32767, 65535]:
            for n in lengths:
                for filler in (b"\0", b"\xff"):
                    for fds in ([], [0], [0] * 33):
                        request = engine.send(kind, filler * n, fds)
                        answer = engine.answer(request)[0]
                        # These are the only ones for which this may be right.
                        assert answer == g.ERROR or kind in (g.DOCTOR, g.WORKSPACES, g.OWNER, g.SETTLE), (kind, n, len(fds), answer)
                        while answer in (g.DOCTOR_ROW, g.WORKSPACE):
                            answer = engine.answer(request)[0]

    with_engine(attack)


def g_frame_max() -> int:
    return 32 * 1024


@test
def too_many_descriptors_end_the_connection() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        try:
            engine.send(g.OPEN, g.open_body("x"), [0] * 200)
        except OSError:
            pass

    with_engine(attack, alive=False)


@test
def a_peer_that_does_not_read_ends_alone() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        engine.sock.setblocking(False)
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                try:
                    engine.send(99, b"x" * 100)
                except BlockingIOError:
                    select.select([], [engine.sock], [], 0.2)
        except (BrokenPipeError, ConnectionResetError):
            return
        raise AssertionError("it goes on")

    with_engine(attack, alive=False)


@test
def messages_before_and_after_the_greeting() -> None:
    with Bench() as b:
        engine = b.engine(peer_uid=PEER, hello=False)

        def attack() -> None:
            for kind in (g.OPEN, g.CLOSE, g.USAGE, g.DOCTOR, g.WORKSPACES, g.PURGE, g.OWNER, g.ADOPT, g.SETTLE, g.LIMITS):
                body = {g.OPEN: g.open_body("x"), g.CLOSE: bytes(9), g.USAGE: bytes(8), g.PURGE: g.purge_body("x"), g.WORKSPACES: g.SIZES,
                        g.OWNER: bytes(16), g.ADOPT: bytes(8), g.LIMITS: bytes(8) + b"\x01" + bytes(28)}.get(kind, b"")
                assert engine.answer(engine.send(kind, body))[0] == g.ERROR
            for major in (0, 2, 255, 65535):
                assert engine.answer(engine.send(g.HELLO, struct.pack("<HH", major, 0)))[0] == g.ERROR
            assert engine.answer(engine.send(g.HELLO, struct.pack("<HH", 1, 9)))[0] == g.HELLO_OK
            for _ in range(3):
                assert engine.answer(engine.send(g.HELLO, struct.pack("<HH", 1, 0)))[0] == g.ERROR

        as_user(attack)
        engine.n += 1 << 20
        engine.open("after").close()


# ---- fields ----

NAMES = ["", ".", "..", "../x", "../../etc", "/etc", "a/b", "a/../b", ".trash", ".x", "-x", "a b", "a\nb", "a\x01", "\x7f",
         "é", "\udcff", "%s%n", "a" * 65, "a" * 64 + "/..", "$(id)", "~root", "x\\y", "x:y", "*"]
PATHS = ["", "/", "//", "/.", "/..", "relative", "../..", "/workspace/../etc", "/workspace/./x", "/workspace//x",
         "/workspace/", "/etc", "/etc/passwd", "/usr/bin", "/proc", "/proc/self/root", "/proc/1/root/tmp", "/proc/self/fd/3",
         "/dev", "/dev/shm", "/dev/pts", "/sys", "/sys/fs/cgroup", "/run", "/tmp", "/var", "/home", "/root", "/bin", "/lib64",
         "/var/empty", "/a\nb", "/a\x7fb", "/" + "a" * 256, "/x" * 600, "/\udcff/.."]


def fields() -> Iterator[tuple[str, bytes]]:
    """(what is wrong, body of an OPEN)"""
    for v in NAMES:
        yield f"name {v!r}", g.open_body(v)
        yield f"runtime {v!r}", g.open_body("x", runtime=v)
        if v:
            yield f"hostname {v!r}", g.open_body("x", hostname=v)
    for v in PATHS:
        yield f"work_dir {v!r}", g.open_body("x", work_dir=v)
    for bit in range(32):
        if bit not in (0, 1):
            yield f"flag {bit}", g.open_body("x", flags=1 | 1 << bit)
    yield "listening", g.open_body("x", flags=0)
    for v in range(1, 256):
        yield f"network {v}", g.open_body("x", network=v)
    for field, bits in (("memory", 64), ("memory_swap", 64), ("tmpfs", 64), ("disk", 64), ("cpu_millis", 32), ("cpu_shares", 32), ("pids", 32)):
        for v in {1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 1 << (bits - 2)}:
            if (field, v) not in (("pids", 1),):
                yield f"{field} {v}", g.open_body("x", **{field: v})
    good = g.open_body("x", volumes=[])
    for n in (1, 2, 32, 33, 255, 1 << 16, 1 << 31, (1 << 32) - 1):
        yield f"{n} volumes", good[:-4] + struct.pack("<I", n)
        yield f"{n} volumes and some", good[:-4] + struct.pack("<I", n) + g.text("/data") + b"\0"
    for cut in range(0, len(good)):
        yield f"cut at {cut}", good[:cut]
    yield "one byte more", good + b"\0"
    # Strings that lie: of each of the four, its length, its NUL, a NUL inside.
    at = 0
    for name in ("name", "runtime", "work_dir", "hostname"):
        n = struct.unpack("<I", good[at:at + 4])[0]
        for lie in (n + 1, n - 1 if n else 5, 0xFFFFFFFF, 0x80000000, 1 << 16, len(good)):
            yield f"{name} of {lie} bytes", good[:at] + struct.pack("<I", lie & 0xFFFFFFFF) + good[at + 4:]
        yield f"{name} without NUL", good[:at + 4 + n] + b"x" + good[at + 5 + n:]
        if n:
            yield f"{name} with NUL inside", good[:at + 4] + b"\0" + good[at + 5:]
        at += 5 + n


@test
def every_field_of_open() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        count = 0
        for what, body in fields():
            kind = try_open(engine, body)
            assert kind == g.ERROR, (what, kind)
            count += 1
        for read_only in range(2, 256, 7):
            body = g.open_body("x", volumes=[("/data", False)])[:-1] + bytes([read_only])
            assert try_open(engine, body) == g.ERROR
        print(f"    {count} wrong requests")

    with_engine(attack)


@test
def every_field_of_a_file_only_open() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        flags = g.CONNECTED | g.FILES
        engine.open("x").close()  # there is something to look at now
        wrong = [g.open_body("x", flags=flags | more) for more in (g.EPHEMERAL, 16, 1 << 31)]
        wrong += [g.open_body("x", flags=flags, network=n) for n in range(1, 256)]
        for field in ("memory", "memory_swap", "cpu_millis", "cpu_shares", "pids", "tmpfs", "disk"):
            wrong += [g.open_body("x", flags=flags, **{field: 1 << bit}) for bit in range(32)]
        wrong += [g.open_body(name, flags=flags) for name in [*NAMES, "absent"]]
        wrong += [g.open_body("x", flags=flags, work_dir=path) for path in PATHS]
        wrong += [g.open_body("x", flags=g.FILES), g.open_body("x", flags=flags, volumes=[("/data", True)])]
        for body in wrong:
            assert try_open(engine, body) == g.ERROR, body
        own = os.open(host.own + "/own", os.O_PATH)
        for fds in ([], [own], [own] * 33, [0, own]):  # a directory of one's own isn't shown in its place
            assert try_open(engine, g.open_body("x", flags=flags), fds) == g.ERROR
        views = [engine.open("x", flags=flags) for _ in range(4)]
        for _ in range(50):
            assert try_open(engine, g.open_body("x", flags=flags)) == g.ERROR
        for v in views:
            v.sock.close()
            engine.wait_died(v.handle)

    with_engine(attack)


@test
def purges_of_what_is_not_ours() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        engine.open("mine").close()
        s = engine.open("held")
        for name in [*NAMES, "held", "absent"]:
            assert engine.answer(engine.send(g.PURGE, g.purge_body(name)))[0] == g.ERROR, name
        good = g.purge_body("mine")
        for n in (0, 3, 5, 64, 65, 1 << 16, 1 << 31, (1 << 32) - 1):
            assert engine.answer(engine.send(g.PURGE, struct.pack("<I", n) + good[4:]))[0] == g.ERROR, n
        for body in (b"", good[:-1], good + b"\0", good[:4] + b"\0" + good[5:], good + good, g.purge_body("mine", 0), g.purge_body("mine", 4),
                     g.purge_body("mine", 3, 1), g.purge_body("mine", 2)):
            assert engine.answer(engine.send(g.PURGE, body))[0] == g.ERROR, body
        assert engine.answer(engine.send(g.PURGE, good, [0]))[0] == g.ERROR
        assert set(engine.workspaces()) == {"before", "mine", "held"}
        engine.purge("mine")
        s.close()

    with_engine(attack)


@test
def a_list_that_is_not_read() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        for _ in range(3):  # asked for, and asked for again, and left
            engine.send(g.WORKSPACES, g.SIZES)
        time.sleep(0.5)

    with_engine(attack)


@test
def handles_that_are_not_ours() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        rng = random.Random(SEED)
        for handle in [0, 1, 2, 1 << 32, (1 << 64) - 1, *(rng.getrandbits(64) for _ in range(200))]:
            for purge in (0, 1, 2, 255):
                assert engine.answer(engine.send(g.CLOSE, struct.pack("<QB", handle, purge)))[0] == g.ERROR
            assert engine.answer(engine.send(g.USAGE, struct.pack("<Q", handle)))[0] == g.ERROR

    with_engine(attack)


# ---- descriptors ----

def descriptors(host: Host) -> dict[str, int]:
    """Everything that isn't a directory of one's own or a fitting socket."""
    found = {
        "a file": os.open(host.own + "/plain", os.O_RDWR | os.O_CREAT, 0o644),
        "/dev/zero": os.open("/dev/zero", os.O_RDONLY),
        "/dev/null": os.open("/dev/null", os.O_RDWR),
        "/proc": os.open("/proc", os.O_RDONLY),
        "/proc/self": os.open("/proc/self", os.O_PATH),
        "/proc/self/mem": os.open("/proc/self/mem", os.O_RDWR),
        "/proc/self/ns/mnt": os.open("/proc/self/ns/mnt", os.O_RDONLY),
        "/proc/sys": os.open("/proc/sys", os.O_RDONLY),
        "/sys": os.open("/sys", os.O_RDONLY),
        "a link": os.open(host.own + "/etc", os.O_PATH | os.O_NOFOLLOW),
        "a fifo": os.open(host.canary + "/fifo", os.O_PATH),
        "memfd": os.memfd_create("x"),
        "pidfd": os.pidfd_open(os.getpid()),
        "eventfd": os.eventfd(0),
    }
    r, w = os.pipe()
    found |= {"a pipe": r, "a pipe's other end": w, "epoll": select.epoll().fileno()}
    found["epoll"] = os.dup(found["epoll"]) if os.path.exists(f"/proc/self/fd/{found['epoll']}") else r
    for name, family, kind in (("stream", socket.AF_UNIX, socket.SOCK_STREAM), ("dgram", socket.AF_UNIX, socket.SOCK_DGRAM),
                               ("tcp", socket.AF_INET, socket.SOCK_STREAM), ("udp", socket.AF_INET6, socket.SOCK_DGRAM),
                               ("netlink", socket.AF_NETLINK, socket.SOCK_RAW)):
        found[name] = socket.socket(family, kind).detach()
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    found |= {"stream pair": a.detach(), "stream pair's other end": b.detach()}
    return found


@test
def wrong_descriptors_for_the_first_process() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(host.own + "/listening")
        listening.listen()
        unbound = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kinds = descriptors(host) | {"unbound": unbound.fileno(), "own directory": os.open(host.own, os.O_PATH)}
        for name, fd in kinds.items():
            for flags in (0, 1, 2, 3, 4, 7):
                if name == "unbound" and flags & 1:
                    continue
                assert try_open(engine, g.open_body("x", flags=flags), [fd]) == g.ERROR, (name, flags)
        assert try_open(engine, g.open_body("x", flags=1), [listening.fileno()]) == g.ERROR
        ours, theirs = pair()
        assert try_open(engine, g.open_body("x", flags=0), [theirs.fileno()]) == g.ERROR
        for fds in ([], [theirs.fileno()] * 2, [theirs.fileno()] * 33):
            assert try_open(engine, g.open_body("x"), fds) == g.ERROR, len(fds)
        # Not connected yet, and one whose other end is closed: a session that ends at once.
        try_open(engine, g.open_body("x", flags=3), [unbound.fileno()])
        ours.close()
        try_open(engine, g.open_body("x", flags=3), [theirs.fileno()])
        engine.call(g.OPEN, g.open_body("listens", flags=2), [listening.fileno()], want=g.OPENED)

    with_engine(attack)


@test
def its_own_connection_as_the_first_process_s() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        engine.send(g.OPEN, g.open_body("x", flags=3), [engine.sock.fileno()])
        time.sleep(0.5)  # the answer goes to whoever reads first
        engine.sock.shutdown(socket.SHUT_RDWR)

    with_engine(attack, alive=False)


@test
def wrong_descriptors_for_volumes() -> None:
    with Bench() as b:
        host = Host(b)
        os.setgroups([0, 4, 4242])  # of whoever starts the engine: they are not the peer's
        try:
            engine = b.engine(peer_uid=PEER)
            for name, uid, gid, mode in (("group", 99, 4242, 0o750), ("roots", 0, 0, 0o750), ("theirs", 99, 99, 0o700),
                                         ("readable", 99, 99, 0o755), ("wide", 99, 99, 0o777),
                                         ("mine", PEER, PEER, 0o700), ("grouped", PEER, 4242, 0o770)):
                os.mkdir(os.path.join(b.dir, name))
                with open(os.path.join(b.dir, name, "secret"), "w") as f:
                    f.write("secret")
                os.chmod(os.path.join(b.dir, name, "secret"), 0o600)
                os.chown(os.path.join(b.dir, name, "secret"), uid if uid != PEER else 99, gid)
                os.chmod(os.path.join(b.dir, name), mode)
                os.chown(os.path.join(b.dir, name), uid, gid)
            # As if they had leaked to it.
            closed = [os.open(p, os.O_PATH) for p in (host.shadow, "/root", b.dir + "/theirs", b.dir + "/roots",
                                                      b.dir + "/group", host.state + "/sessions",
                                                      host.state + "/workspaces", host.canary + "/secret")]
            before = host.digest()

            def attack() -> None:
                for fd in closed:
                    for ro in (True, False):
                        try:
                            engine.open("x", volumes=[(fd, "/data", ro)])
                        except g.EngineError as e:
                            assert e.code == "DENIED", (os.readlink(f"/proc/self/fd/{fd}"), e)
                        else:
                            raise AssertionError(f"opened {os.readlink(f'/proc/self/fd/{fd}')}")
                for name, fd in descriptors(host).items():
                    for ro in (True, False):
                        try:
                            engine.open("x", volumes=[(fd, "/data", ro)]).close(purge=True)
                        except g.EngineError:
                            continue
                        assert name == "a file", name
                for path in ("/etc", "/usr", host.canary, host.canary + "/wide", host.canary + "/open", b.dir + "/wide",
                             b.dir + "/readable", "/", "/tmp"):
                    try:
                        engine.open("x", volumes=[(path, "/data", False)])
                    except g.EngineError as e:
                        assert e.code == "DENIED", (path, e)
                    else:
                        raise AssertionError(f"{path} can be written")
                # Read-only it gets what it could read itself, no more.
                for path in ("/etc", host.canary, b.dir + "/readable", b.dir + "/wide"):
                    s = engine.open("x", volumes=[(path, "/data", True)])
                    out = s.sh("cat /data/secret /data/shadow /data/closed/inner; echo x > /data/new; echo x >> /data/open; "
                               "rm -f /data/open /data/file; ls /data >/dev/null && echo seen").stdout
                    assert out == b"seen\n", (path, out)
                    s.close(purge=True)
                s = engine.open("x", volumes=[(b.dir + "/mine", "/data", False)])
                assert s.sh("cat /data/secret; echo x > /data/new; id -u").stdout == b"1000\n"
                assert os.stat(b.dir + "/mine/new").st_uid == PEER
                s.close(purge=True)
                try:
                    engine.open("x", volumes=[(b.dir + "/grouped", "/data", False)])
                except g.EngineError as e:
                    assert e.code == "DENIED", e
                else:
                    raise AssertionError("a group of the starter's counts as the peer's")

            as_user(attack)
            engine.n += 1 << 20
            engine.open("after").close()
            changed = differences(before, host.digest())
            assert not changed, changed[:5]
        finally:
            os.setgroups([])


# ---- links ----

@test
def links_in_what_it_can_write() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        own = host.own + "/own"
        names = [n for n in os.listdir(own) if os.path.islink(os.path.join(own, n))]
        assert len(names) >= 12
        for name in names:
            for inside in (f"/workspace/{name}", f"/workspace/{name}/x", f"/workspace/{name}/there", f"/workspace/{name}/a/b/c", f"/workspace/deep/{name}/x"):
                for volume in (own, own + "/deep"):
                    for ro in (True, False):
                        try:
                            engine.open("x", volumes=[(own, "/workspace", False), (volume, inside, ro)])
                        except g.EngineError as e:
                            assert e.code in ("INVALID", "DENIED", "NOT_FOUND", "NOT_DIRECTORY", "CONFLICT", "INTERNAL",
                                              "EXISTS"), e
                        else:
                            raise AssertionError(f"mounted at {inside}")
            try:
                engine.open("x", work_dir=f"/workspace/{name}/w", volumes=[(own, "/workspace", False)])
            except g.EngineError:
                pass
            else:
                raise AssertionError(f"worked in {name}")
        # Seen from inside they lead nowhere but into the session.
        s = engine.open("x", volumes=[(own, "/workspace", False)])
        out = s.sh("cat canary/file file secret sessions/* 2>/dev/null; ls root/ | tr '\\n' ' '; echo x > file; echo x > etc/new; "
                   "ls up/ >/dev/null; readlink -f self").stdout.decode()
        assert "canary" not in out and "workspace" in out, out
        s.close()

    with_engine(attack)


@test
def a_directory_that_becomes_a_link_meanwhile() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        own = host.own + "/own"
        os.mkdir(own + "/d")
        os.symlink(host.canary + "/wide", own + "/fake")
        swapper = os.fork()
        if swapper == 0:
            # d is a directory or a link to a place where everybody can write, half the time each.
            exchange = ctypes.CDLL(None).renameat2
            d, fake = os.fsencode(own + "/d"), os.fsencode(own + "/fake")
            while True:
                exchange(-100, d, -100, fake, 2)
        opened = refused = 0
        try:
            end = time.monotonic() + 4
            while time.monotonic() < end:
                try:
                    s = engine.open("x", flags=3, volumes=[(own, "/workspace", False), (own + "/deep", "/workspace/d/x/y", False)])
                    opened += 1
                    s.sh("echo x > d/x/y/z; echo x > d/x/w")
                    s.close()
                except g.EngineError:
                    refused += 1
        finally:
            os.kill(swapper, signal.SIGKILL)
            os.waitpid(swapper, 0)
        print(f"    {opened} opened, {refused} refused")
        assert opened and refused

    with_engine(attack)


# ---- chance ----

@test
def random_messages() -> None:
    def attack(host: Host, engine: g.Engine) -> None:
        rng = random.Random(SEED)
        print(f"    GARRET_TEST_SEED={SEED}")
        kinds = list(descriptors(host).values())
        ours, theirs = pair()
        own = os.open(host.own + "/own", os.O_PATH)
        good = [g.open_body("r", flags=3), g.open_body("r", flags=3, volumes=[("/data", True)]),
                g.open_body("r" * 60, flags=3, hostname="h.x", memory=1 << 26, tmpfs=1 << 20, disk=0, pids=9, cpu_millis=900),
                g.open_body("r", flags=3, volumes=[(f"/v{i}", bool(i % 2)) for i in range(32)])]
        opened = 0
        for _ in range(1200):
            body = bytearray(rng.choice(good))
            for _ in range(rng.choice([0, 1, 1, 2, 4, 20])):
                how = rng.random()
                at = rng.randrange(len(body))
                if how < 0.5:
                    body[at] = rng.choice([0, 1, 2, 0x2F, 0x2E, 0x7F, 0x80, 0xFF, rng.randrange(256)])
                elif how < 0.7:
                    body[at:at + 4] = struct.pack("<I", rng.choice([0, 1, 33, 1 << 31, (1 << 32) - 1, len(body), rng.getrandbits(32)]))
                elif how < 0.85:
                    del body[at:at + rng.randint(1, 30)]
                else:
                    body[at:at] = rng.randbytes(rng.randint(1, 30))
                if not body:
                    body = bytearray(b"\0")
            fds = rng.choice([[], [theirs.fileno()], [theirs.fileno(), own], [theirs.fileno()] + [own] * 32,
                              [theirs.fileno()] + rng.choices(kinds, k=rng.randint(1, 4)), rng.choices(kinds, k=3)])
            kind = g.OPEN if rng.random() < 0.9 else rng.randrange(80)
            request = engine.send(kind, bytes(body[:32000]), fds)
            answer = settle(engine, request)
            opened += answer == g.OPENED
            while answer in (g.DOCTOR_ROW, g.WORKSPACE):
                answer = engine.answer(request)[0]
        print(f"    of 1,200 {opened} were good enough to open a session")

    with_engine(attack)


# ---- peers beside each other, and the daemon itself ----

@test
def peers_of_one_engine_are_apart() -> None:
    with Bench() as b:
        path = os.path.join(b.dir, "engine.sock")
        conf = os.path.join(b.dir, "system.conf")
        with open(conf, "w") as f:
            f.write(f"allow_uids = {PEER} {OTHER}\ncgroup_parent = {b.group}\n")
        pid = os.posix_spawn(os.path.join(BUILD, "garret-engine"),
                             ["garret-engine", "--system", "--socket", path, "--state", b.dir + "/state", "--config", conf],
                             os.environ)
        try:
            assert wait_until(lambda: os.path.exists(path))
            time.sleep(0.1)
            os.chmod(path, 0o666)  # the group's part is not what is looked at here

            def connect() -> g.Sock:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                sock.connect(path)
                engine = g.Engine.__new__(g.Engine)
                g.Sock.__init__(engine, sock)
                engine.died = []
                engine.call(g.HELLO, struct.pack("<HH", 1, 0), want=g.HELLO_OK)
                return engine

            def stranger() -> None:
                try:
                    connect()
                except (EOFError, ConnectionError):
                    return
                raise AssertionError("a stranger was let in")

            as_user(stranger, 4711)
            r, w = os.pipe()
            hold_r, hold_w = os.pipe()
            victim = os.fork()
            if victim == 0:
                os.setresgid(OTHER, OTHER, OTHER)
                os.setresuid(OTHER, OTHER, OTHER)
                s = connect().open("theirs")
                os.write(w, struct.pack("<QI", s.handle, s.pid))
                os.close(hold_w)
                os.read(hold_r, 1)
                os._exit(0 if s.sh("echo fine").stdout == b"fine\n" else 1)
            handle, init = struct.unpack("<QI", os.read(r, 12))

            def attack() -> None:
                engine = connect()
                for h in {handle, *range(max(0, handle - 50), handle + 50)}:
                    assert engine.answer(engine.send(g.CLOSE, struct.pack("<QB", h, 1)))[0] == g.ERROR
                    assert engine.answer(engine.send(g.USAGE, struct.pack("<Q", h)))[0] == g.ERROR
                for flags in (1, 3, 5, 7):  # nor by its name
                    try:
                        engine.open("theirs", flags=flags)
                    except g.EngineError as e:
                        assert e.code in ("CONFLICT", "INVALID"), e
                    else:
                        raise AssertionError("opened another peer's session")
                try:
                    os.kill(init, 0)
                except PermissionError:
                    pass
                else:
                    raise AssertionError("init can be signalled")
                engine.sock.send(b"nonsense")
                try:
                    engine.receive()
                except (EOFError, ConnectionError):
                    pass

            as_user(attack)
            os.write(hold_w, b"x")
            assert os.waitpid(victim, 0)[1] == 0, "the other peer's session is gone"
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


@test
def a_daemon_that_starts_over_links() -> None:
    """What a taken-over garretd leaves for the root that starts the next one."""
    with Bench() as b:
        host = Host(b)
        names = ("key", "token", "lock", "garret.db", "garret.db-wal", "garret.db-shm", "garret.db-journal", ".new", "ctl", "runs")
        with Daemon(build=os.path.relpath(BUILD, TOP), state=host.state):
            pass  # what the engine keeps is there now
        targets = [host.canary + "/secret", host.canary + "/closed", "/etc/passwd", "../../canary/script", "/", host.canary]
        before = host.digest()
        outcomes = []
        for target in targets:
            for name in names:
                for hard in (False, True):
                    place = os.path.join(host.own, name)
                    os.system(f"rm -rf {place}")
                    if hard and not os.path.isfile(target if target[0] == "/" else os.path.join(host.own, target)):
                        continue
                    if hard and target.startswith("/etc"):
                        continue
                    if hard:
                        os.link(target if target[0] == "/" else os.path.join(host.own, target), place)
                    else:
                        os.symlink(target, place)
                        os.lchown(place, PEER, PEER)
                    daemon = Daemon(build=os.path.relpath(BUILD, TOP), state=host.state)
                    try:
                        daemon.start()
                        outcomes.append("started")
                    except RuntimeError as e:
                        outcomes.append("refused")
                        assert "start" in str(e), e
                    finally:
                        daemon.stop()
                        os.unlink(daemon.log_path)
                    changed = differences(before, host.digest())
                    os.system(f"rm -rf {place}")
                    # A second name of a file changes its link count and no more.
                    assert not changed, (name, target, "hard" if hard else "soft", changed[:3])
        print("   ", {o: outcomes.count(o) for o in set(outcomes)})
        with Daemon(build=os.path.relpath(BUILD, TOP), state=host.state) as daemon:
            assert daemon.open("a").sh("echo fine")["stdout"] == "fine\n"


if __name__ == "__main__":
    sys.exit(base.report())
