#!/usr/bin/env python3
"""The application layer: options, scopes, rows, sessions, documents, the log.

usage: tests/app/run.py BUILD [--in WORLD,...] [--database URL] [NAME...]

Each test is named after what it shows: the rules D1 to D7, and the lines of D10, D11 and D12 of the notes on
what applications do (counted in the order in which they stand there).  A test of a workspace is run in
each world: a document, sessions of this machine, of garretd, of the published service, of Docker.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import damage, documents, log, opening, scopes, sessions  # noqa: E401,E402,F401
from applib import AppLibrary  # noqa: E402
from scene import NONE, Scene, tests  # noqa: E402
from worlds import world  # noqa: E402

def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--in", dest="worlds", default="state,native,garretd")
    p.add_argument("--database")
    p.add_argument("names", nargs="*", default=[])
    a = p.parse_intermixed_args()
    library = AppLibrary(os.path.abspath(a.build))
    library.build = os.path.abspath(a.build)
    passed = failed = 0
    for name in ["none", *a.worlds.split(",")]:
        w = None if name == "none" else world(name, library, library.build)
        try:
            for fn, where in tests:
                if a.names and not any(n in fn.__name__ for n in a.names):
                    continue
                fits = where == NONE if w is None else where in w.fits
                if not fits:
                    continue
                began = time.time()
                s = None
                label = fn.__name__ + (f" [{name}]" if w else "")
                try:
                    s = Scene(library, w, a.database)
                    fn(s)
                    s.close()
                    s = None
                    passed += 1
                    print(f"ok   {label} ({time.time() - began:.1f} s)", flush=True)
                except Exception:  # noqa: BLE001
                    failed += 1
                    print(f"FAIL {label} ({time.time() - began:.1f} s)\n{traceback.format_exc()}", flush=True)
                finally:
                    if s:
                        shutil.rmtree(s.dir, ignore_errors=True)
        finally:
            if w:
                w.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
