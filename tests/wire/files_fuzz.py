#!/usr/bin/env python3
"""The same random file operations natively and through the published client's shell path (as root).

usage: files_fuzz.py [--build DIR] [--operations N] [--seed S] [--only SEQUENCE] [--soak]

Runs in the environment that holds pydantic-ai-backend.  Each sequence has two fresh sessions, one of
a daemon with native files and one of a daemon without, gets the same operations in both, and must see
the same results and the same tree.  What legitimately differs stands in KNOWN, with the reason, and
is counted.  A sequence depends on seed and number alone: `--seed S --only I` runs it again.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import posixpath
import random
import re
import sys
import time
import traceback
from typing import Any, Awaitable, Callable, NamedTuple

import httpx
from pydantic_ai.workspaces import Workspace
from pydantic_ai_backends.workspaces import SandboxdWorkspace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon  # noqa: E402

LENGTH = 50  # operations of a sequence
COMPARE = 10  # operations between two looks at the trees
AT_ONCE = 6
NAMES = ["a", "b", "with blank", "it's", 'say "x"', "new\nline", "ends\n", "-rf", "--", "\u00e9", "\u65e5\u672c", "...", ".hidden", "*", "$HOME",
         "back\\slash", "tab\t", " ", "a;b", "%2e", "#", "n" * 255]
CONTENTS = [b"", b"text\n", b"no newline", b"\r\n\0\xff", bytes(range(256)) * 20, "\u00e9\u65e5\n".encode() * 100]
LARGE = random.Random(1).randbytes(100 << 10)
RACED = [bytes([65 + i]) * (1000 + 7 * i) for i in range(8)]  # each is whole or it isn't
TEMPORARY = re.compile(r"\.garret-|\.pydantic-ai-")
# What the client may raise for a path; WorkspaceError is its word for "the command failed".
DOCUMENTED = {"FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "FileExistsError", "ValueError", "PermissionError", "OSError",
              "WorkspaceError", "_DamagedOutputError"}

# k leads to d by 17 links and no chain that a listing shows is longer: the kernel follows 40, but counts
# those of a first, lockless try as well when a mount anywhere on the host made it begin again, and says
# ELOOP for more than 20 then.  kk has one more than 40, its chain lies where nothing is listed.
SETUP = """mkdir d /tmp/k /var/tmp/kk; echo f > f; echo x > d/f; ln -s d l; ln -s loop loop; ln -s /tmp/k/0 k; ln -s /var/tmp/kk/0 kk
i=0; while [ $i -lt 15 ]; do ln -s $((i + 1)) /tmp/k/$i; i=$((i + 1)); done; ln -s /workspace/d /tmp/k/15
i=0; while [ $i -lt 39 ]; do ln -s $((i + 1)) /var/tmp/kk/$i; i=$((i + 1)); done; ln -s /workspace/d /var/tmp/kk/39"""
# As uid 1000: what can't be read is told apart by its mode and size.
WALK = r"""
import hashlib, json, os, stat
found = []
def look(path):
    st = os.lstat(path)
    entry = [path.decode('utf-8', 'backslashreplace'), oct(st.st_mode)]
    if stat.S_ISLNK(st.st_mode):
        entry.append(os.readlink(path).decode('utf-8', 'backslashreplace'))
    elif stat.S_ISREG(st.st_mode):
        entry.append(st.st_nlink)
        entry.append(st.st_size)
        try:
            entry.append(hashlib.sha256(open(path, 'rb').read()).hexdigest())
        except PermissionError:
            entry.append('closed')
    found.append(entry)
    if stat.S_ISDIR(st.st_mode):
        try:
            names = os.listdir(path)
        except PermissionError:
            names = []
        for name in sorted(names):
            try:
                look(path + b'/' + name)
            except PermissionError:
                found.append([name.decode('utf-8', 'backslashreplace'), 'unseen'])
look(b'/workspace')
look(b'/tmp')
print(json.dumps(found))
"""
# What the kernel says of a path; the parts of KNOWN are checked by it.
FACTS = r"""
import errno, json, os, stat, sys
def say(fn, path):
    try:
        st = fn(path)
        return stat.filemode(st.st_mode)[0]
    except OSError as e:
        return errno.errorcode[e.errno]
    except ValueError:
        return 'NUL'
