"""Start garretd for a test, on loopback with a state directory of its own, and stop it whole.

    with Daemon(build="build", SANDBOXD_MAX_SESSIONS="100") as d:
        d.url, d.token, d.state, d.pid
        s = d.open()            # a Session
        s.run(["true"])         # the parsed answer
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from http.client import HTTPConnection
from urllib.parse import urlsplit

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOKEN = "test-service-token-0123456789abcdef"


def crowd() -> float:
    """How many want each processor, at least 1: what takes a moment takes as many then."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Session:
    def __init__(self, daemon: Daemon, sid: str, token: str) -> None:
        self.daemon, self.id, self.token = daemon, sid, token

    def run(self, argv, timeout=None, run_id=None, env=None, status=200, **more):
        body = {"argv": argv, "run_id": run_id or uuid.uuid4().hex, **more}
        if timeout is not None:
            body["timeout_seconds"] = timeout
        if env is not None:
            body["env"] = env
        code, answer = self.daemon.call("POST", f"/sessions/{self.id}/run", body, self.token)
        assert code == status, (code, answer)
        return answer

    def sh(self, script, **more):
        return self.run(["sh", "-c", script], **more)

    def stop(self, run_id):
        return self.daemon.call("POST", f"/sessions/{self.id}/runs/{run_id}/stop", None, self.token)[0]

    def close(self, purge=True):
        return self.daemon.call("DELETE", f"/sessions/{self.id}" + ("?purge=true" if purge else ""), None, self.token)[0]


class Daemon:
    def __init__(self, build: str | None = None, state: str | None = None, before: list[str] | None = None, **env: str) -> None:
        self.build = os.path.join(TOP, build or os.environ.get("GARRET_BUILD", "build"))
        self.own_state = state is None
        self.state = state or tempfile.mkdtemp(prefix="garret-wire-")
        os.chmod(self.state, 0o755)  # garretd is not root when it goes there
        self.before = before or []  # words in front of the program
        self.env = env
        self.token = env.get("SANDBOXD_TOKEN", TOKEN)
        self.process: subprocess.Popen | None = None

    def start(self, pass_socket=None) -> Daemon:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "GARRET_"))}
        env.update(SANDBOXD_TOKEN=self.token, SANDBOXD_HOST="127.0.0.1", SANDBOXD_PORT="0", GARRET_STATE_DIR=self.state,
                   GARRET_LOG_LEVEL=os.environ.get("GARRET_TEST_LOG", "info"), SANDBOXD_MAX_SESSIONS="100")
        env.update(self.env)
        self.log_path = os.path.join(tempfile.gettempdir(), f"garretd-{uuid.uuid4().hex}.log")
        atexit.register(self.clean)  # for those that are not used in a `with`
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([*self.before, os.path.join(self.build, "garretd")], env=env, stderr=log, stdin=subprocess.DEVNULL,
                                            **({} if pass_socket is None else {"preexec_fn": lambda: os.dup2(pass_socket.fileno(), 3), "pass_fds": (3,)}))
        deadline = time.time() + 60
        while time.time() < deadline:
            m = re.search(r" ready url=(http://\S+)", self.log())
            if m:
                self.url = m[1]
                break
            if self.process.poll() is not None:
                raise RuntimeError(f"garretd ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.01)
        else:
            raise RuntimeError(f"garretd is not ready:\n{self.log()}")
        self.pid = self.process.pid
        return self

    def clean(self) -> None:
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)
        if os.path.exists(self.log_path):
            os.unlink(self.log_path)

    def log(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self, sig=signal.SIGINT) -> int | None:
        code = None
        if self.process:
            if self.process.poll() is None:
                self.process.send_signal(sig)
            try:
                code = self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return code

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(self, *exc) -> None:
        try:
            if exc[0] is not None and os.environ.get("GARRET_TEST_VERBOSE"):
                print(self.log())
            code = self.stop()
            log = self.log()
            if exc[0] is None:
                assert code == 0 and "Sanitizer" not in log, f"garretd ended with {code}:\n{log[-3000:]}"
        finally:
            self.clean()

    def call(self, method, path, body=None, token=None, timeout=120, headers=None):
        """(status, parsed JSON or bytes); one connection a call."""
        u = urlsplit(self.url)
        c = HTTPConnection(u.hostname, u.port, timeout=timeout)
        try:
            h = {"X-Sandbox-Token": token or self.token, **(headers or {})}
            data = None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                h.setdefault("content-type", "application/json")
            c.request(method, path, data, h)
            r = c.getresponse()
            raw = r.read()
            if raw and r.getheader("content-type", "").startswith("application/json"):
                return r.status, json.loads(raw)
            return r.status, raw
        finally:
            c.close()

    def open(self, sid=None, status=200, **more):
        code, answer = self.call("POST", "/sessions", {"session_id": sid, **more})
        assert code == status, (code, answer)
        return Session(self, answer["session"]["session_id"], answer["token"]) if status == 200 else answer
