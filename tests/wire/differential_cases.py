"""The requests of the differential test, in the order they are sent."""

import json
from dataclasses import dataclass, field

JSON = {"content-type": "application/json"}
S = "/sessions/a"
RUN = S + "/run"

GET_PATHS = ["/", "/healthz", "/policy", "/sessions", S, S + "/events", "/openapi.json", "/docs",
             "/redoc"]
POST_PATHS = [RUN, S + "/runs/" + "0" * 32 + "/stop"] + [
    S + "/files/" + op for op in ("read", "write", "stat", "realpath", "list", "mkdir", "remove")]
ODD_PATHS = ["/nothing", "/sessions/a/nothing", "//", "/sessions//run", "/sessions/a%2Fb",
             "/sessions/a/run/x", "/Sessions", "/sessions/%61", "/healthz%2F", "/healthz?x=1",
             "/sessions/a/../a", "/%00", "/sessions/%C3%A9", "/sessions/%FF", "/ui",
             "/docs/oauth2-redirect"]
BAD_IDS = [".a", "-a", "a%20b", "a%0A", "x" * 65, "%C3%A9", "%00", "a+b", "a%25"]

BOOLS = [True, False, 0, 1, 2, -1, 0.0, 1.0, 0.5, "yes", "NO", "t", "F", "on", "Off", "1", "0", "x",
         "", " true", None, [], {}]
IDS = [None, "", ".a", "-a", "a b", "a\n", "a\u0000", "\u00e9", "x" * 65, 1, True, [], {}, 1.5]
ENVS = [None, [], {}, "x", 1, {"A": "b"}, {"A": 1}, {"A": None}, {"A": ["x"]}, {"1x": "y"},
        {"A": "b", "B": 2, "C": {}}]
NUMBERS = [None, 0, -1, 1, 0.5, 1e3, "5", " 3 ", "1_0", "x", "", True, False, [], {}, "inf", "-inf",
           "nan", "0x10", "1e2", 1e300]
ARGVS = [None, [], {}, "x", 1, [1], [None], [[]], ["true", 1, {}], ["true", None], [["true"]], ["true"],
         ["true", ""]]
QUERY_BOOLS = ["true", "TRUE", "1", "yes", "on", "0", "false", "off", "", "x", "null", "2", "%20true",
               "1.0"]
QUERY_INTS = ["0", "5", "-1", "x", "", "1.0", "1.5", "1_000", "%203", "%2B1", "true", "-0", "1e3"]

BODIES = [b"", b" ", b"{", b"}", b"[]", b"[{}]", b"null", b"true", b"1", b'"x"', b"{}x", b"{'a':1}",
          b'{"session_id":"a",}', b'{"session_id":"a" "b"}', b'{"session_id":"b c","session_id":"a"}',
          b'{"session_id":"a","unknown":1}', b'{"session_id":"\xff"}', b'{"session_id":"\x01"}',
          b'{"session_id":NaN}', b'{"reuse":Infinity}', b'{"reuse":1e400}', b"\xef\xbb\xbf{}x",
          b'{"session_id":"\\ud800"}', b'{"tenant":"a\\u0000"}', b"[" * 500 + b"]" * 500, b"nul",
          b'{"session_id":"a","reuse":99999999999999999999}']
TYPES = ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON",
         "application/merge-patch+json", None, "text/plain", "application/x-www-form-urlencoded",
         "application/octet-stream"]

PROGRAMS = {
    "echo": ["echo", "hello", "wörld"],
    "literal": ["printf", "%s|", "$HOME", "*", "a b", "", "`x`"],
    "stderr": ["sh", "-c", "echo out; echo err >&2"],
    "exit-3": ["sh", "-c", "exit 3"],
    "exit-200": ["sh", "-c", "exit 200"],
    "killed": ["sh", "-c", "kill -9 $$"],
    "terminated": ["sh", "-c", "kill -15 $$"],
    "stdin": ["cat"],
    "bytes": ["printf", r"a\377\303b\000c\342\202"],
    "controls": ["printf", r"\001\002\033\177\t\n\"\\"],
    "surrogate": ["printf", "%s", "x\ud800y"],
    "nothing": ["true"],
    "no-slash": ["sh", "-c", "printf /"],
    "many": ["sh", "-c", "echo $#", "sh"] + ["x"] * 500,
    "10-MiB": ["head", "-c", str(10 << 20), "/dev/zero"],
    "over-10-MiB": ["head", "-c", str((10 << 20) + 1), "/dev/zero"],
    "background": ["sh", "-c", "sleep 30 >/dev/null 2>&1 & echo done"],
    "missing": ["no-such-program"],
    "directory": ["/tmp"],
}


