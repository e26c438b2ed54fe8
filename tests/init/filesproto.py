"""The client's side of proto/files.h, for tests: one worker process and its requests."""

import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import traceback

OPS = "stat list walk read write mkdir remove rename copy chmod realpath digest glob grep edit tar_out tar_in".split()
REQUEST, BODY, BODY_END, PIPE = 1, 2, 3, 4
INFO, ENTRIES, MATCHES, DATA, END = 64, 65, 66, 67, 68
FLAGS = ("nofollow tree parents append sync exclusive if_match by_pipe from_end hidden no_ignore no_case fixed "
         "readable relative dirs_first dirs_too").split()
REGULAR, DIRECTORY, OTHER, DANGLING = range(4)
DATA_MAX = 60 * 1024
REST = 2**64 - 1


def codes(top):
    """The names of the codes in their order, from the public header."""
    text = open(os.path.join(top, "include/garret/error.h"), encoding="utf-8").read()
    return ["ok"] + [line.split("X(")[1].split(",")[0].lower() for line in text.splitlines() if line.strip().startswith("X(")]


CODES = codes(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def string(s):
    b = os.fsencode(s)
    return struct.pack("<I", len(b)) + b + b"\0"


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v[0] if len(v) == 1 else v

    def blob(self):
        n = self.take("I")
        self.at += n
        assert self.at <= len(self.data)
        return self.data[self.at - n:self.at]

    def string(self):
        s = self.blob()
        assert self.take("B") == 0 and b"\0" not in s
        return s

    def more(self):
        return self.at < len(self.data)


class Record:
    def __init__(self, **kw):
        self.__dict__.update(kw)

    def __repr__(self):
        return repr(self.__dict__)


def read_info(r):
    kind, link, mode, uid, gid, ino, size, mtime, ctime = r.take("BBIIIQQQQ")
    return Record(type=kind, link=link, mode=mode, uid=uid, gid=gid, tag=(ino, size, mtime, ctime), size=size,
                  mtime=mtime, name=r.string(), target=r.string())


def read_match(r):
    name = r.string()
    line, column, length = r.take("QII")
    return Record(name=name, line=line, column=column, length=length, text=r.blob(), cut=r.take("B"))


def read_end(r):
    code, sys, truncated, count, skipped = r.take("IIBQQ")
    digest = r.data[r.at:r.at + 32]
    r.at += 32
    return Record(code=CODES[code], sys=sys, truncated=truncated, count=count, skipped=skipped, digest=digest,
                  path=r.string(), msg=r.string().decode("utf-8", "replace"))


def edit_body(*edits):
    """(old, new) or (old, new, all)."""
    return b"".join(struct.pack("<BI", len(e) > 2 and bool(e[2]), len(e[0])) + e[0] + struct.pack("<I", len(e[1])) + e[1]
                    for e in edits)


class Worker:
    def __init__(self, host, work_dir, uid=None, file_bytes=None):
        uid = os.getuid() if uid is None else uid
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock = ours
        self.sock.settimeout(100)
        fd = theirs.detach()

        def place():
            os.dup2(fd, 3)
            if file_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        self.proc = subprocess.Popen([host, work_dir, str(uid)], pass_fds=[3, fd], preexec_fn=place)
        os.close(fd)

    def send(self, kind, payload=b""):
        self.sock.send(struct.pack("<IHHQ", 16 + len(payload), kind, 0, 0) + payload)

    def frame(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("the worker is gone: %s" % self.proc.wait(10))
        length, kind, _, _ = struct.unpack("<IHHQ", data[:16])
        assert length == len(data)
        return kind, data[16:]

    def start(self, op, path, *flags, to="", pattern="", include="", offset=0, length=0, mode=0, max_depth=0,
              max_entries=0, max_bytes=0, tag=(0, 0, 0, 0), timeout_ms=0):
        bits = sum(1 << FLAGS.index(f) for f in flags)
        self.send(REQUEST, struct.pack("<BII", OPS.index(op) + 1, bits, timeout_ms) + string(path) + string(to) +
                  string(pattern) + string(include) + struct.pack("<QQIIIQ4Q", offset, length, mode, max_depth,
                                                                  max_entries, max_bytes, *tag))

    def finish(self):
        """Everything up to END."""
        got = Record(info=None, entries=[], matches=[], data=b"", end=None)
        data = []
        while got.end is None:
            kind, payload = self.frame()
            r = Reader(payload)
            if kind == INFO:
                got.info = read_info(r)
            elif kind == ENTRIES:
                while r.more():
                    got.entries.append(read_info(r))
            elif kind == MATCHES:
                while r.more():
                    got.matches.append(read_match(r))
            elif kind == DATA:
                data.append(payload)
                r.at = len(payload)
            elif kind == END:
                got.end = read_end(r)
            else:
                raise AssertionError("frame %d" % kind)
            assert not r.more(), kind
        got.data = b"".join(data)
        return got

    def do(self, op, path, *flags, body=None, **kw):
        self.start(op, path, *flags, **kw)
        if body is not None:
            for at in range(0, len(body), DATA_MAX):
                self.send(BODY, body[at:at + DATA_MAX])
            self.send(BODY_END)
        return self.finish()

    def close(self):
        self.sock.close()
        assert self.proc.wait(10) == 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()
        if self.proc.wait(10) != 0 and not exc[0]:
            raise AssertionError("the worker ended with %s" % self.proc.returncode)


class Tree:
    """A directory, and a worker with the rights of nobody in particular."""

    def __init__(self, host):
        self.uid = 1000 if os.getuid() == 0 else os.getuid()
        self.dir = tempfile.mkdtemp(prefix="garret-files-").encode()
        os.chmod(self.dir, 0o777)
        self.worker = Worker(host, os.fsdecode(self.dir), self.uid)

    def path(self, name=b""):
        return os.path.join(self.dir, os.fsencode(name))

    def file(self, name, data=b"", mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, mode)
        return path

    def files(self, *names, data=b""):
        for n in names:
            self.file(n, data)

    def own(self):
        """Everything is the worker's: what it doesn't do isn't for lack of rights."""
        subprocess.run(["chown", "-hR", "%d:%d" % (self.uid, self.uid), self.dir], check=os.getuid() == 0)

    def fails(self, op, path, code, *flags, **kw):
        r = self.worker.do(op, path, *flags, **kw)
        assert r.end.code == code and r.end.msg, (r.end, code)
        return r.end

    def close(self):
        self.worker.sock.close()
        self.worker.proc.wait(10)
        subprocess.run(["chmod", "-R", "u+rwx", self.dir], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", self.dir])


def run_tests(tests, make, wanted):
    passed = failed = 0
    for fn in tests:
        if wanted and not any(w in fn.__name__ for w in wanted):
            continue
        t = make()
        try:
            fn(t)
            passed += 1
        except Exception:
            failed += 1
            print("FAIL", fn.__name__)
            traceback.print_exc(file=sys.stdout)
        finally:
            t.close()
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0
