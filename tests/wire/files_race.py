#!/usr/bin/env python3
"""File routes against a session that changes what they walk over, as fast as it can (as root).

usage: files_race.py [--build DIR] [--iterations N] [--soak] [NAME...]

The rows are those of the engine's study, D1 to D6, D13, D26 and D37.  A secret lies on the host where
everybody may read it, and files that everybody may write: only what a session sees keeps it from them.
After each row the host is what it was, no answer held the secret, and what the session left on disk
belongs to no user of the host and has no set-id bit.
"""

from __future__ import annotations

import argparse
import base64
import collections
import hashlib
import http.client
import io
import itertools
import json
import os
import random
import secrets
import shutil
import socket
import stat
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from urllib.parse import quote, urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon, Session  # noqa: E402

SLOW = 5.0 if os.environ.get("GARRET_SANITIZED") else 1.0
FIRST_ID = 0x6F000000  # of what a session has on disk
CLIENTS = 3
# What may be answered; 5xx only where it says what is short.
FINE = {200, 204, 206, 304, 400, 403, 404, 409, 412, 413, 416, 422, 429, 503, 504, 507}
TESTS = []

SWAP = r"""
import ctypes, json, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pairs = [tuple(map(os.fsencode, p)) for p in json.loads(sys.argv[1])]
n, end = 0, time.time() + 60
while os.path.exists('/tmp/go') and time.time() < end:
    for _ in range(20):
        for a, b in pairs:
            libc.renameat2(-100, a, -100, b, 2)
    n += 20 * len(pairs)
print(n)
"""


def test(fn):
    TESTS.append(fn)
    return fn


class Client:
    """One kept connection.  Every answer is searched for what must not be in it."""

    def __init__(self, bench: Bench, s: Session) -> None:
        self.bench, self.s, self.d = bench, s, bench.d
        u = urlsplit(self.d.url)
        self.c = http.client.HTTPConnection(u.hostname, u.port, timeout=60)

    def ask(self, method, target, body=None, token=None, headers=None):
        h = {"x-sandbox-token": token or self.s.token, "x-garret-errors": "1", **(headers or {})}
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            h["content-type"] = "application/json"
        self.c.request(method, target, body, h)
        r = self.c.getresponse()
        try:
            data = r.read()
        except http.client.IncompleteRead as e:  # a file that shrank
            data = e.partial
            self.c.close()
        self.bench.look(data, f"{method} {target} {body!r:.200}")
        assert r.status in FINE, (method, target, str(body)[:200], r.status, data[:500])
        return r.status, data

    def old(self, op, path):
        return self.ask("POST", f"/sessions/{self.s.id}/files/{op}", {"path": path})

    def old_write(self, path, data):
        return self.ask("POST", f"/sessions/{self.s.id}/files/write?path={quote(path)}", data)

    def new(self, op, **body):
        return self.ask("POST", f"/v1/sessions/{self.s.id}/files/{op}", body)

    def get(self, path):
        return self.ask("GET", f"/v1/sessions/{self.s.id}/file?path={quote(path)}")

    def put(self, path, data, query=""):
        return self.ask("PUT", f"/v1/sessions/{self.s.id}/file?path={quote(path)}{query}", data)

    def tar_out(self, path):
        return self.ask("GET", f"/v1/sessions/{self.s.id}/tar?path={quote(path)}")

    def tar_in(self, path, data):
        return self.ask("PUT", f"/v1/sessions/{self.s.id}/tar?path={quote(path)}&parents=1", data)

    def kept(self, op, **body):
        return self.ask("POST", f"/workspaces/{self.s.id}/{op}", body, self.d.token)


class Bench:
    """A host with something to find and to break, and a daemon on it."""

    def __init__(self, d: Daemon, host: str, iterations: int) -> None:
        self.d, self.host, self.iterations = d, host, iterations
        token = secrets.token_hex(24).encode()
        os.makedirs(f"{host}/victim/tree/deep", exist_ok=True)
        for name, data in (("secret", token), ("victim/f", b"victim\n"), ("victim/tree/f", b"victim\n"), ("victim/tree/deep/f", b"victim\n")):
            with open(f"{host}/{name}", "wb") as f:
                f.write(data)
            os.chmod(f"{host}/{name}", 0o666)
        for name in ("", "victim", "victim/tree", "victim/tree/deep"):
            os.chmod(f"{host}/{name}", 0o777)
        self.hidden = [token]
        for path in (f"{d.state}/daemon/key", "/etc/shadow"):
            with open(path, "rb") as f:
                self.hidden.append(f.read()[:60])
        for data in list(self.hidden):
            # In a stream of base64 it can begin at three places.
            self.hidden += [base64.b64encode(bytes(k) + data)[8:-8] for k in range(3)]
        self.hidden = [h for h in self.hidden if len(h) >= 16]
        self.good = d.open()
        self.good.sh("echo good > f; chmod 666 f; mkdir -m 777 d; echo good > d/f; chmod 666 d/f")
        self.before = self.digest()

    def look(self, data: bytes, where: str) -> None:
        for h in self.hidden:
            assert h not in data, f"what lies outside was answered: {where}"

    def digest(self) -> dict[str, tuple]:
        """Of all that a session must not reach."""
        found = {}
        for top in ("/etc", self.host, f"{self.d.state}/workspaces/{self.good.id}"):
            for directory, dirs, files in itertools.chain([(os.path.dirname(top), [os.path.basename(top)], [])], os.walk(top)):
                for name in dirs + files:
                    p = f"{directory}/{name}"
                    st = os.lstat(p)
                    found[p] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ino)
        for p in (f"{self.d.state}/daemon/key", f"{self.host}/secret", f"{self.host}/victim/f"):
            with open(p, "rb") as f:
                found["content of " + p] = (hashlib.sha256(f.read()).hexdigest(),)
        found["names"] = tuple(sorted(os.listdir(self.d.state)))
        return found

    def check_host(self) -> None:
        now = self.digest()
        changed = [(k, self.before.get(k), now.get(k)) for k in sorted(self.before.keys() | now.keys()) if self.before.get(k) != now.get(k)]
        assert not changed, f"the host changed: {changed[:5]}"
        for spare in os.listdir(f"{self.d.state}/workspaces/.spare"):
            inside = os.listdir(f"{self.d.state}/workspaces/.spare/{spare}/workspace")
            assert not inside, f"in a workspace that nobody has: {inside}"

    def on_disk(self, below: str = "", set_gid: int = 0) -> list[tuple]:
        """What sessions left that it must not be: the host's, set-id, a device.

        A command may set the set-group-id bit, which is for groups that no account has; no route does.
        """
        wrong = []
        tops = [f"{self.d.state}/workspaces/{w}/workspace" for w in os.listdir(f"{self.d.state}/workspaces") if not w.startswith(".")]
        tops += [f"{self.d.state}/sessions/{i}/{name}" for i in os.listdir(f"{self.d.state}/sessions") for name in ("home", "vartmp", "work")]
        for top in tops:
            for directory, dirs, files in os.walk(top + below):
                for name in [""] + dirs + files:
                    p = f"{directory}/{name}"
                    try:
                        st = os.lstat(p)
                    except FileNotFoundError:
                        continue
                    device = stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode)
                    if st.st_uid < FIRST_ID or st.st_gid < FIRST_ID or st.st_mode & (0o6000 & ~set_gid) or device:
                        wrong.append((p, oct(st.st_mode), st.st_uid, st.st_gid))
        return wrong

    def open(self) -> Session:
        return self.d.open()


