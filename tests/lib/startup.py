#!/usr/bin/env python3
"""How much longer does `garret exec` take to start than `true`?  Interleaved; the medians are compared.

What it does after its start (asking a daemon) is left out: it is given a daemon that isn't there.
usage: tests/lib/startup.py BUILD
"""

import os
import statistics
import subprocess
import sys
import time

BOUND_MS = 3.0
garret = os.path.join(os.path.abspath(sys.argv[1]), "garret")
commands = {"true": ["/bin/true"], "garret exec": [garret, "exec", "no-session", "--", "true"]}
env = {**os.environ, "GARRET_URL": "unix:/nonexistent/garret.sock", "SANDBOXD_TOKEN": "x"}
times = {name: [] for name in commands}
for _ in range(60):
    for name, argv in commands.items():
        start = time.perf_counter()
        p = subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        times[name].append((time.perf_counter() - start) * 1000)
        if name != "true" and (p.returncode == 0 or b"nonexistent" not in p.stderr):
            sys.exit(f"garret exec said: {p.stderr!r}")
more = statistics.median(times["garret exec"]) - statistics.median(times["true"])
print(f"    true {statistics.median(times['true']):.2f} ms, garret exec {more:.2f} ms more")
sys.exit(0 if more < BOUND_MS else 1)
