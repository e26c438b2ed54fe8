#!/usr/bin/env python3
"""A throw-away PostgreSQL server, from Debian's package, for tests.

usage: postgres.py -- COMMAND...

The command finds a database's URL in GARRET_TEST_POSTGRES, and in GARRET_TEST_POSTGRES_CONTROL a Unix
socket that takes "stop" or "start", and answers "ok" when that is done.  From Python:

    with Postgres() as server:
        url = server.database()     # a new one

The server has a directory of its own below /tmp, a Unix socket in it and no other address.  The cluster
that Debian's package may have set up isn't touched.  The server ends when this process does, also by
SIGKILL (then only the directory stays).
"""
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote


def programs():
    """The newest version's."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if not found:
        raise RuntimeError("PostgreSQL is not installed (tools/setup ci does that)")
    return os.path.dirname(max(found, key=lambda path: float(path.split("/")[4])))


def account():
    """The server refuses to be root: the package's user, or nobody."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise RuntimeError("neither a user postgres nor nobody")


class Postgres:
    def __init__(self):
        self.bin = programs()
        self.password = secrets.token_hex(12)
        self.process, self.count = None, 0
        self.dir = tempfile.mkdtemp(prefix="garret-postgres-", dir="/tmp")
        self.as_user = []
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise
        self.url = self._url("postgres")

    def _make(self):
        with open(f"{self.dir}/password", "w", encoding="ascii") as f:
            f.write(self.password)
        if os.getuid() == 0:
            user = account()
            os.chown(self.dir, user.pw_uid, user.pw_gid)
            os.chown(f"{self.dir}/password", user.pw_uid, user.pw_gid)
            self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        made = subprocess.run([*self.as_user, f"{self.bin}/initdb", "--pgdata", f"{self.dir}/data", "--username=garret",
                               f"--pwfile={self.dir}/password", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8",
                               "--no-sync", "--no-instructions"], cwd=self.dir, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"initdb: {made.stderr.strip() or made.stdout.strip()}")

    def _url(self, database):
        return f"postgresql://garret:{self.password}@/{database}?host={quote(self.dir, safe='')}"

    def _run(self, program, *args):
        ran = subprocess.run([f"{self.bin}/{program}", *args], env={**os.environ, "PGPASSWORD": self.password},
                             capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{program}: {ran.stderr.strip()}")

    def start(self):
        assert self.process is None
        settings = {"listen_addresses": "", "unix_socket_directories": self.dir, "fsync": "off", "full_page_writes": "off",
                    "synchronous_commit": "off", "shared_buffers": "32MB", "max_connections": "50", "logging_collector": "off"}
        command = ["setpriv", "--pdeathsig=INT", *self.as_user[1:], f"{self.bin}/postgres", "-D", f"{self.dir}/data"]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(f"{self.dir}/log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        end = time.monotonic() + 60
        while subprocess.run([f"{self.bin}/pg_isready", "-q", "-h", self.dir]).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                with open(f"{self.dir}/log", encoding="utf-8", errors="replace") as log:
                    raise RuntimeError("the server doesn't start:\n" + log.read()[-3000:])
            time.sleep(0.05)

    def stop(self):
        """At once: sessions end in the middle of what they do."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)

    def database(self):
        """The URL of a new, empty database."""
        self.count += 1
        name = f"test{self.count}"
        self._run("createdb", "-h", self.dir, "-U", "garret", name)
        return self._url(name)

    def close(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def serve(server, listener, child):
    """What the command asks for, until it ends."""
    while child.poll() is None:
        try:
            peer, _ = listener.accept()
        except socket.timeout:
            continue
        with peer:
            peer.settimeout(10)
            word = peer.recv(16).strip()
            if word == b"stop":
                server.stop()
            elif word == b"start" and server.process is None:
                server.start()
            peer.sendall(b"ok\n")


def interrupted(number, _frame):
    raise SystemExit(128 + number)


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] != "--":
        print(__doc__.strip())
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    with Postgres() as server, socket.socket(socket.AF_UNIX) as listener:
        control = f"{server.dir}/control"
        listener.bind(control)
        listener.listen()
        listener.settimeout(0.1)
        child = subprocess.Popen(sys.argv[2:], env={**os.environ, "GARRET_TEST_POSTGRES": server.database(),
                                                    "GARRET_TEST_POSTGRES_CONTROL": control})
        try:
            serve(server, listener, child)
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main())
