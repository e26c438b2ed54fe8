#!/usr/bin/env python3
"""The files around the tools (tests/app/test_*.c) on workspaces other than documents.

usage: tests/app/around.py BUILD [--in WORLD,...]

The programs run where the environment tells them to.  They have no database: what is recorded of
these files is tested in tests/app/run.py, on both kinds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from applib import AppLibrary  # noqa: E402
from worlds import world  # noqa: E402

PROGRAMS = ("files", "attach", "attach_hard", "spill", "prune", "skill", "reply")


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--in", dest="worlds", default="native,garretd")
    a = p.parse_args()
    build = os.path.abspath(a.build)
    library = AppLibrary(build)
    passed = failed = 0
    for name in a.worlds.split(","):
        w = world(name, library, build)
        try:
            settings = "\n".join(f"{k}={v}" for k, v in w.open_settings().items())
            for program in PROGRAMS:
                began = time.time()
                r = subprocess.run([f"{build}/tests/app/test-{program}"], capture_output=True, text=True, errors="replace", timeout=600,
                                   env={**os.environ, "GARRET_APP_TEST_PROVIDER": w.kind, "GARRET_APP_TEST_SETTINGS": settings})
                text = r.stdout + r.stderr
                good = sum(map(int, re.findall(r"^\[  PASSED  \] (\d+) test", text, re.M)))
                bad = sum(map(int, re.findall(r"^\[  FAILED  \] (\d+) test", text, re.M)))
                bad = bad or (r.returncode != 0)
                passed, failed = passed + good, failed + bad
                print(f"{'FAIL' if bad else 'ok  '} {program} [{name}]: {good} passed ({time.time() - began:.1f} s)" + (f"\n{text}" if bad else ""),
                      flush=True)
        finally:
            w.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
