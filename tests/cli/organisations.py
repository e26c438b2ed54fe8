"""garret scope, doc and log: what the application layer of a daemon keeps for an organisation."""

from __future__ import annotations

import json
import tempfile
import uuid

from common import BUILD, Daemon, exec_env, garret, test


def new() -> str:
    return uuid.uuid4().hex


class Org:
    def __init__(self, d: Daemon) -> None:
        self.d, self.id = d, new()
        self.env = {**exec_env(d), "GARRET_ORGANISATION": self.id}

    def __call__(self, *args, status=0, word="", **kw):
        r = garret(*args, env=self.env, **kw)
        assert r.returncode == status and word in r.stderr, (args, r)
        return r.stdout

    def open(self, **sandbox) -> str:
        """A run of it; the key of its workspace."""
        status, run = self.d.call("POST", f"/v1/orgs/{self.id}/runs", {"agent": new(), "run": new(), "conversation": new(), "sandbox": sandbox or None})
        assert status == 200, run
        return run["key"]


@test
def scopes_documents_and_logs_of_an_organisation():
    with Daemon(build=BUILD) as d:
        o = Org(d)
        assert o("scope", "list") == ""
        key = o.open()
        assert o("scope", "list").split()[:3] == [key, "conversation", "state"]
        assert json.loads(o("scope", "list", "--json"))["workspaces"][0]["key"] == key
        assert f"key            {key}\n" in o("scope", "show", key)
        entry = {"content": ["größe"], "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00"}
        document = {"files": {"/a/f.txt": entry}, "directories": ["/d"]}
        o("doc", "put", key, input=json.dumps(document))
        assert json.loads(o("doc", "get", key)) == document
        with tempfile.NamedTemporaryFile("w") as f:
            json.dump(document, f)
            f.flush()
            o("doc", "put", key, f.name)
        assert [x.split()[-1] for x in o("doc", "ls", key).splitlines()] == ["a/", "a/f.txt", "d/"]
        assert o("doc", "cat", key, "a/f.txt") == "größe"
        o("doc", "cat", key, "none", status=4)
        o("doc", "put", key, input="{", status=2, word="JSON")
        o("doc", "put", key, input='{"files":5}', status=2)
        assert o("log") == o("log", "--names") == o("scope", "purges") == ""
        o("scope", "rm", key)
        o("scope", "rm", key, status=4)


@test
def connections_and_keys_of_an_organisation():
    with Daemon(build=BUILD) as d:
        o = Org(d)
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("a-token\n")
            f.flush()
            c = o("scope", "connect", "here", "--address", d.url, "--token-file", f.name).strip()
        assert o("scope", "connections").split() == [c, "sandboxd", "here", d.url, "(default)"]
        o("scope", "connect", "--connection", c, "--token-file", "-", input=d.token)
        o("scope", "connect", "none", "--address", "http://h", status=2, word="token")
        o("scope", "connect", status=2, word="name")
        for words in (("show",), ("rm",), ("disconnect",), ("connect", "--address", "http://h")):
            o("scope", *words, "", status=2, word="empty")
        o("scope", "rm", "--conversation", "", status=2, word="empty")
        key = o("scope", "key", "--agent", new(), "--run", new(), "--scope", "user", "--user", "U 1/ü").strip()
        assert key.startswith("du-" + o.id[:8])
        o("scope", "key", "--agent", new(), "--run", new(), "--scope", "user", status=2, word="user")
        session = o.open(backend="service")
        assert session.startswith(f"xc-{o.id[:8]}-{c[:8]}-")
        assert o("scope", "rm", "--conversation", session.rsplit("-", 1)[1]) == "1\n"
        o("scope", "disconnect", c)
        o("scope", "disconnect", c, status=4)


@test
def whose_it_is_must_be_said():
    with Daemon(build=BUILD) as d:
        o = Org(d)
        env = {k: v for k, v in o.env.items() if k != "GARRET_ORGANISATION"}
        r = garret("scope", "list", env=env)
        assert r.returncode == 2 and "--organisation" in r.stderr, r
        r = garret("log", "--organisation", "x", env=env)
        assert r.returncode == 2 and "UUID" in r.stderr, r
        assert garret("scope", "list", "--organisation", str(uuid.UUID(o.id)), env=env).returncode == 0
        o("scope", "rm", status=2, word="KEY")
        o("scope", "rm", "k", "--conversation", new(), status=2)
        o("scope", "show", status=2, word="missing")
        o("scope", "list", "x", status=2, word="too much")
        o("scope", "none", status=2, word="none")
        o("scope", "list", "--limit", "1001", status=2)