p = sys.argv[1]
bare = p.rstrip('/') or '/'
real = os.path.realpath(bare)
above = [bare[:i] for i, c in enumerate(bare) if c == '/' and i]
print(json.dumps({'stat': say(os.stat, p), 'lstat': say(os.lstat, p), 'bare': say(os.stat, bare), 'bare_lstat': say(os.lstat, bare),
                  'broken_above': any(os.path.islink(a) and not os.path.exists(a) for a in above),
                  'too_many': [n for n in (os.listdir(bare) if os.path.isdir(bare) and os.access(bare, os.R_OK) else [])
                               if say(os.stat, bare + '/' + n) == 'ELOOP' and os.path.isdir(os.path.realpath(bare) + '/' + n)],
                  'may': ''.join(c for c, m in (('r', os.R_OK), ('x', os.X_OK)) if os.access(bare, m)),
                  'beside': os.access(os.path.dirname(real), os.W_OK)}))
"""
RENAMER = r"""
import ctypes, os, random, sys, time
libc, r, end = ctypes.CDLL(None), random.Random(int(sys.argv[1])), time.time() + float(sys.argv[2])
names = [os.fsencode(n) for n in sys.argv[3:]]
os.chdir('/workspace')
while time.time() < end:
    libc.renameat2(-100, r.choice(names), -100, r.choice(names), r.choice((0, 2)))
"""


class Op(NamedTuple):
    kind: str
    path: str
    facade: bool = False
    data: bytes = b""
    argv: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [self.kind, ascii(self.path)]
        if self.data or self.kind == "write":
            words.append(f"{len(self.data)} bytes {self.data[:12]!r}")
        if self.argv:
            words = [self.kind, *map(ascii, self.argv)]
        return " ".join(words + (["(facade)"] if self.facade else []))


def tidy(path: str) -> str:
    """Natively it is the path as it was sent (wire 9.4), the shell's way makes it normal first."""
    return re.sub("/+", "/", posixpath.normpath(path))


class Side:
    """One session of one daemon."""

    def __init__(self, service: SandboxdWorkspace) -> None:
        self.backend = service.backend()
        self.facade = Workspace(self.backend)

    async def command(self, *argv: str) -> Any:
        return await self.backend.run(list(argv))

    async def python(self, code: str, *argv: str) -> Any:
        r = await self.command("python3", "-c", code, *argv)
        assert r.exit_code == 0, r.stderr
        return json.loads(r.stdout)

    async def do(self, op: Op) -> tuple:
        try:
            return ("ok", await self.result(op))
        except Exception as e:  # noqa: BLE001
            if isinstance(e, (httpx.HTTPError, AssertionError)):
                return ("error", f"{type(e).__name__}: {str(e)[:200]}")
            return ("error", type(e).__name__)

    async def result(self, op: Op) -> Any:
        if op.kind == "sh":
            return (await self.command("sh", "-c", *op.argv)).exit_code
        to = self.facade if op.facade else self.backend
        if op.kind == "read":
            return await to.read_bytes(op.path)
        if op.kind == "write":
            return await to.write_bytes(op.path, op.data)
        if op.kind == "stat":
            e = await to.stat(op.path)
            return (e.name, tidy(e.path), e.is_dir, e.size)
        if op.kind == "list":
            return [(e.name, tidy(e.path), e.is_dir) for e in await to.list_dir(op.path)]
        return await {"mkdir": to.make_dir, "remove": to.remove, "exists": to.exists, "realpath": to.realpath}[op.kind](op.path)

    async def tree(self) -> list:
        return await self.python(WALK)


# ---- what legitimately differs ----

def has_dots(path: str) -> bool:
    return bool({".", ".."} & set(path.split("/")))


class Known(NamedTuple):
    reason: str
    test: Callable[[Op, tuple, tuple, dict], bool]
    parts: bool = False  # the trees may differ afterwards


def below_a_file(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind in ("read", "stat", "list", "remove") and native == ("error", "NotADirectoryError") and
            shell == ("error", "FileNotFoundError") and facts["bare_lstat" if op.kind == "remove" else "bare"] == "ENOTDIR")


