"""Archives of a file worker: hostile ones, round trips, other programs' ones.  usage: test_files_tar.py HOST [name ...]"""

import ctypes
import hashlib
import io
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time

from filesproto import *

HOST = sys.argv[1]
TESTS = []
# Where the test's own directory is, paths of 3,000 bytes have to be reached in steps.
XATTRS = True


def test(fn):
    TESTS.append(fn)
    return fn


# ---- archives by hand ----

def num(v, n):
    return b"%0*o\0" % (n - 1, v)


def big(v, n):
    """Base 256."""
    return (v & ((1 << 8 * n) - 1) | 1 << (8 * n - 1)).to_bytes(n, "big")


def header(name=b"f", kind=b"0", size=0, target=b"", mode=0o644, mtime=1000000000, magic=b"ustar\x0000", prefix=b"", sizefield=None,
           modefield=None, tail=None, sum_off=0):
    h = bytearray(512)

    def at(offset, data):
        h[offset:offset + len(data)] = data
    at(0, name[:100])
    at(100, modefield or num(mode, 8))
    at(108, num(0, 8))
    at(116, num(0, 8))
    at(124, sizefield or num(size, 12))
    at(136, num(mtime, 12))
    at(148, b" " * 8)
    at(156, kind)
    at(157, target[:100])
    at(257, magic)
    at(345, prefix)
    for offset, data in (tail or {}).items():
        at(offset, data)
    at(148, b"%06o\0 " % (sum(h) + sum_off))
    return bytes(h)


def pad(data):
    return data + bytes(-len(data) % 512)


def entry(name=b"f", data=b"", **kw):
    return header(name, size=len(data), **kw) + pad(data)


def record(key, value):
    rest = len(key) + len(value) + 3
    n = rest + 1
    while n != rest + len(str(n)):
        n = rest + len(str(n))
    return b"%d %s=%s\n" % (n, key, value)


def pax(kind=b"x", raw=None, **kw):
    body = raw if raw is not None else b"".join(record(k.replace("__", ".").encode(), v) for k, v in kw.items())
    return header(b"PaxHeaders/x", kind=kind, size=len(body)) + pad(body)


def gnu_long(kind, name):
    return header(b"././@LongLink", kind=kind, size=len(name) + 1) + pad(name + b"\0")


def sparse1(map_text, data=b"", realsize=b"1000", **kw):
    body = pad(map_text) + data
    return pax(GNU__sparse__major=b"1", GNU__sparse__minor=b"0", GNU__sparse__name=b"sp", GNU__sparse__realsize=realsize, **kw) + \
        header(b"GNUSparseFile.0/sp", size=len(body)) + pad(body)


def link(name, target, **kw):
    return header(name, kind=b"2", target=target, **kw)


def hard(name, target):
    return header(name, kind=b"1", target=target)


def folder(name, mode=0o755):
    return header(name, kind=b"5", mode=mode)


END = bytes(1024)