@dataclass
class Case:
    name: str
    method: str
    target: str
    token: str = "service"  # "service", "session", "none", "wrong", "empty", "ended"
    body: bytes | None = None
    headers: dict = field(default_factory=dict)
    exact: tuple = ()  # keys of the answer whose values must agree as well
    learn: str = ""  # remember the token of the answer under this name
    raw: bytes = b""  # the whole request instead


class Ids:
    """A run id of its own for each case: ours refuses one id for two requests."""

    def __init__(self):
        self.n = 0

    def __call__(self):
        self.n += 1
        return f"{self.n:032x}"


def post(name, target, value, token="service", **more):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Case(name, "POST", target, token, body, dict(JSON), **more)


def routing():
    for path in GET_PATHS + POST_PATHS:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
            allowed = "GET" if path in GET_PATHS else "POST"
            if method in (allowed, "DELETE") or (path == "/sessions" and method == "POST"):
                continue
            if path == "/policy" and method == "PUT":
                continue
            yield Case(f"method/{method} {path}", method, path)
        yield Case(f"slash{path}/", "GET", path + "/" if path != "/" else "/?a")
    for path in ODD_PATHS:
        yield Case(f"path/{path}", "GET", path)
    for path in GET_PATHS:
        yield Case(f"get/{path}", "GET", path)


def tokens():
    for token in ("none", "empty"):
        for path in GET_PATHS:
            yield Case(f"token/{token} GET {path}", "GET", path, token)
        for path in POST_PATHS:
            yield post(f"token/{token} POST {path}", path, {"path": "/x"}, token)
        yield post(f"token/{token} POST /sessions", "/sessions", {}, token)
        yield post(f"token/{token} bad-json", "/sessions", b"{", token)
        yield post(f"token/{token} bad-json run", RUN, b"{", token)
        yield post(f"token/{token} bad-fields", RUN, {}, token)
        yield Case(f"token/{token} DELETE", "DELETE", S, token)
    for path in ("/policy", S, S + "/events"):
        yield Case(f"token/wrong {path}", "GET", path, "wrong")
    yield Case("token/session /policy", "GET", "/policy", "session")
    yield Case("token/session /sessions", "GET", "/sessions", "session")
    yield Case("token/session own", "GET", S, "session")
    yield Case("token/session other", "GET", "/sessions/b", "session")
    yield Case("token/blanks", "GET", S, "padded")
    yield Case("token/no-session", "GET", "/sessions/zz")
    yield post("token/no-session bad-fields", "/sessions/zz/run", {})
    for bad in BAD_IDS:
        yield Case(f"id/{bad}", "GET", f"/sessions/{bad}")
        yield Case(f"id/{bad} no-token", "GET", f"/sessions/{bad}", "none")
    yield Case("id/bad stop", "POST", "/sessions/.a/runs/xyz/stop")
    yield post("id/bad run bad-fields", "/sessions/.a/run", {})
    yield Case("id/bad query", "GET", "/sessions/.a?usage=x")


def opening():
    for i, body in enumerate(BODIES):
        yield post(f"open-body/{i} {body[:40]!r}", "/sessions", body)
    for ctype in TYPES:
        headers = {"content-type": ctype} if ctype else {}
        yield Case(f"content-type/{ctype}", "POST", "/sessions", body=b'{"session_id":"a"}',
                   headers=headers)
    for flag in ("reuse", "attach"):
        for v in BOOLS:
            yield post(f"open-{flag}/{v!r}", "/sessions", {"session_id": "a", flag: v})
    for v in IDS:
        if v is not None:
            yield post(f"open-id/{v!r}", "/sessions", {"session_id": v})
        yield post(f"open-tenant/{v!r}", "/sessions", {"session_id": "a", "tenant": v})
    for v in (None, "", "host", "nope", 1, [], {}, True):
        yield post(f"open-runtime/{v!r}", "/sessions", {"session_id": "a", "runtime": v})
    yield post("open/all-wrong", "/sessions",
               {"session_id": 1, "runtime": 2, "tenant": "", "reuse": "x", "attach": None})
    yield post("open/attach-without-id", "/sessions", {"attach": True})
    yield post("open/attach-to-nothing", "/sessions", {"session_id": "none", "attach": True})
    yield post("open/unknown-runtime-attach", "/sessions",
               {"session_id": "a", "attach": True, "runtime": "nope"})
    yield post("open/generated", "/sessions", {}, learn="generated")
    yield post("open/tenant", "/sessions", {"session_id": "t", "tenant": "team"}, learn="t")
    yield Case("open/tenant-shown", "GET", "/sessions/t", exact=("session_id", "tenant", "state"))
    yield post("open/dots", "/sessions", {"session_id": "a..b", "reuse": True})


