#!/usr/bin/env python3
"""The conformance suite through the docker provider, on an engine of its own; both ways in.

usage: tests/lib/conform_docker.py BUILD     (as root)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "provider")]
from dockerbox import IMAGE, Engine  # noqa: E402

total = [0, 0, 0]


def conform(name: str, *settings: str) -> None:
    print(f"-- {name}", flush=True)
    words = [w for s in settings for w in ("--set", s)]
    p = subprocess.run([os.path.join(BUILD, "garret"), "conform", "docker", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, errors="replace", timeout=600)
    last = re.search(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", p.stdout, re.M)
    counts = [int(n or 0) for n in last.groups()] if last else [0, 1, 0]
    print("\n".join(line for line in p.stdout.splitlines() if not line.startswith("ok") and line[:1].isalpha()), flush=True)
    for i in range(3):
        total[i] += counts[i]


engine = Engine()
try:
    host = f"host=unix://{engine.socket}"
    conform("docker, through init", host, f"image={IMAGE}", "reach=init")
    conform("docker, with limits", host, f"image={IMAGE}", "network_mode=none", "mem_limit=256m", "cpus=1.5", "work_dir=/work", "env=A=b")
    conform("docker, with a name", host, f"image={IMAGE}", "container_name=conform")
    conform("docker, a command an exec", host, f"image={IMAGE}", "reach=exec")
    p = subprocess.run([os.path.join(BUILD, "garret"), "run", "--provider", "docker", "--set", host, "--set", "image=127.0.0.1:1/none:1", "--", "true"],
                       capture_output=True, text=True)
    told = p.returncode != 0 and "garret: pulling 127.0.0.1:1/none:1\n" in p.stderr
    total[0 if told else 1] += 1
    print("ok      a pull is told" if told else f"FAILED  a pull is told: {p.returncode} {p.stderr}")
    left = engine.containers()
    total[1 if left else 0] += 1
    if left:
        print(f"FAILED  nothing is left: {sorted(left)}")
finally:
    engine.stop()
print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
sys.exit(1 if total[1] or not total[0] else 0)