# name, archive without its end (OUT stands for the outside's path), expected code (or "ok"), more
HOSTILE = [
    ("absolute name", entry(b"/etc/garret-test"), "denied"),
    ("absolute name of an existing file", entry(b"OUT/secret", b"x"), "denied"),
    ("only slashes", folder(b"///"), "denied"),
    ("dotdot", entry(b"../secret", b"x"), "denied"),
    ("dotdot inside", entry(b"a/../../secret", b"x"), "denied"),
    ("dotdot at the end", folder(b"a/.."), "denied"),
    ("dotdot behind a dot", entry(b"./.././secret", b"x"), "denied"),
    ("dotdot alone", folder(b".."), "denied"),
    ("dotdot in a prefix", entry(b"secret", b"x", prefix=b".."), "denied"),
    ("prefix absolute", entry(b"secret", b"x", prefix=b"OUT"), "denied"),
    ("no name", entry(b""), "invalid"),
    ("the destination as a file", entry(b"."), "is_directory"),
    ("the destination as a link", link(b"./", b"OUT"), "is_directory"),
    ("through a link to outside", link(b"l", b"OUT") + entry(b"l/secret", b"x"), "denied"),
    ("through a link upwards", link(b"l", b"..") + entry(b"l/secret", b"x"), "denied"),
    ("through a chain of links", link(b"a", b"OUT") + link(b"b", b"a") + entry(b"b/secret", b"x"), "denied"),
    ("through a deep link", folder(b"d") + link(b"d/l", b"OUT") + entry(b"d/l/new/secret", b"x"), "denied"),
    ("through a link in a loop", link(b"a", b"a") + entry(b"a/x"), "denied"),
    ("through a link to inside", folder(b"d") + link(b"l", b"d") + entry(b"l/x"), "denied"),
    ("through a link that was there", entry(b"pre/secret", b"x"), "denied"),
    ("a directory through a link", link(b"l", b"OUT") + folder(b"l/new/"), "denied"),
    ("a directory where a link is", link(b"l", b"OUT") + folder(b"l/", 0o700) + entry(b"l/secret", b"x"), "ok"),
    ("a mode through a link", link(b"l", b"OUT/secret") + folder(b"l", 0o777), "ok"),
    ("a file where a link is", link(b"l", b"OUT/secret") + entry(b"l", b"x"), "ok"),
    ("a link where a link is", link(b"l", b"OUT") + link(b"l", b"OUT/secret"), "ok"),
    ("a fifo where a link is", link(b"l", b"OUT/secret") + header(b"l", kind=b"6"), "ok"),
    ("hard link, absolute", hard(b"h", b"OUT/secret") + entry(b"h", b"x"), "denied"),
    ("hard link, dotdot", hard(b"h", b"../out/secret"), "denied"),
    ("hard link through a link", link(b"l", b"OUT") + hard(b"h", b"l/secret"), "denied"),
    ("hard link through a link that was there", hard(b"h", b"pre/secret"), "denied"),
    ("hard link to a link, then written", link(b"l", b"OUT/secret") + hard(b"h", b"l") + entry(b"h", b"x"), "ok"),
    ("hard link of outside, then written", entry(b"outer", b"x") + folder(b"d"), "ok"),
    ("hard link to the hard link of outside, then written", hard(b"h", b"outer") + entry(b"h", b"x", mode=0o777), "ok"),
    ("hard link to a directory", folder(b"d") + hard(b"h", b"d"), "not_regular"),
    ("hard link to the destination", hard(b"h", b"."), "invalid"),
    ("hard link to nothing", hard(b"h", b"nothing"), "not_found"),
    ("hard link to itself", entry(b"f", b"x") + hard(b"f", b"f"), "ok"),
    ("hard link below a file", entry(b"f", b"x") + hard(b"h", b"f/g"), "not_directory"),
    ("character device", header(b"null", kind=b"3"), "denied"),
    ("block device", header(b"sda", kind=b"4"), "denied"),
    ("a directory becomes a link", folder(b"d") + entry(b"d/f") + link(b"d", b"OUT") + entry(b"d/secret", b"x"), "is_directory"),
    ("an empty directory becomes a link", folder(b"d") + link(b"d", b"OUT") + entry(b"d/secret", b"x"), "is_directory"),
    ("a directory becomes a file", folder(b"d") + entry(b"d", b"x"), "is_directory"),
    ("a file becomes a directory", entry(b"d", b"x") + entry(b"d/f", b"x"), "not_directory"),
    ("set-user-id", entry(b"s", b"x", mode=0o6755) + folder(b"d", 0o7777), "ok"),
    ("a fifo was there", entry(b"fifo", b"x"), "ok"),
    ("pax: absolute path", pax(path=b"/etc/garret-test") + entry(), "denied"),
    ("pax: dotdot", pax(path=b"../secret") + entry(), "denied"),
    ("pax: target upwards", pax(linkpath=b"../out/secret") + hard(b"h", b"x"), "denied"),
    ("pax: path with a NUL", pax(path=b"a\0b") + entry(), "invalid"),
    ("pax: path of 5,000 bytes", pax(path=b"a/" * 2500) + entry(), "invalid"),
    ("pax: target of 5,000 bytes", pax(linkpath=b"a/" * 2500) + link(b"l", b"x"), "invalid"),
    ("pax: of 2 MiB", pax(raw=record(b"comment", b"x" * (2 << 20))) + entry(), "too_large"),
    ("pax: of 8 EiB", header(b"x", kind=b"x", sizefield=big(2**62, 12)), "too_large"),
    ("pax: twenty in a row", pax(path=b"f") * 20 + entry(), "invalid"),
    ("pax: for nothing", pax(path=b"f"), "invalid"),
    ("pax: record longer than the header", pax(raw=b"99 path=f\n") + entry(), "invalid"),
    ("pax: record of no length", pax(raw=b"0 path=f\n") + entry(), "invalid"),
    ("pax: record too short", pax(raw=b"3 path=f\n") + entry(), "invalid"),
    ("pax: record without an end", pax(raw=b"8 path=ff") + entry(), "invalid"),
    ("pax: record without =", pax(raw=b"8 pathf\n") + entry(), "invalid"),
    ("pax: record without a key", pax(raw=b"5 =f\n") + entry(), "invalid"),
    ("pax: length of 30 digits", pax(raw=b"9" * 30 + b" path=f\n") + entry(), "invalid"),
    ("pax: negative size", pax(size=b"-1") + entry(), "invalid"),
    ("pax: size that overflows", pax(size=b"18446744073709551617") + entry(), "invalid"),
    ("pax: size of 8 EiB", pax(size=b"9223372036854775807") + entry(), "invalid"),
    ("pax: size is less than there is", pax(size=b"1") + entry(b"f", entry(b"../secret", b"x") * 2), "invalid"),
    ("pax: time that is none", pax(mtime=b"1e9") + entry(), "invalid"),
    ("pax: time far away", pax(mtime=b"4611686018427387903.5") + entry(), "ok"),
    ("pax: time long ago", pax(mtime=b"-4611686018427387903.5") + entry(), "ok"),
    ("pax: a path for all", pax(b"g", path=b"f") + entry(), "invalid"),
    ("pax: a size for all", pax(b"g", size=b"5") + entry(), "invalid"),
    ("pax: a comment for all", pax(b"g", comment=b"f") + entry(), "ok"),
    ("pax: attributes of the system", pax(SCHILY__xattr__security__capability=b"\1\0\0\2" + b"\xff" * 16, SCHILY__xattr__trusted__x=b"x",
                                         SCHILY__xattr__system__posix_acl_access=b"x") + entry(), "ok"),
    ("pax: two thousand attributes", pax(raw=b"".join(record(b"SCHILY.xattr.user.%d" % i, b"x") for i in range(2000))) + entry(), "invalid"),
    ("GNU: long name upwards", gnu_long(b"L", b"../secret") + entry(), "denied"),
    ("GNU: long target absolute", gnu_long(b"K", b"OUT/secret") + hard(b"h", b"x"), "denied"),
    ("GNU: long name of 1 MiB", gnu_long(b"L", b"a" * (1 << 20)) + entry(), "too_large"),
    ("a component of 300 bytes", gnu_long(b"L", b"a" * 300) + entry(), "invalid"),
    ("a directory of 300 bytes", gnu_long(b"L", b"a" * 300 + b"/f") + entry(), "invalid"),
    ("a target of 4,096 bytes", gnu_long(b"K", b"a" * 4096) + link(b"l", b""), "too_large"),
    ("a link to nothing", link(b"l", b""), "invalid"),
    ("negative size", header(sizefield=big(-1, 12)), "invalid"),
    ("size of 2**63", header(sizefield=big(2**63, 12)), "invalid"),
    ("size of 2**90", header(sizefield=big(2**90, 12)), "invalid"),
    ("size of 8 EiB less one", header(sizefield=big(2**63 - 1, 12)), "invalid"),
    ("size that is no number", header(sizefield=b"12x45678901 "), "invalid"),
    ("mode that is no number", header(modefield=b"rwxr-xr-"), "invalid"),
    ("wrong sum", header(sum_off=1), "invalid"),
    ("noise", random.Random(5).randbytes(5120), "invalid"),
    ("compressed", b"\x1f\x8b\x08\0" + bytes(2000), "invalid"),
    ("unknown type", header(kind=b"Z"), "unsupported"),
    ("part of several volumes", header(kind=b"M", size=0), "unsupported"),
    ("sparse: overlapping", sparse1(b"2\n0\n10\n5\n10\n", b"x" * 20), "invalid"),
    ("sparse: backwards", sparse1(b"2\n500\n10\n0\n10\n", b"x" * 20), "invalid"),
    ("sparse: behind the end", sparse1(b"1\n995\n10\n", b"x" * 10), "invalid"),
    ("sparse: overflowing", sparse1(b"1\n9223372036854775807\n10\n", b"x" * 10, b"9223372036854775807"), "invalid"),
    ("sparse: more data than the map", sparse1(b"1\n0\n5\n", b"x" * 10), "invalid"),
    ("sparse: less data than the map", sparse1(b"1\n0\n15\n", b"x" * 10), "invalid"),
    ("sparse: a map that is none", sparse1(b"hello\n"), "invalid"),
    ("sparse: a map without an end", sparse1(b"1\n0\n"), "invalid"),
    ("sparse: a map of 10**9", sparse1(b"1000000000\n0\n1\n"), "invalid"),
    ("sparse: negative", sparse1(b"1\n-5\n10\n", b"x" * 10), "invalid"),
    ("sparse: form 2", pax(GNU__sparse__major=b"2", GNU__sparse__realsize=b"5") + entry(b"f", b"12345"), "unsupported"),
    ("sparse: name upwards", pax(GNU__sparse__major=b"1", GNU__sparse__name=b"../secret", GNU__sparse__realsize=b"0") +
     entry(b"f", b"0\n" + bytes(510)), "denied"),
    ("sparse: old, behind the end", header(b"s", kind=b"S", size=10, magic=b"ustar  \0",
                                           tail={386: num(2**30, 12) + num(10, 12), 483: num(100, 12)}) + pad(b"x" * 10), "invalid"),
    ("sparse: old, map without an end", header(b"s", kind=b"S", size=0, magic=b"ustar  \0", tail={482: b"\1", 483: num(100, 12)}) +
     (bytes(504) + b"\1" + bytes(7)) * 5, "invalid", "bare"),
    ("cut off in a header", header()[:300], "invalid", "bare"),
    ("cut off in data", header(b"part", size=5000) + b"x" * 1000, "invalid", "bare"),
    ("cut off between entries", entry(b"f", b"x"), "invalid", "bare"),
    ("cut off in an extended header", header(b"x", kind=b"x", size=600) + b"x" * 100, "invalid", "bare"),
    ("empty", b"", "invalid", "bare"),
    ("bomb: bytes", b"".join(entry(b"f%d" % i, b"x" * 400) for i in range(10)), "too_large", {"max_bytes": 2000}),
    ("bomb: a size", header(b"f", sizefield=big(2**50, 12)), "too_large", {"max_bytes": 1 << 30}),
    ("bomb: a hole", sparse1(b"1\n4611686018427387904\n0\n", b"", b"4611686018427387904"), "too_large", {"max_bytes": 1 << 30}),
    ("bomb: entries", b"".join(entry(b"f%d" % i) for i in range(20)), "too_large", {"max_entries": 10}),
    ("bomb: the same entry", entry(b"f") * 20, "too_large", {"max_entries": 10}),
    ("an entry behind the end", END + entry(b"late", b"x"), "ok"),
    ("one name three times", entry(b"f", b"1") + entry(b"f", b"2") + entry(b"./f", b"3"), "ok"),
    ("very deep", gnu_long(b"L", b"a/" * 1900 + b"f") + entry(b"x", b"deep"), "ok"),
    ("a directory without rights first", folder(b"d", 0) + folder(b"d/e", 0) + entry(b"d/e/f", b"x", mode=0), "ok"),
    ("GNU: a list for a directory", header(b"d", kind=b"D", size=600, magic=b"ustar  \0") + pad(b"Yf\0" * 200), "ok"),
    ("a link with data", link(b"l", b"x", sizefield=num(512, 12)) + entry(b"f", b"x"), "ok"),
]


