#!/usr/bin/env python3
"""The application in a process of its own that may be killed: requests come as lines of JSON, so do answers and events.

usage: tests/app/puppet.py BUILD STATE_DIR DATABASE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from applib import App, AppLibrary, Failure, Run  # noqa: E402


class Killed(Exception):
    """It was killed before it answered."""


class Seat:
    """Where runs are opened: an application of this process."""

    kills = False

    def __init__(self, app: App) -> None:
        self.app = app

    def open(self, org: str, agent: str, run: str, sandbox: dict, facts: dict) -> Handle:
        return Handle(self.app.run(org, agent, run, sandbox, **facts))

    def resume(self, org: str, run: str) -> Handle:
        return Handle(self.app.resume(org, run))


class Handle:
    def __init__(self, run: Run) -> None:
        self.run = run

    def info(self) -> dict:
        return self.run.info()

    def do(self, op: str, *args: str):
        """Texts, and names; nothing else."""
        if op == "write":
            return self.run.write(args[0], args[1].encode())
        if op == "read":
            return self.run.read(args[0]).decode()
        return getattr(self.run, op)(*args)

    def delegate(self, agent: str, run: str, shares: bool, binding: dict | None) -> Handle | None:
        d = self.run.delegate(agent, run, shares, binding)
        return Handle(d) if d else None

    def close(self, **how: bool) -> None:
        self.run.close(**how)


class Puppet(Seat):
    """Another process; one request at a time."""

    kills = True

    def __init__(self, build: str, state_dir: str, database: str, on_event) -> None:
        self.args = [sys.executable, "-B", os.path.abspath(__file__), build, state_dir, database]
        self.on_event = on_event
        self.process: subprocess.Popen | None = None

    def ask(self, what: str, *args, kill_after: float | None = None):
        if not self.process:
            self.process = subprocess.Popen(self.args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps([what, *args]) + "\n")
        self.process.stdin.flush()
        timer = None
        if kill_after is not None:
            timer = threading.Timer(kill_after, self.process.kill)
            timer.start()
        answer = None
        for line in self.process.stdout:
            if line.endswith("\n"):
                answer = json.loads(line)
                if "event" not in answer:
                    break
                self.on_event(answer["event"], answer["fields"])
                answer = None
        if timer:
            timer.join()
        if answer is None or timer:
            self.kill()
        if answer is None:
            raise Killed
        if "code" in answer:
            raise Failure(answer["code"], answer["text"])
        return answer["value"]

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            for line in self.process.stdout:
                if line.endswith("\n") and "event" in (event := json.loads(line)):
                    self.on_event(event["event"], event["fields"])
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def end(self) -> None:
        if self.process:
            self.process.stdin.close()
            assert self.process.wait(60) == 0
            self.process.stdout.close()
            self.process = None

    def open(self, org: str, agent: str, run: str, sandbox: dict, facts: dict) -> RemoteHandle:
        return RemoteHandle(self, self.ask("open", org, agent, run, sandbox, facts))

    def resume(self, org: str, run: str) -> RemoteHandle:
        return RemoteHandle(self, self.ask("resume", org, run))


class RemoteHandle:
    def __init__(self, puppet: Puppet, n: int) -> None:
        self.puppet, self.n = puppet, n

    def info(self) -> dict:
        d = self.puppet.ask("info", self.n)
        return {**d, "ref": tuple(d["ref"])}

    def do(self, op: str, *args: str, kill_after: float | None = None):
        return self.puppet.ask("do", self.n, op, *args, kill_after=kill_after)

    def delegate(self, agent: str, run: str, shares: bool, binding: dict | None) -> RemoteHandle | None:
        n = self.puppet.ask("delegate", self.n, agent, run, shares, binding)
        return None if n is None else RemoteHandle(self.puppet, n)

    def close(self, **how: bool) -> None:
        self.puppet.ask("close", self.n, how)


def main() -> None:
    def say(d: dict) -> None:
        sys.stdout.write(json.dumps(d) + "\n")
        sys.stdout.flush()
    build, state_dir, database = sys.argv[1:]

    class Events(list):
        def append(self, event) -> None:
            say({"event": event[0], "fields": event[1]})
    app = App(AppLibrary(build), state_dir, database)
    app.events = Events()
    seat, handles = Seat(app), {}

    def serve(what: str, *args):
        if what in ("open", "resume"):
            h = getattr(seat, what)(*args)
        elif what == "delegate":
            h = handles[args[0]].delegate(*args[1:])
        elif what == "close":
            return handles.pop(args[0]).close(**args[1])
        else:
            return getattr(handles[args[0]], what)(*args[1:])
        if h is None:
            return None
        n = max(handles, default=0) + 1
        handles[n] = h
        return n
    for line in sys.stdin:
        try:
            value = serve(*json.loads(line))
            say({"value": value})
        except Failure as e:
            say({"code": e.code, "text": e.text})
    for h in reversed(handles.values()):
        h.close()
    app.close()


if __name__ == "__main__":
    main()
