#!/usr/bin/env python3
"""The same requests to the published service and to garretd: same answers.

Compared are status, content type, allow and location, and the shape of the
body: keys and types, and of a 422 every item.  What differs must be in ALLOWED,
with its reason; what is listed there and no longer differs fails as well.

    differential.py [--url URL --token TOKEN]

Without --url the garretd of $GARRETD_BIN, or of $GARRET_BUILD (default build), is
started with a state directory of its own.  tests/wire/setup-venv.sh makes the
Python that serves the published side.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

from daemon import Daemon
from differential_cases import cases

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.environ.get("GARRET_VENV", os.path.join(ROOT, "build", "venv"))
LIMIT = 24
TOKEN = "differential-service-token-0123456789abcdef"

# (case, difference, reason): both are regular expressions that match from the start.
ALLOWED = [
    (r"token/(none|empty) bad-json", r"status 422 -> 401",
     "nothing of a stranger's body is read or parsed: the token comes first"),
    (r"content-type/(None|text|application/x|application/octet)", r"status 422 -> 409",
     "a body is JSON whatever its type is called"),
    (r".*", r"body\.detail\[0\]: json_invalid",
     "the text and the place of a JSON mistake are our parser's"),
    (r"open-body/.*(NaN|Infinity|1e400|99999)|run/nan", r"status (500|422|409|200) -> 422|body\.detail",
     "numbers that JSON or int64 doesn't have are a syntax error, not a value (nor a 500)"),
    (r"open-body/.*ud800", r"status 500 -> 422", "half a surrogate pair is U+FFFD, not a 500"),
    (r"events/after-runs", r"status 500 -> 200", "nor does it spoil the activity log"),
    (r"raw/absolute", r"status 404 -> 200", "the absolute form of a target is understood"),
    (r"raw/bad-length", r"content-type text/plain -> ", "the text of a malformed request is the library's"),
    (r"end/ended token", r"status 401 -> 410",
     "the token of an ended session says so, instead of failing like a wrong one"),
    (r"run/nul-(argument|value)|run/(empty-name|name-with-equals)", r"status 200 -> 422",
     "what no program can be given is refused by name, not reported as its output"),
    (r"run/long-argument$", r"status 200 -> 413",
     "the kernel's limit is named, not reported as the program's output"),
    (r"run/many-mistakes", r"body\.detail: 150 -> 100", "at most 100 mistakes are listed"),
    (r"run/long-mistake", r"body\.detail\[0\]\.input",
     "a 422 shows at most 1 KiB of what was sent"),
    (r"id/bad", r"body\.detail: \d -> 1",
     "a bad session id is answered before anything else is looked at"),
    (r"id/%00|stop/%00", r"body\.detail\[0\]\.input", "a NUL in a path is shown as U+FFFD"),
    (r"usage-first", r"body\.sessions.*cpu_percent", "a rate needs two samples; we don't wait for the second"),
    (r".*", r"body(\.health)?\.ready: added", "whether the engine answers"),
    (r".*", r"body\.reason: added", "409 on /sessions says which conflict it is"),
    (r"files/(stat|list)", r"body.*modified_at: NoneType -> str", "when a file was changed is told everywhere"),
    (r"path//docs/oauth2-redirect", r"status 200 -> 404", "our page has no scripts"),
]


# ---- the two services ----

def start_published(scratch):
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        sys.exit("differential: run tests/wire/setup-venv.sh first")
    p = subprocess.Popen([python, os.path.join(HERE, "differential_service.py"), TOKEN, str(LIMIT)],
                         stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": scratch})
    return p, int(p.stdout.readline())


class Side:
    """One of the two, and the tokens it handed out."""

    def __init__(self, name, host, port, token):
        self.name, self.host, self.port, self.token = name, host, port, token
        self.tokens, self.ids = {}, {}

    def token_header(self, kind):
        if kind == "none":
            return []
        value = {"service": self.token, "padded": f"  {self.token} ", "empty": "", "wrong": "wrong",
                 "session": self.tokens.get("a", "")}.get(kind)
        if value is None:
            value = self.tokens.get(kind.split(":")[1], "")
        return [("X-Sandbox-Token", value)]

    def request_bytes(self, case):
        if case.raw:
            return case.raw.replace(b"@TOKEN@", self.token.encode())
        target = re.sub(r"@([a-z.]+)", lambda m: self.ids.get(m[1], m[1]), case.target)
        lines = [f"{case.method} {target} HTTP/1.1", "Host: differential", "Connection: close"]
        lines += [f"{k}: {v}" for k, v in self.token_header(case.token)]
        lines += [f"{k}: {v}" for k, v in case.headers.items()]
        if case.body is not None:
            lines.append(f"Content-Length: {len(case.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (case.body or b"")

    def ask(self, case):
        with socket.create_connection((self.host, self.port), 60) as s:
            s.sendall(self.request_bytes(case))
            answer = http.client.HTTPResponse(s, method=case.method)
            answer.begin()
            body = answer.read()
        if case.learn and answer.status == 200:
            opened = json.loads(body)
            self.tokens[case.learn] = opened["token"]
            self.ids[case.learn] = opened["session"]["session_id"]
        return answer, body


# ---- comparing ----

def shape(value):
    """Keys and types of a value; of a list the different shapes in it."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    if isinstance(value, list):
        seen = []
        for v in value:
            if shape(v) not in seen:
                seen.append(shape(v))
        return seen
    return type(value).__name__


