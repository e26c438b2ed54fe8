#!/usr/bin/env python3
"""The conformance suite through the docker provider, on an engine of its own; both ways in.

usage: tests/lib/conform_docker.py BUILD     (as root)
"""

from __future__ import annotations

import os
import subprocess
import sys

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "provider")]
from conforming import Tally  # noqa: E402
from dockerbox import IMAGE, Engine  # noqa: E402

t = Tally(BUILD, "docker")
engine = Engine()
try:
    host = f"host=unix://{engine.socket}"
    t.conform("docker, through init", host, f"image={IMAGE}", "reach=init")
    t.conform("docker, with limits", host, f"image={IMAGE}", "network_mode=none", "mem_limit=256m", "cpus=1.5", "work_dir=/work", "env=A=b")
    t.conform("docker, with a name", host, f"image={IMAGE}", "container_name=conform")
    t.conform("docker, a command an exec", host, f"image={IMAGE}", "reach=exec")
    p = subprocess.run([os.path.join(BUILD, "garret"), "run", "--provider", "docker", "--set", host, "--set", "image=127.0.0.1:1/none:1", "--", "true"],
                       capture_output=True, text=True)
    t.check("a pull is told", p.returncode != 0 and "garret: pulling 127.0.0.1:1/none:1\n" in p.stderr, p)
    left = engine.containers()
    t.check("nothing is left", not left, sorted(left))
finally:
    engine.stop()
sys.exit(t.end())