class Swapper:
    """A command of the session that exchanges each pair of names, again and again."""

    def __init__(self, s: Session, pairs: list[tuple[str, str]]) -> None:
        self.s, self.swaps, self.error, self.stop = s, 0, None, False
        s.sh("touch /tmp/go")
        self.thread = threading.Thread(target=self.run, args=(json.dumps(pairs),))

    def run(self, pairs: str) -> None:
        try:
            while not self.stop and not self.error:
                r = self.s.run(["python3", "-c", SWAP, pairs], timeout=100)
                self.error = r["stderr"] if r["exit_code"] else None
                self.swaps += int(r["stdout"] or 0)
        except Exception as e:  # noqa: BLE001
            self.error = repr(e)

    def __enter__(self) -> Swapper:
        self.thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_) -> None:
        self.stop = True
        self.s.sh("rm -f /tmp/go")
        self.thread.join()
        assert not self.error and self.swaps, self.error


def drive(bench: Bench, s: Session, count: int, one, clients: int = CLIENTS) -> collections.Counter:
    """Call one(client, random, number) so often, from several clients at once; its words are counted."""
    words: collections.Counter = collections.Counter()
    failures: list[BaseException] = []
    numbers = iter(range(count))

    def work(seed: int) -> None:
        c, r = Client(bench, s), random.Random(seed)
        try:
            for n in numbers:
                if failures:
                    return
                words[one(c, r, n)] += 1
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return words


def tell(words: collections.Counter, swaps: int = 0) -> None:
    text = ", ".join(f"{k} {n}" for k, n in words.most_common(8))
    print(f"     {sum(words.values())} requests" + (f", {swaps} exchanges meanwhile" if swaps else "") + f": {text}")


def read_routes(c: Client, path: str):
    """name -> a call that only looks."""
    return {
        "read": lambda: c.old("read", path), "stat": lambda: c.old("stat", path), "list": lambda: c.old("list", path),
        "realpath": lambda: c.old("realpath", path), "get": lambda: c.get(path), "tar": lambda: c.tar_out(path),
        "walk": lambda: c.new("list", path=path, max_depth=3, max_entries=300), "digest": lambda: c.new("digest", path=path),
        "glob": lambda: c.new("glob", path=path, pattern="*", max_results=300, hidden=True, no_ignore=True),
        "grep": lambda: c.new("grep", path=path, pattern="[0-9a-f]{20}|root:|inside|victim", max_results=300),
        "stats": lambda: c.new("stat", paths=[path]), "reads": lambda: c.new("read", paths=[path], max_bytes=1 << 20),
        "v1 realpath": lambda: c.new("realpath", path=path),
    }


def small_tar(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name in names:
            m = tarfile.TarInfo(name)
            m.size, m.mode, m.uid, m.gid = 5, 0o4777, 0, 0
            t.addfile(m, io.BytesIO(b"tarre"))
    return out.getvalue()


def write_routes(c: Client, path: str, data: bytes):
    """name -> a call that changes something at path."""
    return {
        "write": lambda: c.old_write(path, data), "mkdir": lambda: c.old("mkdir", path), "remove": lambda: c.old("remove", path),
        "put": lambda: c.put(path, data, "&parents=1&mode=0777"), "append": lambda: c.put(path, data, "&append=1"),
        "v1 mkdir": lambda: c.new("mkdir", path=path, parents=True, mode="0777"),
        "v1 remove": lambda: c.new("remove", path=path, recursive=True),
        "rename to": lambda: (c.old_write("/workspace/mine", data), c.new("rename", path="/workspace/mine", to=path, parents=True))[1],
        "rename from": lambda: c.new("rename", path=path, to="/workspace/taken"),
        "copy to": lambda: (c.old_write("/workspace/mine", data), c.new("copy", path="/workspace/mine", to=path, parents=True))[1],
        "copy from": lambda: c.new("copy", path=path, to="/workspace/copied"),
        "copy tree": lambda: c.new("copy", path=path, to="/workspace/copies", recursive=True),
        "chmod": lambda: c.new("chmod", path=path, mode="0700", recursive=True),
        "edit": lambda: c.new("edit", path=path, old="i", new="I", all=True),
        "untar": lambda: c.tar_in(path, small_tar("f", "victim/f", "planted")),
    }


@test
def the_checks_see_what_they_look_for(b):
    s = b.open()
    c = Client(b, s)
    with open(f"{b.host}/secret", "rb") as f:
        secret = f.read()
    for pad in (b"", b"x", b"xy"):
        c.old_write("/workspace/f", pad + secret)
        for name, call in read_routes(c, "/workspace/f").items():
            try:
                call()
                seen = False
            except AssertionError:
                seen = True
            assert seen == (name in ("read", "get", "tar", "grep", "reads")), name
    for path in (f"{b.host}/victim/tree/f", f"{b.d.state}/workspaces/{b.good.id}/workspace/d/f"):
        st = os.stat(path)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns + 1))
        try:
            b.check_host()
            seen = False
        except AssertionError:
            seen = True
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        assert seen, path


# ---- D1 ----

