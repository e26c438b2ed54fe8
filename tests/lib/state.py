#!/usr/bin/env python3
"""Documents: those of the published StateBackend and ours are the same; their size is counted as they are written.

usage: tests/lib/state.py BUILD     (by the Python of build/venv)
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from garret import Failure, Library, Workspace  # noqa: E402
from pydantic_ai_backends import StateBackend  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
LIB = Library(BUILD)
TMP = tempfile.mkdtemp(prefix="garret-state-")
NAMES = ["a", "b", "c", "ünï", "with space", 'quo"te', "new\nline", "back\\slash", "tab\t"]
CONTENT = [b"", b"\n", b"one\ntwo\n", "grüße 💡".encode(), b"\xff\xfe\x00", b"\x00\x01", bytes(range(256)), b"a\r\nb", b'"\\/']
ERRORS = {FileNotFoundError: "NOT_FOUND", IsADirectoryError: "IS_DIRECTORY", NotADirectoryError: "NOT_DIRECTORY",
          FileExistsError: "EXISTS", ValueError: "INVALID"}
tests = []


def test(fn):
    tests.append(fn)
    return fn


def path_of(name: str) -> str:
    return os.path.join(TMP, name)


def load(path: str) -> StateBackend:
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    return StateBackend(files=document["files"], directories=document.get("directories"))


def save(state: StateBackend, path: str, directories: bool = True, **more) -> None:
    document = {"files": state.files, "directories": sorted(state.directories)}
    if not directories:
        del document["directories"]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(document, f, **more)


def size_of(path: str) -> int:
    """The one number: both lists as compact JSON, not escaped."""
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    return sum(len(json.dumps(document[k], ensure_ascii=False, separators=(",", ":")).encode()) for k in ("files", "directories"))


def outcome(fn, *args):
    try:
        return "ok", fn(*args)
    except Failure as e:
        return e.code, None
    except tuple(ERRORS) as e:
        return ERRORS[type(e)], None


def same(ours: str, state: StateBackend) -> None:
    with open(ours, encoding="utf-8") as f:
        document = json.load(f)
    bare = {p: (e["content"], e.get("encoding")) for p, e in document["files"].items()}
    want = {p: (e["content"], e.get("encoding")) for p, e in state.files.items()}
    assert bare == want, (bare, want)
    assert document["directories"] == sorted(state.directories), (document["directories"], sorted(state.directories))


@test
def any_sequence_gives_the_published_document():
    seed = int.from_bytes(os.urandom(4), "big")
    r = random.Random(seed)
    print(f"    seed {seed}")
    for round_ in range(20):
        file, state = path_of(f"sequence-{round_}"), StateBackend()
        with Workspace(LIB, "state", file=file) as w:
            for _ in range(40):
                path = "/" + "/".join(r.choice(NAMES) for _ in range(r.randint(1, 3)))
                op = r.choice(["write", "write", "write", "make_dir", "remove", "read"])
                if op == "write":
                    data = r.choice(CONTENT)
                    a, b = outcome(w.write, path, data), outcome(state.write_bytes, path, data)
                else:
                    a, b = outcome(getattr(w, op), path), outcome(getattr(state, "read_bytes" if op == "read" else op), path)
                assert a == b, (seed, round_, op, path, a, b)
            if os.path.exists(file):
                same(file, state)


@test
def a_published_document_is_worked_in_and_read_back():
    for directories in (True, False):
        for ascii_only in (True, False):
            file, state = path_of(f"published-{directories}-{ascii_only}"), StateBackend()
            for i, data in enumerate(CONTENT):
                state.write_bytes(f"/dir/{NAMES[i % len(NAMES)]}/{i}", data)
            state.make_dir("/empty/dir")
            save(state, file, directories, ensure_ascii=ascii_only)
            before = json.loads(json.dumps(state.files))
            with Workspace(LIB, "state", file=file) as w:
                for i, data in enumerate(CONTENT):
                    assert w.read(f"/dir/{NAMES[i % len(NAMES)]}/{i}") == data
                w.write("/new", b"1")
            again = load(file)
            assert again.read_bytes("/new") == b"1"
            for path, entry in before.items():
                assert again.files[path] == entry, path  # times as well
            if directories:
                assert again.directories == state.directories


@test
def documents_from_before_encoding_load_exactly():
    raw = bytes(range(256)) * 3 + "text grüße\n".encode()
    file = path_of("legacy")
    entry = {"content": raw.decode("utf-8", "surrogateescape").split("\n"), "created_at": "2024-01-01T00:00:00+00:00",
             "modified_at": "2024-01-01T00:00:00+00:00"}
    with open(file, "w", encoding="ascii") as f:
        json.dump({"files": {"/old.bin": entry, "/pair": {**entry, "content": ["\U0001f4a1 \ufdd0"]}}}, f)
    with Workspace(LIB, "state", file=file) as w:
        assert w.read("/old.bin") == raw
        assert w.read("/pair") == "\U0001f4a1 \ufdd0".encode()
        w.write("/touch", b"")
    again = load(file)
    assert again.read_bytes("/old.bin") == raw and again.read_bytes("/pair") == "\U0001f4a1 \ufdd0".encode()
    assert "\\ud" not in open(file, encoding="utf-8").read()


@test
def what_was_read_can_be_written_and_read_again():
    file = path_of("odd-bytes")
    times = '"created_at": "", "modified_at": ""'
    with open(file, "w", encoding="ascii") as f:
        f.write('{"files": {"/a": {"content": ["\\udcff!"], "encoding": "base64", %s}}}' % times)
    for _ in range(2):
        with Workspace(LIB, "state", file=file) as w:
            w.write("/touch", b"")
            assert outcome(w.read, "/a")[0] == "INVALID"
    assert load(file).files["/a"]["content"] == ["\ufffd!"]
    with open(file, "w", encoding="ascii") as f:
        f.write('{"files": {"/a\\udcff": {"content": ["x"], %s}}}' % times)
    before = open(file, "rb").read()
    with Workspace(LIB, "state", file=file) as w:
        assert outcome(w.write, "/touch", b"")[0] == "INVALID"
    assert open(file, "rb").read() == before


@test
def split_base64_lines_decode():
    file = path_of("split")
    text = base64.b64encode(bytes(range(200))).decode()
    with open(file, "w") as f:
        json.dump({"files": {"/x": {"content": [text[:40], text[40:]], "encoding": "base64", "created_at": "", "modified_at": ""}}}, f)
    with Workspace(LIB, "state", file=file) as w:
        assert w.read("/x") == bytes(range(200))


@test
def the_size_is_counted_as_it_is_written():
    r = random.Random(7)
    file = path_of("counted")
    # With a bound at exactly what is there, one byte more is refused and one less is not: so the count is exact.
    with Workspace(LIB, "state", file=file) as w:
        for i in range(120):
            path = "/" + "/".join(r.choice(NAMES) for _ in range(r.randint(1, 3)))
            outcome(r.choice([w.make_dir, w.remove, lambda p: w.write(p, r.choice(CONTENT)),
                              lambda p: w.rename(p, p + "-moved"), lambda p: w.copy(p, p + "-copy/deep")]), path)
        w.write("/last", b"x")
    n = size_of(file)
    with Workspace(LIB, "state", file=file, max_bytes=n) as w:
        before = open(file, "rb").read()
        for fn, args in ((w.write, ("/last", b"xy")), (w.write, ("/other", b"")), (w.make_dir, ("/newdir",)),
                         (w.write, ("/deep/er/file", b"")), (w.rename, ("/last", "/last-longer")), (w.copy, ("/last", "/last2"))):
            code, _ = outcome(fn, *args)
            assert code == "NO_SPACE", (fn, args, code)
            assert open(file, "rb").read() == before, (fn, args)
        w.write("/last", b"y")  # exactly the bound
        assert size_of(file) == n
        w.write("/last", b"")
        assert size_of(file) == n - 1


@test
def copies_are_counted_with_the_times_they_get():
    file = path_of("short-times")
    times = {"created_at": "", "modified_at": ""}
    files = {f"/d/e/{i}": {"content": ["x"], **times} for i in range(20)}
    for directories in ([], ["/d", "/d/e"]):
        with open(file, "w") as f:
            json.dump({"files": files, "directories": directories}, f)
        with Workspace(LIB, "state", file=file) as w:
            w.copy("/d", "/to/d")
        n = size_of(file)
        for bound, code in ((n - 1, "NO_SPACE"), (n + (not directories), "ok")):
            with open(file, "w") as f:
                json.dump({"files": files, "directories": directories}, f)
            with Workspace(LIB, "state", file=file, max_bytes=bound) as w:
                assert outcome(w.copy, "/d", "/to/d")[0] == code, (directories, bound - n)
    for bound, code in ((122, "NO_SPACE"), (123, "ok")):  # the first has no comma
        with Workspace(LIB, "state", max_bytes=bound) as w:
            assert outcome(w.write, "/a", b"x")[0] == code, bound
    for bound, code in ((8, "NO_SPACE"), (9, "ok")):
        with Workspace(LIB, "state", max_bytes=bound) as w:
            assert outcome(w.make_dir, "/aa")[0] == code, bound


@test
def a_damaged_file_has_no_copies():
    file = path_of("damaged")
    with open(file, "w") as f:
        json.dump({"files": {"/d/x": {"content": ["!"], "encoding": "base64", "created_at": "", "modified_at": ""}}}, f)
    with Workspace(LIB, "state", file=file) as w:
        for path in ("/d/x", "/d"):
            assert outcome(w.copy, path, "/copy")[0] == "INVALID", path
        w.rename("/d", "/e")
        assert outcome(w.read, "/e/x")[0] == "INVALID"
    assert load(file).files["/e/x"]["encoding"] == "base64"


@test
def no_move_makes_a_path_that_no_document_has():
    file = path_of("long")
    long, deep = "/" + "/".join(["x" * 200] * 15), "/" + "/".join(["y" * 200] * 10)
    with Workspace(LIB, "state", file=file) as w:
        w.write(long + "/file", b"1")
        w.make_dir(deep)
        for fn in (w.rename, w.copy):
            assert outcome(fn, "/" + "x" * 200, deep + "/z")[0] == "INVALID", fn
        w.rename("/" + "x" * 200, "/" + "z" * 200)
    with Workspace(LIB, "state", file=file) as w:
        assert w.read("/" + "z" * 200 + long[201:] + "/file") == b"1"


@test
def over_the_bound_it_can_only_shrink():
    file = path_of("over")
    with Workspace(LIB, "state", file=file) as w:
        w.write("/big", b"x" * 5000)
        w.write("/small", b"x")
    with Workspace(LIB, "state", file=file, max_bytes=1000) as w:
        assert outcome(w.write, "/small", b"xx")[0] == "NO_SPACE"
        assert outcome(w.write, "/big", b"x" * 4000)[0] == "ok"
        assert outcome(w.write, "/small", b"xx")[0] == "NO_SPACE"
        assert outcome(w.write, "/big", b"")[0] == "ok"
        assert outcome(w.write, "/small", b"xx")[0] == "ok"


@test
def two_processes_on_one_file():
    file = path_of("shared")
    with Workspace(LIB, "state", file=file) as a, Workspace(LIB, "state", file=file) as b:
        for i in range(20):
            a.write(f"/a{i}", b"a")
            b.write(f"/b{i}", b"b")
        assert a.read("/b19") == b"b" and b.read("/a19") == b"a"
        assert a.ref() == b.ref()
    assert len(load(file).files) == 40


@test
def the_lock_that_was_removed_is_none():
    file = path_of("locked")
    lock = path_of(".locked.lock")
    with Workspace(LIB, "state", file=file) as w, open(lock, "w") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        thread = threading.Thread(target=w.write, args=("/a", b"1"))
        thread.start()
        time.sleep(0.2)
        os.unlink(lock)  # as who destroys it does
        with open(lock, "w") as new:  # as who makes it again does
            fcntl.flock(new, fcntl.LOCK_EX)
            fcntl.flock(old, fcntl.LOCK_UN)
            thread.join(0.3)
            assert thread.is_alive() and not os.path.exists(file)
        thread.join()
        assert w.read("/a") == b"1"
        w.destroy()
    assert not os.path.exists(file) and not os.path.exists(lock)


@test
def a_link_to_a_document_stays_one():
    os.mkdir(path_of("elsewhere"))
    file, link, lost = path_of("elsewhere/real"), path_of("link"), path_of("lost")
    with Workspace(LIB, "state", file=file) as w:
        w.write("/a", b"1")
    os.symlink("elsewhere/real", link)
    os.symlink("nowhere", lost)
    with Workspace(LIB, "state", file=link) as w, Workspace(LIB, "state", file=file) as real:
        w.write("/b", b"2")
        assert real.read("/b") == b"2" and os.path.islink(link)
    with Workspace(LIB, "state", file=lost) as w:
        assert outcome(w.write, "/b", b"2")[0] == "NOT_FOUND"
    assert os.path.islink(lost)


@test
def each_version_is_newer_than_the_one_it_replaces():
    file = path_of("dated")
    with Workspace(LIB, "state", file=file) as w:
        w.write("/a", b"1")
        ahead = (time.time_ns() // 10**9 + 3600) * 10**9 + 10**9 - 1  # a clock that was set back
        os.utime(file, ns=(ahead, ahead))
        for i in range(3):
            w.write("/a", b"%d" % i)
            assert os.stat(file).st_mtime_ns == ahead + 1 + i, i


@test
def an_option_of_a_program_is_none_of_the_command():
    for words in (["exec", "s-1", "tool", "--provider", "aws"], ["exec", "s-1", "tool", "--provider=aws"],
                  ["run", "tool", "--provider", "aws"]):
        done = subprocess.run([os.path.join(BUILD, "garret"), *words], capture_output=True, text=True, timeout=20,
                              env={"GARRET_URL": "unix:/nonexistent/garret.sock"})
        assert done.returncode != 0 and "no provider" not in done.stderr, (words, done.stderr)
    done = subprocess.run([os.path.join(BUILD, "garret"), "exec", "--provider", "state", "x", "tool"], capture_output=True, text=True)
    assert "doesn't run commands" in done.stderr, done.stderr


@test
def a_small_write_costs_the_same_in_a_large_document():
    def workspace(files: int) -> Workspace:
        w = Workspace(LIB, "state", max_bytes=4 << 20)
        for i in range(files):
            w.write(f"/d{i % 40}/f{i}", b"x" * 1500)
        return w

    def spend(w: Workspace, n: int) -> float:
        start = time.process_time()
        for i in range(n):
            w.write(f"/d{i % 40}/w{i % 500}", b"small")
        return time.process_time() - start

    with workspace(20) as small, workspace(2000) as large:
        spend(small, 500), spend(large, 500)  # the 500 files are there before it counts
        times = [(spend(small, 1000), spend(large, 1000)) for _ in range(10)]
    ratio = sorted(b / a for a, b in times)[5]
    per = sum(b for _, b in times) / 10000 * 1e6
    print(f"    10,000 writes beside 2,000 files: {per:.1f} us each, {ratio:.2f} times those beside 20")
    assert ratio < 1.5, ratio


def main() -> int:
    passed = failed = 0
    for fn in tests:
        try:
            fn()
            passed += 1
            print(f"ok   {fn.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {fn.__name__}")
            traceback.print_exc(file=sys.stdout)
    shutil.rmtree(TMP)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