def queries():
    yield Case("usage-first", "GET", "/sessions?usage=true")
    for v in QUERY_BOOLS:
        yield Case(f"usage/{v}", "GET", f"{S}?usage={v}")
        yield Case(f"usage-list/{v}", "GET", f"/sessions?usage={v}")
    for v in ("", "x", "2", "null"):
        yield Case(f"purge/{v}", "DELETE", f"{S}?purge={v}")
    for v in QUERY_INTS:
        yield Case(f"after/{v}", "GET", f"{S}/events?after={v}")
    yield Case("query/twice", "GET", f"{S}?usage=x&usage=0")
    yield Case("query/plus", "GET", f"{S}/events?after=+1")


def running(run_id):
    for i, v in enumerate(ARGVS):
        yield post(f"argv/{i} {v!r}", RUN, {"argv": v, "run_id": run_id()})
    for i, v in enumerate(ENVS):
        yield post(f"env/{i} {v!r}", RUN, {"argv": ["true"], "env": v, "run_id": run_id()})
    for v in NUMBERS:
        yield post(f"timeout/{v!r}", RUN,
                   {"argv": ["true"], "timeout_seconds": v, "run_id": run_id()})
    for v in IDS + ["0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n"]:
        yield post(f"run-id/{v!r}", RUN, {"argv": ["true"], "run_id": v})
    for i, body in enumerate(BODIES[:13]):
        yield post(f"run-body/{i} {body[:40]!r}", RUN, body)
    yield post("run/empty", RUN, {})
    yield post("run/all-wrong", RUN, {"argv": [], "env": None, "timeout_seconds": 0, "run_id": "x"})
    yield post("run/nan", RUN, b'{"argv":["true"],"timeout_seconds":NaN,"run_id":"' + b"e" * 32 + b'"}')
    yield post("run/many-mistakes", RUN, {"argv": [1] * 150, "run_id": run_id()})
    yield post("run/long-mistake", RUN, {"argv": "x" * 5000, "run_id": run_id()})
    yield post("run/nul-argument", RUN, {"argv": ["echo", "a\0b"], "run_id": run_id()})
    yield post("run/nul-value", RUN, {"argv": ["true"], "env": {"A": "a\0"}, "run_id": run_id()})
    yield post("run/empty-name", RUN, {"argv": ["true"], "env": {"": "x"}, "run_id": run_id()})
    yield post("run/name-with-equals", RUN, {"argv": ["true"], "env": {"A=B": "x"}, "run_id": run_id()})
    yield post("run/long-argument", RUN, {"argv": ["true", "x" * 131072], "run_id": run_id()})
    yield post("run/long-argument-fits", RUN, {"argv": ["true", "x" * 131000], "run_id": run_id()},
               exact=("exit_code",))
    results = ("exit_code", "timed_out", "output_limited", "output_limit")
    for name, argv in PROGRAMS.items():
        exact = results + (("stdout",) if name not in ("missing", "directory", "over-10-MiB") else ())
        yield post(f"program/{name}", RUN, {"argv": argv, "run_id": run_id()}, "session", exact=exact)
    yield post("program/env", RUN, {"argv": ["sh", "-c", "echo $A"], "env": {"A": "b c"},
                                    "run_id": run_id()}, exact=results + ("stdout",))
    yield post("program/timeout", RUN, {"argv": ["sh", "-c", "echo early; sleep 20"],
                                        "timeout_seconds": 0.5, "run_id": run_id()},
               exact=results + ("stdout",))
    yield Case("events/after-runs", "GET", f"{S}/events")