@test
def d1_links_lead_nowhere_outside(b):
    s = b.open()
    targets = ["/etc/shadow", "/etc/passwd", f"{b.host}/secret", f"{b.d.state}/daemon/key", f"{b.d.state}/workspaces/{b.good.id}/workspace/f",
               "/proc/1/root/etc/shadow", f"/proc/1/root{b.host}/secret", f"/proc/self/root{b.host}/secret", f"../../../..{b.host}/secret",
               f"/proc/1/cwd/../../..{b.host}/secret", "/root/.profile", "/dev/shm/../.." + b.host, b.host, "/proc/1/environ", "/var/lib"]
    for i, t in enumerate(targets):
        s.run(["sh", "-c", 'echo inside > r$1; ln -s "$2" l$1; ln -s l$1 chain$1; ln -s "$2" s$1', "sh", str(i), t])
        # As any command of the session sees it, or not at all.
        own = s.run(["cat", f"l{i}"])
        c = Client(b, s)
        status, data = c.old("read", f"/workspace/l{i}")
        assert (status == 200) == (own["exit_code"] == 0) or "/proc/" in t, (t, status, own)
        assert status != 200 or data == own["stdout"].encode() or "/proc/" in t, t
        for name in (f"l{i}", f"chain{i}", f"l{i}/secret", f"l{i}/victim"):
            for call in read_routes(c, f"/workspace/{name}").values():
                call()
    pairs = [(f"/workspace/r{i}", f"/workspace/s{i}") for i in range(len(targets))]

    def one(c, r, n):
        calls = read_routes(c, f"/workspace/{r.choice('rs')}{r.randrange(len(targets))}{r.choice(('', '', '/secret', '/victim/f'))}")
        name = r.choice(list(calls))
        return calls[name]()[0]

    with Swapper(s, pairs) as w:
        words = drive(b, s, b.iterations, one)
    tell(words, w.swaps)
    assert words[200] and words[404] and w.swaps > b.iterations // 10, words


# ---- D2 ----

def swapped_tree(b: Bench, s: Session) -> tuple[list[str], list[tuple[str, str]]]:
    """d0, d1 ... with what lies outside as its inside, each exchanged with a link."""
    targets = ["/", "/proc/1/root", "/proc/self/root", "/etc", "/proc/self/cwd/../..", "../../../..", b.host, os.path.dirname(b.host), b.d.state, "/proc/1/cwd",
               "/proc/self/fd", "/dev", "/tmp"]
    s.run(["python3", "-c", r"""
import os, sys
host, state = sys.argv[1:3]
for i, t in enumerate(sys.argv[3:]):
    for below in ('', 'sub', 'etc', host[1:], host[1:] + '/victim/tree', 'victim', state[1:] + '/daemon'):
        os.makedirs(f'/workspace/d{i}/{below}', exist_ok=True)
    for f in ('f', 'sub/f', 'etc/passwd', 'etc/shadow', 'secret', 'victim/f', host[1:] + '/secret', host[1:] + '/victim/f', state[1:] + '/daemon/key'):
        open(f'/workspace/d{i}/{f}', 'w').write('inside\n')
    os.symlink(t, f'/workspace/l{i}')
""", b.host, b.d.state, *targets])
    below = ["f", "sub/f", "etc/passwd", "etc/shadow", "secret", "victim/f", f"{b.host[1:]}/secret", f"{b.host[1:]}/victim/f", f"{b.d.state[1:]}/daemon/key",
             "", "sub", f"{b.host[1:]}/victim", "sub/../../etc/passwd", f"sub/../{b.host[1:]}/secret", f"../d0/{b.host[1:]}/secret"]
    return below, [(f"/workspace/d{i}", f"/workspace/l{i}") for i in range(len(targets))]


@test
def d2_directories_swapped_while_read(b):
    s = b.open()
    below, pairs = swapped_tree(b, s)
    passwd = s.sh("cat /etc/passwd")["stdout"].encode()
    magic = {1, 2, 9}  # /proc/.../root, /proc/1/cwd: the session's own root, but through a magic link

    def one(c, r, n):
        i, tail = r.randrange(len(pairs)), r.choice(below)
        path = f"/workspace/d{i}/{tail}"
        calls = read_routes(c, path)
        name = r.choice(list(calls))
        if name in ("tar", "grep", "glob", "walk") and not tail:
            path += "etc"  # all of the session's root takes a while, as it would for a command
            calls = read_routes(c, path)
        status, data = calls[name]()
        assert i not in magic or name not in ("read", "get") or status != 200 or passwd not in data, ("through a magic link", path)
        return f"{name.split()[-1]} {status}" if name in ("read", "list") else status

    with Swapper(s, pairs) as w:
        words = drive(b, s, b.iterations, one)
    tell(words, w.swaps)
    assert words["read 200"] and words["read 404"] + words["read 400"] and w.swaps >= b.iterations, words


@test
def d2_directories_swapped_while_written(b):
    s = b.open()
    below, pairs = swapped_tree(b, s)
    below = [x for x in below if x and ".." not in x] + ["etc/planted", f"{b.host[1:]}/planted", "victim/planted", f"{b.host[1:]}/victim/tree", "victim/tree",
                                                           f"{b.d.state[1:]}/planted", "planted/deep/er"]

    def one(c, r, n):
        path = f"/workspace/d{r.randrange(len(pairs))}/{r.choice(below)}"
        calls = write_routes(c, path, b"written %d\n" % n)
        status, _ = calls[r.choice(list(calls))]()
        if n % 97 == 0:
            c.new("remove", path="/workspace/copies", recursive=True)
            c.old("remove", "/workspace/taken")
        return status

    with Swapper(s, pairs) as w:
        words = drive(b, s, b.iterations, one)
    tell(words, w.swaps)
    assert words[204] and words[404] and w.swaps >= b.iterations, words


KEEP = "keepkeepkeepkeepkeepkeepkeep"


