#!/usr/bin/env python3
"""Kill any of garret's processes, alone or several together, at random instants, while clients work; then count.

usage: tests/fault/chaos.py BUILD [--seconds N | --kills N] [--seed N] [--verbose]

Clients open, run, write, append, sleep, wake, close and purge, and keep a model of what was
answered.  A killer kills garretd, the engine, its keeper, zygote, reaper, helpers and single inits;
garretd is started again when it is gone, now and then in a way in which one process is killed
before its Nth system call.  From time to time, and at the end, everybody pauses and it is looked
whether everything that was answered holds and nothing is there that belongs to nobody.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import Ground, Report, descendants, own_view, read, wait_until  # noqa: E402

UID = 1862270975  # of garretd
TOKEN = "chaos-service-token-0123456789abcdef"
PATIENCE = 60  # seconds in which an answer must come, whatever is killed
WORKERS, NAMES = 5, 2
AGAIN = (429, 502, 503)  # not now
STOCK = 8  # sessions that stand ready, at most
BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError)
KINDS = {
    "daemon": 20, "engine": 20, "zygote": 8, "reaper": 6, "keeper": 5, "init": 8, "helper": 4, "stock": 3, "worker": 3, "stop": 4,
    "daemon+engine": 6, "engine+zygote": 4, "engine twice": 6, "daemon, then engine": 6, "engine, then daemon": 6,
    "keeper+engine": 4, "daemon+keeper": 4, "engine+init": 4, "daemon+init": 4, "all but the inits": 6, "daemon twice": 6,
}

COUNTED = ("sessions lost", "files lost or changed", "outputs lost or changed", "runs carried out twice", "tokens that stopped working",
           "background processes lost",
           *(f"left: {k}" for k in ("processes", "mounts", "control groups", "network namespaces", "id slots", "sessions of the engine", "slots",
                                    "write layers", "workspaces", "trash", "temporary files", "control sockets", "run directories", "anything")))


class Figures:
    """What went wrong, by kind; the first of each in words."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bad: dict[str, list[str]] = collections.defaultdict(list)
        self.count: collections.Counter = collections.Counter()
        self.kills: collections.Counter = collections.Counter()

    def wrong(self, kind: str, what: str) -> None:
        with self.lock:
            self.bad[kind].append(f"{time.strftime('%H:%M:%S')} {what}")
            print(f"WRONG {kind}: {time.time():.3f} {what}", flush=True)


