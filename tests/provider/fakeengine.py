"""An engine that answers as a test wants, over a Unix socket, and a registry that refuses."""
import http.server
import json
import os
import re
import socket
import socketserver
import struct
import tempfile
import threading
import time


def frame(stream, data, length=None):
    return struct.pack(">BxxxI", stream, len(data) if length is None else length) + data


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def address_string(self):
        return "unix"

    def answer(self, status, value=None, headers=()):
        data = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def hijack(self, data, linger=0.0, status=b"101 UPGRADED"):
        kind = b"" if status.startswith(b"101") else b"Content-Type: application/vnd.docker.raw-stream\r\n"
        self.wfile.write(b"HTTP/1.1 " + status + b"\r\n" + kind + (b"Connection: Upgrade\r\nUpgrade: tcp\r\n" if not kind else b"") + b"\r\n")
        self.wfile.write(data)
        self.wfile.flush()
        time.sleep(linger)
        self.close_connection = True

    def route(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        engine = self.server.engine
        path = re.sub(r"^/v1\.\d+", "", self.path)
        engine.requests.append((self.command, path, self.body, dict(self.headers), self.path))
        for pattern, fn in engine.rules + engine.usual:
            if re.fullmatch(pattern, f"{self.command} {path.split('?')[0]}"):
                fn(self)
                return
        self.answer(404, {"message": f"no rule for {self.command} {path}"})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = route


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *a):
        pass  # a client that went away


class FakeEngine:
    """rules: pattern of "METHOD /path" to a function of the handler; before the usual ones."""

    def __init__(self, rules=(), version=None):
        self.dir = tempfile.mkdtemp(prefix="garret-fake-")
        self.socket = self.dir + "/s"
        self.requests = []
        self.running, self.exit = True, 0
        self.container = "ab" * 32
        self.version = version or {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Os": "linux"}
        self.output = frame(1, b"/workspace\n")
        self.execs = 0
        self.rules = list(rules)
        self.usual = [
            (r"GET /version", lambda h: h.answer(200, self.version)),
            (r"POST /containers/create", lambda h: h.answer(201, {"Id": self.container})),
            (r"POST /containers/[^/]+/start", lambda h: h.answer(204)),
            (r"POST /containers/[^/]+/stop", lambda h: h.answer(204)),
            (r"DELETE /containers/[^/]+", lambda h: h.answer(204)),
            (r"POST /containers/[^/]+/wait", self.wait),
            (r"POST /containers/[^/]+/exec", self.exec),
            (r"POST /exec/[^/]+/start", self.start),
            (r"GET /exec/[^/]+/json", lambda h: h.answer(200, {"Running": False, "ExitCode": self.exit})),
            (r"GET /containers/[^/]+/json", self.inspect),
        ]
        self.over = threading.Event()
        self.server = Server(self.socket, Handler)
        self.server.engine = self
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def wait(self, h):
        self.over.wait(30)
        h.close_connection = True

    def exec(self, h):
        self.execs += 1
        h.answer(201, {"Id": f"{self.execs:064x}"})

    def start(self, h):
        if b'"Detach":true' in h.body:
            h.answer(200)
        else:
            h.hijack(self.output)

    def inspect(self, h):
        h.answer(200, {"Id": self.container, "Name": "/" + h.path.split("/")[-2], "Config": {"Labels": {}},
                       "State": {"Status": "running" if self.running else "exited", "Running": self.running}})

    def stop(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        os.unlink(self.socket)
        os.rmdir(self.dir)


class Registry:
    """Says the same to everything; on loopback, where an engine speaks plain HTTP."""

    def __init__(self, status, body, headers=()):
        registry = self
        self.seen = []

        class Refuse(http.server.BaseHTTPRequestHandler):
            def log_message(self, *a):
                pass

            def do_GET(self):
                registry.seen.append((self.path, dict(self.headers)))
                data = json.dumps(body).encode()
                if self.path == "/v2/" and status != 401:
                    self.send_response(200)
                    data = b"{}"
                else:
                    self.send_response(status)
                    for k, v in headers:
                        self.send_header(k, v)
                self.send_header("Content-Type", "application/json")
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
