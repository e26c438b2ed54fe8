"""The other end of test-provider-driver: jobs are begun, and waited for by their number."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPS = "stat list walk read write mkdir remove rename copy chmod realpath digest glob grep edit tar_out tar_in text".split()
FLAGS = ("nofollow tree parents append sync exclusive if_match by_pipe from_end hidden no_ignore no_case fixed "
         "readable relative dirs_first dirs_too latin").split()
HEX = ("stdout", "stderr", "data", "path", "digest")


def bits(names):
    return sum(1 << FLAGS.index(n) for n in names.split())


def unhex(v):
    for key in HEX:
        if isinstance(v.get(key), str):
            v[key] = bytes.fromhex(v[key])
    for entry in ([v["info"]] if "info" in v else []) + v.get("entries", []):
        entry["name"], entry["target"] = bytes.fromhex(entry["name"]), bytes.fromhex(entry["target"])
    for m in v.get("matches", []):
        m[0], m[4] = bytes.fromhex(m[0]), bytes.fromhex(m[4])
    return v


class Driver:
    def __init__(self, build, provider="sandboxd", **config):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([os.path.join(TOP, build, "tests/provider/test-provider-driver"), provider, json.dumps(config)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.buffer, self.answers, self.said, self.number = b"", {}, [], 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close(exc[0] is None)

    def close(self, check=True):
        self.process.stdin.close()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "no end"
        self.process.stdout.close()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        self.log.close()
        if check:
            assert code == 0 and not text, (code, text[-3000:])

    def send(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, what, **more):
        self.number += 1
        self.send(id=self.number, do=what, **more)
        return self.number

    def _read(self, timeout):
        if not self.selector.select(timeout):
            return False
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        assert data, "the driver ended"
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            v = json.loads(line)
            self.said.append(v)
            if not v.keys() & {"named", "waiting", "died"}:
                self.answers[v.get("id")] = unhex(v)
        return True

    def wait(self, number, timeout=60):
        end = time.time() + timeout
        while number not in self.answers:
            assert time.time() < end, f"job {number} doesn't end"
            self._read(0.1)
        return self.answers.pop(number)

    def idle(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            self._read(max(0, end - time.time()))

    def do(self, what, **more):
        return self.wait(self.begin(what, **more))

    def open(self, **more):
        n = self.begin("open", **more)
        return Box(self, n, self.wait(n))


class Box:
    def __init__(self, driver, number, answer):
        self.driver, self.number, self.answer = driver, number, answer
        self.ref, self.error = answer.get("ref"), answer.get("error")
        self.work = answer.get("work_dir")

    def begin(self, what, **more):
        return self.driver.begin(what, box=self.number, **more)

    def run(self, argv, **more):
        return self.driver.wait(self.begin("run", argv=argv, **more))

    def sh(self, script, **more):
        return self.run(["sh", "-c", script], **more)

    def file(self, op, path, flags="", body=None, to=None, **more):
        return self.driver.wait(self.begin_file(op, path, flags, body, to, **more))

    def begin_file(self, op, path, flags="", body=None, to=None, **more):
        if body is not None:
            more["body"] = body.hex()
        if to is not None:
            more["to"] = self.path(to).hex()
        return self.begin("file", op=OPS.index(op) + 1, path=self.path(path).hex(), flags=bits(flags), **more)

    def path(self, name):
        name = os.fsencode(name)
        return name if name.startswith(b"/") else os.fsencode(self.work) + b"/" + name

    def close(self, how="plain"):
        return self.driver.wait(self.begin("close", how=how))


def code(answer):
    return answer.get("error", {}).get("code")


def main(tests):
    """Each function is a test; its name is printed when it fails."""
    passed = failed = 0
    only = [a for a in sys.argv[1:] if not a.startswith("--")]
    for test in tests:
        if only and test.__name__ not in only:
            continue
        try:
            test()
            passed += 1
        except Exception:  # noqa: BLE001
            failed += 1
            print(f"FAILED {test.__name__}")
            traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
