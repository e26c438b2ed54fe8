"""A resource runs out, each is told so in words, nobody else is hurt, and all is well when it is back."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from contextlib import contextmanager
from http.client import HTTPException

from ground import Failure, Ground, descendants, g, wait_until


def clear(text) -> bool:
    return len(str(text).split()) >= 3


@contextmanager
def daemon(ground: Ground, base: str, **env: str):
    d = ground.daemon(base, **env)
    try:
        ground.daemon_start(d)
        yield d
        d.process.send_signal(signal.SIGINT)
        if d.process.wait(60):
            raise Failure(f"garretd ended badly: {d.log()[-2000:]}")
    finally:
        if d.process and d.process.poll() is None:
            d.process.kill()
            d.process.wait()
        if hasattr(d, "log_path"):
            os.unlink(d.log_path)


def opened(d, name: str):
    status, answer = d.call("POST", "/sessions", {"session_id": name}, timeout=40)
    if status != 200:
        raise Failure(f"open {name}: {status} {answer}")
    return answer["token"]


def run(d, name: str, token: str, script: str, **more):
    body = {"argv": ["sh", "-c", script], "run_id": uuid.uuid4().hex, "timeout_seconds": 20, **more}
    return d.call("POST", f"/sessions/{name}/run", body, token, timeout=40)


def works(d, name: str, token: str) -> None:
    status, answer = run(d, name, token, "echo hi")
    if status != 200 or answer["stdout"] != "hi\n" or answer["exit_code"]:
        raise Failure(f"{name} doesn't work: {status} {answer}")


def told(status: int, answer) -> None:
    """Success, or an error with a detail."""
    if status < 400:
        return
    if status >= 600 or not isinstance(answer, dict) or not clear(answer.get("detail", "")):
        raise Failure(f"unclear: {status} {answer}")


def descriptors(pid: int) -> int:
    return max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1


@contextmanager
def few_descriptors(pid: int, slack: int):
    """As its own user: root may lack the capability to do it for others."""
    line = next(x for x in open(f"/proc/{pid}/limits") if x.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    uid = next(x for x in open(f"/proc/{pid}/status") if x.startswith("Uid:")).split()[1]

    def put(n) -> None:
        subprocess.run(["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "prlimit", "--pid", str(pid), f"--nofile={n}:{hard}"],
                       check=True)

    put(descriptors(pid) + slack)
    try:
        yield
    finally:
        put(soft)


def descriptors_of_garretd(ground: Ground) -> None:
    base = ground.fresh()
    with daemon(ground, base) as d:
        old = opened(d, "old")
        works(d, "old", old)
        for slack in range(0, 8):
            with few_descriptors(d.process.pid, slack):
                answers: list = []

                def ask(slack=slack, answers=answers):
                    answers.append(d.call("POST", "/sessions", {"session_id": f"n{slack}"}, timeout=40))
                    try:
                        answers.append(run(d, "old", old, "head -c 200000 /dev/zero | tr '\\0' x"))
                    except HTTPException as error:  # no descriptor for the rest of a body: broken off, not cut
                        answers.append((503, {"detail": f"the answer broke off: {error}"}))

                t = threading.Thread(target=ask, daemon=True)
                t.start()
                t.join(0.7)  # without room to accept, it waits; that is no error
            t.join(45)
            if len(answers) != 2:
                raise Failure(f"with {slack} descriptors: no answer after they were back; {answers}")
            for status, answer in answers:
                told(status, answer)
            status, answer = answers[1]
            if status == 200 and answer["exit_code"] == 0 and len(answer["stdout"]) != 200000:
                raise Failure(f"with {slack} descriptors: {len(answer['stdout'])} bytes of output")
            works(d, "old", old)
        works(d, "new", opened(d, "new"))


def descriptors_of_the_engine(ground: Ground) -> None:
    base = ground.fresh()
    e = ground.engine(base)
    old = e.open("old", flags=g.CONNECTED | g.EPHEMERAL)
    refused = 0
    for slack in range(0, 14):
        with few_descriptors(e.process.pid, slack):
            for n in range(3):
                try:
                    e.open(f"s{slack}-{n}", flags=g.CONNECTED | g.EPHEMERAL).close()
                except g.EngineError as error:
                    refused += 1
                    if not clear(error.message):
                        raise Failure(f"unclear: {error}") from None
                except EOFError:
                    raise Failure(f"with {slack} descriptors the engine or a session ended") from None
                if old.sh("echo hi").stdout != b"hi\n":
                    raise Failure("the other session is hurt")
    if not refused:
        raise Failure("nothing was refused: the limit didn't bite")
    end = time.monotonic() + 20
    while True:
        try:
            e.open("new", flags=g.CONNECTED | g.EPHEMERAL).close()
            break
        except g.EngineError as error:
            if time.monotonic() > end:
                raise Failure(f"not back: {error}") from None
            time.sleep(0.2)
    old.close()
    if ground.engine_end(e):
        raise Failure("the engine ended badly")


def processes_of_a_session(ground: Ground) -> None:
    base = ground.fresh()
    with daemon(ground, base, SANDBOXD_PIDS_LIMIT="16") as d:
        full, other = opened(d, "full"), opened(d, "other")
        status, answer = run(d, "full", full, "for i in $(seq 40); do sleep 600 >/dev/null 2>&1 </dev/null & done; exit 0")
        told(status, answer)
        # What is left is taken by commands, one each.
        for _ in range(4):
            threading.Thread(target=lambda: run(d, "full", full, "exec sleep 600"), daemon=True).start()
        wait_until(lambda: run(d, "full", full, "echo hi")[0] == 429, 10)
        status, answer = run(d, "full", full, "echo hi")
        if status != 429 or "pids" not in str(answer) or "full" not in str(answer):
            raise Failure(f"no processes left: {status} {answer}")
        works(d, "other", other)
        inside = [p for p, c in descendants(d.process.pid).items() if c == "sleep 600"]
        for p in inside:
            os.kill(p, signal.SIGKILL)
        if not inside or not wait_until(lambda: run(d, "full", full, "echo hi")[0] == 200, 10):
            raise Failure(f"no run after {len(inside)} processes ended")
        works(d, "full", full)


@contextmanager
def small_disk(ground: Ground, mib: int = 24):
    base = ground.fresh()
    image, at = os.path.join(base, "image"), os.path.join(base, "disk")
    os.mkdir(at, 0o755)
    with open(image, "wb") as f:
        f.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    r = subprocess.run(["mount", "-o", "loop", image, at], capture_output=True, text=True, check=False)
    if r.returncode:
        raise Failure(f"no loop device: {r.stderr}")
    ground.mounts.append(next(line.split(" ", 2)[2] for line in open("/proc/self/mountinfo").read().splitlines() if f" {at} " in line))
    try:
        os.chmod(at, 0o755)
        yield at
    finally:
        for _ in range(100):
            if subprocess.run(["umount", at], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        shutil.rmtree(base, ignore_errors=True)


def fill(path: str) -> None:
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 20, 4096, 512, 1):
            try:
                while f.write(b"x" * size):
                    pass
            except OSError:
                pass


def a_full_disk(ground: Ground) -> None:
    with small_disk(ground) as at:
        with daemon(ground, at) as d:
            old = opened(d, "old")
            works(d, "old", old)
            fill(os.path.join(at, "ballast"))
            works(d, "old", old)
            status, answer = run(d, "old", old, "head -c 3000000 /dev/zero | tr '\\0' x")
            told(status, answer)
            if status == 200 and answer["exit_code"] == 0 and len(answer["stdout"]) < 3000000 and not (
                    answer.get("stdout_truncated") or answer.get("output_limited") or "limit" in str(answer)[-400:]):
                raise Failure(f"output lost in silence: {len(answer['stdout'])} {str(answer)[-300:]}")
            refused = 0
            for n in range(12):
                status, answer = d.call("POST", "/sessions", {"session_id": f"s{n}"}, timeout=40)
                told(status, answer)
                refused += status >= 400
            if not refused:
                raise Failure("a full disk and twelve sessions opened on it")
            works(d, "old", old)
            os.unlink(os.path.join(at, "ballast"))
            if not wait_until(lambda: d.call("POST", "/sessions", {"session_id": uuid.uuid4().hex[:8]}, timeout=40)[0] == 200, 20):
                raise Failure("room again, but no session")
            works(d, "old", old)
        fill(os.path.join(at, "ballast"))
        must_refuse(ground, at, "space")
        os.unlink(os.path.join(at, "ballast"))
        with daemon(ground, at) as d:
            status, answer = d.call("GET", "/sessions/old", None, old, timeout=40)
            if status != 410:
                raise Failure(f"the old session is forgotten: {status} {answer}")
            works(d, "new", opened(d, "new"))


def must_refuse(ground: Ground, base: str, word: str) -> None:
    """garretd doesn't start there, or starts and says so at an open."""
    d = ground.daemon(base)
    try:
        ground.daemon_start(d)
    except RuntimeError as error:
        if word not in str(error):
            raise Failure(f"no {word!r} in: {error}") from None
        os.unlink(d.log_path)
        return
    try:
        status, answer = d.call("POST", "/sessions", {"session_id": "x"}, timeout=40)
        if status < 400 or word not in str(answer):
            raise Failure(f"no {word!r}: {status} {answer}")
    finally:
        d.process.send_signal(signal.SIGINT)
        d.process.wait(60)
        os.unlink(d.log_path)


