"""garret conform as a test: its counts added up, what isn't ok shown."""

from __future__ import annotations

import os
import re
import subprocess


class Tally:
    def __init__(self, build: str, provider: str) -> None:
        self.build, self.provider, self.total = build, provider, [0, 0, 0]

    def conform(self, name: str, *settings: str) -> None:
        print(f"-- {name}", flush=True)
        words = [w for s in settings for w in ("--set", s)]
        p = subprocess.run([os.path.join(self.build, "garret"), "conform", self.provider, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, errors="replace", timeout=600)
        last = re.search(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", p.stdout, re.M)
        counts = [int(n or 0) for n in last.groups()] if last else [0, 1, 0]
        print("\n".join(line for line in p.stdout.splitlines() if not line.startswith("ok") and line[:1].isalpha()), flush=True)
        for i in range(3):
            self.total[i] += counts[i]

    def check(self, name: str, ok: bool, why: object = "") -> None:
        self.total[0 if ok else 1] += 1
        print(f"ok      {name}" if ok else f"FAILED  {name}: {why}", flush=True)

    def end(self) -> int:
        print(f"{self.total[0]} passed, {self.total[1]} failed, {self.total[2]} skipped")
        return 1 if self.total[1] or not self.total[0] else 0
