"""What the tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "wire"))
sys.dont_write_bytecode = True
from daemon import Daemon, crowd  # noqa: E402,F401

BUILD = os.path.join(TOP, sys.argv[1] if len(sys.argv) > 1 else "build")
GARRET = os.path.join(BUILD, "garret")
SLOW = 5.0 if "asan" in BUILD else 1.0
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def garret(*args, timeout=60, **kw):
    return subprocess.run([GARRET, *args], capture_output=True, text=True, timeout=timeout, **kw)


def exec_env(d):
    env = {**os.environ, "GARRET_URL": d.url, "SANDBOXD_TOKEN": d.token}
    env.pop("GARRET_SOCKET", None)
    return env


def tmux(*args):
    return subprocess.run(["tmux", "-L", "garret-test", *args], capture_output=True, text=True)


def screen():
    return tmux("capture-pane", "-p").stdout


def wait_screen(word, seconds=20):
    end = time.time() + seconds * SLOW
    while word not in screen():
        assert time.time() < end, f"no {word!r} on the screen:\n{screen()}"
        time.sleep(0.1)
