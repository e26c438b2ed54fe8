"""Whose session is it?  What is found on the disk is proven before it is believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from ground import Failure, Ground, descendants, read, wait_until
from resources import daemon, opened, works


def comm(pid: int) -> str:
    try:
        return read(f"/proc/{pid}/comm").strip()
    except OSError:
        return ""


def slots(base: str) -> dict[str, str]:
    """Sessions of the engine there: name -> its meta file."""
    found, top = {}, os.path.join(base, "state", "sessions")
    for slot in os.listdir(top):
        path = os.path.join(top, slot, "meta")
        words = read(path).split() if os.path.exists(path) else []
        if len(words) > 11:
            found[words[11]] = path
    return found


def killed(ground: Ground, base: str, names: tuple[str, ...], engine: bool = False):
    """(tokens, metas) of a garretd, perhaps with its engine, that was killed with these sessions open."""
    d = ground.daemon_start(ground.daemon(base))
    tokens = {n: opened(d, n) for n in names}
    for n, token in tokens.items():
        works(d, n, token)
    metas = slots(base)
    if engine:  # all at once, and none is there to end the others in good order
        for p in descendants(os.getpid()):
            if comm(p) in ("garret-keeper", "garret-engine", "garret-zygote", "garret-reaper"):
                os.kill(p, signal.SIGKILL)
    d.process.kill()
    d.process.wait()
    os.unlink(d.log_path)
    # An engine whose owner is gone lets go of what is durable and ends.
    if not wait_until(lambda: not [p for p in descendants(os.getpid()) if comm(p) in ("garret-keeper", "garret-engine")]):
        raise Failure(f"the engine stays: {descendants(os.getpid())}")
    return tokens, metas


def a_pid_is_no_proof(ground: Ground) -> None:
    """D19, and meta files that are torn: not adopted; a stranger is not hurt, the others go on."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    stat = read(f"/proc/{stranger.pid}/stat").rsplit(")", 1)[1].split()
    start, space = stat[19], str(os.stat(f"/proc/{stranger.pid}/ns/pid").st_ino)

    def words(line: str, **other: str) -> str:
        w = line.split(" ")
        for place, value in other.items():
            w[int(place[1:])] = value
        return " ".join(w)

    lies = {
        "another process has the pid": lambda m: words(m, _1=str(stranger.pid)),
        "and began then": lambda m: words(m, _1=str(stranger.pid), _2=start),
        "or is in that namespace": lambda m: words(m, _1=str(stranger.pid), _3=space),
        "it is of an earlier boot": lambda m: words(m, _1=str(stranger.pid), _2=start, _3=space, _12="00000000-0000-0000-0000-000000000000\n"),
        "nobody has it": lambda m: words(m, _1="4194303"),
        "half a line": lambda m: m[: len(m) // 2],
        "no end": lambda m: m[:-1],
        "another version": lambda m: words(m, _0="2"),
        "noise": lambda m: "\0\xff" * 100,
    }
    try:
        for what, lie in lies.items():
            base = ground.fresh()
            tokens, metas = killed(ground, base, ("false", "good"))
            line = read(metas["false"])
            with open(metas["false"], "w", encoding="latin-1") as f:
                f.write(lie(line))
            with daemon(ground, base) as d:
                works(d, "good", tokens["good"])
                status, answer = d.call("GET", "/sessions/false", None, tokens["false"], timeout=40)
                if status != 200 or answer["alive"]:
                    raise Failure(f"{what}: adopted all the same: {status} {answer}")
                if stranger.poll() is not None:
                    raise Failure(f"{what}: the stranger was killed")
                # Its own processes are found by their control groups.
                if not wait_until(lambda: int(line.split()[1]) not in descendants(os.getpid())):
                    raise Failure(f"{what}: its init lives")
                status, answer = d.call("POST", "/sessions", {"session_id": "false", "reuse": True}, timeout=40)
                if status != 200:
                    raise Failure(f"{what}: not opened again: {status} {answer}")
                works(d, "false", answer["token"])
            if not wait_until(lambda: list(descendants(os.getpid())) == [stranger.pid]):
                raise Failure(f"{what}: left: {ground.left()}")
    finally:
        stranger.kill()
        stranger.wait()


def ids_of_the_living_are_taken(ground: Ground) -> None:
    """D20: no engine of the host gives out the ids of a session that lives, also when its own engine doesn't."""
    base, other = ground.fresh(), ground.fresh()
    names = ("a", "b", "c")
    tokens, metas = killed(ground, base, names, engine=True)
    taken = {int(read(metas[n]).split()[4]) for n in names}
    if len(taken) != 3:
        raise Failure(f"one range for several sessions: {taken}")
    with daemon(ground, other) as d:
        for n in range(8):
            works(d, f"o{n}", opened(d, f"o{n}"))
        theirs = {int(read(m).split()[4]) for m in slots(other).values()}
        if len(theirs) != 8 or theirs & taken:
            raise Failure(f"{theirs} beside {taken}")
        with daemon(ground, base) as first:
            for n in names:
                works(first, n, tokens[n])
            again = {int(read(m).split()[4]) for m in slots(base).values()}
            if not taken <= again:
                raise Failure(f"{taken} became {again}")


def a_range_that_is_held_is_waited_for(ground: Ground) -> None:
    """Somebody has the bytes of the ids for a moment, when the next engine comes: no session is given up."""
    import fcntl
    import struct

    base = ground.fresh()
    tokens, metas = killed(ground, base, ("a",), engine=True)
    place = int(read(metas["a"]).split()[4])
    fd = os.open("/run/garret/ids", os.O_RDWR)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, place, 1, 0))  # F_OFD_SETLK
    d = ground.daemon(base)
    pause = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"], pass_fds=[fd])  # holds it as well
    os.close(fd)
    try:
        began = time.monotonic()
        ground.daemon_start(d)
        if time.monotonic() - began < 0.2:
            raise Failure("the test holds another byte")
        works(d, "a", tokens["a"])
        d.process.send_signal(signal.SIGINT)
        if d.process.wait(60):
            raise Failure(f"garretd ended badly: {d.log()[-2000:]}")
    finally:
        pause.wait()
        os.unlink(d.log_path)


TESTS = (a_pid_is_no_proof, ids_of_the_living_are_taken, a_range_that_is_held_is_waited_for)