def stopping():
    for v in ("0" * 32, "0" * 31, "A" * 32, "x", "0" * 32 + "%0A", "%00"):
        yield Case(f"stop/{v}", "POST", f"{S}/runs/{v}/stop")
    yield post("stop/with-body", f"{S}/runs/{'1' * 32}/stop", {"x": 1})
    yield Case("stop/session-token", "POST", f"{S}/runs/{'2' * 32}/stop", "session")


SETUP = r"""mkdir -p files/a/b; cd files; printf 'one\ntwo\nthree\n' > t.py; printf '\351t\351' > l.txt
printf '\000\377\001\376' > bin.dat; printf '\357\273\277mark\r\nend' > m.md; : > empty.txt; echo deep > a/b/d.txt; echo y > a/y
mkdir full; i=0; while [ $i -lt 30 ]; do : > full/$i.txt; i=$((i+1)); done"""


def files():
    yield post("files/setup", f"{S}/run", {"argv": ["sh", "-c", SETUP], "run_id": "f" * 32})
    for op in ("read", "stat", "realpath", "list", "mkdir", "remove"):
        target = f"{S}/files/{op}"
        yield Case(f"files/{op} no-body", "POST", target)
        for value in ({}, {"path": 1}, {"path": None}, {"path": "/workspace/x"}, []):
            yield post(f"files/{op} {value}", target, value)
        for path in ("", "relative", "a\0b", "/workspace/files/t.py/", "/workspace/files/t.py/below",
                     "/workspace/files/missing", "/workspace/files", "/workspace//files//a/", "/workspace"):
            if op == "remove" and path in ("/workspace/files/t.py/", "/workspace/files", "/workspace//files//a/"):
                continue  # what the others look at
            yield post(f"files/{op} {path!r}", target, {"path": path})
    yield Case("files/write no-path", "POST", f"{S}/files/write", body=b"data")
    yield Case("files/write", "POST", f"{S}/files/write?path=/workspace/x", body=b"data")
    yield Case("files/write empty", "POST", f"{S}/files/write?path=/workspace/x")
    for path in ("/workspace/files", "/workspace/files/t.py/below", "relative", "/workspace/new/er/file", "/workspace"):
        yield Case(f"files/write {path}", "POST", f"{S}/files/write?path={path}", body=b"data")
    yield post("files/mkdir over a file", f"{S}/files/mkdir", {"path": "/workspace/files/t.py"})
    yield post("files/remove tree", f"{S}/files/remove", {"path": "/workspace/new"})


def archive():
    paths = (".", "", "/", "/workspace", "files", "/workspace/files/a", "files/./a//b", "files/t.py", "files/missing",
             "files/t.py/below", "..", "files/../files", "/etc/passwd", "a\0b", "files/empty.txt", "files/l.txt",
             "files/bin.dat", "files/m.md")
    for op in ("ls", "tree", "read", "read_bytes"):
        target = f"/workspaces/a/{op}"
        for path in paths:
            yield post(f"archive/{op} {path!r}", target, {"path": path})
        for value in ({}, [], {"path": 1}, {"path": None}):
            yield post(f"archive/{op} {value}", target, value)
        yield Case(f"archive/{op} no-body", "POST", target)
        yield post(f"archive/{op} unknown", f"/workspaces/unknown/{op}", {"path": "."})
        yield post(f"archive/{op} bad-id", f"/workspaces/.bad/{op}", {"path": "."})
        yield post(f"archive/{op} no-token", target, {"path": "."}, "none")
        yield post(f"archive/{op} session-token", target, {"path": "."}, "session")
    for more in ({"max_depth": 1}, {"max_depth": 2}, {"max_depth": 0}, {"max_depth": 65}, {"max_depth": "3"}, {"max_entries": 1},
                 {"max_entries": 0}, {"max_entries": 100001}, {"max_entries": 7.5}):
        yield post(f"archive/tree {more}", "/workspaces/a/tree", {"path": "files", **more})
    for more in ({"offset": 1}, {"offset": 3}, {"offset": -1}, {"limit": 1}, {"limit": 0}, {"offset": 1, "limit": 1}, {"limit": True}):
        yield post(f"archive/read {more}", "/workspaces/a/read", {"path": "files/t.py", **more})
    for ids in (["a"], ["a", "unknown", "a"], [], ["a"] * 101, [".bad"], ["a", 1], "a", None):
        yield post(f"archive/trees {str(ids)[:40]}", "/workspaces/trees", {"sessions": ids})
    yield post("archive/trees more", "/workspaces/trees", {"sessions": ["a"], "path": "files", "max_depth": 1, "max_entries": 3})
    yield post("archive/trees path", "/workspaces/trees", {"sessions": ["a"], "path": ".."})