def dots_sent_as_they_are(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    if op.facade or op.kind not in LOOKING or not has_dots(op.path):
        return False
    kind = facts["bare"]
    if op.kind == "exists":
        return native == ("ok", kind in "-d")
    if kind in "-d":
        want = {("read", "d"): "IsADirectoryError", ("list", "-"): "NotADirectoryError"}.get((op.kind, kind))
        return native == ("error", want) if want else native[0] == "ok"
    return native == ("error", {"ENOENT": "FileNotFoundError", "ENOTDIR": "NotADirectoryError"}.get(kind))


def directory_over_a_broken_link(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind == "mkdir" and native == ("error", "FileExistsError") and shell == ("error", "WorkspaceError") and
            facts["bare_lstat"] == "l" and facts["bare"] in NOWHERE)


def directory_below_a_broken_link(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind == "mkdir" and native[0] == "error" and native[1] in ("FileNotFoundError", "NotADirectoryError") and
            shell == ("error", "WorkspaceError") and facts["broken_above"])


def onto_a_directory_in_a_closed_one(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind == "write" and native == ("error", "IsADirectoryError") and shell == ("error", "PermissionError") and
            facts["bare"] == "d" and not facts["beside"])


def own_scratch_file_listed(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind == "list" and native[0] == shell[0] == "ok" and
            native[1] == [e for e in shell[1] if not re.fullmatch(r"\.pydantic-ai-[0-9a-f]{32}\.list", e[0])])


def names_that_are_no_text(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    def plain(text: str) -> str:
        return re.sub("[\udc80-\udcff]", "\ufffd", text)

    return (op.kind == "list" and native[0] == shell[0] == "ok" and native[1] != shell[1] and
            native[1] == [(plain(name), plain(path), is_dir) for name, path, is_dir in shell[1]])


def list_of_what_is_not_searchable(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return op.kind == "list" and native[0] == "ok" and shell == ("error", "WorkspaceError") and facts["may"] == "r"


def entries_behind_too_many_links(op: Op, native: tuple, shell: tuple, facts: dict) -> bool:
    return (op.kind == "list" and native[0] == shell[0] == "ok" and
            [(n, p, d and n not in facts["too_many"]) for n, p, d in native[1]] == shell[1])


LOOKING = ("read", "stat", "list", "exists")
NOWHERE = ("ENOENT", "ELOOP", "ENOTDIR", "EACCES", "ENAMETOOLONG")
KNOWN: list[Known] = [
    Known("below a file the shell's way sees nothing, the native one says that it is no directory (wire 9.3)", below_a_file),
    Known("`.` and `..` that reach a backend: text to the shell's way, a directory's entries natively (the facade sends none, A5)",
          dots_sent_as_they_are),
    Known("a directory where a link leads nowhere: a failure without a name, natively FileExistsError (A5: Exists)", directory_over_a_broken_link),
    Known("a directory below a link that leads nowhere: a failure without a name, natively what is missing there", directory_below_a_broken_link),
    Known("a write onto a directory whose parent is closed: the shell's way looks at the parent first (A5.3: IsDir)",
          onto_a_directory_in_a_closed_one),
    Known("the shell's way lists its own scratch file", own_scratch_file_listed),
    Known("a name that isn't UTF-8: U+FFFD natively (wire 9.5), surrogates in the shell's way", names_that_are_no_text),
    Known("an entry whose whole path has more links than the kernel follows: natively it is looked at from its directory",
          entries_behind_too_many_links),
    Known("a directory that may be read but not searched: its names natively, find fails", list_of_what_is_not_searchable),
]


async def explain(op: Op, native: tuple, shell: tuple, side: Side) -> Known | None:
    facts: dict = {"stat": "NUL"}
    if op.kind != "sh" and "\0" not in op.path:
        facts = await side.python(FACTS, await side.facade.resolve(op.path) if op.facade else op.path)
    return next((k for k in KNOWN if k.test(op, native, shell, facts)), None)


# ---- operations ----

def make_path(r: random.Random, names: list[str], plain: bool = False) -> str:
    parts = r.choices(names, k=r.choice((1, 1, 1, 2, 2, 3)))
    top = r.choice(("/workspace",) * 9 + ("/tmp",))
    if plain:
        return posixpath.join(top, *parts)
    for odd, p in (("..", 0.06), (".", 0.03), ("", 0.03)):
        if r.random() < p:
            parts.insert(r.randrange(len(parts) + 1), odd)
    path = top + "/" + "/".join(parts)
    x = r.random()
    return top if x < 0.02 else path + "/" if x < 0.08 else "/" + path if x < 0.10 else path


SCRIPTS = [  # weight, script, arguments: p a path, t a link's target, m a mode
    (8, 'ln -sn -- "$1" "$2"', "tp"), (3, 'ln -- "$1" "$2"', "pp"), (6, '[ "$2" -ef /workspace ] || chmod -- "$1" "$2"', "mp"), (3, 'mv -T -- "$1" "$2"', "pp"),
    (1, 'mkfifo -- "$1"', "p"), (2, 'mkdir -p -- "$1"', "p"), (2, 'printf x > "$1"', "p"), (1, 'rm -rf -- "$1"', "p"),
    (1, 'mkdir -p -- "$1" && printf y > "$1/$(printf "\\377")"', "p"),
]
KINDS = {"read": 14, "write": 18, "stat": 10, "list": 12, "mkdir": 8, "remove": 7, "exists": 8, "realpath": 12, "sh": 18}


def make_script(r: random.Random, names: list[str]) -> Op:
    _, script, kinds = r.choices(SCRIPTS, [s[0] for s in SCRIPTS])[0]
    argv = [script, "sh"]
    for k in kinds:
        if k == "p":
            argv.append(make_path(r, names, True))
        elif k == "m":
            argv.append(r.choice(("000", "444", "555", "755", "755", "644")))
        else:
            argv.append(r.choice((r.choice(names), make_path(r, names, True), "..", ".", "../" + r.choice(names), "/tmp", "/etc/passwd",
                                  "none/" + r.choice(names), "/", "/workspace")))
    return Op("sh", "", argv=tuple(argv))


def make_op(r: random.Random, names: list[str]) -> Op:
    kind = r.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "sh":
        return make_script(r, names)
    facade = r.random() < 0.4
    path = make_path(r, names)
    if facade and r.random() < 0.5 and path.startswith("/workspace/"):
        path = path[len("/workspace/"):].lstrip("/") or "."
    if kind == "remove" and not facade and r.random() < 0.7:
        path = make_path(r, names, True)
    if not facade and kind in ("write", "mkdir", "remove") and has_dots(path):
        path = make_path(r, names, True)  # see KNOWN: here the trees would part
    data = b""
    if kind == "write":
        data = LARGE if r.random() < 0.04 else r.choice(CONTENTS)
    return Op(kind, path, facade, data)


# ---- sequences ----

class Report:
    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.known: collections.Counter = collections.Counter()
        self.operations = self.same_errors = self.trees = self.passed = self.failed = 0
        self.raced: collections.Counter = collections.Counter()

    def fail(self, number: int, at: int, text: str, done: list[str]) -> None:
        print(f"FAIL seed {self.seed} sequence {number} operation {at}: {text}")
        for line in done[-14:]:
            print("       " + line)
        sys.stdout.flush()


def first_difference(a: list, b: list) -> str:
    left, right = [json.dumps(x) for x in a], [json.dumps(x) for x in b]
    return "\n".join(["trees differ"] + [f"       native {x}" for x in left if x not in right] + [f"       shell  {x}" for x in right if x not in left])


async def sequence(report: Report, number: int, count: int, services: list[SandboxdWorkspace]) -> bool:
    """Whether all was the same."""
    r = random.Random(f"{report.seed} {number}")
    names = r.sample(NAMES, 4) + ["f", "d"]
    native, shell = sides = [Side(s) for s in services]
    done: list[str] = []
    try:
        for s in sides:
            await s.command("sh", "-c", SETUP)
        for at in range(count):
            op = make_op(r, names + ["l", "loop", r.choice(("k", "kk"))])
            a, b = await asyncio.gather(native.do(op), shell.do(op))
            report.operations += 1
            report.same_errors += a == b and a[0] == "error"
            done.append(f"{at}: {op} -> {str(a)[:200]}" + ("" if a == b else f" / shell {str(b)[:200]}"))
            parted = False
            if a != b:
                known = await explain(op, a, b, native)
                if not known:
                    report.fail(number, at, f"{op}: native {str(a)[:300]}, shell {str(b)[:300]}", done)
                    return False
                report.known[known.reason] += 1
                parted = known.parts
            if parted or at % COMPARE == COMPARE - 1 or at == count - 1:
                trees = await asyncio.gather(native.tree(), shell.tree())
                report.trees += 1
                if trees[0] != trees[1] and parted:
                    return True  # what follows couldn't be compared
                if trees[0] != trees[1]:
                    report.fail(number, at, first_difference(*trees), done)
                    return False
        return True
    finally:
        for s in sides:
            await s.backend.purge()


async def race(report: Report, number: int, count: int, services: list[SandboxdWorkspace]) -> bool:
    """With a command that renames meanwhile: no result is the only one, but a few are wrong."""
    r = random.Random(f"{report.seed} race {number}")
    names = ["f", "d", "l", "g", "with blank", "new\nline"]
    sides = [Side(s) for s in services]
    done: list[str] = []

    async def ask(side: Side, ops: list[Op], word: str) -> bool:
        for op in ops:
            kind, value = await side.do(op)
            report.operations += 1
            report.raced[value if kind == "error" else "ok"] += 1
            done.append(f"{word} {op} -> {kind} {str(value)[:200]}")
            if kind == "error" and value not in DOCUMENTED:
                report.fail(number, len(done), f"{word}: an undocumented error", done)
                return False
            if kind == "ok" and op.kind == "read" and value not in RACED:
                report.fail(number, len(done), f"{word}: neither old nor new content: {value[:40]!r}, {len(value)} bytes", done)
                return False
        return True

    try:
        for s in sides:
            await s.command("sh", "-c", "mkdir d; ln -s d l")
            for name in ("f", "g", "d/f"):
                await s.backend.write_bytes("/workspace/" + name, RACED[0])
        ops = []
        for _ in range(count // 2):
            kind = r.choice(("read", "read", "write", "write", "stat", "list", "mkdir", "remove", "exists", "realpath"))
            path = "/workspace/" + "/".join(r.choices(names, k=r.choice((1, 1, 2))))
            ops.append(Op(kind, path, r.random() < 0.3, r.choice(RACED) if kind == "write" else b""))
        movers = [asyncio.create_task(s.command("timeout", "60", "python3", "-c", RENAMER, str(r.randrange(1 << 30)), "1.5", *names)) for s in sides]
        good = all(await asyncio.gather(*(ask(s, ops, w) for s, w in zip(sides, ("native", "shell")))))
        for m in movers:
            result = await m
            assert result.exit_code == 0, result.stderr
        for s, word in zip(sides, ("native", "shell")):
            left = [e for e in await s.tree() if TEMPORARY.search(e[0])]
            # The shell's clean-up removes by a path, which may have moved: that is the client's.
            if left and word == "native":
                report.fail(number, len(done), f"{word}: left behind: {left}", done)
                good = False
            if (await s.do(Op("write", "/workspace/after/it", data=b"x")))[0] != "ok":
                report.fail(number, len(done), f"{word}: doesn't write any more", done)
                good = False
        return good
    finally:
        for s in sides:
            await s.backend.purge()


async def run(a: argparse.Namespace, report: Report, urls: list[str], token: str) -> None:
    jobs: list[tuple[Callable[..., Awaitable[bool]], int, int]] = []
    raced = a.operations // 10 // LENGTH
    left = a.operations - raced * LENGTH
    for i in range((left + LENGTH - 1) // LENGTH):
        jobs.append((sequence, i, min(LENGTH, left - i * LENGTH)))
    jobs += [(race, i, LENGTH) for i in range(raced)]
    if a.only is not None:
        jobs = [(sequence, a.only, LENGTH)]
    waiting = collections.deque(jobs)
    async with httpx.AsyncClient(timeout=120) as client:
        services = [SandboxdWorkspace(service_url=u, token=token, client=client) for u in urls]

        async def work() -> None:
            while waiting:
                fn, number, count = waiting.popleft()
                try:
                    good = await fn(report, number, count, services)
                except Exception:  # noqa: BLE001
                    report.fail(number, -1, f"{fn.__name__}: {traceback.format_exc()}", [])
                    good = False
                report.passed += good
                report.failed += not good

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def main() -> int:
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--operations", type=int)
    ap.add_argument("--seed", default=str(random.SystemRandom().randrange(10**9)))
    ap.add_argument("--only", type=int, help="this sequence alone")
    ap.add_argument("--soak", action="store_true", help="20,000 operations instead of 1,000")
    a = ap.parse_args()
    a.operations = a.operations or (20000 if a.soak else 1000)
    print(f"seed {a.seed}", flush=True)
    report, start = Report(a.seed), time.time()
    with Daemon(build=a.build) as native, Daemon(build=a.build, SANDBOXD_NATIVE_FILES="0") as shell:
        asyncio.run(run(a, report, [native.url, shell.url], native.token))
    print(f"     {report.operations} operations in {time.time() - start:.1f} s, {report.same_errors} with the same error, {report.trees} trees compared")
    print("     while names changed: " + ", ".join(f"{k} {n}" for k, n in report.raced.most_common()))
    for reason, n in report.known.most_common():
        print(f"     known, {n} times: {reason}")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


sys.exit(main())