def snapshot(top, times=True, but=()):
    """{path: what is there}, hard links as the name that comes first."""
    out, first = {}, {}

    def look(path, name):
        st = os.lstat(path)
        kind = stat.S_IFMT(st.st_mode)
        what = [kind, stat.S_IMODE(st.st_mode) if kind != stat.S_IFLNK else 0]
        if times:
            what.append(st.st_mtime_ns)
        if kind == stat.S_IFREG:
            with open(path, "rb") as f:
                what += [st.st_size, hashlib.sha256(f.read()).digest(), first.setdefault((st.st_dev, st.st_ino), name)]
        if kind == stat.S_IFLNK:
            what.append(os.readlink(path))
        elif XATTRS and kind in (stat.S_IFREG, stat.S_IFDIR):
            what.append(sorted((x, os.getxattr(path, x)) for x in os.listxattr(path) if x.startswith("user.")))
        out[name] = tuple(what)

    def walk(fd, prefix):
        for n in sorted(os.listdir(fd)):
            n = os.fsencode(n)
            if prefix + n in but:
                continue
            path = b"/proc/self/fd/%d/%s" % (fd, n)
            look(path, prefix + n)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                below = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                walk(below, prefix + n + b"/")
                os.close(below)
    fd = os.open(top, os.O_RDONLY)
    sys.setrecursionlimit(10000)
    walk(fd, b"")
    os.close(fd)
    return out


