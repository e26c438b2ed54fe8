"""Commands on workspaces of a provider, without a daemon (garret COMMAND --provider NAME)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile

from common import GARRET, SLOW, Daemon, exec_env, garret, test


class Native:
    """garret with a state directory of its own and a session that has a name."""

    def __init__(self, top: str) -> None:
        self.words = ["--provider", "native", "--set", f"state_dir={top}/state"]
        self.named = [*self.words, "--set", "name=work"]

    def __call__(self, *args, status=0, named=True, word=""):
        r = garret(args[0], *(self.named if named else self.words), *args[1:], timeout=60 * SLOW)
        assert r.returncode == status and word in r.stderr, (args, r)
        return r


@test
def run_keeps_a_workspace_that_has_a_name_and_removes_one_that_has_none():
    with tempfile.TemporaryDirectory() as top:
        n = Native(top)
        n("run", "--", "sh", "-c", "echo kept > f")
        assert n("cat", ":f").stdout == "kept\n"
        n("run", named=False, *["--", "sh", "-c", "echo x > g"])
        assert n("ls", ":").stdout == "f\n"
        n("session", "close", "work")
        assert n("ls", ":").stdout == ""
        n("session", "close", "work")


@test
def only_rm_r_removes_a_directory():
    with tempfile.TemporaryDirectory() as top:
        n = Native(top)
        n("mkdir", ":d/e")
        n("rm", ":d", status=14, word="rm -r")
        assert n("ls", ":").stdout.startswith("d")
        n("rm", "-r", ":d")
        assert n("ls", ":").stdout == ""
        n("put", "-r", "/etc/hosts", ":x", status=10, word="garret tar")
        n("session", "close", "work")


@test
def signals_reach_the_command_and_its_workspace_goes_away():
    with tempfile.TemporaryDirectory() as top:
        n = Native(top)
        script = "trap 'echo got; exit 7' TERM INT; echo up; sleep 300 & wait"
        for signo in (signal.SIGTERM, signal.SIGINT):
            p = subprocess.Popen([GARRET, "run", *n.words, "--json", "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert p.stdout.readline() == "up\n"
            p.send_signal(signo)
            out, err = p.communicate(timeout=30 * SLOW)
            assert (out, p.returncode) == ("got\n", 7), (out, err, p.returncode)
            assert json.loads(err)["exit_code"] == 7 and json.loads(err)["cause"] == "exited", err
        r = n("run", "--json", "--timeout", "1", named=False, status=124, *["--", "sleep", "300"])
        assert json.loads(r.stderr.splitlines()[-1])["cause"] == "timeout", r
        # What is removed waits in directories whose names begin with a dot.
        assert not [x for x in os.listdir(f"{top}/state/workspaces") if x[0] != "."], os.listdir(f"{top}/state/workspaces")


@test
def the_token_of_a_service_may_come_from_the_environment():
    daemon = Daemon()
    daemon.build = os.path.dirname(GARRET)
    with daemon as d:
        url = ["--provider", "sandboxd", "--set", f"service_url={d.url}"]
        r = garret("run", *url, "--", "echo", "there", env=exec_env(d))
        assert (r.returncode, r.stdout) == (0, "there\n"), r
        for token, status in (("", 2), ("wrong", 3)):  # what is set counts, also when it is wrong
            r = garret("run", *url, "--set", f"token={token}", "--", "true", env=exec_env(d))
            assert r.returncode == status and d.token not in r.stderr, r
