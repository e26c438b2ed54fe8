#!/usr/bin/env python3
"""The published Python service on a private Docker engine, to compare with.

    with Published() as p: p.url, p.token, p.runtime, p.pids()

Needs root, docker.io, debootstrap and build/venv; loopback only.  Images and Docker's data stay in
/var/cache/garret-tests/bench (BENCH_CACHE), so that a second start is quick; no process stays.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKEN = "bench-token-0123456789abcdef"


def mirror() -> str:
    """The Debian mirror that this machine's apt uses."""
    out = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
                         capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        if line.rstrip("/").endswith("/debian"):
            return line
    raise RuntimeError("apt knows no Debian mirror")


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Published:
    def __init__(self) -> None:
        self.cache = os.environ.get("BENCH_CACHE", "/var/cache/garret-tests/bench")
        self.token, self.runtime = TOKEN, "local"
        self.processes: list[subprocess.Popen] = []

    def _start(self, name: str, argv: list[str], **env: str) -> None:
        with open(f"{self.cache}/{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=log, start_new_session=True))

    def _docker(self, *args: str, **kw) -> subprocess.CompletedProcess:
        return subprocess.run([self.cli, "-H", self.sock, *args], capture_output=True, text=True, **kw)

    def _image(self) -> None:
        if self._docker("image", "inspect", "bench:local").returncode == 0:
            return
        root = tempfile.mkdtemp(prefix="root-", dir=self.cache)
        try:
            subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-minimal,git,procps", "bookworm", root, mirror()],
                           check=True, stdout=subprocess.DEVNULL)
            tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
            self._docker("import", "-", "bench:local", stdin=tar.stdout, check=True)
            tar.wait()
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def __enter__(self) -> Published:
        for tool in ("dockerd", "debootstrap"):
            if not shutil.which(tool):
                raise RuntimeError(f"{tool} is not installed (tools/setup ci does that)")
        self.cli = "/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker"
        os.makedirs(self.cache, exist_ok=True)
        self.run_dir = tempfile.mkdtemp(prefix="garret-docker-", dir="/run")
        self.sock = f"unix://{self.run_dir}/docker.sock"
        try:
            self._start("dockerd", ["dockerd", "--data-root", f"{self.cache}/data", "--exec-root", f"{self.run_dir}/exec",
                                    "-H", self.sock, "--pidfile", f"{self.run_dir}/pid", "--iptables=false", "--bridge=none"])
            self._wait(lambda: self._docker("version").returncode == 0, "dockerd")
            self._image()
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            self.ws = tempfile.mkdtemp(prefix="ws-", dir=self.cache)
            self._start("sandboxd", [f"{TOP}/build/venv/bin/python", "-m", "pydantic_ai_backends.remote.server"],
                        DOCKER_HOST=self.sock, SANDBOXD_TOKEN=TOKEN, SANDBOXD_HOST="127.0.0.1", SANDBOXD_PORT=str(port),
                        SANDBOXD_RUNTIMES="local=bench:local", SANDBOXD_MAX_SESSIONS="40", SANDBOXD_WORKSPACE_ROOT=self.ws,
                        SANDBOXD_PREWARM="0")
            self._wait(self._healthy, "sandboxd")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _healthy(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/healthz", timeout=2).status == 200
        except OSError:
            return False

    def _wait(self, ready, name: str) -> None:
        end = time.time() + 60
        while not ready():
            if time.time() > end or self.processes[-1].poll() is not None:
                raise RuntimeError(f"{name} did not start: see {self.cache}/{name}.log")
            time.sleep(0.2)

    def __exit__(self, *exc) -> None:
        for p in reversed(self.processes):
            if p is self.processes[0]:
                ids = self._docker("ps", "-aq").stdout.split()
                if ids:
                    self._docker("rm", "-f", *ids)
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        shutil.rmtree(self.run_dir, ignore_errors=True)
        shutil.rmtree(getattr(self, "ws", "/nonexistent"), ignore_errors=True)