def outside(t):
    """Everything of the test's directory but the destination, and the numbers of links."""
    return snapshot(t.dir, but=[b"dest"]), os.stat(t.path("out/secret")).st_nlink


@test
def hostile_archives_stay_inside(t):
    out = t.path("out")
    t.file("out/secret", b"the secret\n", 0o600)
    t.file("out/dir/file", b"x")
    t.own()
    for case in HOSTILE:
        name, archive, code = case[:3]
        more = case[3] if len(case) > 3 else {}
        dest = t.path("dest")
        subprocess.run(["rm", "-rf", dest], check=True)
        os.mkdir(dest)
        os.symlink("../out", dest + b"/pre")
        os.link(out + b"/secret", dest + b"/outer")
        os.mkfifo(dest + b"/fifo")
        subprocess.run(["chown", "-hR", "%d:%d" % (t.uid, t.uid), dest], check=True)
        if b"OUT" in archive:
            archive = rewrite(archive, out)
        before = outside(t)
        r = t.worker.do("tar_in", dest, body=archive + (b"" if more == "bare" else END), timeout_ms=20000,
                        **(more if isinstance(more, dict) else {}))
        assert r.end.code == code, (name, code, r.end)
        assert code == "ok" or r.end.msg, name
        after = outside(t)
        assert after[0] == before[0], name
        # Names inside of the file outside come and go only where the case is about them.
        assert "of outside" in name or after == before, name
        subprocess.run(["chmod", "-R", "u+rwx", dest], check=True)
        for path, what in snapshot(dest).items():
            assert what[1] & 0o7000 == 0 and b".garret-" not in path, (name, path)
            assert what[0] in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO), (name, path)
        assert not os.path.lexists("/etc/garret-test")
        check_hostile(name, dest, r.end)
    print("    %d hostile archives" % len(HOSTILE))


def rewrite(archive, out):
    """OUT becomes the real path, sums are made again."""
    assert len(out) <= 80
    blocks = [archive[i:i + 512] for i in range(0, len(archive), 512)]
    for i, b in enumerate(blocks):
        if b"OUT" not in b:
            continue
        if b[257:262] != b"ustar":
            blocks[i] = b.replace(b"OUT", out).ljust(512, b"\0")[:512]
            # The size of a long name is in the header before it.
            h = bytearray(blocks[i - 1])
            h[124:136] = num(len(blocks[i].rstrip(b"\0")) + 1, 12)
        else:
            h = bytearray(b)
            for at, n in ((0, 100), (157, 100), (345, 155)):
                h[at:at + n] = bytes(h[at:at + n]).rstrip(b"\0").replace(b"OUT", out).ljust(n, b"\0")
        h[148:156] = b" " * 8
        h[148:156] = b"%06o\0 " % sum(h)
        blocks[i if b[257:262] == b"ustar" else i - 1] = bytes(h)
    return b"".join(blocks)


def check_hostile(name, dest, end):
    read = lambda n: open(dest + b"/" + n, "rb").read()
    if name == "compressed":
        assert "compressed" in end.msg
    if name == "cut off in data":
        assert not os.path.lexists(dest + b"/part"), "half a file"
    if name == "one name three times":
        assert read(b"f") == b"3" and end.count == 3
    if name == "an entry behind the end":
        assert not os.path.lexists(dest + b"/late")
    if name in ("a file where a link is", "hard link to a link, then written"):
        assert read(b"l" if name[0] == "a" else b"h") == b"x"
    if name == "a directory where a link is":
        assert not os.path.islink(dest + b"/l") and read(b"l/secret") == b"x"
    if name == "hard link to itself":
        assert read(b"f") == b"x"
    if name == "dotdot inside":
        assert end.path == b"a/../../secret", end
    if name.startswith("through a link to outside"):
        assert end.path == b"l/secret" and "link" in end.msg, end
    if name == "set-user-id":
        assert os.stat(dest + b"/s").st_mode & 0o7777 == 0o755
    if name == "very deep":
        assert read(b"a/" * 1900 + b"f") == b"deep" if len(dest) < 200 else True
    if name == "pax: attributes of the system":
        assert os.listxattr(dest + b"/f") == [] and end.skipped == 0, "not even tried"


class Swapper(threading.Thread):
    """dest/d is a directory, then a link to outside, then a directory ..., each time in one step."""

    def __init__(self, t):
        super().__init__()
        self.t, self.stop, self.turns, self.links = t, threading.Event(), 0, 0
        self.libc = ctypes.CDLL(None, use_errno=True)

    def run(self):
        place, aside = self.t.path("dest/d"), self.t.path("aside")
        while not self.stop.is_set():
            if not os.path.islink(place) and not os.path.islink(aside):
                # The worker has made a directory of the link.
                self.links += 1
                if os.path.lexists(aside):
                    os.rename(aside, self.t.path("trash%d" % self.links))
                os.symlink("../out", aside)
            self.libc.renameat2(-100, place, -100, aside, 2)
            self.turns += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.join()
        for name in (self.t.path("dest/d"), self.t.path("aside")):
            if os.path.islink(name):
                os.unlink(name)