@test
def d2_trees_never_follow_a_link(b):
    """Removal, copies, chmod, archives and searches of a tree whose directories and files turn into links."""
    s = b.open()
    # d: directories that turn into links; e: what is below them does.  A new tree takes its place whole.
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as t:
        for i, k, name in itertools.product(range(6), "de", ("f", "x/f", "x/y/f")):
            m = tarfile.TarInfo(f"{k}{i}/{name}")
            m.size = 7
            t.addfile(m, io.BytesIO(b"inside\n"))
        for i in range(6):
            for name, target in ((f"l{i}", "/tmp/keep"), (f"e{i}/x/l", "/tmp/keep"), (f"e{i}/x/m", "/tmp/keep/f")):
                m = tarfile.TarInfo(name)
                m.type, m.linkname = tarfile.SYMTYPE, target
                t.addfile(m)

    def plant(c, n):
        assert c.tar_in(f"/workspace/n{n}", tree.getvalue())[0] == 200
        if c.new("rename", path=f"/workspace/n{n}", to="/workspace/t", exclusive=True)[0] != 204:
            c.old("remove", f"/workspace/n{n}")

    s.run(["python3", "-c", f"import os; os.makedirs('/tmp/keep/x/y', 0o750)\nfor f in ('f', 'x/f', 'x/y/f'): open('/tmp/keep/' + f, 'w').write('{KEEP}')\n"
           "os.chmod('/tmp/keep/f', 0o640)"])
    look = "cd /tmp/keep && find . -printf '%p %m %s %T@\\n' | sort"
    before = s.sh(look)["stdout"]
    assert len(before.splitlines()) == 6, before
    pairs = [p for i in range(6) for p in ((f"/workspace/t/d{i}", f"/workspace/t/l{i}"), (f"/workspace/t/e{i}/x/y", f"/workspace/t/e{i}/x/l"),
                                           (f"/workspace/t/e{i}/x/f", f"/workspace/t/e{i}/x/m"))]

    def one(c, r, n):
        kind = r.choice(("remove", "remove", "remove", "copy", "chmod", "untar", "tar", "grep", "glob", "walk"))
        if kind == "remove":
            status, data = c.new("remove", path="/workspace/t", recursive=True) if n % 2 else c.old("remove", f"/workspace/t/{'de'[n // 2 % 2]}{n % 6}")
        elif kind == "copy":
            status, data = c.new("copy", path="/workspace/t", to=f"/workspace/c{threading.get_ident()}", recursive=True)
            if status == 204:
                status, data = c.new("grep", path=f"/workspace/c{threading.get_ident()}", pattern=KEEP)
                assert b"/workspace" not in data, data[:300]
                c.new("remove", path=f"/workspace/c{threading.get_ident()}", recursive=True)
        elif kind == "chmod":
            status, data = c.new("chmod", path="/workspace/t", mode="0700", recursive=True)
        elif kind == "untar":
            status, data = c.tar_in("/workspace/t", small_tar(*[f"{name}/planted" for name in (f"d{n % 6}", f"e{n % 6}/x/y", f"e{n % 6}/x/l")]))
        elif kind == "tar":
            status, data = c.tar_out("/workspace/t")
        elif kind == "grep":
            status, data = c.new("grep", path="/workspace/t", pattern="keepkeep|inside")
        elif kind == "glob":
            status, data = c.new("glob", path="/workspace/t", pattern="**/y/f")
        else:
            status, data = c.new("list", path="/workspace/t", max_depth=9)
        # Searching and archives show nothing of what links lead to.
        assert kind not in ("tar", "grep") or KEEP.encode() not in data, (kind, data[:300])
        if kind == "remove":
            plant(c, n)
        return f"{kind} {status}"

    plant(Client(b, s), "")
    with Swapper(s, pairs) as w:
        words = drive(b, s, max(200, b.iterations // 4), one)
    tell(words, w.swaps)
    after = s.sh(look)["stdout"]
    assert after == before, f"what links led to was changed:\n{before}{after}"


@test
def d2_kept_files_swapped_while_looked_at(b):
    """The archive routes: a link is neither shown nor followed, whatever it leads to."""
    s = b.open()
    s.run(["python3", "-c", rf"""
import os
os.makedirs('/workspace/behind/sub')
for f in ('f', 'sub/f', 'only'):
    open('/workspace/behind/' + f, 'w').write('{KEEP}')
for i, t in enumerate(('behind', '/workspace/behind', '/', '/proc/self/root', '{b.host}', '../..', '/workspace')):
    os.makedirs(f'/workspace/d{{i}}/sub')
    for f in ('f', 'sub/f'):
        open(f'/workspace/d{{i}}/{{f}}', 'w').write('inside')
    os.symlink(t, f'/workspace/l{{i}}')
"""])
    pairs = [(f"/workspace/d{i}", f"/workspace/l{i}") for i in range(7)]

    def one(c, r, n):
        i = r.randrange(7)
        path = f"{r.choice('dddl')}{i}/{r.choice(('f', 'sub/f', 'only', 'sub', '', 'behind/f', 'secret', 'workspace/behind/f', b.host[1:] + '/secret'))}"
        op = r.choice(("ls", "tree", "read", "read_bytes", "tree of all", "trees"))
        if op == "trees":
            status, data = c.ask("POST", "/workspaces/trees", {"sessions": [s.id, b.good.id]}, c.d.token)
        elif op == "tree of all":
            status, data = c.kept("tree", path=".", max_depth=4)
        else:
            status, data = c.kept(op, path=path)
        assert status in (200, 400, 404), (op, path, status, data[:200])
        assert KEEP.encode() not in data and base64.b64encode(KEEP.encode())[:30] not in data, ("followed", op, path)
        if status == 200 and op in ("tree", "ls", "tree of all", "trees"):
            shown = json.loads(data)
            lists = [shown] if op == "ls" else [shown["entries"]] if op != "trees" else [x["tree"]["entries"] for x in shown["results"][:1]]
            for e in lists[0]:
                top, _, rest = e["path"].partition("/")
                # A link that is caught as one isn't listed; below a directory there is what was made there.
                assert top == "behind" or rest in ("", "f", "sub", "sub/f"), ("below a link", op, e)
        return f"{op.split()[0]} {status}"

    with Swapper(s, pairs) as w:
        words = drive(b, s, b.iterations, one)
    tell(words, w.swaps)
    assert words["read 200"] and words["read 404"] + words["read 400"] and words["tree 200"] and w.swaps >= b.iterations // 10, words


# ---- D3, D4 ----

@test
def d3_magic_links_are_refused(b):
    s = b.open()
    s.sh("ln -s /proc/self/root root; ln -s /proc/self/fd fds; ln -s /proc/self/exe exe; mkdir swapped; echo x > swapped/passwd; ln -s /proc/self/root/etc l")
    c = Client(b, s)
    magic = ["/proc/self/root/etc/passwd", "/proc/self/cwd/etc/passwd", "/proc/self/root", "/proc/1/root/etc/passwd", "/proc/self/exe",
             "/proc/thread-self/root/etc", "/workspace/root/etc/passwd", "/workspace/exe", "/workspace/l/passwd",
             "/proc/self/task/../root/etc/passwd", "/dev/fd/0", "/dev/stdin",
             "/proc/1/exe", "/proc/1/cwd"]
    magic += [f"/proc/{p}/fd/{n}" for p in ("self", "1", "thread-self") for n in range(0, 16)] + [f"/workspace/fds/{n}" for n in range(0, 16)]
    for path in magic:
        for name, call in {**read_routes(c, path), **write_routes(c, path, b"x")}.items():
            if path.startswith("/workspace/") and name in ("remove", "v1 remove", "rename from", "rename to"):
                continue  # of the link itself
            status, data = call()
            if "realpath" in name or name in ("stats", "reads", "copy tree") or (status == 204 and name in ("mkdir", "v1 mkdir")):
                continue  # a text; looked at below; a link as a link; it says that there is a directory, and changes nothing
            assert status in (400, 403, 404, 409), (name, path, status, data[:300])
        for op in ("stat", "read"):
            answer = json.loads(c.new(op, paths=[path])[1])["results"][0]
            assert answer["error"], (op, path, answer)
    own = [p for p in ("maps", "mem", "environ", "auxv", "stack", "syscall", "pagemap", "io") if c.old("read", f"/proc/self/{p}")[0] == 200]
    assert not own, f"of the worker itself: {own}"
    for path in ("/proc/self", "/proc", "/proc/self/task"):
        for call in (lambda: c.new("grep", path=path, pattern="r-xp|garret"), lambda: c.tar_out(path), lambda: c.new("glob", path=path, pattern="maps"),
                     lambda: c.new("list", path=path, max_depth=5)):
            status, data = call()
            assert status == 403 or path == "/proc", (path, status, data[:200])
            assert b"r-xp" not in data, f"the worker's memory, from {path}"
    count = b.iterations

    def one(c, r, n):
        status, data = c.old("read", "/workspace/swapped/passwd")
        assert status != 200 or data == b"x\n", data
        return status

    with Swapper(s, [("/workspace/swapped", "/workspace/l")]) as w:
        words = drive(b, s, count, one)
    tell(words, w.swaps)
    assert words[200] and words[400], words


@test
def d4_settings_of_the_kernel_stay(b):
    s = b.open()
    c = Client(b, s)
    settings = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness",
                "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/file-max", "/proc/1/oom_score_adj", "/proc/sys/kernel/modprobe"]
    others = ["/proc/sysrq-trigger", "/proc/self/mem", "/proc/1/mem", "/proc/self/oom_score_adj", "/proc/self/uid_map",
              "/proc/self/attr/current", "/proc/kcore", "/sys/power/state", "/proc/self/comm", "/proc/irq/default_smp_affinity", "/proc/acpi/wakeup", "/dev/mem",
              "/dev/kmsg", "/proc/self/timerslack_ns"]

    def values():
        return {p: open(p, "rb").read() for p in settings[:6] + settings[7:] if os.path.exists(p)}

    before = values()
    s.sh("; ".join(f"ln -s {p} s{i}" for i, p in enumerate(settings + others)))
    for i, path in enumerate(settings + others):
        for at in (path, f"/workspace/s{i}"):
            calls = write_routes(c, at, b"attacked")
            of_links = {"remove", "v1 remove", "rename from", "rename to"} if at != path else set()  # they mean the link itself
            for name in calls.keys() - of_links - {"copy from", "copy tree"}:
                status, data = calls[name]()
                assert status in (400, 403, 404, 409), (name, at, status, data[:200])
    assert values() == before, "a setting changed"
    assert socket.gethostname().encode() + b"\n" == before["/proc/sys/kernel/hostname"]


# ---- D5 ----

@test
def d5_special_files_are_answered_at_once(b):
    s = b.open()
    s.sh("mkfifo p q swap; echo regular > r; ln -s /dev/zero z; ln -s /dev/tty t; ln -s p pl; mkdir d; mkfifo d/p; echo inside > d/f; echo inside > f;"
         "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    # One with a writer that says nothing, one with a reader that never reads.
    held = threading.Thread(target=lambda: s.run(["timeout", "120", "sh", "-c", "exec 3<>q; touch /tmp/held; while [ -e /tmp/held ]; do sleep 0.05; done"]))
    held.start()
    c = Client(b, s)
    slowest = (0.0, "")
    paths = ["/workspace/" + p for p in ("p", "q", "sock", "z", "t", "pl", "d")]
    paths += ["/dev/" + p for p in ("zero", "null", "full", "random", "tty", "ptmx", "console", "pts/ptmx", "pts/0")]

    def timed(call):
        nonlocal slowest
        t = time.monotonic()
        answer = call()
        slowest = max(slowest, (time.monotonic() - t, str(answer)[:80]))
        return answer

    for path in paths:
        calls = {**read_routes(c, path), **write_routes(c, path, b"data" * 100)}
        for name in set(calls) - {"remove", "v1 remove", "rename from", "rename to", "chmod", "v1 mkdir", "mkdir"}:
            if path == "/workspace/d" and name in ("untar", "write", "put"):
                continue
            status, _ = timed(calls[name])
            if path != "/workspace/d" and name in ("read", "stat", "write", "get", "append", "list"):
                assert status in (400, 403, 404), (name, path, status)
    for op in ("read", "read_bytes", "ls"):
        for name in ("p", "q", "sock", "z", "t", "pl"):
            assert timed(lambda op=op, name=name: c.kept(op, path=name))[0] in (400, 404), (op, name)
    assert s.sh("stat -c %F p q sock; cat r")["stdout"] == "fifo\nfifo\nsocket\nregular\n"
    assert slowest[0] < 1 * SLOW, f"took too long: {slowest}"
    print(f"     slowest {slowest[0] * 1000:.0f} ms")

    def one(c, r, n):
        changes = write_routes(c, "/workspace/f", b"inside\n")
        calls = {**read_routes(c, "/workspace/f"), **{k: changes[k] for k in ("append", "copy from", "edit")},
                 "tar of all": lambda: c.tar_out("/workspace"), "tree": lambda: c.new("copy", path="/workspace/d", to="/workspace/e", recursive=True)}
        name = r.choice(list(calls))
        t = time.monotonic()
        status, _ = calls[name]()
        took = time.monotonic() - t
        assert took < 3 * SLOW, (name, took)
        if n % 50 == 0:
            c.new("remove", path="/workspace/e", recursive=True)
        return status

    with Swapper(s, [("/workspace/f", "/workspace/swap"), ("/workspace/d/f", "/workspace/d/p")]) as w:
        words = drive(b, s, b.iterations // 2, one, 5)
    tell(words, w.swaps)
    assert words[200] and words[400], words
    s.sh("rm -f /tmp/held")
    held.join()


# ---- D6 ----

@test
def d6_a_write_leaves_hard_links_alone(b):
    s, other = b.open(), b.open()
    mine, theirs = (f"{b.d.state}/workspaces/{x.id}/workspace" for x in (s, other))
    other.sh("echo shared > f; chmod 664 f")
    s.sh("mkdir d")
    c = Client(b, s)

    def shown():
        st = os.lstat(f"{theirs}/f")
        return st.st_ino, st.st_mtime_ns, st.st_size, st.st_mode, st.st_uid, st.st_nlink

    before = shown()
    for n in range(max(20, b.iterations // 50)):
        name = f"f{n}"
        os.link(f"{theirs}/f", f"{mine}/{name}")
        changes = write_routes(c, f"/workspace/{name}", b"mine alone")
        calls = {k: changes[k] for k in ("write", "put", "rename to", "copy to", "remove")}
        calls["untar"] = lambda name=name: c.tar_in("/workspace", small_tar(name))
        calls["edit"] = lambda name=name: c.new("edit", path=f"/workspace/{name}", old="shared", new="mine")
        kind = sorted(calls)[n % len(calls)]
        status, data = calls[kind]()
        assert status in (200, 204), (kind, status, data)
        assert shown() == before, kind
        assert kind == "remove" or os.lstat(f"{mine}/{name}").st_ino != before[0]
        c.old("remove", f"/workspace/{name}")
    assert other.sh("cat f")["stdout"] == "shared\n"
    # And a session gets no link to what isn't its own.
    for path in ("/usr/bin/true", "/etc/hosts", "/etc/passwd", "/proc/version", "/dev/null"):
        assert s.run(["ln", path, "stolen"])["exit_code"] != 0, path
        assert s.run(["ln", "-P", path, "/tmp/stolen"])["exit_code"] != 0, path


# ---- D13 ----

@test
def d13_a_full_tmpfs_is_the_sessions_own_trouble(b):
    s, other = b.open(), b.open()
    c, o = Client(b, s), Client(b, other)
    piece, n, status = bytes(8 << 20), 0, 200
    while status == 200 and n < 40:
        status, data = c.put(f"/tmp/fill{n}", piece)
        n += 1
    assert status == 507 and json.loads(data)["detail"]["errno"] == 28, (status, data[:200])
    for name in ("untar", "put", "copy to"):
        calls = write_routes(c, "/tmp/more", piece[:1 << 20])
        status, data = c.tar_in("/tmp/u", small_tar(*[f"f{i}" for i in range(50)])) if name == "untar" else calls[name]()
        assert status in (200, 204, 507), (name, status, data[:200])
    assert o.old_write("/tmp/f", b"fine")[0] == 204 and o.old_write("/workspace/f", b"fine")[0] == 204 and c.old_write("/workspace/f", b"fine")[0] == 204
    for i in range(n):
        assert c.old("remove", f"/tmp/fill{i}")[0] in (204, 404)
    assert c.put("/tmp/again", piece)[0] == 200


@test
def d13_many_small_files_end_at_a_bound(b):
    s, other = b.open(), b.open()
    c, o = Client(b, s), Client(b, other)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for i in range(70000):
            t.addfile(tarfile.TarInfo(f"{i % 100}/{i}"))
    t = time.monotonic()
    status, data = c.tar_in("/tmp/many", out.getvalue())
    took = time.monotonic() - t
    assert status == 507, (status, data[:300])
    assert c.old_write("/tmp/one-more", b"x")[0] == 507 or c.old_write("/tmp/one-more2", b"x")[0] == 507
    assert o.old_write("/tmp/f", b"fine")[0] == 204 and c.old_write("/workspace/f", b"fine")[0] == 204
    begin = time.monotonic()
    assert c.old("remove", "/tmp/many")[0] == 204
    print(f"     tmpfs full of files in {took:.1f} s, removed in {time.monotonic() - begin:.1f} s")
    assert c.old_write("/tmp/f", b"x")[0] == 204 and set(s.sh("ls /tmp")["stdout"].split()) <= {"f", "one-more", "one-more2"}


DEEP = r"""
import os, sys
os.chdir(sys.argv[1])
for i in range(int(sys.argv[2])):
    os.mkdir('d')
    os.chdir('d')
open('end', 'w').close()
"""


@test
def d13_deep_directories_are_walked_and_removed(b):
    s, other = b.open(), b.open()
    c = Client(b, s)
    top = "/workspace/deep"
    for levels in (10000,) if b.iterations <= 5000 else (10000, 40000):
        s.run(["mkdir", top])
        r = s.run(["python3", "-c", DEEP, top, str(levels)])
        assert r["exit_code"] == 0, r["stderr"]
        took = {}
        for name, call in {**read_routes(c, top), "kept tree": lambda: c.kept("tree", path="deep", max_depth=64, max_entries=100000),
                           "whole walk": lambda: c.new("list", path=top, max_depth=4096)}.items():
            t = time.monotonic()
            call()
            took[name] = time.monotonic() - t
            assert took[name] < 30 * SLOW, (name, took)
        assert other.run(["true"])["exit_code"] == 0
        t, status, asked = time.monotonic(), 504, 0
        while status == 504 and asked < 5:  # a busy disk: what is left is the next request's
            status, data = c.old("remove", top)
            asked += 1
        removed = time.monotonic() - t
        assert status == 204 and s.sh("ls")["stdout"] == "", (levels, status, data)
        slow = max((v, k) for k, v in took.items())
        print(f"     {levels} levels removed in {removed:.2f} s by {asked} request(s), slowest look {slow[1]} {slow[0]:.2f} s")
    # One that is left is no trouble at the end of the session.
    s.run(["mkdir", "/workspace/left"])
    s.run(["python3", "-c", DEEP, "/workspace/left", "10000"])
    t = time.monotonic()
    assert s.close() == 204 and time.monotonic() - t < 5 * SLOW


@test
def d13_a_deep_tree_that_moves_while_it_is_removed(b):
    """What is removed stays below where it was asked for, also when a level of it is moved away."""
    s = b.open()
    c = Client(b, s)
    keep = "mkdir -p away/a/b; echo keep > away/a/b/f"
    for n in range(max(20, b.iterations // 100)):
        s.sh(f"rm -rf t away; {keep}; mkdir -p other t/x/y/z/1/2/3/4;"
             "for d in t/x t/x/y t/x/y/z t/x/y/z/1/2; do for i in 1 2 3 4 5 6 7 8 9; do echo $i > $d/f$i; done; done")
        mover = threading.Thread(target=lambda: s.sh("for i in 1 2 3 4 5 6 7 8; do mv t/x/y away/y 2>/dev/null; mv away/y t/x/y 2>/dev/null; done"))
        mover.start()
        status, data = c.old("remove", "/workspace/t")
        mover.join()
        assert status in (204, 400, 404, 409), (status, data)
        assert s.sh("cat away/a/b/f; ls -d other")["stdout"] == "keep\nother\n", n


# ---- D26 ----

MAKE_BAD = r"""
import ctypes, os, shutil, socket, stat, struct, subprocess, sys
os.umask(0)
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
tries = [
    lambda: os.chmod('a', 0o4755), lambda: os.chmod('a', 0o2755), lambda: os.chmod('d', 0o2777),
    lambda: os.fchmod(os.open('a', os.O_RDWR), 0o6755), lambda: os.open('n1', os.O_CREAT | os.O_RDWR, 0o4755),
    lambda: os.open('n2', os.O_CREAT | os.O_WRONLY, 0o2755),
    lambda: os.mkdir('n3', 0o2777), lambda: libc.syscall(452, -100, b'a', 0o4755, 0x100), lambda: libc.syscall(268, -100, b'a', 0o4755),
    lambda: libc.creat(b'n4', 0o4777), lambda: os.mknod('n5', 0o4755 | stat.S_IFREG), lambda: os.mknod('n6', 0o666 | stat.S_IFCHR, os.makedev(1, 1)),
    lambda: os.mknod('n7', 0o666 | stat.S_IFBLK, os.makedev(254, 0)), lambda: os.mkfifo('n8', 0o4777), lambda: os.chown('a', 0, 0), lambda: os.chown('a', -1, 0),
    lambda: os.setxattr('a', 'security.capability', struct.pack('<IIIII', 0x02000001, 0xffffffff, 0, 0xffffffff, 0)),
    lambda: os.setxattr('a', 'trusted.overlay.opaque', b'y'),
    lambda: subprocess.run('cp -p /usr/bin/su n9; cp -a /usr/bin/passwd n10; install -m 4755 /usr/bin/true n11; install -o 0 -g 0 /usr/bin/true n12',
                           shell=True, stderr=-3),
    lambda: subprocess.run('tar cpf - -C / usr/bin/su usr/bin/passwd usr/bin/chage | tar xpf - --same-owner', shell=True, stderr=-3),
    lambda: os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755), lambda: libc.renameat2(-100, b'/usr/bin/su', -100, b'n13', 0),
    lambda: os.link('/usr/bin/su', 'n14'), lambda: socket.socket(socket.AF_UNIX).bind('n15'),
]
open('a', 'w').write('#!/bin/sh\nid\n')
os.makedirs('d', exist_ok=True)
done = 0
for t in tries:
    try:
        t()
        done += 1
    except OSError:
        pass
print(done)
"""


def bad_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for i, mode in enumerate((0o4755, 0o2755, 0o6777, 0o1777)):
            m = tarfile.TarInfo(f"set{i}")
            m.size, m.mode, m.uid, m.gid, m.uname, m.gname = 3, mode, 0, 0, "root", "root"
            m.pax_headers = {"SCHILY.xattr.security.capability": "\x01\0\0\x02x", "SCHILY.xattr.trusted.x": "y"}
            t.addfile(m, io.BytesIO(b"id\n"))
            m = tarfile.TarInfo(f"dir{i}")
            m.type, m.mode = tarfile.DIRTYPE, mode
            t.addfile(m)
    return out.getvalue()


def one_entry(name: str, kind: bytes, **more) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        m = tarfile.TarInfo(name)
        m.type, m.mode = kind, 0o4777
        for k, v in more.items():
            setattr(m, k, v)
        t.addfile(m)
    return out.getvalue()


@test
def d26_no_file_of_root_and_no_set_id_bit_on_disk(b):
    s = b.open()
    c = Client(b, s)
    for top in ("/workspace", "/home/agent", "/var/tmp"):
        r = s.run(["python3", "-c", MAKE_BAD, top])
        assert r["exit_code"] == 0, r["stderr"]
        wrong = b.on_disk(set_gid=stat.S_ISGID)
        assert not wrong, wrong
    for n in range(max(10, b.iterations // 100)):
        top = ("/workspace", "/home/agent", "/var/tmp")[n % 3] + "/in"
        status, data = c.tar_in(top, bad_tar())
        assert status == 200, (status, data)
        for kind, more in ((tarfile.CHRTYPE, {"devmajor": 1, "devminor": 1}), (tarfile.BLKTYPE, {"devmajor": 254}), (tarfile.FIFOTYPE, {}),
                           (tarfile.LNKTYPE, {"linkname": "/usr/bin/su"}), (tarfile.LNKTYPE, {"linkname": "../../../usr/bin/su"}),
                           (tarfile.SYMTYPE, {"linkname": "/etc"})):
            c.tar_in(top, one_entry(f"x{n}", kind, **more))
            c.tar_in(top, one_entry(f"x{n}/shadow", tarfile.REGTYPE))
        for mode in ("4755", "2755", "1777", "0777", "04755", "7777"):
            status, _ = c.put(f"{top}/m{mode}", b"x", f"&mode={mode}")
            assert (status == 200) == (mode == "0777"), (mode, status)
            assert c.new("chmod", path=f"{top}/set0", mode=mode)[0] in (204, 422) and c.new("mkdir", path=f"{top}/k{mode}", mode=mode)[0] in (204, 400, 422, 409)
        for to in ("su", "mount", "chage"):
            c.new("copy", path=f"/usr/bin/{to}", to=f"{top}/{to}")
            c.new("copy", path=f"/usr/bin/{to}", to=f"{top}/{to}-tree", recursive=True)
            c.new("rename", path=f"/usr/bin/{to}", to=f"{top}/{to}-moved")
            c.new("edit", path=f"{top}/{to}", old="ELF", new="elf", all=True)
            c.put(f"{top}/{to}", b"over")
        if n % 10 == 0:
            assert not b.on_disk("/in"), b.on_disk("/in")
    assert s.sh("ls -l /workspace/in/su")["stdout"].startswith("-rwxr-xr-x"), "copied without the bit"
    assert not b.on_disk("/in"), b.on_disk("/in")
    # The look sees what it looks for.
    for mode, owner in ((0o644, 0), (0o4755, FIRST_ID + 65536)):
        p = f"{b.d.state}/workspaces/{s.id}/workspace/in/planted"
        with open(p, "w"):
            os.chown(p, owner, owner)
            os.chmod(p, mode)
        assert [w[0] for w in b.on_disk("/in")] == [p], b.on_disk("/in")
        os.unlink(p)


# ---- D37 ----

TAMPER = r"""
import ctypes, fcntl, mmap, os, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
path, end = sys.argv[1], time.time() + float(sys.argv[2])
size, n = os.path.getsize(path), 0
def quiet(fn):
    try:
        return fn()
    except (OSError, ValueError, PermissionError):
        return None
for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
    assert quiet(lambda: os.open(path, flags)) is None, 'open for writing'
fd = os.open(path, os.O_RDONLY)
for prot, flags in ((3, mmap.MAP_SHARED), (7, mmap.MAP_SHARED)):
    assert quiet(lambda: mmap.mmap(fd, size, flags=flags, prot=prot)) is None, 'mapped for writing'
class IoVec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
junk = ctypes.create_string_buffer(b'TAMPERED' * 512)
def reopen():
    f = quiet(lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDWR))
    assert f is None, 'opened again for writing'
def dirty_pipe():
    r, w = os.pipe()
    os.set_blocking(w, False)
    os.set_blocking(r, False)
    quiet(lambda: [os.write(w, b'x' * 4096) for _ in range(64)])
    quiet(lambda: [os.read(r, 4096) for _ in range(64)])
    off = ctypes.c_longlong(0)
    libc.splice(fd, ctypes.byref(off), w, None, 1, 0)
    quiet(lambda: os.write(w, b'TAMPERED'))
    iov = IoVec(ctypes.cast(junk, ctypes.c_void_p), 8)
    for gift in (0, 8):
        libc.vmsplice(w, ctypes.byref(iov), 1, gift)
    off = ctypes.c_longlong(0)
    for to in (fd,):
        libc.splice(r, None, to, ctypes.byref(off), 8, 1)
    r2, w2 = os.pipe()
    libc.tee(r, w2, 8, 2)
    os.set_blocking(w2, False)
    quiet(lambda: os.write(w2, b'TAMPERED'))
    for x in (r, w, r2, w2):
        os.close(x)
def copies():
    src = os.memfd_create('x')
    os.write(src, b'TAMPERED')
    libc.copy_file_range(src, ctypes.byref(ctypes.c_longlong(0)), fd, ctypes.byref(ctypes.c_longlong(0)), 8, 0)
    libc.sendfile(fd, src, ctypes.byref(ctypes.c_longlong(0)), 8)
    quiet(lambda: fcntl.ioctl(fd, 0x40049409, src))
    libc.fallocate(fd, 3, ctypes.c_longlong(0), ctypes.c_longlong(4096))
    os.close(src)
def crypto():
    quiet(lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).bind(('skcipher', 'ecb(cipher_null)')))
m = mmap.mmap(fd, min(size, 4096), flags=mmap.MAP_PRIVATE, prot=1)
address = ctypes.c_void_p.from_buffer(mmap.mmap(-1, 4096)).value
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = libc.mmap(None, 4096, 1, 2, fd, 0)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def cow():
    f = quiet(lambda: os.open('/proc/self/mem', os.O_RDWR))
    while time.time() < end:
        if f is not None:
            quiet(lambda: os.pwrite(f, b'TAMPERED', at))
def forget():
    while time.time() < end:
        libc.madvise(at, 4096, 4)
threads = [threading.Thread(target=t) for t in (cow, forget)]
for t in threads:
    t.start()
while time.time() < end:
    for attack in (reopen, dirty_pipe, copies, crypto):
        attack()
        n += 1
    # What the file workers have: their pipes hold pages of files.
    for p in filter(str.isdigit, os.listdir('/proc')):
        for name in quiet(lambda: os.listdir(f'/proc/{p}/fd')) or []:
            if p != str(os.getpid()):
                f = quiet(lambda: os.open(f'/proc/{p}/fd/{name}', os.O_WRONLY | os.O_NONBLOCK))
                if f is not None:
                    target = os.readlink(f'/proc/{p}/fd/{name}')
                    os.close(f)
for t in threads:
    t.join()
print(n)
"""


@test
def d37_files_that_sessions_share_stay_as_they_are(b):
    s, other = b.open(), b.open()
    shared = ["/usr/bin/true", "/usr/bin/env", sys.executable if sys.executable.startswith("/usr/bin/") else "/usr/bin/python3", "/usr/share/zoneinfo/UTC"]
    shared = [p for p in (os.path.realpath(x) for x in shared) if os.path.exists(p)]

    def hashes():
        r = other.run(["sha256sum", *shared])
        return r["stdout"], [hashlib.sha256(open(p, "rb").read()).hexdigest() for p in shared]

    before, n = hashes(), 0
    c = Client(b, s)
    seconds = min(30.0, max(2.0, b.iterations / 2000))
    for path in shared:
        for name, call in write_routes(c, path, b"TAMPERED").items():
            if name in ("copy from", "copy tree"):
                continue
            status, data = call()
            assert status in (400, 403, 404, 409), (name, path, status, data[:200])
        done = []
        t = threading.Thread(target=lambda: done.append(s.run(["python3", "-c", TAMPER, path, str(seconds)], timeout=200)))
        t.start()
        while t.is_alive():  # the native way reads through a pipe that holds the pages themselves
            status, data = c.old("read", path)
            assert status != 200 or hashlib.sha256(data).hexdigest() == before[1][shared.index(path)], path
            n += 1
        t.join()
        assert done and done[0]["exit_code"] == 0, done
        assert hashes() == before, f"{path} was changed"
    print(f"     {n} reads meanwhile, {len(shared)} files")
    assert n > 10


def main() -> int:
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--iterations", type=int)
    ap.add_argument("--soak", action="store_true", help="100,000 iterations instead of 5,000")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    passed = failed = 0
    host = tempfile.mkdtemp(prefix="garret-race-")
    try:
        with Daemon(build=a.build) as d:
            b = Bench(d, host, a.iterations or (100000 if a.soak else 5000))
            for fn in TESTS:
                if a.names and not any(n in fn.__name__ for n in a.names):
                    continue
                t = time.time()
                try:
                    fn(b)
                    b.check_host()
                    wrong = b.on_disk(set_gid=stat.S_ISGID)
                    assert not wrong, f"on disk: {wrong[:5]}"
                    assert b.good.sh("cat f d/f")["stdout"] == "good\ngood\n", "the other session's files changed"
                    passed += 1
                    print(f"ok   {fn.__name__} ({time.time() - t:.1f} s)", flush=True)
                except Exception:  # noqa: BLE001
                    failed += 1
                    print(f"FAIL {fn.__name__} ({time.time() - t:.1f} s)\n{traceback.format_exc()}", flush=True)
                for k in d.call("GET", "/sessions")[1]["sessions"]:
                    if k["session_id"] != b.good.id:
                        d.call("DELETE", f"/sessions/{k['session_id']}?purge=true")
    finally:
        shutil.rmtree(host, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
