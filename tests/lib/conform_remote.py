#!/usr/bin/env python3
"""The conformance suite through the sandboxd provider: on garretd, and on the published service.

usage: tests/lib/conform_remote.py BUILD
"""

from __future__ import annotations

import os
import sys

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "provider"), os.path.join(os.path.dirname(HERE), "wire")]
from conforming import Tally  # noqa: E402
from daemon import Daemon  # noqa: E402
from fake_sandboxd import TOKEN  # noqa: E402
from sandboxd import published  # noqa: E402

OLD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/venv-0.2.32")
t = Tally(BUILD, "sandboxd")
with Daemon(build=BUILD) as d:
    t.conform("garretd", f"service_url={d.url}", f"token={d.token}")
    t.conform("garretd, with a name", f"service_url={d.url}", f"token={d.token}", "session_name=conform")
for name, more in (("the published service", {}), ("the published service, files by commands", {"native": False}), ("its 0.2.32", {"venv": OLD})):
    with published(**more) as (url, _):
        t.conform(name, f"service_url={url}", f"token={TOKEN}")
sys.exit(t.end())