@test
def a_link_that_comes_and_goes_leads_nowhere(t):
    t.file("out/secret", b"the secret\n", 0o666)
    t.file("dest/d/inside", b"inside\n", 0o666)
    t.own()
    os.chmod(t.path("out"), 0o777)
    before = snapshot(t.path("out"))
    body = b"".join(folder(b"d/s%d/" % i) + entry(b"d/secret", b"x") + link(b"d/l%d" % i, b"x") + hard(b"d/h%d" % i, b"d/secret")
                    for i in range(10)) + END
    codes = {}
    with Swapper(t) as s:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            r = t.worker.do("tar_in", t.path("dest"), body=body)
            codes[r.end.code] = codes.get(r.end.code, 0) + 1
            assert r.end.code in ("ok", "denied", "not_found", "not_directory", "is_directory", "exists", "internal"), r.end
    assert snapshot(t.path("out")) == before, "written outside"
    t.file("dest/d/inside", b"inside\n", 0o666)
    with Swapper(t) as r:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert b"the secret" not in t.worker.do("tar_out", t.path("dest")).data
            assert t.worker.do("grep", t.path("dest"), pattern="the secret").matches == []
            assert not [e for e in t.worker.do("glob", t.path("dest"), pattern="secret").entries if e.size == 11]
    assert s.turns > 100 and r.turns > 100
    print("    %d and %d turns, %s" % (s.turns, r.turns, codes))


@test
def modes_of_directories_come_at_the_end(t):
    body = folder(b"d", 0) + folder(b"d/e", 0o500) + entry(b"d/e/f", b"x", mode=0o440) + folder(b"k/", 0o711) + END
    os.mkdir(t.path("k"))
    os.chmod(t.path("k"), 0o555)
    t.own()
    r = t.worker.do("tar_in", t.dir, body=body)
    assert r.end.code == "ok" and r.end.count == 4, r.end
    mode = lambda n: stat.S_IMODE(os.stat(t.path(n)).st_mode)
    assert [mode("d"), mode("d/e"), mode("d/e/f"), mode("k")] == [0, 0o500, 0o440, 0o711]
    assert [int(os.stat(t.path(n)).st_mtime) for n in ("d", "d/e", "d/e/f", "k")] == [1000000000] * 4
    # The same again: directories without the right to write are no hindrance to their own archive.
    r = t.worker.do("tar_in", t.dir, body=body)
    assert r.end.code == "ok" and mode("d/e") == 0o500, r.end
    # What was unpacked before an error is whole.
    r = t.worker.do("tar_in", t.path("x"), "parents", body=folder(b"d", 0o750) + entry(b"d/f", b"1") + entry(b"/bad") + END)
    assert r.end.code == "denied" and r.end.path == b"/bad" and r.end.count == 2
    assert mode("x/d") == 0o750 and open(t.path("x/d/f"), "rb").read() == b"1"


@test
def the_destination_is_what_the_request_says(t):
    body = entry(b"f", b"x") + END
    t.fails("tar_in", t.path("no/such"), "not_found", body=body)
    assert t.worker.do("tar_in", t.path("no/such"), "parents", body=body).end.code == "ok"
    assert open(t.path("no/such/f"), "rb").read() == b"x"
    t.file("plain")
    t.fails("tar_in", t.path("plain"), "not_directory", body=body)
    os.symlink("no/such", t.path("to"))
    os.unlink(t.path("no/such/f"))
    assert t.worker.do("tar_in", t.path("to"), body=body).end.code == "ok" and os.path.exists(t.path("no/such/f"))
    os.symlink("nowhere", t.path("dangling"))
    assert t.worker.do("tar_in", t.path("dangling"), "parents", body=body).end.code != "ok"
    assert not os.path.lexists(t.path("nowhere"))
    t.file("ro/keep")
    os.chmod(t.path("ro"), 0o555)
    assert t.fails("tar_in", t.path("ro"), "denied", body=body).path == b"f"
    t.fails("tar_out", t.path("missing"), "not_found")
    t.fails("tar_out", "/dev/null", "not_regular")
    t.fails("tar_out", t.path("plain"), "too_large", max_bytes=100)
    t.fails("tar_out", t.path("no"), "too_large", max_entries=1)


@test
def an_upload_that_ends_early_leaves_no_temporary(t):
    t.file("f", b"old")
    t.own()
    t.worker.start("tar_in", t.dir)
    t.worker.send(BODY, header(b"f", size=100000) + b"x" * 5000)
    deadline = time.monotonic() + 5
    while not [n for n in os.listdir(t.dir) if n.startswith(b".garret-")] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir(t.dir)) == 2
    t.worker.sock.close()
    t.worker.proc.wait(10)
    assert os.listdir(t.dir) == [b"f"] and open(t.path("f"), "rb").read() == b"old"


@test
def a_full_disk_leaves_what_was_there(t):
    # A limit on the size of files stands for it: the write fails halfway.
    t.file("f", b"old")
    t.own()
    with Worker(HOST, os.fsdecode(t.dir), t.uid, file_bytes=1 << 20) as w:
        r = w.do("tar_in", t.dir, body=entry(b"a", b"x") + entry(b"f", bytes(3 << 20)) + entry(b"z", b"x") + END)
    assert r.end.code != "ok" and r.end.path == b"f" and r.end.count == 1, r.end
    assert sorted(os.listdir(t.dir)) == [b"a", b"f"] and open(t.path("f"), "rb").read() == b"old"