def policy():
    """What changes the policy, and what must not."""
    yield Case("policy/put", "PUT", "/policy", body=b"{}", headers=dict(JSON))
    yield Case("policy/put no-token", "PUT", "/policy", "none", b"{}", dict(JSON))
    for body in (b'{"nosuch":1}', b'{"nosuch":1,"max_sessions":"x","cpus":[],"idle_timeout":-1}', b'{"max_sessions":1.5}', b'{"max_sessions":-1}',
                 b'{"execute_timeout":0}', b'{"execute_timeout":"0"}', b'{"mem_limit":5}', b'{"cpus":"much"}', b'{"cpus":0}',
                 b'{"pids_limit":0}', b'{"default_runtime":7}', b'{"default_runtime":"nosuch"}', b'{"runtimes":[1]}', b'{"runtimes":{"nosuch":{}}}',
                 b'{"runtimes":{"nosuch":{"image":"x","cpus":"x"}}}', b'{"runtimes":{"nosuch":5}}', b'{"runtimes":null}', b'{"network_mode":"host"}',
                 b"[]", b"7", b"null", b"{", b"", b'{"max_sessions_per_tenant":"1_000"}', b'{"max_sessions_per_tenant":null}'):
        yield Case(f"policy/put {body.decode()}", "PUT", "/policy", body=body, headers=dict(JSON))


def raw():
    head = "X-Sandbox-Token: @TOKEN@\r\n"  # put in when it is sent
    requests = {
        "http-1.0": "GET /healthz HTTP/1.0\r\n\r\n",
        "no-host": "GET /healthz HTTP/1.1\r\n\r\n",
        "absolute": "GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        "chunked": f"POST /sessions HTTP/1.1\r\nHost: x\r\n{head}Content-Type: application/json\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"ses\r\n12\r\nsion_id\":\"a\"}     \r\n0\r\n\r\n",
        "two-tokens": f"GET {S} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: bad\r\n{head}\r\n",
        "lower-case": f"GET {S} HTTP/1.1\r\nhost: x\r\n{head.replace('X-S', 'x-s')}\r\n",
        "bad-length": "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    }
    for name, text in requests.items():
        yield Case(f"raw/{name}", text.split()[0], "", raw=text.encode())


def ending(limit):
    yield post("end/open b", "/sessions", {"session_id": "b"}, learn="b")
    yield Case("end/own token", "DELETE", "/sessions/b", "session:b")
    yield Case("end/ended token", "GET", "/sessions/b", "session:b")
    yield post("end/ended token run", "/sessions/b/run", {"argv": ["true"], "run_id": "f" * 32},
               "session:b")
    yield Case("end/gone", "GET", "/sessions/b")
    yield Case("end/gone delete", "DELETE", "/sessions/b")
    yield post("end/attach to files", "/sessions", {"session_id": "b", "attach": True}, learn="b")
    yield Case("end/purge", "DELETE", "/sessions/b?purge=true", "session:b")
    yield post("end/attach to purged", "/sessions", {"session_id": "b", "attach": True})
    for name in ("a", "t", "a..b", "generated"):
        yield Case(f"end/delete {name}", "DELETE", f"/sessions/@{name}?purge=1")
    yield Case("end/none", "GET", "/sessions", exact=("sessions",))
    for i in range(limit):
        yield post(f"limit/{i}", "/sessions", {"session_id": f"l{i}"})
    yield post("limit/over", "/sessions", {"session_id": "over"})
    for i in range(limit):
        yield Case(f"limit/delete {i}", "DELETE", f"/sessions/l{i}?purge=true")


def cases(limit):
    run_id = Ids()
    yield post("open/a", "/sessions", {"session_id": "a"}, learn="a")
    for group in (routing(), tokens(), opening(), queries(), running(run_id), stopping(), files(), archive(),
                  policy(), raw(), ending(limit)):
        yield from group