class Service:
    """garretd, started again whenever it is gone."""

    def __init__(self, ground: Ground, rng: random.Random, figures: Figures, system: bool) -> None:
        self.ground, self.rng, self.figures = ground, rng, figures
        self.base = ground.fresh()
        self.state = os.path.join(self.base, "state")
        os.makedirs(self.state)
        self.log_path = os.path.join(self.base, "log")
        self.report = os.path.join(self.base, "report")
        self.system = rng.random() < 0.25 or system  # an engine of its own, as a service manager would start it
        self.engine_state, self.engine_socket = self.state, os.path.join(self.base, "engine.sock")
        if self.system:
            self.engine_state = os.path.join(self.base, "engine")
            with open(os.path.join(self.base, "engine.conf"), "w") as f:
                f.write(f"state_dir = {self.engine_state}\nallow_uids = {UID}\n")
        self.engine: subprocess.Popen | None = None
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process: subprocess.Popen | None = None
        self.up = threading.Event()
        self.ending = False
        self.crowded = rng.random() < 0.5
        self.precise = True  # may be started under a kill at the Nth call
        self.doomed: dict[str, float] = {}  # name -> since when we may have killed its init
        self.hits: set[int] = set()  # inits that were killed before a system call
        self.stock: set[int] = set()  # inits that were killed while they were nobody's, as far as we knew
        self.lock = threading.Lock()

    def doomed_start(self, argv: list[str], roles: tuple[str, ...]) -> list[str]:
        """Now and then under a kill before a system call that is still to come."""
        if not self.precise or self.rng.random() > 0.4:
            return argv
        role, number = self.rng.choice(roles), int(10 ** self.rng.uniform(0.5, 4))
        self.figures.count[f"started with a kill in {role}"] += 1
        return [self.ground.inject, self.report, role, "all", str(number), "kill", "--", *argv]

    def keep_engine(self) -> None:
        """A second supervisor: a thread."""
        conf = os.path.join(self.base, "engine.conf")
        while not self.ending:
            argv = self.doomed_start([os.path.join(self.ground.build, "garret-engine"), "--system", "--socket", self.engine_socket, "--config", conf],
                                     ("engine", "engine", "zygote", "reaper", "helper", "init"))
            self.note_hit()
            with open(self.log_path, "ab") as log:
                log.write(f"---- {time.time():.3f} {argv}\n".encode())
                log.flush()
                e = self.engine = subprocess.Popen(argv, env={"GARRET_LOG_LEVEL": "info"}, stderr=log, stdin=subprocess.DEVNULL)
            self.ground.children.append(e)
            while e.poll() is None and not self.ending:
                try:
                    os.chown(self.engine_socket, 0, UID)  # as --group would
                except FileNotFoundError:
                    pass
                time.sleep(0.01)
            if self.ending:
                return
            self.ground.children.remove(e)
            time.sleep(self.rng.choice((0, 0, 0.1)))

    def start(self) -> None:
        private = () if self.system else ("engine", "engine", "zygote", "reaper", "helper", "init", "keeper")
        argv = self.doomed_start([os.path.join(self.ground.build, "garretd")], ("daemon", "daemon", *private))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
        env.update(SANDBOXD_TOKEN=TOKEN, SANDBOXD_HOST="127.0.0.1", SANDBOXD_PORT=str(self.port), GARRET_STATE_DIR=self.state,
                   GARRET_LOG_LEVEL="info", SANDBOXD_MAX_SESSIONS="100")
        if self.system:
            env["GARRET_ENGINE"] = self.engine_socket
        if self.crowded:  # whoever was not used for a moment sleeps
            env.update(SANDBOXD_MAX_SESSIONS=str(WORKERS + 2), SANDBOXD_EVICT_IDLE_AFTER="0")
        self.note_hit()
        with open(self.log_path, "ab") as log:
            log.write(f"---- {time.time():.3f} {argv}\n".encode())
            log.flush()
            self.process = subprocess.Popen(argv, env=env, stderr=log, stdin=subprocess.DEVNULL)
        self.ground.children.append(self.process)

    def healthy(self) -> bool:
        try:
            return self.call("GET", "/healthz", timeout=5)[0] == 200
        except BROKEN:
            return False

    def keep(self) -> None:
        """The supervisor: a thread."""
        failed = 0
        while not self.ending:
            self.start()
            p = self.process
            while p.poll() is None and not self.ending:
                if not self.up.is_set() and self.healthy():
                    self.up.set()
                    failed = 0
                time.sleep(0.01)
            if self.ending:
                return
            if not self.up.is_set():
                failed += 1
                if failed > 8:
                    self.figures.wrong("starts that failed", f"{failed} in a row, the last with {p.returncode}: {self.log()[-1500:]}")
            self.up.clear()
            self.ground.children.remove(p)
            self.ground.reap()
            time.sleep(self.rng.choice((0, 0, 0.02, 0.3)))

    def log(self) -> str:
        return read(self.log_path)

    def call(self, method: str, path: str, body=None, token: str | None = None, timeout: float = 70, raw: bool = False):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            head = {"X-Sandbox-Token": token or TOKEN}
            if data is not None and not isinstance(body, bytes):
                head["content-type"] = "application/json"
            c.request(method, path, data, head)
            r = c.getresponse()
            text = r.read()
            if text and r.getheader("content-type", "").startswith("application/json") and not raw:
                return r.status, json.loads(text)
            return r.status, text
        finally:
            c.close()

    # ---- who is who ----

    def processes(self) -> dict[int, tuple[str, int]]:
        """pid -> (role, parent)"""
        found = {}
        for p in descendants(os.getpid()):
            try:
                text = read(f"/proc/{p}/stat")
                name, parent = text[text.index("(") + 1:text.rindex(")")], int(text.rsplit(")", 1)[1].split()[1])
                inside = read(f"/proc/{p}/status").split("NSpid:", 1)[1].split("\n", 1)[0].split()
            except (OSError, IndexError):
                continue
            role = {"garretd": "daemon", "garret-keeper": "keeper", "garret-engine": "engine", "garret-zygote": "zygote",
                    "garret-reaper": "reaper", "garret-files": "worker", "garret-init": "init", "exe": "zygote"}.get(name)
            if role == "init" and inside[-1] != "1":
                continue
            if role:
                found[p] = role, parent
        for p, (role, parent) in list(found.items()):
            if role == "zygote" and found.get(parent, ("",))[0] == "zygote":
                found[p] = "helper", parent
        return found

    def names(self) -> dict[int, str]:
        """Inits that were said to be ready: pid -> session."""
        return {int(pid): name for name, pid in re.findall(r"session_(?:opened|restored|adopted) session=(\S+) pid=(\d+)", self.log())}

    def doom(self, name: str) -> None:
        with self.lock:
            self.doomed[name] = time.monotonic()

    def note_hit(self) -> None:
        """Was an init killed before a system call?  Its session isn't lost by us then."""
        try:
            text = read(self.report)
        except OSError:
            return
        for pid in map(int, re.findall(r"^hit init (\d+)", text, re.M)):
            name = self.names().get(pid)
            if name and pid not in self.hits:
                self.hits.add(pid)
                self.doom(name)

    def is_doomed(self, name: str) -> bool:
        self.note_hit()
        # One that stood ready may have become a session's just before it was killed; the line that says so may come late.
        wait_until(lambda: self.note_stock() or name in self.doomed, 1)
        with self.lock:
            return name in self.doomed

    def note_stock(self) -> bool:
        """Is it known of all that were killed in stock whether they were a session's?"""
        names = self.names()
        with self.lock:
            for pid in self.stock & names.keys():
                self.doomed[names[pid]] = time.monotonic()
            self.stock -= names.keys()
            return not self.stock

    def saved(self, name: str, since: float) -> None:
        """There is a new one of that name, asked for after that time."""
        with self.lock:
            if self.doomed.get(name, since) < since:
                del self.doomed[name]