@test
def an_archive_of_an_archive_stays_below_its_root(t):
    t.file("d/f", b"x")
    os.symlink("d", t.path("l"))
    names = lambda r: tarfile.open(fileobj=io.BytesIO(r.data)).getnames()
    assert names(t.worker.do("tar_out", "", "relative")) == ["d", "d/f", "l"]
    assert names(t.worker.do("tar_out", "d", "relative")) == ["f"]
    assert names(t.worker.do("tar_out", "d/f", "relative")) == ["f"]
    for path in ("l", "l/f", "..", "../x"):
        r = t.worker.do("tar_out", path, "relative")
        assert r.end.code != "ok" and not r.data, (path, r.end)


# ---- round trips ----

def make_tree(t, top, plain=False):
    """Everything an archive can hold; plain: what the old formats can."""
    t.file(top + "/a file", b"content\n", 0o640)
    t.file(top + "/empty", b"", 0o600)
    t.file(top + "/exe", b"#!/bin/sh\n" * 1000, 0o755)
    t.file(top + "/block", b"b" * 512, 0o444)
    t.file(top + "/sub/dir/f", b"x" * 100000)
    os.makedirs(t.path(top + "/sub/empty dir"))
    os.chmod(t.path(top + "/sub/empty dir"), 0o500)
    os.symlink("a file", t.path(top + "/link"))
    os.symlink("/nowhere/at all", t.path(top + "/sub/dangling"))
    os.symlink("../..", t.path(top + "/sub/up"))
    os.link(t.path(top + "/a file"), t.path(top + "/sub/same"))
    os.link(t.path(top + "/a file"), t.path(top + "/zzz"))
    if plain:
        os.utime(t.path(top + "/a file"), ns=(5 * 10**17, 5 * 10**17))
        return
    t.file(top + "/" + "n" * 255, b"long name")
    t.file(top + "/" + "ä" * 60 + "/ü", b"long UTF-8 name")
    t.file((top + "/").encode() + b"caf\xe9", b"no UTF-8")
    t.file((top + "/").encode() + b"\xff\xfe" * 60, b"long and no UTF-8")
    t.file(top + "/new\nline", b"")
    t.file(top + "/-dash", b"")
    t.file(top + "/a:b=c 5%", b"")
    os.symlink(b"t" * 200 + b"\xff", t.path(top + "/long target"))
    os.link(t.path(top + "/" + "n" * 255), t.path(top + "/to long"))
    os.mkfifo(t.path(top + "/fifo"), 0o620)
    os.utime(t.path(top + "/exe"), ns=(10**18 + 123456789, 10**18 + 123456789))
    os.utime(t.path(top + "/empty"), ns=(-5 * 10**8, -5 * 10**8))
    os.utime(t.path(top + "/block"), ns=(2**34 * 10**9 // 2, 2**34 * 10**9 // 2))
    os.utime(t.path(top + "/link"), ns=(10**18 + 5, 10**18 + 5), follow_symlinks=False)
    # A path of 3,000 bytes, in steps.
    fd = os.open(t.path(top), os.O_RDONLY)
    for i in range(15):
        os.mkdir("d" * 199, dir_fd=fd)
        below = os.open("d" * 199, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    f = os.open("deep", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
    os.write(f, b"deep content")
    os.close(f)
    os.close(fd)
    make_sparse(t.path(top + "/sparse"), [(0, b"begin"), (1 << 20, b"x" * 70000), (5 << 20, b"y")], 8 << 20)
    make_sparse(t.path(top + "/sparse end"), [(3 << 20, b"end")], (3 << 20) + 3)
    make_sparse(t.path(top + "/hole"), [], 1 << 20)
    make_sparse(t.path(top + "/many holes"), [(i << 16, b"%d" % i) for i in range(200)], 200 << 16)
    global XATTRS
    try:
        os.setxattr(t.path(top + "/a file"), "user.plain", b"value")
    except OSError as e:
        XATTRS = False
        print("    no user attributes here: %s" % e)
        return
    os.setxattr(t.path(top + "/a file"), "user.bin=ary%", bytes(range(256)))
    os.setxattr(t.path(top + "/a file"), "user.empty", b"")
    os.setxattr(t.path(top + "/sub"), "user.dir", b"of a directory")


def make_sparse(path, parts, size):
    with open(path, "wb") as f:
        for at, data in parts:
            f.seek(at)
            f.write(data)
        f.truncate(size)


def differences(a, b):
    return ["%r: %r / %r" % (k[:80], a.get(k), b.get(k)) for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)][:5]


def pack(t, name):
    r = t.worker.do("tar_out", t.path(name))
    assert r.end.code == "ok", r.end
    return r


def gnu(*args, **kw):
    p = subprocess.run(["tar", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, **kw)
    assert p.returncode == 0, (args, p.stderr)
    return p.stdout


@test
def a_tree_comes_back_as_it_was(t):
    make_tree(t, "tree")
    t.own()
    # Time stands still for what make_tree() did to directories meanwhile.
    for d in ("tree/sub", "tree/sub/dir"):
        os.utime(t.path(d), ns=(10**18 + 77, 10**18 + 77))
    before = snapshot(t.path("tree"))
    r = pack(t, "tree")
    assert r.end.count == len(before) and r.end.skipped == 0, (r.end, len(before))
    assert len(r.data) % 512 == 0 and r.data.endswith(END) and len(r.data) < 2 << 20, len(r.data)
    assert r.data.count(b"hdrcharset=BINARY\n") == 2, "a name and a target that are no UTF-8"
    back = t.worker.do("tar_in", t.path("back/x"), "parents", body=r.data)
    assert back.end.code == "ok" and back.end.count == len(before) and back.end.skipped == 0, back.end
    after = snapshot(t.path("back/x"))
    assert after == before, differences(before, after)
    for name in ("sparse", "hole", "many holes", "sparse end"):
        a, b = os.stat(t.path("tree/" + name)).st_blocks, os.stat(t.path("back/x/" + name)).st_blocks
        assert b <= a + 8 and b * 512 < os.stat(t.path("tree/" + name)).st_size, (name, a, b)
    # Over what is there, it is the same again.
    assert t.worker.do("tar_in", t.path("back/x"), body=r.data).end.code == "ok"
    assert snapshot(t.path("back/x")) == before
    assert all(os.lstat(p).st_uid == t.uid for p in (t.path("back/x/a file"), t.path("back/x/sub"), t.path("back/x/link")))


@test
def a_file_and_a_link_to_one(t):
    t.file("d/f", b"content", 0o640)
    os.symlink("d/f", t.path("link"))
    os.symlink("d", t.path("to-dir"))
    t.own()
    with tarfile.open(fileobj=io.BytesIO(pack(t, "d/f").data)) as a:
        assert a.getnames() == ["f"] and a.extractfile("f").read() == b"content" and a.getmember("f").mode == 0o640
    with tarfile.open(fileobj=io.BytesIO(pack(t, "link").data)) as a:
        assert a.getnames() == ["link"] and a.extractfile("link").read() == b"content"
    with tarfile.open(fileobj=io.BytesIO(pack(t, "to-dir").data)) as a:
        assert a.getnames() == ["f"]
    r = t.worker.do("tar_out", t.dir, "nofollow")
    with tarfile.open(fileobj=io.BytesIO(r.data)) as a:
        assert a.getnames() == ["d", "d/f"]


@test
def what_can_not_be_packed_is_counted(t):
    t.files("a", "secret", "d/x", "z")
    os.chmod(t.path("secret"), 0o600)
    os.chmod(t.path("d"), 0o700)
    r = t.worker.do("tar_out", t.dir)
    with tarfile.open(fileobj=io.BytesIO(r.data)) as a:
        assert a.getnames() == ["a", "d", "z"], a.getnames()
    assert (r.end.code, r.end.count, r.end.skipped) == ("ok", 3, 2), r.end


@test
def a_file_that_shrinks_keeps_the_archive_whole(t):
    size = 200 << 20
    path = t.path("big")
    with open(path, "wb") as f:
        f.write(b"x" * size)
    t.file("z", b"behind")
    t.worker.start("tar_out", t.dir)
    kind, first = t.worker.frame()
    os.truncate(path, 1 << 20)
    rest = t.worker.finish()
    assert rest.end.code == "ok" and rest.end.skipped == 1, rest.end
    with tarfile.open(fileobj=io.BytesIO(first + rest.data)) as a:
        assert a.getmember("big").size == size and a.extractfile("z").read() == b"behind"
        assert a.extractfile("big").read().rstrip(b"\0").strip(b"x") == b""


@test
def other_programs_read_ours(t):
    make_tree(t, "tree")
    t.own()
    before = snapshot(t.path("tree"))
    r = pack(t, "tree")
    # Python
    with tarfile.open(fileobj=io.BytesIO(r.data), errors="surrogateescape") as a:
        members = {os.fsencode(m.name): m for m in a.getmembers()}
        assert sorted(members) == sorted(before), sorted(set(members) ^ set(before))[:5]
        for name, what in before.items():
            m = members[name]
            assert m.mtime == what[2] / 10**9 or abs(m.mtime - what[2] / 10**9) < 1e-3, name
            if what[0] == stat.S_IFREG and not m.islnk():
                assert hashlib.sha256(a.extractfile(m).read()).digest() == what[4], name
            if what[0] == stat.S_IFLNK:
                assert os.fsencode(m.linkname) == what[3], name
            assert m.islnk() or what[1] == m.mode or what[0] == stat.S_IFLNK, name
            assert (m.uid, m.gid, m.uname, m.gname) == (t.uid, t.uid, "", "") or os.getuid() != 0
    # GNU tar
    if not shutil.which("tar"):
        print("    no GNU tar here")
        return
    os.mkdir(t.path("gnu"))
    gnu("--xattrs", "-C", t.path("gnu"), "-xpf", "-", input=r.data)
    after = snapshot(t.path("gnu"))
    assert after == before, differences(before, after)
    for name in ("sparse", "hole", "many holes"):
        assert os.stat(t.path("gnu/" + name)).st_blocks <= os.stat(t.path("tree/" + name)).st_blocks + 8


@test
def we_read_theirs(t):
    n = 0

    def check(tree, body, what, times=True):
        nonlocal n
        dest = t.path("dest%d" % n)
        n += 1
        r = t.worker.do("tar_in", dest, "parents", body=body)
        assert r.end.code == "ok" and r.end.skipped == 0, (what, r.end)
        a, b = snapshot(t.path(tree), times), snapshot(dest, times)
        for s in (a, b):
            if times == "seconds":
                for k in s:
                    s[k] = s[k][:2] + (s[k][2] // 10**9,) + s[k][3:]
        assert a == b, (what, differences(a, b))

    make_tree(t, "tree")
    make_tree(t, "plain", plain=True)
    os.chmod(t.path("plain/sub/empty dir"), 0o755)
    t.own()
    if shutil.which("tar"):
        for args in (["--format=posix", "--sparse", "--sparse-version=1.0"], ["--format=posix", "--sparse", "--sparse-version=0.1"],
                     ["--format=posix", "--sparse", "--sparse-version=0.0"], ["--format=posix"]):
            check("tree", gnu("--xattrs", "-C", t.path("tree"), *args, "-cf", "-", "."), args)
        for args in (["--format=gnu", "--sparse"], ["--format=gnu"], ["--format=oldgnu", "--sparse"]):
            # These have no attributes and no fractions.
            global XATTRS
            had, XATTRS = XATTRS, False
            check("tree", gnu("-C", t.path("tree"), *args, "-cf", "-", "."), args, "seconds")
            XATTRS = had
        for form in ("ustar", "v7"):
            check("plain", gnu("-C", t.path("plain"), "--format=" + form, "-cf", "-", "."), form, "seconds")
        listed = gnu("-C", t.path("plain"), "--listed-incremental", t.path("list"), "-cf", "-", ".")
        check("plain", listed, "incremental", "seconds")
        check("plain", gnu("-C", t.path("plain"), "-V", "a label", "-cf", "-", "."), "label", "seconds")
    else:
        print("    no GNU tar here")
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as a:
            a.add(os.fsdecode(t.path("plain")), arcname=".")
        check("plain", out.getvalue(), "python %d" % form, "seconds")
    if shutil.which("git"):
        top = t.path("plain")
        env = dict(os.environ, GIT_AUTHOR_NAME="x", GIT_AUTHOR_EMAIL="x@x", GIT_COMMITTER_NAME="x", GIT_COMMITTER_EMAIL="x@x")
        g = lambda *a: subprocess.run(["git", "-c", "safe.directory=*", "-C", top, *a], check=True, stdout=subprocess.PIPE, env=env).stdout
        g("init", "-q")
        g("add", "exe", "sub/dir/f", "link")
        g("commit", "-q", "-m", "x")
        body = g("archive", "--format=tar", "HEAD")
        r = t.worker.do("tar_in", t.path("git"), "parents", body=body)
        assert r.end.code == "ok" and sorted(snapshot(t.path("git"))) == [b"exe", b"link", b"sub", b"sub/dir", b"sub/dir/f"], r.end
        assert r.end.count == 5


@test
def pieces_of_any_size_are_one_archive(t):
    make_tree(t, "tree")
    t.own()
    body = pack(t, "tree").data
    want = snapshot(t.path("tree"))
    rnd = random.Random(7)
    for i, most in enumerate((1, 7, 511, 513, 60000)):
        part = body if most > 100 else body[:20000]
        t.worker.start("tar_in", t.path("p%d" % i), "parents")
        at = 0
        while at < len(part):
            k = rnd.randint(1, most)
            t.worker.send(BODY, part[at:at + k])
            at += k
        t.worker.send(BODY_END)
        r = t.worker.finish()
        if part is body:
            assert r.end.code == "ok" and snapshot(t.path("p%d" % i)) == want, (most, r.end)
        else:
            assert r.end.code == "invalid" and "ends early" in r.end.msg and r.end.count > 3, (most, r.end)


@test
def a_slow_other_side_is_no_work(t):
    t.files(*("d/f%d" % i for i in range(5)), data=bytes(300000))
    t.worker.start("tar_out", t.path("d"), timeout_ms=300)
    time.sleep(0.7)
    r = t.worker.finish()
    assert r.end.code == "ok", r.end
    t.worker.start("tar_in", t.path("up"), "parents", timeout_ms=300)
    for piece in (entry(b"a", b"x"), header(b"b", size=600), pad(b"y" * 600), END):
        time.sleep(0.2)
        t.worker.send(BODY, piece)
    t.worker.send(BODY_END)
    r = t.worker.finish()
    assert r.end.code == "ok" and r.end.count == 2, r.end


@test
def memory_stays_flat(t):
    peak = lambda: int(next(l.split()[1] for l in open("/proc/%d/status" % t.worker.proc.pid) if l.startswith("VmHWM")))
    t.file("warm", b"x")
    body = pack(t, "warm").data
    t.worker.do("tar_in", t.path("w"), "parents", body=body)
    before = peak()
    size = 256 << 20
    make_sparse(t.path("big"), [], 0)
    with open(t.path("big"), "wb") as f:
        for _ in range(size >> 20):
            f.write(b"0123456789abcdef" * 65536)
    start = time.monotonic()
    t.worker.start("tar_out", t.path("big"))
    sha, n = hashlib.sha256(), 0
    while True:
        kind, p = t.worker.frame()
        if kind != DATA:
            break
        n += len(p)
    down = time.monotonic() - start
    assert n >= size
    start = time.monotonic()
    t.worker.start("tar_in", t.path("up"), "parents")
    t.worker.send(BODY, header(b"big", size=size))
    chunk = b"0123456789abcdef" * 3840
    left = size
    while left:
        t.worker.send(BODY, chunk[:min(left, len(chunk))])
        left -= min(left, len(chunk))
    t.worker.send(BODY, END)
    t.worker.send(BODY_END)
    assert t.worker.finish().end.code == "ok"
    up = time.monotonic() - start
    assert os.path.getsize(t.path("up/big")) == size
    assert peak() - before < 2048, (before, peak())
    print("    256 MiB down in %.2f s, up in %.2f s, %d KiB more at most" % (down, up, peak() - before))


if __name__ == "__main__":
    sys.exit(run_tests(TESTS, lambda: Tree(HOST), sys.argv[2:]))
