"""The owner's side of proto/init.h, for tests: one init in its namespaces, connections, runs."""

import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

HELLO, RUN, ATTACH, DETACH, ACK, STOP, SIGNAL, STDIN, WINCH, FORGET, SPOOL, PING = range(1, 13)
WORKER = 13
LIST, LISTED, HELD, HELD_END = 14, 73, 74, 1 << 63
HELLO_OK, STARTED, OUT, SPOOLED, EXIT, ERROR, DONE, PONG, TAKEN = range(64, 73)
FDS, STREAM, PTY, WITH_STDIN, BODY = 1, 2, 4, 8, 16
NONE, TIMEOUT, LIMIT, STOPPED = range(4)
STEP_EXEC, STEP_CWD, STEP_SPAWN = 1, 2, 3
HEAD = 64 * 1024
WINDOW = 256 * 1024
NONCE = b"Z" * 16
UNIFIED = next((line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2"), None)

EXIT_FIELDS = ("cause step oom spooled1 spooled2 code sys spool_index background total1 total2 "
               "wall user system rss").split()


def strings(items):
    return b"".join(struct.pack("<I", len(i)) + i + b"\0" for i in items)


def encode(kind, payload=b"", request=0):
    return struct.pack("<IHHQ", 16 + len(payload), kind, 0, request) + payload


class Result:
    """What one connection was told of one run."""

    def __init__(self):
        self.pid = self.exit = self.exit_at = None
        self.out = {1: b"", 2: b""}
        self.spooled = {}
        self.taken = 0
        self.held, self.input_ended = 0, False


class Conn:
    def __init__(self, sock, hello=True):
        self.sock = sock
        self.results = {}
        self.answers = []
        self.requests = 0
        self.auto_ack = True
        sock.settimeout(20)
        if hello:
            self.send(HELLO, struct.pack("<HH", 1, 0) + NONCE)
            kind, _, payload = self.frame()
            assert kind == HELLO_OK and payload[4:20] == NONCE, (kind, payload)

    def send(self, kind, payload=b"", fds=()):
        self.requests += 1
        data = encode(kind, payload, self.requests)
        if fds:
            socket.send_fds(self.sock, [data], list(fds))
        else:
            self.sock.send(data)
        return self.requests

    def run(self, argv, env=(), cwd="", flags=0, timeout=0, limit=0, size=(0, 0), fds=(), rid=None):
        rid = rid or os.urandom(16)
        body = strings([os.fsencode(a) for a in argv] + [os.fsencode(e) for e in env])
        fds = list(fds)
        memfd = None
        if len(body) > 48 * 1024:
            memfd = os.memfd_create("body")
            os.write(memfd, body)
            fds.insert(0, memfd)
            flags |= BODY
        cwd = os.fsencode(cwd)
        payload = rid + struct.pack("<IIQHHII", flags, timeout, limit, size[0], size[1], len(argv), len(env))
        payload += struct.pack("<I", len(cwd)) + cwd + b"\0" + struct.pack("<I", len(body))
        if memfd is None:
            payload += body
        self.results.setdefault(rid, Result())
        self.send(RUN, payload, fds)
        if memfd is not None:
            os.close(memfd)
        return rid

    def frame(self, timeout=20):
        if not select.select([self.sock], [], [], timeout)[0]:
            raise TimeoutError("no frame")
        data, fds, _, _ = socket.recv_fds(self.sock, 65536, 4)
        assert not fds, "a descriptor from init"
        if not data:
            raise EOFError("init closed the connection")
        length, kind, _, request = struct.unpack("<IHHQ", data[:16])
        assert length == len(data)
        return kind, request, data[16:]

    def step(self, timeout=20):
        """Take one frame and book it."""
        kind, request, p = self.frame(timeout)
        if kind in (DONE, ERROR, PONG, HELLO_OK, LISTED):
            self.answers.append((kind, request, p))
            return kind
        rid, p = p[:16], p[16:]
        r = self.results[rid]
        if kind == STARTED:
            assert r.pid is None
            r.pid = struct.unpack("<I", p)[0]
        elif kind == OUT:
            stream, offset = struct.unpack("<BQ", p[:9])
            assert offset == len(r.out[stream]), ("a hole", offset, len(r.out[stream]))
            r.out[stream] += p[9:]
            if self.auto_ack:
                self.send(ACK, rid + struct.pack("<BQ", stream, len(r.out[stream])))
        elif kind == SPOOLED:
            stream, index, count = struct.unpack("<BIQ", p)
            r.spooled[stream] = (index, count)
        elif kind == TAKEN:
            r.taken = struct.unpack("<Q", p)[0]
        elif kind == HELD:
            held = struct.unpack("<Q", p)[0]
            r.held, r.input_ended = held & ~HELD_END, bool(held & HELD_END)
        elif kind == EXIT:
            assert r.exit is None, "two exits"
            r.exit = dict(zip(EXIT_FIELDS, struct.unpack("<BBBBBIIIIQQQQQQ", p)))
            r.exit_at = time.monotonic()
        else:
            raise AssertionError("unexpected frame %d" % kind)
        return kind

    def wait(self, rid, timeout=20):
        end = time.monotonic() + timeout
        while self.results[rid].exit is None:
            self.step(max(0.001, end - time.monotonic()))
        return self.results[rid]

    def until(self, condition, timeout=10):
        end = time.monotonic() + timeout
        while not condition():
            self.step(max(0.001, end - time.monotonic()))

    def answer(self, request, timeout=20):
        end = time.monotonic() + timeout
        while True:
            for a in self.answers:
                if a[1] == request:
                    self.answers.remove(a)
                    return a
            self.step(max(0.001, end - time.monotonic()))

    def settle(self, seconds):
        """Take whatever comes for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.step(max(0.001, end - time.monotonic()))
            except TimeoutError:
                pass

    def do(self, argv, **kw):
        return self.wait(self.run(argv, **kw))

    def sh(self, script, **kw):
        return self.do(["sh", "-c", script], **kw)

    def ping(self):
        kind, _, p = self.answer(self.send(PING))
        assert kind == PONG
        return struct.unpack("<II", p)

    def list(self):
        """(unused spool pairs, {id: (flags, ended, age us, input held, input ended)})"""
        request = self.send(LIST)
        spools, runs = [], {}
        while True:
            kind, _, p = self.answer(request)
            if kind == DONE:
                return spools, runs
            assert kind == LISTED, kind
            n = struct.unpack("<I", p[:4])[0]
            spools += struct.unpack("<%dI" % n, p[4:4 + 4 * n])
            p = p[4 + 4 * n:]
            n, p = struct.unpack("<I", p[:4])[0], p[4:]
            assert len(p) == n * 38, (n, len(p))
            for k in range(0, len(p), 38):
                runs[p[k:k + 16]] = struct.unpack("<IBQQB", p[k + 16:k + 38])

    def attach(self, rid):
        self.results[rid] = Result()
        return self.send(ATTACH, rid)

    def stop(self, rid, grace=2000):
        return self.send(STOP, rid + struct.pack("<I", grace))

    def signal(self, rid, signo, group=1):
        return self.send(SIGNAL, rid + struct.pack("<IB", signo, group))

    def close(self):
        self.sock.close()


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.01)
    return found


class Init:
    """One session.  Use as a context: whatever was started ends with it."""

    def __init__(self, host, leaf=True, conn=False, killed=False, oom=False):
        self.dir = tempfile.mkdtemp(prefix="garret-init-")
        self.conns = []
        self.files = []
        self.cgroup = None
        os.chmod(self.dir, 0o777)
        args = [host]
        if conn:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        else:
            theirs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.bind(self.dir + "/ctl")
            theirs.listen(16)
        args += [str(theirs.fileno()), self.dir]
        if conn:
            args.append("conn=1")
        if leaf and UNIFIED:
            self.cgroup = "%s/garret-test-%d-%d" % (UNIFIED, os.getpid(), id(self))
            os.makedirs(self.cgroup + "/init")
            args.append(self.cgroup)
        if killed:
            # The kernel kills whatever enters a cgroup from one that was killed later than it.
            open(self.cgroup + "/init/cgroup.kill", "w").write("1")
        if oom:
            open(self.dir + "/oom", "w").write("under_oom 0\noom_kill 0\n")
            os.chmod(self.dir + "/oom", 0o666)
            args.append("oom=%s/oom" % self.dir)
        self.proc = subprocess.Popen(args, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE)
        theirs.close()
        self.pid = int(self.proc.stdout.readline())
        if conn:
            self.conns.append(Conn(ours))

    def connect(self, hello=True):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(self.dir + "/ctl")
        c = Conn(sock, hello)
        self.conns.append(c)
        return c

    def path(self, name):
        return os.path.join(self.dir, name)

    def spool(self, c, index):
        """Two files for a run's output; their paths."""
        paths = [self.path("spool-%d-%d" % (index, i)) for i in (1, 2)]
        fds = [os.open(p, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) for p in paths]
        c.send(SPOOL, struct.pack("<I", index), fds)
        for fd in fds:
            os.close(fd)
        return paths

    def inside(self):
        """Processes of the session without init: [(pid inside, state, comm)]."""
        found = []
        ns = os.readlink("/proc/%d/ns/pid" % self.pid)
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(entry) == self.pid or os.readlink("/proc/%s/ns/pid" % entry) != ns:
                    continue
                text = open("/proc/%s/stat" % entry).read()
                status = open("/proc/%s/status" % entry).read()
            except OSError:
                continue
            comm, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:]
            nspid = next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid"))
            found.append((int(nspid), rest.split()[0], comm))
        return found

    def hosts(self, comm):
        """Numbers outside of the session's processes of that name, oldest first."""
        found = []
        ns = os.readlink("/proc/%d/ns/pid" % self.pid)
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                text = open("/proc/%s/stat" % entry).read()
                if "(%s)" % comm in text and os.readlink("/proc/%s/ns/pid" % entry) == ns:
                    found.append((int(text.rsplit(")", 1)[1].split()[19]), int(entry)))
            except OSError:
                pass
        return [pid for _, pid in sorted(found)]

    def alive(self):
        return self.proc.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for c in self.conns:
            c.close()
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
        self.status = self.proc.wait(10)
        self.proc.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        if not self.cgroup:
            return
        for root, dirs, _ in os.walk(self.cgroup, topdown=False):
            for d in dirs:
                remove_soon(os.path.join(root, d))
        remove_soon(self.cgroup)


def remove_soon(path):
    """A cgroup is empty a moment after its last process was killed."""
    for _ in range(200):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
    raise AssertionError("left behind: " + path)