class Lost(Exception):
    """The session's init was killed: it has to be opened again."""


class Name:
    """What is known of one name."""

    def __init__(self, service: Service, name: str) -> None:
        self.service, self.figures, self.name = service, service.figures, name
        self.token: str | None = None
        self.old_tokens: list[str] = []
        self.files: dict[str, set[str]] = {}  # path -> digests it may have
        self.appended: dict[str, list[bytes]] = {}  # path -> what it may contain
        self.outputs: dict[str, tuple[dict, dict]] = {}  # run id -> request, answer
        self.marks: dict[str, bool] = {}  # run id -> answered
        self.background: str | None = None
        self.exists = False  # its workspace
        self.maybe = False  # a purge may have removed it

    # ---- asking ----

    def ask(self, method: str, path: str, body=None, token: str | None = None, raw: bool = False):
        """(status, answer, a connection broke before)"""
        broken, end = False, time.monotonic() + PATIENCE * self.service.ground.slow
        last: object = None
        while time.monotonic() < end:
            try:
                status, answer = self.service.call(method, path, body, token, raw=raw)
                if status not in AGAIN and not (status == 409 and isinstance(answer, dict) and answer.get("reason") == "opening"):
                    return status, answer, broken
                last = status, answer
                self.figures.count[f"{status} {re.sub('w[0-9]-[0-9]', 'X', str(answer))[:90]}"] += 1
                time.sleep(0.05)
            except BROKEN as e:
                broken, last = True, e
                self.figures.count["connections that broke"] += 1
                time.sleep(0.02)
        self.figures.wrong("no answer", f"{method} {path}: {last}")
        raise Lost

    def of(self, method: str, path: str, body=None, raw: bool = False):
        """About the open session."""
        status, answer, broken = self.ask(method, path, body, self.token, raw=raw)
        if status in (401, 410, 404) and not (status == 404 and "/file" in path):
            self.gone(f"{method} {path}: {status} {answer}")
        return status, answer, broken

    def gone(self, what: str) -> None:
        if not self.service.is_doomed(self.name):
            kind = "tokens that stopped working" if " 401 " in what else "sessions lost"
            self.figures.wrong(kind, f"{self.name} {what}")
        raise Lost

    def forget_generation(self) -> None:
        if self.token:
            self.old_tokens = [self.token]  # of a name only a few are known for long
        self.token = None
        self.outputs.clear()
        self.background = None
        for path in [p for p in self.files if p.startswith("/home")]:
            del self.files[path]

    # ---- what a client does ----

    def open(self) -> None:
        began = time.monotonic()
        status, answer, _ = self.ask("POST", "/sessions", {"session_id": self.name, "reuse": True})
        if status != 200:
            self.figures.wrong("opens refused", f"{self.name} {status} {answer}")
            raise Lost
        if self.token and answer["token"] != self.token:
            if not self.service.is_doomed(self.name):
                self.figures.wrong("sessions lost", f"{self.name} has another token at its next open")
            self.forget_generation()
        self.token = answer["token"]
        self.exists = True
        self.maybe = False
        self.service.saved(self.name, began)

    def close(self, purge: bool) -> None:
        status, answer, broken = self.ask("DELETE", f"/sessions/{self.name}" + ("?purge=true" if purge else ""), None, self.token)
        if status not in (204, 404, 410) or (status != 204 and not broken and not self.service.is_doomed(self.name)):
            self.figures.wrong("closes refused", f"{self.name} purge={purge} {status} {answer}")
        self.forget_generation()
        if not purge:
            return
        if status != 204:  # asked for, but not known to be done
            self.ask("DELETE", f"/workspaces/{self.name}")
        self.files.clear()
        self.appended.clear()
        self.marks.clear()
        self.exists = False

    def write(self, rng: random.Random) -> None:
        where = rng.choice(("/workspace/", "/workspace/", "/home/agent/"))
        path, content = where + f"f{rng.randrange(6)}", rng.randbytes(rng.choice((10, 4096, 300000)))
        digest = hashlib.sha256(content).hexdigest()
        before = self.files.get(path)
        self.files[path] = (before or {"none"}) | {digest}
        status, answer, _ = self.of("PUT", f"/v1/sessions/{self.name}/file?path={path}", content)
        if status in (200, 201, 204):
            self.files[path] = {digest}
        else:
            self.figures.wrong("writes refused", f"{self.name} {path} {status} {answer}")

    def append(self, rng: random.Random) -> None:
        path, line = f"/workspace/a{rng.randrange(3)}", uuid.uuid4().hex.encode() + b"\n"
        may = self.appended.setdefault(path, [b""])
        try:
            status, answer = self.service.call("PUT", f"/v1/sessions/{self.name}/file?append=true&path={path}", line, self.token)
        except BROKEN:
            self.appended[path] = may + [m + line for m in may]
            if len(self.appended[path]) > 64:
                self.look_appended(path)
            return
        if status in (401, 404, 410):
            self.appended[path] = may + [m + line for m in may]
            self.gone(f"append: {status} {answer}")
        if status < 300:
            self.appended[path] = [m + line for m in may]
        elif status not in AGAIN:
            self.figures.wrong("writes refused", f"{self.name} {path} {status} {answer}")
        else:
            self.appended[path] = may + [m + line for m in may]

    def run(self, rng: random.Random) -> None:
        run_id, size = uuid.uuid4().hex, rng.choice((0, 10, 3000, 70000, 400000))
        script = f"echo {run_id} >> /workspace/marks; sleep {rng.choice((0, 0, 0, 0.3, 1.5))}; head -c {size} /dev/zero | tr '\\0' x; echo err >&2"
        body = {"argv": ["sh", "-c", script], "run_id": run_id, "timeout_seconds": 60}
        self.marks[run_id] = False
        status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
        if status != 200:
            self.figures.wrong("runs refused", f"{self.name} {run_id} {status} {answer}")
            return
        if answer["stdout"] != "x" * size or answer["stderr"] != "err\n" or answer["exit_code"] != 0:
            if self.service.is_doomed(self.name):
                raise Lost
            self.figures.wrong("outputs lost or changed", f"{self.name} {run_id} of {size}: {str(answer)[:200]} {len(answer['stdout'])}")
        self.marks[run_id] = True
        self.outputs[run_id] = body, answer

    def ask_again(self, rng: random.Random) -> None:
        if not self.outputs:
            return
        body, was = self.outputs[rng.choice(list(self.outputs))]
        status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
        if status != 200 or answer != was:
            self.figures.wrong("outputs lost or changed", f"{self.name} {body['run_id']} asked again: {status} {str(answer)[:200]} was {str(was)[:200]}")
            self.outputs.pop(body["run_id"])

    def detached(self, rng: random.Random) -> None:
        """A run that nobody waits for; asked about until it has ended."""
        run_id, size = uuid.uuid4().hex, rng.choice((10, 70000, 900000))
        script = f"echo {run_id} >> /workspace/marks; head -c {size} /dev/zero | tr '\\0' y; sleep {rng.choice((0, 0.5, 2))}; printf end"
        body = {"argv": ["sh", "-c", script], "run_id": run_id, "timeout_seconds": 60, "detach": True}
        self.marks[run_id] = False
        status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
        if status not in (200, 202):
            self.figures.wrong("runs refused", f"{self.name} {run_id} detached: {status} {answer}")
            return
        self.marks[run_id] = True
        end = time.monotonic() + PATIENCE * self.service.ground.slow
        while answer.get("state") != "exited" and time.monotonic() < end:
            time.sleep(0.1)
            status, answer, _ = self.of("GET", f"/sessions/{self.name}/runs/{run_id}")
            if status != 200:
                break
        status, got, _ = self.of("GET", f"/sessions/{self.name}/runs/{run_id}/output?stream=stdout&offset=0", raw=True)
        if status != 200 or got != b"y" * size + b"end":
            if self.service.is_doomed(self.name):
                raise Lost
            self.figures.wrong("outputs lost or changed", f"{self.name} {run_id} detached, of {size}: {status} {len(got)} bytes, {str(answer)[:300]}")

    def twins(self, rng: random.Random) -> None:
        """Two clients with one run: one execution, one answer."""
        run_id = uuid.uuid4().hex
        script = f"echo {run_id} >> /workspace/marks; sleep {rng.choice((0, 0.3))}; head -c 80000 /dev/urandom | od -An -tx1"
        body = {"argv": ["sh", "-c", script], "run_id": run_id, "timeout_seconds": 60}
        self.marks[run_id] = False
        got: list = []

        def one() -> None:
            try:
                got.append(self.of("POST", f"/sessions/{self.name}/run", body)[:2])
            except Lost:
                got.append(None)

        threads = [threading.Thread(target=one) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if None in got:
            raise Lost
        if got[0] != got[1] or got[0][0] != 200:
            self.figures.wrong("outputs lost or changed", f"{self.name} {run_id} of two: {str(got[0])[:200]} {str(got[1])[:200]}")
            return
        self.marks[run_id] = True
        self.outputs[run_id] = body, got[0][1]

    def sleep(self) -> None:
        status, answer, _ = self.of("POST", f"/v1/sessions/{self.name}/sleep")
        self.background = None
        if status not in (204, 409):
            self.figures.wrong("sleeps refused", f"{self.name} {status} {answer}")

    def wake(self) -> None:
        status, answer, _ = self.of("POST", f"/v1/sessions/{self.name}/wake")
        if status != 204:
            self.figures.wrong("wakes refused", f"{self.name} {status} {answer}")

    def in_background(self) -> None:
        """A process without a run goes on as well."""
        if self.background:
            body = {"argv": ["kill", "-0", self.background], "run_id": uuid.uuid4().hex, "timeout_seconds": 60}
            status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
            if status != 200 or answer["exit_code"] != 0:
                self.figures.wrong("background processes lost", f"{self.name} {self.background} {status} {answer}")
                self.background = None
            return
        body = {"argv": ["sh", "-c", "setsid sleep 100000 >/dev/null 2>&1 </dev/null & echo $!"], "run_id": uuid.uuid4().hex, "timeout_seconds": 60}
        status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
        if status == 200 and answer["exit_code"] == 0:
            self.background = answer["stdout"].strip()

    # ---- looking ----

    def content(self, path: str) -> bytes | None:
        status, answer, _ = self.of("GET", f"/v1/sessions/{self.name}/file?path={path}", raw=True)
        if status == 404:
            return None
        if status != 200:
            self.figures.wrong("reads refused", f"{self.name} {path} {status} {answer[:200]}")
            raise Lost
        return answer

    def look_file(self, path: str) -> None:
        content = self.content(path)
        digest = "none" if content is None else hashlib.sha256(content).hexdigest()
        if digest not in self.files[path]:
            self.figures.wrong("files lost or changed", f"{self.name} {path} has {digest[:12]} ({len(content or b'')} bytes), not {[d[:12] for d in self.files[path]]}")
        self.files[path] = {digest}

    def look_appended(self, path: str) -> None:
        content = self.content(path) or b""
        if content not in self.appended[path]:
            self.figures.wrong("files lost or changed", f"{self.name} {path}: {len(content)} bytes, not one of {[len(m) for m in self.appended[path]]}")
        self.appended[path] = [content]

    def look_marks(self) -> None:
        times = collections.Counter((self.content("/workspace/marks") or b"").decode().split())
        for run_id, answered in self.marks.items():
            n = times[run_id]
            if n > 1:
                self.figures.wrong("runs carried out twice", f"{self.name} {run_id}: {n} times")
            elif answered and n != 1:
                self.figures.wrong("outputs lost or changed", f"{self.name} {run_id} was answered and has left no mark")

    def look(self) -> None:
        """All that was answered."""
        if not self.exists:
            return
        self.open()
        for path in list(self.files):
            self.look_file(path)
        for path in list(self.appended):
            self.look_appended(path)
        self.look_marks()
        for run_id in list(self.outputs)[-20:]:
            body, was = self.outputs[run_id]
            status, answer, _ = self.of("POST", f"/sessions/{self.name}/run", body)
            if status != 200 or answer != was:
                self.figures.wrong("outputs lost or changed", f"{self.name} {run_id} at the end: {status} {str(answer)[:200]} was {str(was)[:200]}")
        for token in self.old_tokens:
            status, answer, _ = self.ask("GET", f"/sessions/{self.name}", None, token)
            if status != 410:
                self.figures.wrong("ended tokens", f"{self.name} {status} {answer}")

    def step(self, rng: random.Random) -> None:
        try:
            if not self.token:
                self.open()
            what = rng.random()
            if what < 0.18:
                self.run(rng)
            elif what < 0.24:
                self.detached(rng)
            elif what < 0.30:
                self.twins(rng)
            elif what < 0.45:
                self.write(rng)
            elif what < 0.55:
                self.append(rng)
            elif what < 0.65:
                self.ask_again(rng)
            elif what < 0.72 and not self.service.crowded:
                self.in_background()
            elif what < 0.80:
                self.sleep()
            elif what < 0.83:
                self.wake()
            elif what < 0.90 and self.files:
                self.look_file(rng.choice(list(self.files)))
            elif what < 0.93:
                self.open()
            elif what < 0.96:
                self.close(False)
            elif what < 0.98:
                self.close(True)
            self.figures.count["steps"] += 1
        except Lost:
            self.forget_generation()


class Crowd:
    """Threads that work, and pause when they are told to."""

    def __init__(self, service: Service, seed: int) -> None:
        self.go, self.end = threading.Event(), False
        self.idle = threading.Semaphore(0)
        self.names = [[Name(service, f"w{w}-{n}") for n in range(NAMES)] for w in range(WORKERS)]
        self.figures = service.figures
        self.threads = [threading.Thread(target=self.work, args=(mine, random.Random(seed + i)), daemon=True)
                        for i, mine in enumerate(self.names)]
        self.waiting = 0
        self.lock = threading.Lock()
        for t in self.threads:
            t.start()

    def work(self, mine: list[Name], rng: random.Random) -> None:
        while True:
            with self.lock:
                self.waiting += 1
            self.go.wait()
            with self.lock:
                self.waiting -= 1
            if self.end:
                return
            try:
                rng.choice(mine).step(rng)
            except Exception as e:  # a bug of this program
                self.figures.wrong("of this test", repr(e))
                raise

    def pause(self) -> None:
        self.go.clear()
        if not wait_until(lambda: self.waiting == WORKERS, 3 * PATIENCE):
            self.figures.wrong("no answer", "somebody waits for ever")

    def each(self) -> list[Name]:
        return [n for mine in self.names for n in mine]


def kill(pids) -> int:
    n = 0
    for p in pids:
        try:
            os.kill(p, signal.SIGKILL)
            n += 1
        except OSError:
            pass
    return n


class Killer:
    def __init__(self, service: Service, rng: random.Random) -> None:
        self.service, self.rng, self.figures = service, rng, service.figures

    def of(self, *roles: str) -> list[int]:
        return [p for p, (role, _) in self.service.processes().items() if role in roles]

    def inits(self) -> list[int]:
        """One that is a session's, told to be so before it dies."""
        names = self.service.names()
        found = [p for p in self.of("init") if p in names]
        if not found:
            return []
        p = self.rng.choice(found)
        self.service.doom(names[p])
        return [p]

    def once(self) -> None:
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "stop":
            p = self.of("daemon")
            for pid in p:
                os.kill(pid, signal.SIGTERM)
        elif kind == "stock":
            names = self.service.names()
            p = [x for x in self.of("init") if x not in names][:1]
            with self.service.lock:
                self.service.stock.update(p)
            kill(p)
        elif kind.endswith(" twice"):
            role = kind.split()[0]
            p = self.of(role)
            kill(p)
            wait_until(lambda: [x for x in self.of(role) if x not in p], 5)
            time.sleep(self.rng.choice((0, 0.01, 0.05, 0.1)))
            kill(self.of(role))
        elif ", then " in kind:
            first, then = kind.split(", then ")
            p = self.of(first)
            kill(p)
            time.sleep(self.rng.choice((0.001, 0.01, 0.03, 0.1)))
            kill(self.of(then))
        elif kind == "all but the inits":
            p = self.of("daemon", "engine", "keeper", "zygote", "reaper", "helper")
            kill(p)
        elif kind == "init":
            p = self.inits()
            kill(p)
        else:
            p = []
            for role in kind.split("+"):
                p += self.inits() if role == "init" else self.of(role)
            kill(p)
        if p:
            self.figures.kills[kind] += 1
            self.say(kind, p)

    def say(self, kind: str, pids: list[int]) -> None:
        with open(self.service.log_path, "a") as f:
            f.write(f"---- {time.time():.3f} killed {kind} {pids}\n")


# ---- what is there and belongs to nobody ----


class Leaks:
    def __init__(self, service: Service, crowd: Crowd) -> None:
        self.service, self.crowd, self.ground = service, crowd, service.ground
        self.state = service.engine_state

    def list(self, *path: str) -> list[str]:
        top = self.service.state if path[0] == "daemon" else self.state
        try:
            return [n for n in os.listdir(os.path.join(top, *path)) if n not in (".trash", ".spare")]
        except FileNotFoundError:
            return []

    def stock(self) -> tuple[dict[str, str], list[str]]:
        """Slots of the engine: those of sessions with their names, those that stand ready."""
        used, ready = {}, []
        for slot in self.list("sessions"):
            try:
                meta = read(os.path.join(self.state, "sessions", slot, "meta")).split()
            except OSError:
                meta = []
            if len(meta) > 11:
                used[slot] = meta[11]
            else:
                ready.append(slot)
        return used, ready

    def files(self) -> dict[str, list[str]]:
        known = {n.name for n in self.crowd.each() if n.exists}
        temporary = []
        for top in ("workspaces", "sessions", "layers"):
            for d, _, names in os.walk(os.path.join(self.state, top)):
                temporary += [os.path.join(d, n) for n in names if n.startswith(".garret-")]
        return {
            "trash": self.list("trash") + self.list("workspaces", ".trash"),
            "write layers": [n for n in self.list("layers") if n not in known],
            "workspaces": [n for n in self.list("workspaces") if n not in known],
            "run directories": [n for n in self.list("daemon", "runs") if n.rsplit(".", 1)[0] not in known],
            "temporary files": temporary,
        }

    def live(self) -> dict[str, list[str]]:
        status, answer = self.service.call("GET", "/sessions")
        awake = sorted(s["session_id"] for s in answer["sessions"] if s["alive"])
        used, ready = self.stock()
        processes = self.service.processes()
        inits = [p for p, (role, _) in processes.items() if role == "init"]
        found = self.files()
        found["sessions of the engine"] = [] if sorted(used.values()) == awake else [f"{used} are not {awake}"]
        found["slots"] = ready if len(ready) > STOCK else []
        found["processes"] = [] if len(inits) == len(used) + len(ready) else [f"{len(inits)} inits, {len(used)} sessions, {len(ready)} in stock"]
        for role in ("daemon", "engine", "zygote", "reaper"):
            n = sum(r == role for r, _ in processes.values())
            # A helper whose zygote was killed is the engine's child, and is called the same.
            if n != 1 and not (role == "zygote" and 1 < n <= 1 + len(ready)):
                found["processes"].append(f"{n} of {role}")
        slots = {*used, *ready}
        groups = [g for g in self.ground.groups_left() if re.fullmatch(r"[0-9a-f]{16}", os.path.basename(g)) and
                  re.fullmatch(r"[0-9a-f]{16}", os.path.basename(os.path.dirname(g)))]
        found["control groups"] = [g for g in groups if os.path.basename(g) not in slots]
        sockets = self.list("daemon", "ctl")
        found["control sockets"] = [f"{len(sockets)} for {len(awake)}"] if len(sockets) > len(awake) + 8 else []
        engines = [p for p, (role, _) in processes.items() if role == "engine"]
        claims = sum(int(m) < 1 << 36 for p in engines for m in self.claims(p))
        found["id slots"] = [f"{claims} claimed for {len(slots)}"] if claims != len(slots) else []
        nets = {os.readlink(f"/proc/{p}/ns/net") for p in inits}
        held = {os.readlink(f"/proc/{p}/fd/{n}") for p in engines for n in os.listdir(f"/proc/{p}/fd") if os.path.islink(f"/proc/{p}/fd/{n}")}
        held = {h for h in held if h.startswith("net:")}
        found["network namespaces"] = [f"{len(held - nets)} held by the engine"] if len(held - nets) > 64 else []
        found["mounts"] = [m for m in self.ground.left(groups=False) if m.startswith("mount ")]
        return found

    def claims(self, pid: int) -> list[str]:
        """The first bytes of what this process has locked in the file of ids."""
        for n in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{n}") == "/run/garret/ids":
                    return re.findall(r"^lock:.* (\d+) \d+$", read(f"/proc/{pid}/fdinfo/{n}"), re.M)
            except OSError:
                pass
        return []

    def look(self, what) -> None:
        """What goes away within a while was only on its way."""
        found: dict[str, list[str]] = {}

        def none() -> bool:
            try:
                found.clear()
                found.update({k: v for k, v in what().items() if v})
                return not found
            except (*BROKEN, KeyError) as e:
                found["of this test"] = [repr(e)]
                return False

        if not wait_until(none, 20 * self.ground.slow):
            for kind, things in found.items():
                self.service.figures.wrong(f"left: {kind}", f"{things[:6]}")


def quiet(service: Service, crowd: Crowd, leaks: Leaks) -> None:
    crowd.pause()
    service.precise = False
    # Under a kill that is still to come nothing is quiet.
    for process, role in ((service.process, "daemon"), (service.engine, "engine")):
        if process and process.args[0] == service.ground.inject:
            kill(p for p, (r, _) in service.processes().items() if r == role)
            process.wait(60)
    if not wait_until(service.healthy, 60 * service.ground.slow):
        service.figures.wrong("starts that failed", f"not up: {service.log()[-1500:]}")
        return
    for name in crowd.each():
        try:
            name.look()
        except Lost:
            name.forget_generation()
    leaks.look(leaks.live)
    service.precise = True


def finish(service: Service, crowd: Crowd, leaks: Leaks) -> None:
    """Purge all by request: nothing is left on the disk.  SIGINT: nothing is left at all."""
    service.precise = False
    for name in crowd.each():
        try:
            if name.exists:
                name.open()
                name.close(True)
        except Lost:
            pass
    leaks.look(leaks.live)
    service.ending = True
    service.process.send_signal(signal.SIGINT)
    code = service.process.wait(60)
    if code:
        service.figures.wrong("ended badly", f"{code}: {service.log()[-1000:]}")
    if service.engine:
        service.engine.send_signal(signal.SIGINT)
        code = service.engine.wait(60)
        if code:
            service.figures.wrong("ended badly", f"the engine: {code}: {service.log()[-1000:]}")
    leaks.look(lambda: {**leaks.files(), "anything": service.ground.left(), "sessions of the engine": leaks.list("sessions"),
                        "control sockets": leaks.list("daemon", "ctl")})


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?", default="build")
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--kills", type=int)
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    p.add_argument("--system", action="store_true", help="with the system's engine (else: now and then)")
    p.add_argument("--log", help="keep the log of garretd here")
    a = p.parse_args()
    if os.geteuid() != 0:
        print("needs root")
        return 77
    own_view()
    print(f"seed {a.seed} (run again with --seed {a.seed}; what happens when is not the same each time)", flush=True)
    rng, figures = random.Random(a.seed), Figures()
    ground = Ground(a.build)
    service = Service(ground, random.Random(a.seed + 1), figures, a.system)
    try:
        crowd = Crowd(service, a.seed + 100)
        killer, leaks = Killer(service, rng), Leaks(service, crowd)
        if service.system:
            threading.Thread(target=service.keep_engine, daemon=True).start()
        threading.Thread(target=service.keep, daemon=True).start()
        service.up.wait(60)
        end = time.monotonic() + a.seconds
        while (sum(figures.kills.values()) < a.kills) if a.kills else (time.monotonic() < end):
            stretch = time.monotonic() + rng.uniform(4, 12)
            crowd.go.set()
            while time.monotonic() < stretch:
                time.sleep(rng.choice((0.02, 0.1, 0.3, 0.6, 1.2)))
                killer.once()
            quiet(service, crowd, leaks)
        finish(service, crowd, leaks)
    finally:
        service.ending = True
        if a.log:
            with open(a.log, "w") as f:
                f.write(service.log())
        ground.close()
    print(f"steps of clients: {figures.count['steps']}, {'crowded' if service.crowded else 'with room for all'}, "
          f"{'a system engine' if service.system else 'a private engine'}")
    print("kills: " + ", ".join(f"{k} {n}" for k, n in sorted(figures.kills.items())))
    print("also: " + ", ".join(f"{k} {n}" for k, n in sorted(figures.count.items())))
    for kind in (*COUNTED, *sorted(set(figures.bad) - set(COUNTED))):
        print(f"    {kind}: {len(figures.bad.get(kind, []))}")
    wrong = sum(map(len, figures.bad.values()))
    print(f"{sum(figures.kills.values())} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
