"""An init in a stand-in of a container, and the owner's end of a stream to it, for tests."""

import os
import queue
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../init"))
import driver  # noqa: E402
import filesproto  # noqa: E402


def children(pid):
    try:
        return [int(x) for x in open("/proc/%d/task/%d/children" % (pid, pid)).read().split()]
    except OSError:
        return []


def descendants(pid):
    found = []
    for c in children(pid):
        found += [c] + descendants(c)
    return found


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


class Container:
    """Namespaces with an init as pid 1.  Use as a context: everything ends with it."""

    def __init__(self, build, uid=0, first=None, without=(), user=None):
        self.build = os.path.abspath(build)
        self.dir = tempfile.mkdtemp(prefix="garret-stream-")
        os.chmod(self.dir, 0o755)
        self.meet, self.work = self.dir + "/meet", self.dir + "/place/below"
        self.spools = self.dir + "/spools"
        os.mkdir(self.meet)
        os.mkdir(self.spools)
        self.program = self.dir + "/garret-init"
        shutil.copy(self.build + "/garret-init", self.program)
        self.uid = uid
        self.streams = []
        self.user = ["setpriv", "--reuid=%d" % user, "--regid=%d" % user, "--clear-groups"] if user else []
        os.mkdir(self.dir + "/place")
        os.chown(self.dir + "/place", user or 0, user or 0)
        command = self.user + (first or self.serve())
        if command[-1] == "@serve":
            command[-1:] = self.serve()
        if without:
            command = [self.build + "/tests/provider/test-without", *map(str, without), "--", *command]
        script = ("mount -t proc proc /proc && mount -t tmpfs -o mode=0755,uid=%d,size=200m meet %s && exec " % (user or 0, self.meet) +
                  " ".join(command))
        self.proc = subprocess.Popen(["unshare", "--pid", "--mount", "--fork", "sh", "-c", script],
                                     stdin=subprocess.DEVNULL, stderr=open(self.dir + "/errors", "wb"))
        wait_for(lambda: children(self.proc.pid) or not self.alive())
        self.pid = (children(self.proc.pid) or [0])[0]
        # As in a real container, the directory is there before anybody can enter.
        wait_for(lambda: self.mounted() or not self.alive())

    def mounted(self):
        try:
            return self.meet in open("/proc/%d/mountinfo" % self.pid).read()
        except OSError:
            return False

    def serve(self, *more):
        return [self.program, "serve", "--dir", self.meet, "--work-dir", self.work, "--uid", str(self.uid), "--gid",
                str(self.uid), *more]

    def enter(self, command):
        return ["nsenter", "--target", str(self.pid), "--pid", "--mount", *self.user, *command]

    def connect_command(self):
        return self.enter([self.program, "connect", "--dir", self.meet])

    def stream(self, command=None):
        s = Stream(self, command or self.connect_command())
        self.streams.append(s)
        return s

    def raw(self):
        """A relay without an owner."""
        return subprocess.Popen(self.connect_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def relays(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
            except OSError:
                continue
            if words[:2] == [self.program.encode(), b"connect"]:
                found.append(int(pid))
        return found

    def alive(self):
        return self.proc.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for s in self.streams:
            s.close()
        if self.alive() and self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.proc.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)


class Stream:
    def __init__(self, container, command):
        self.container = container
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.detach()
        self.proc = subprocess.Popen([container.build + "/tests/provider/test-stream-host", container.spools, *command],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[3, fd] if fd != 3 else [3],
                                     preexec_fn=lambda: os.dup2(fd, 3))
        os.close(fd)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        ours.close()
        self.sock = socket.socket(fileno=fds[0])
        self.events = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.conn = driver.Conn(self.sock, hello=False)
        try:
            self.conn.send(driver.HELLO, struct.pack("<HH", 1, 0) + driver.NONCE)
        except BrokenPipeError:
            pass  # it has ended already; its events say why

    def greeted(self):
        kind, _, payload = self.conn.frame()
        assert kind == driver.HELLO_OK and payload[4:20] == driver.NONCE
        return self.conn

    def read(self):
        for line in self.proc.stdout:
            self.events.put(line.strip())
        self.events.put(None)

    def event(self, word, seconds=10):
        """The next event that begins so; others before it are dropped."""
        while True:
            line = self.events.get(timeout=seconds)
            assert line is not None, "the host is gone"
            if line.startswith(word):
                return line

    def say(self, word):
        self.proc.stdin.write(word + "\n")
        self.proc.stdin.flush()

    def spool(self, index):
        null = os.open("/dev/null", os.O_RDWR)
        self.conn.send(driver.SPOOL, struct.pack("<I", index), [null, null])
        os.close(null)

    def spooled(self, index, stream):
        return open("%s/%d.%s" % (self.container.spools, index, "err" if stream == 2 else "out"), "rb").read()

    def worker(self, slot=0):
        return StreamWorker(self, slot)

    def close(self):
        if self.proc.poll() is None:
            self.proc.stdin.close()
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.sock.close()


class StreamWorker(filesproto.Worker):
    def __init__(self, stream, slot):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(60)
        self.request = stream.conn.send(driver.WORKER, struct.pack("<I", slot), [theirs.fileno()])
        theirs.close()

    def frame(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("the worker is gone")
        return struct.unpack("<H", data[4:6])[0], data[16:]

    def pipe(self):
        """After INFO of a large read: the reading end of a pipe with its bytes."""
        r, w = os.pipe()
        socket.send_fds(self.sock, [struct.pack("<IHHQ", 16, filesproto.PIPE, 0, 0)], [w])
        os.close(w)
        return r

    def close(self):
        self.sock.close()
