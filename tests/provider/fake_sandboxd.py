"""A sandboxd service that does what a test says: kindly by default, or not at all.

Each request is noted.  `on["POST /sessions"] = f` has f(request) answer instead: (status, body), where the body is JSON or
bytes; or it writes to request.wfile itself and returns None.  "*" in a key stands for one component.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN, SESSION_TOKEN = "service-token-0123456789", "session-token-9876543210"


class Note:
    def __init__(self, handler, body):
        u = urlsplit(handler.path)
        self.method, self.path, self.query = handler.command, u.path, parse_qs(u.query)
        self.token, self.raw = handler.headers.get("x-sandbox-token"), body
        self.headers, self.wfile, self.handler = handler.headers, handler.wfile, handler

    @property
    def json(self):
        return json.loads(self.raw)


def session(name, token=SESSION_TOKEN, **more):
    return {"session": {"session_id": name, "runtime": "host", "tenant": None, "alive": True, "state": "running", "created_at": 1.0,
                        "last_activity": 1.0, "idle_seconds": 0.0, "usage": None}, "token": token, **more}


def ran(stdout="", stderr="", exit_code=0, **more):
    return {"stdout": stdout, "stderr": stderr, "exit_code": exit_code, "timed_out": False, "output_limited": False,
            "output_limit": None, **more}


class Fake:
    def __init__(self, prefix="", **policy):
        self.notes, self.on, self.lock, self.prefix = [], {}, threading.Lock(), prefix
        self.policy = {"execute_timeout": 60, "work_dir": "/workspace", "native_files": False, "native_writes": False,
                       "native_realpath": False, **policy}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *a):
                pass

            def body(self):
                """Whole, also when it is refused: what is left of it would be taken for the next request."""
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length") or 0))
                body = b""
                while n := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(n)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return body

            def do(self):
                note = Note(self, self.body())
                with fake.lock:
                    fake.notes.append(note)
                try:
                    fake.answer(self, note)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = do_PUT = do

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}{prefix}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()

    def matching(self, note):
        path = note.path[len(self.prefix):] if note.path.startswith(self.prefix) else None
        for key, f in self.on.items():
            method, pattern = key.split(" ", 1)
            want, have = pattern.split("/"), (path or "").split("/")
            if method == note.method and len(want) == len(have) and all(w in ("*", h) for w, h in zip(want, have)):
                return f, path
        return None, path

    def answer(self, handler, note):
        f, path = self.matching(note)
        if f:
            result = f(note)
        elif path == "/sessions" and note.method == "POST":
            result = 200, session(note.json["session_id"] or "s-made-up")
        elif path == "/policy":
            result = 200, self.policy
        elif path == "/":
            result = 200, {"service": "sandboxd", "endpoints": ["/healthz", "/sessions"]}
        elif path and path.endswith("/run"):
            result = 200, ran("/workspace\n" if note.json["argv"][-1].endswith("pwd -P") else "")
        elif path and (path.endswith("/stop") or note.method == "DELETE"):
            result = 204, b""
        else:
            result = 404, {"detail": "Not Found"}
        if result is None:
            return
        status, body = result
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        if status != 204:
            handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        if status != 204:
            handler.wfile.write(body)

    def asked(self, method, ending):
        with self.lock:
            return [n for n in self.notes if n.method == method and n.path.endswith(ending)]

    def forget(self):
        with self.lock:
            self.notes.clear()