def a_read_only_disk(ground: Ground) -> None:
    with small_disk(ground) as at:
        with daemon(ground, at) as d:
            old = opened(d, "old")
        subprocess.run(["mount", "-o", "remount,ro", at], check=True)
        must_refuse(ground, at, "Read-only")
        r = ground.run(at, ["--", "true"])
        if r.returncode != 125 or "Read-only" not in r.stderr:
            raise Failure(f"garret run: {r.returncode} {r.stderr}")
        subprocess.run(["mount", "-o", "remount,rw", at], check=True)
        with daemon(ground, at) as d:
            if d.call("GET", "/sessions/old", None, old, timeout=40)[0] != 410:
                raise Failure("the old session is forgotten")
            works(d, "new", opened(d, "new"))


def a_database_that_is_none(ground: Ground) -> None:
    base = ground.fresh()
    with daemon(ground, base) as d:
        old = opened(d, "old")
    db = os.path.join(base, "state", "daemon", "garret.db")
    subprocess.run(["sync", "-f", db], check=False)
    good = open(db, "rb").read()

    def put(data: bytes) -> None:
        for tail in ("-wal", "-shm"):
            if os.path.exists(db + tail):
                os.unlink(db + tail)
        with open(db, "r+b") as f:  # its owner stays
            f.truncate(0)
            f.write(data)

    for data, word in [(b"no database at all " * 1000, "database"), (good[:100] + os.urandom(len(good) - 100), "registry"),
                       (os.urandom(4096), "database")]:
        put(data)
        must_refuse(ground, base, word)
        if open(db, "rb").read() != data:
            raise Failure("a database that can't be read was written to")
    put(good)
    c = sqlite3.connect(db)
    c.execute("PRAGMA user_version=99")
    c.commit()
    c.close()
    must_refuse(ground, base, "newer")
    put(good)
    with daemon(ground, base) as d:
        if d.call("GET", "/sessions/old", None, old, timeout=40)[0] != 410:
            raise Failure("the old session is forgotten")
        works(d, "new", opened(d, "new"))


TESTS = (descriptors_of_garretd, descriptors_of_the_engine, processes_of_a_session, a_full_disk, a_read_only_disk,
         a_database_that_is_none)
