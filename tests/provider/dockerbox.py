"""A private Docker engine, and the provider behind it (docker-driver.c), for tests."""
import base64
import http.client
import json
import os
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGE = "garret-test/busybox:1"
NO_SHELL = "garret-test/noshell:1"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("docker", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    """dockerd with a state of its own, below a directory that ends with it."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="garret-docker-")
        self.socket = self.dir + "/s"
        self.log = open(self.dir + "/log", "wb")
        self.process = None
        self.certificates()
        self.start()
        self.images()

    def certificates(self):
        """One certificate for all: its own CA, the engine's and the client's."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.dir + "/key.pem", "-out", self.dir + "/cert.pem"],
                       check=True, capture_output=True)
        shutil.copy(self.dir + "/cert.pem", self.dir + "/ca.pem")

    def start(self):
        self.process = subprocess.Popen(
            ["dockerd", "--data-root", self.dir + "/data", "--exec-root", self.dir + "/exec", "-H", "unix://" + self.socket,
             "-H", f"tcp://127.0.0.1:{self.port}", "--tlsverify", "--tlscacert", self.dir + "/ca.pem", "--tlscert", self.dir + "/cert.pem",
             "--tlskey", self.dir + "/key.pem", "--pidfile", self.dir + "/pid", "--bridge", "none", "--iptables=false", "--ip-forward=false"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.time() + 60
        while time.time() < end:
            try:
                if self.ask("GET", "/_ping")[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(open(self.dir + "/log", errors="replace").read()[-2000:])

    def ask(self, method, path, body=None, kind="application/json"):
        c = UnixConnection(self.socket)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            c.request(method, "/v1.41" + path, data, {"Content-Type": kind} if data is not None else {})
            r = c.getresponse()
            text = r.read()
            try:
                return r.status, json.loads(text)
            except ValueError:
                return r.status, text.decode(errors="replace")
        finally:
            c.close()

    def images(self):
        root = self.dir + "/root"
        os.makedirs(root + "/bin")
        for d in ("proc", "sys", "dev", "etc", "root", "run", "var"):
            os.mkdir(f"{root}/{d}")
        os.mkdir(root + "/tmp")
        os.chmod(root + "/tmp", 0o1777)
        shutil.copy("/usr/bin/busybox", root + "/bin/busybox")
        for name in subprocess.run(["/usr/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                os.symlink("busybox", f"{root}/bin/{name}")
        with open(root + "/etc/passwd", "w") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/tmp:/bin/sh\n")
        with open(root + "/etc/group", "w") as f:
            f.write("root:x:0:\nagent:x:1000:\n")
        self.load(IMAGE, root)
        bare = self.dir + "/bare"
        for d in ("proc", "sys", "dev", "etc", "tmp", "app", "run"):
            os.makedirs(f"{bare}/{d}")
        shutil.copy("/usr/bin/busybox", bare + "/app/true")  # a program that is no shell
        self.load(NO_SHELL, bare)

    def load(self, name, root):
        tar = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True).stdout
        repo, tag = name.rsplit(":", 1)
        status, text = self.ask("POST", f"/images/create?fromSrc=-&repo={urllib.parse.quote(repo, safe='')}&tag={tag}", tar, "application/x-tar")
        assert status == 200 and "error" not in str(text), text

    def containers(self):
        """All of them: name to what the list says."""
        return {c["Names"][0][1:]: c for c in self.ask("GET", "/containers/json?all=1")[1]}

    def inspect(self, name):
        status, c = self.ask("GET", f"/containers/{name}/json")
        return c if status == 200 else None

    def make(self, name, labels=None, image=IMAGE, start=True, **more):
        host = more.pop("HostConfig", {})
        status, c = self.ask("POST", f"/containers/create?name={name}", {
            "Image": image, "Cmd": ["sleep", "1000000"], "Labels": labels or {}, "HostConfig": {"Init": True, **host}, **more})
        assert status == 201, c
        if start:
            status, text = self.ask("POST", f"/containers/{c['Id']}/start")
            assert status == 204, text
        return c["Id"]

    def remove(self, name):
        self.ask("DELETE", f"/containers/{name}?force=1&v=1")

    def clean(self):
        for name in self.containers():
            self.remove(name)

    def stop(self):
        try:
            self.clean()
        except OSError:
            pass
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        for line in open("/proc/mounts").read().splitlines()[::-1]:
            at = line.split()[1]
            if at.startswith(self.dir + "/"):
                subprocess.run(["umount", "-l", at], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class Ended(Exception):
    pass


class Provider:
    """One process with one provider."""

    def __init__(self, program, host, owner="tests", init=None, environ=None, **config):
        self.tmp = tempfile.mkdtemp(prefix="garret-docker-test-")
        config = {"host": host, "owner": owner, "image": IMAGE, "no_pull": True, "runs": self.tmp, **config}
        if init:
            config["init"] = init
        config = {k: v for k, v in config.items() if v is not None}
        self.err = open(self.tmp + "/err", "w+b")
        self.p = subprocess.Popen([program, json.dumps(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err,
                                  env={**os.environ, **(environ or {})})
        self.tag, self.waiting, self.odd = 0, {}, []
        self.lock = threading.Lock()
        self.config = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.begun = self.config.get(timeout=20)

    def read(self):
        for line in self.p.stdout:
            e = json.loads(line)
            if e["event"] == "config":
                self.config.put(e)
                continue
            for key in ("out", "err", "data"):
                if key in e:
                    e[key] = base64.b64decode(e[key])
            with self.lock:
                self.waiting.setdefault(e["tag"], queue.Queue()).put(e)
        self.config.put({"event": "config", "error": "ended"})
        with self.lock:
            for q in self.waiting.values():
                q.put(None)

    def send(self, op, **rq):
        with self.lock:
            self.tag += 1
            tag = self.tag
            self.waiting[tag] = queue.Queue()
        self.p.stdin.write(json.dumps({"op": op, "tag": tag, **rq}).encode() + b"\n")
        self.p.stdin.flush()
        return tag

    def wait(self, tag, kind=None, timeout=60):
        while True:
            e = self.waiting[tag].get(timeout=timeout)
            if e is None:
                self.err.seek(0)
                raise Ended(self.err.read().decode(errors="replace")[-3000:])
            if kind is None or e["event"] == kind:
                return e
            self.odd.append(e)

    def ask(self, op, kind, timeout=60, **rq):
        return self.wait(self.send(op, **rq), kind, timeout)

    def open(self, box=0, timeout=60, **spec):
        tag = self.send("open", box=box, **spec)
        e = self.wait(tag, "opened", timeout)
        e["opened_tag"] = tag
        return e

    def run(self, argv, box=0, timeout=60, **spec):
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        return self.ask("run", "ended", timeout, box=box, run=63, argv=argv, **spec)

    def file(self, what, path, box=0, **more):
        return self.ask("file", "file", box=box, file=what, path=path, **more)

    def close(self, how="purge", box=0):
        return self.ask("close", "done", box=box, how=how)

    def kill(self):
        self.p.kill()
        self.p.wait()

    def end(self):
        if self.p.poll() is None:
            self.p.stdin.close()
            try:
                self.p.wait(20)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        self.reader.join(5)
        self.err.seek(0)
        text = self.err.read().decode(errors="replace")
        self.err.close()
        shutil.rmtree(self.tmp, ignore_errors=True)
        return self.p.returncode, text
