#!/usr/bin/env python3
"""The conformance suite through the sandboxd provider: on garretd, and on the published service.

usage: tests/lib/conform_remote.py BUILD
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "provider"), os.path.join(os.path.dirname(HERE), "wire")]
from daemon import Daemon  # noqa: E402
from fake_sandboxd import TOKEN  # noqa: E402
from sandboxd import published  # noqa: E402

OLD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/venv-0.2.32")
total = [0, 0, 0]


def conform(name: str, *settings: str) -> None:
    print(f"-- {name}", flush=True)
    words = [w for s in settings for w in ("--set", s)]
    p = subprocess.run([os.path.join(BUILD, "garret"), "conform", "sandboxd", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, errors="replace", timeout=300)
    last = re.search(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", p.stdout, re.M)
    counts = [int(n or 0) for n in last.groups()] if last else [0, 1, 0]
    print("\n".join(line for line in p.stdout.splitlines() if not line.startswith("ok") and line[:1].isalpha()), flush=True)
    for i in range(3):
        total[i] += counts[i]


with Daemon(build=BUILD) as d:
    conform("garretd", f"service_url={d.url}", f"token={d.token}")
    conform("garretd, with a name", f"service_url={d.url}", f"token={d.token}", "session_name=conform")
for name, more in (("the published service", {}), ("the published service, files by commands", {"native": False}), ("its 0.2.32", {"venv": OLD})):
    with published(**more) as (url, _):
        conform(name, f"service_url={url}", f"token={TOKEN}")
print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
sys.exit(1 if total[1] or not total[0] else 0)