def compare(at, theirs, ours):
    """Differences of two shapes, one text each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs:
            if key not in ours:
                yield f"{at}.{key}: missing"
            else:
                yield from compare(f"{at}.{key}", theirs[key], ours[key])
        for key in ours:
            if key not in theirs:
                yield f"{at}.{key}: added"
        if list(theirs) != [k for k in ours if k in theirs]:
            yield f"{at}: other order of keys"
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for i, (t, o) in enumerate(zip(theirs, ours)):
            yield from compare(f"{at}[{i}]", t, o)
    elif theirs != ours:
        yield f"{at}: {theirs} -> {ours}"


def compare_items(theirs, ours):
    """Two lists of validation errors, item by item and value by value."""
    if len(theirs) != len(ours):
        yield f"body.detail: {len(theirs)} -> {len(ours)}"
        return
    for i, (t, o) in enumerate(zip(theirs, ours)):
        if t["type"] == o["type"] == "json_invalid" and t != o:
            yield f"body.detail[{i}]: json_invalid"
            continue
        for key in sorted(set(t) | set(o)):
            if t.get(key) != o.get(key):
                yield f"body.detail[{i}].{key}: {t.get(key)!r} -> {o.get(key)!r}"


def parse(answer, body):
    kind = (answer.getheader("content-type") or "").split(";")[0]
    return json.loads(body) if kind == "application/json" and body else None


def differences(case, theirs, ours):
    (ta, tb), (oa, ob) = theirs, ours
    if ta.status != oa.status:
        yield f"status {ta.status} -> {oa.status}"
        return
    for header in ("allow", "location"):
        t, o = (sorted((a.getheader(header) or "").split(", ")) for a in (ta, oa))
        if t != o:
            yield f"{header} {t} -> {o}"
    kinds = [(a.getheader("content-type") or "").split(";")[0] for a in (ta, oa)]
    if kinds[0] != kinds[1]:
        yield f"content-type {kinds[0]} -> {kinds[1]}"
    if case.target.startswith("/openapi.json"):
        return
    t, o = parse(ta, tb), parse(oa, ob)
    if ta.status == 422 and isinstance(t, dict) and isinstance(t.get("detail"), list):
        yield from compare_items(t["detail"], o["detail"])
        return
    yield from compare("body", shape(t), shape(o))
    for key in case.exact:
        if t.get(key) != o.get(key):
            yield f"value of {key}: {str(t.get(key))[:80]!r} -> {str(o.get(key))[:80]!r}"


def explain(case, text):
    for i, (name, what, _) in enumerate(ALLOWED):
        if re.match(name, case.name) and re.match(what, text):
            return i
    return None


def run(published, garret):
    used, passed, failed = set(), 0, 0
    for case in cases(LIMIT):
        try:
            found = list(differences(case, published.ask(case), garret.ask(case)))
        except (OSError, http.client.HTTPException, ValueError) as e:
            found = [f"broken: {e!r}"]
        why = [explain(case, text) for text in found]
        used.update(i for i in why if i is not None)
        if None not in why:
            passed += 1
            continue
        failed += 1
        for text, i in zip(found, why):
            if i is None:
                print(f"FAIL {case.name}: {text[:300]}")
    print("\nListed differences:")
    for i, (name, what, reason) in enumerate(ALLOWED):
        print(f"  {'ok  ' if i in used else 'FAIL'} {reason}  [{name} | {what}]")
        if i not in used:
            failed += 1
            print("       no longer occurs")
    print(f"\n{passed} passed, {failed} failed")
    return failed


def start_garretd():
    binary = os.environ.get("GARRETD_BIN")
    return Daemon(os.path.dirname(os.path.abspath(binary)) if binary else None, SANDBOXD_TOKEN=TOKEN,
                  SANDBOXD_MAX_SESSIONS=str(LIMIT), SANDBOXD_EXECUTE_TIMEOUT="60",
                  SANDBOXD_PREWARM="0")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default=os.environ.get("GARRETD_URL"))
    parser.add_argument("--token", default=os.environ.get("GARRETD_TOKEN", TOKEN))
    args = parser.parse_args()
    scratch = tempfile.mkdtemp(prefix="garret-differential-")
    process, port = start_published(scratch)
    try:
        published = Side("published", "127.0.0.1", port, TOKEN)
        with contextlib.nullcontext(args) if args.url else start_garretd() as garret:
            at = urlsplit(garret.url)
            failed = run(published, Side("garretd", at.hostname, at.port, args.token))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
