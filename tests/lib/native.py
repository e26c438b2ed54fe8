#!/usr/bin/env python3
"""Native workspaces without a daemon: what outlives a process, what ends with it, and what nobody may see.

usage: tests/lib/native.py BUILD     (as root)
"""

from __future__ import annotations

import ctypes as c
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from garret import Failure, Library, Ref, Workspace  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
LIB = Library(BUILD)
TMP = tempfile.mkdtemp(prefix="garret-native-")
tests = []


def test(fn):
    tests.append(fn)
    return fn


def state(name: str) -> str:
    return os.path.join(TMP, name)


def until(condition, seconds: float = 15.0):
    end = time.time() + seconds
    while not (found := condition()):
        assert time.time() < end, "not in time"
        time.sleep(0.02)
    return found


def processes(marker: str) -> list[int]:
    """Those whose command line holds it, on the host."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if marker.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return [p for p in found if p != os.getpid()]


def other(code: str, **popen) -> subprocess.Popen:
    """Another process that has the library as L and the names of this file."""
    text = f"import sys; sys.argv = ['x', {BUILD!r}]; sys.path.insert(0, {HERE!r})\n" \
           f"from garret import *\nL = Library({BUILD!r})\n{code}"
    return subprocess.Popen([sys.executable, "-B", "-c", text], stdout=subprocess.PIPE, text=True, **popen)


@test
def a_named_session_is_found_by_the_next_process_with_what_runs_in_it():
    d = state("named")
    with Workspace(LIB, "native", state_dir=d, name="work") as w:
        w.write("file", b"kept")
        code, out, _ = w.sh("setsid sleep 31.7 >/dev/null 2>&1 & sleep 0.2; echo begun")
        assert out == b"begun\n"
        ref = w.ref()
    assert ref == ("native", "work")
    assert until(lambda: processes("31.7"))  # nothing of ours runs but the session
    p = other(f"with Workspace(L, 'native', state_dir={d!r}, name='work') as w:\n"
              "    print(w.read('file'), w.sh('pgrep -f 31.7 >/dev/null && echo there; pkill -f 31.7')[1])\n")
    assert p.communicate(timeout=60)[0] == "b'kept' b'there\\n'\n"
    with Workspace(LIB, "native", ref=ref, state_dir=d) as w:  # by its ref as well
        assert w.read("file") == b"kept"
        w.destroy()
    with Workspace(LIB, "native", state_dir=d, name="work") as w:
        try:
            w.read("file")
            raise AssertionError("a destroyed file was read")
        except Failure as e:
            assert e.code == "NOT_FOUND", e
        w.destroy()


@test
def one_that_lives_on_is_destroyed_by_who_did_not_open_it():
    d = state("left")
    with Workspace(LIB, "native", state_dir=d, name="left") as w:
        w.write("file", b"x")
        ref = w.ref()
    with Workspace(LIB, "native", ref=ref, state_dir=d) as w:
        LIB.lib.garret_workspace_free(w.w)  # only the provider is left, which finds the session when it starts
        w.w = None
        LIB.call("garret_provider_destroy", w.provider, c.byref(Ref(b"native", b"left")))
        LIB.call("garret_provider_destroy", w.provider, c.byref(Ref(b"native", b"left")))
    with Workspace(LIB, "native", ref=ref, state_dir=d) as w:
        try:
            w.read("file")
            raise AssertionError("what was destroyed is there")
        except Failure as e:
            assert e.code == "GONE", e


@test
def without_a_name_processes_end_and_files_stay():
    d = state("unnamed")
    with Workspace(LIB, "native", state_dir=d) as w:
        w.write("file", b"kept")
        w.sh("setsid sleep 41.3 >/dev/null 2>&1 & sleep 0.2")
        assert processes("41.3")
        ref = w.ref()
    until(lambda: not processes("41.3"))
    with Workspace(LIB, "native", ref=ref, state_dir=d) as w:
        assert w.read("file") == b"kept"
        w.destroy()
    with Workspace(LIB, "native", ref=ref, state_dir=d) as w:
        try:
            w.read("file")
            raise AssertionError("what was destroyed is there")
        except Failure as e:
            assert e.code == "GONE", e


@test
def what_a_killed_process_leaves_ends_with_the_next_one():
    d = state("killed")
    p = other(f"import time\nw = Workspace(L, 'native', state_dir={d!r})\n"
              "w.write('file', b'x'); w.sh('setsid sleep 51.9 >/dev/null 2>&1 & sleep 0.2')\n"
              "print(w.ref()[1], flush=True); time.sleep(60)\n")
    name = p.stdout.readline().strip()
    assert name.startswith("s-") and processes("51.9")
    p.send_signal(signal.SIGKILL)
    p.wait()
    with Workspace(LIB, "native", ref=("native", name), state_dir=d) as w:
        assert w.read("file") == b"x"
        until(lambda: not processes("51.9"))
        w.destroy()


@test
def two_processes_on_one_state_directory_are_told_so():
    d = state("busy")
    with Workspace(LIB, "native", state_dir=d) as w:
        w.write("file", b"x")
        p = other(f"w = Workspace(L, 'native', state_dir={d!r})\n"
                  "try:\n    w.write('x', b'')\nexcept Failure as e:\n    print(e.code, 'state_dir' in e.text)\nw.close()\n")
        assert p.communicate(timeout=60)[0] == "UNAVAILABLE True\n"
        w.destroy()


@test
def limits_and_volumes_are_given():
    d, host = state("limits"), state("host")
    os.makedirs(host)
    with open(os.path.join(host, "seen"), "w") as f:
        f.write("from the host")
    with Workspace(LIB, "native", state_dir=d, volumes=f"{host}:/data:ro", work_dir="/work", pids_limit=40, tmpfs_size="8m") as w:
        assert w.sh("cat /data/seen; pwd")[1] == b"from the host/work\n"
        assert w.sh("echo x > /data/new")[0] != 0
        assert w.sh("head -c 20000000 /dev/zero > /tmp/large")[0] != 0
        w.destroy()


@test
def secrets_are_in_no_text_and_no_process():
    d, marker = state("secret"), "m4rker-0f-a-s3cret"
    with Workspace(LIB, "native", state_dir=d, env=f"TOKEN={marker}") as w:
        assert w.sh("echo $TOKEN")[1].decode().strip() == marker
        assert not processes(marker)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    assert marker.encode() not in f.read() or int(pid) == os.getpid(), pid
            except OSError:
                pass
        for fn in (lambda: w.read("none"), lambda: w.sh("exit 0", timeout=-1)):
            try:
                fn()
                raise AssertionError("it did not fail")
            except Failure as e:
                assert marker not in e.text
        w.destroy()
    found = subprocess.run(["grep", "-r", "-l", marker, d], capture_output=True, text=True)
    assert not found.stdout, found.stdout


@test
def a_run_of_the_command_removes_what_it_made_and_nothing_else():
    def garret(*words: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run([os.path.join(BUILD, "garret"), *words], capture_output=True, timeout=60, **more)

    options = ["--provider", "native", "--set", "state_dir=" + state("run")]
    named = [*options, "--set", "name=kept"]
    assert garret("put", *named, "-", ":file", input=b"mine").returncode == 0
    assert garret("run", *named, "--", "cat", "file").stdout == b"mine"
    assert garret("cat", *named, "kept:file").stdout == b"mine"
    before = sorted(os.listdir(state("run/workspaces")))
    assert garret("run", *options, "--", "touch", "file").returncode == 0
    assert sorted(os.listdir(state("run/workspaces"))) == before


@test
def what_ends_can_be_destroyed():
    with Workspace(LIB, "native", state_dir=state("ends")) as w:
        w.write("file", b"1")
        ref, codes = Ref(*(t.encode() for t in w.ref())), []
        LIB.lib.garret_workspace_free(w.w)  # it begins to end
        w.w = None
        LIB.call("garret_provider_destroy", w.provider, c.byref(ref))
        assert not [d for d in os.listdir(state("ends/workspaces")) if d.startswith("s-")]
    with Workspace(LIB, "native", state_dir=state("ends")) as w:
        w.write("file", b"1")

        def destroy() -> None:
            try:
                w.destroy()
            except Failure as e:
                codes.append(e.code)

        threads = [threading.Thread(target=destroy) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not codes, codes


@test
def nothing_leaks_in_a_thousand_failures():
    d = state("leaks")

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Workspace(LIB, "native", state_dir=d) as w:
        w.write("file", b"x")
        w.sh("true")
        before = descriptors()
        for i in range(1000):
            try:
                [lambda: w.read("none"), lambda: w.write("file/below", b""), lambda: w.sh("true", timeout=-1), lambda: w.remove(".")][i % 4]()
                raise AssertionError("it did not fail")
            except Failure as e:
                assert e.code in ("NOT_FOUND", "NOT_DIRECTORY", "INVALID"), e
        assert descriptors() <= before + 2, (before, descriptors())
        w.destroy()


@test
def an_engine_that_is_killed_comes_back():
    d = state("engine")
    with Workspace(LIB, "native", state_dir=d) as w:
        w.write("file", b"x")
        engines = [p for p in processes("garret-engine") if d.encode() in open(f"/proc/{p}/cmdline", "rb").read()]
        assert engines
        os.kill(max(engines), signal.SIGKILL)
        assert w.read("file") == b"x"  # its init goes on
        assert w.sh("echo on")[1] == b"on\n"
        w.destroy()


@test
def what_is_missing_is_said_in_the_error_and_nowhere_else():
    code = f"""
import os
try:
    with Workspace(L, "native", state_dir={state("none")!r}, engine="/run/no/engine.sock") as w:
        w.sh("true")
except Failure as e:
    print(e)
os.setuid(65534)
try:
    with Workspace(L, "native") as w:
        w.sh("true")
except Failure as e:
    print(e)
"""
    p = other(code, stderr=subprocess.PIPE)
    out, err = p.communicate(timeout=90)
    assert not err, err
    first, second = out.splitlines()
    assert "did not answer" in first and "/run/no/engine.sock: No such file" in first, out
    assert "needs root" in second, out


def main() -> int:
    if os.geteuid() != 0:
        print("skipped: native sessions need root")
        print("0 passed, 0 failed, 1 skipped")
        return 0
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
    shutil.rmtree(TMP, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
