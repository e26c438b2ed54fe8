"""Files of sessions by the command line: ls, cat, put, get and the rest, against a daemon."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tarfile
import tempfile
import threading
import time

from common import GARRET, SLOW, TOP, Daemon, exec_env, garret, screen, test, tmux, wait_screen

ODD = [b"new\nline", b"co:lon", b"\xff\xfe", b"esc\x1b[31mred", b" blank ", b"-dash", "\u00e9\u202e".encode(), b"per%41cent", b"q?a&b=c#d", b'q"}],{[\\']


class Cli:
    """The command with a daemon's address; bytes in and out."""

    def __init__(self, d: Daemon) -> None:
        self.env = exec_env(d)

    def __call__(self, *args, status=0, **kw):
        r = subprocess.run([GARRET, *args], capture_output=True, timeout=120, env=self.env, **kw)
        assert r.returncode == status, (args, r.returncode, r.stdout[-300:], r.stderr)
        if status:
            assert r.stderr.startswith(b"garret: ") or status == 1, (args, r.stderr)
        else:
            assert not r.stderr, (args, r.stderr)
        self.err = r.stderr.decode()
        return r.stdout

    def fails(self, status, word, *args, **kw):
        """One line on standard error that has that word."""
        out = self(*args, status=status, **kw)
        assert word in self.err and self.err.count("\n") == 1, (args, self.err)
        return out


class Work:
    """A daemon, the session `work`, the command, and a directory of the host."""

    def __enter__(self):
        self.daemon = Daemon()
        self.daemon.build = os.path.dirname(GARRET)
        self.d = self.daemon.__enter__()
        self.s = self.d.open("work")
        self.tmp = tempfile.TemporaryDirectory()
        return self.s, Cli(self.d), self.tmp.__enter__()

    def __exit__(self, *exc):
        self.tmp.__exit__(*exc)
        self.daemon.__exit__(*exc)


def tree_of(top):
    """{relative name: content, link target or None} of a directory of the host."""
    found = {}
    for at, dirs, names in os.walk(os.fsencode(top)):
        for n in dirs + names:
            p = os.path.join(at, n)
            rel = os.path.relpath(p, os.fsencode(top))
            found[rel] = b"-> " + os.readlink(p) if os.path.islink(p) else None if os.path.isdir(p) else open(p, "rb").read()
    return found


def peak(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


# ---- looking ----

@test
def files_are_listed():
    with Work() as (s, g, _):
        s.sh("mkdir -p d/e; echo hello > d/f; chmod 640 d/f; ln -s d/f l; ln -s /etc etc; ln -s none dangling; mkfifo p")
        assert g("ls", "work:") == b"d\ndangling\netc\nl\np\n"
        assert g("ls", "work:d/") == g("ls", "work:/workspace/d") == g("ls", "work:./d/../d") == b"e\nf\n"
        lines = g("ls", "-l", "work:", "work:d").decode().splitlines()
        assert lines[0] == "work::" and "work:d:" in lines, lines
        kinds = {x.split()[-1]: x for x in lines if " " in x}
        assert kinds["f"].startswith("-rw-r-----            6 20") and kinds["d"].startswith("drwxr-xr-x            - 20"), lines
        assert any(x.startswith("l") and x.endswith(" l -> d/f") for x in lines) and any(x.endswith("dangling -> none") for x in lines), lines
        assert g("ls", "-R", "work:d") == b"work:d:\ne\nf\n" and b"work:d:\n" in g("ls", "-R", "work:")
        assert g("ls", "work:d/f") == b"d/f\n" and g("ls", "work:d/e") == b""
        entries = [json.loads(x) for x in g("ls", "--json", "work:").splitlines()]
        assert [e["name"] for e in entries] == ["d", "dangling", "etc", "l", "p"] and entries[3]["link_target"] == "d/f"
        assert json.loads(g("stat", "--json", "work:d/f"))["size"] == 6
        out = g("stat", "work:l", "work:d").decode()
        assert "work:l\n  type:     link\n  target:   d/f\n" in out and "work:d\n  type:     directory\n" in out, out
        # What fails is said and doesn't keep the rest from being shown.
        assert g.fails(4, "work:none: No such file", "ls", "work:none", "work:d/e", "work:d") == b"work:d/e:\n\nwork:d:\ne\nf\n"
        assert g.fails(4, "work:none", "stat", "work:none", "work:d").startswith(b"work:d\n")


@test
def file_errors_have_statuses_and_name_the_path():
    with Work() as (s, g, t):
        s.sh("mkdir d; echo x > d/f; echo s > secret; chmod 0 secret; mkfifo p; ln -s loop loop")
        for status, word, args in (
                (4, "work:none: No such file or directory", ("cat", "work:none")),
                (4, "work:none/f", ("put", "/etc/passwd", "work:none/f")),
                (4, "No such session: gone", ("ls", "gone:")),
                (13, "work:d/f/x: Not a directory", ("cat", "work:d/f/x")),
                (13, "work:d/f/", ("ls", "work:d/f/")),
                (14, "work:d: Is a directory", ("cat", "work:d")),
                (14, "work:d: Is a directory", ("cp", "work:d", "work:e")),
                (14, ": Is a directory (put -r)", ("put", t, "work:")),
                (15, "work:d: File exists", ("mkdir", "work:d")),
                (11, "work:secret: Permission denied", ("cat", "work:secret")),
                (11, "Permission denied", ("put", "/etc/passwd", "work:/root/x")),
                (16, "work:p: Not a regular file", ("cat", "work:p")),
                (2, "work:loop", ("cat", "work:loop")),
                (2, "work:" + "n" * 300, ("cat", "work:" + "n" * 300)),
                (5, "work:d: Directory not empty (rm -r)", ("rm", "work:d")),
                (2, "unknown option --bogus", ("ls", "work:", "--bogus")),
                (4, "nodir: No such file", ("get", "work:d/f", t + "/nodir/x")),
                (4, "/proc/x: No such file", ("get", "work:d/f", "/proc/x")),
                (2, "can't be removed", ("rm", "-r", "work:")),
                (5, "2 times", ("edit", "--old", "r", "--new", "x", "work:twice")),
                (2, "ID:PATH", ("ls", "nocolon")),
                (2, "ID:PATH", ("cat", "./a:b")),
                (2, "usage: garret cat", ("cat",)),
                (2, "--bogus", ("ls", "--bogus", "work:")),
                (2, "./a:b", ("put", "a:b", "work:")),
                (2, "./a:b", ("get", "work:d/f", "a:b")),
                (2, "put and get", ("cp", "/etc/passwd", "work:x")),
                (2, "get, then put", ("mv", "work:d/f", "other:f")),
                (4, "/nonexistent", ("put", "/nonexistent", "work:")),
                (4, "/nonexistent", ("get", "work:d/f", "/nonexistent/f")),
                (2, "no session id", ("workspace", "rm", "a/b")),
                (4, "nothing", ("workspace", "rm", "nothing"))):
            s.sh("printf rr > twice")
            g.fails(status, word, *args)
        bad = dict(g.env)
        for change, status, word in (({"SANDBOXD_TOKEN": "wrong"}, 3, "token"), ({"GARRET_URL": "http://127.0.0.1:1"}, 9, "no daemon"),
                                     ({"SANDBOXD_TOKEN": "", "GARRET_STATE_DIR": t + "/none"}, 3, "GARRET_STATE_DIR"),
                                     ({"SANDBOXD_TOKEN": "", "GARRET_STATE_DIR": t + "/none", "GARRET_URL": "http://127.0.0.1:1"}, 9, "no daemon")):
            g.env = {**bad, **change}
            for args in (("ls", "work:"), ("ls", "work:/workspace"), ("cat", "work:/workspace/d/f"), ("put", "/etc/passwd", "work:/workspace/x")):
                g.fails(status, word, *args)
        # A session's own token is enough for paths from / on.
        g.env = {**bad, "SANDBOXD_TOKEN": s.token}
        assert g("ls", "work:/workspace/d") == b"f\n"
        g.fails(3, "from /", "ls", "work:d")
        g.env = bad
        with open("/dev/full", "wb") as full:
            r = subprocess.run([GARRET, "cat", "work:d/f"], env=g.env, stdout=full, stderr=subprocess.PIPE, text=True)
            assert r.returncode == 17 and "No space" in r.stderr, r
            r = subprocess.run([GARRET, "ls", "work:d"], env=g.env, stdout=full, stderr=subprocess.PIPE, text=True)
            assert r.returncode == 17 and "No space" in r.stderr, r


@test
def any_name_works():
    with Work() as (s, g, t):
        for i, name in enumerate(ODD):
            place, data = b"work:" + name, os.urandom(3000 + i)
            g("put", "-", place, input=data)
            assert g("cat", place) == data, name
            assert g("get", place, os.path.join(os.fsencode(t), name)) == b""
            assert open(os.path.join(os.fsencode(t), name), "rb").read() == data, name
            assert json.loads(g("stat", "--json", place))["size"] == len(data), name
        listed = g("ls", "work:")
        assert listed == b"".join(n + b"\n" for n in sorted(ODD)), listed
        assert g("find", "work:", "*") == listed
        for name in ODD:
            g("mkdir", "-p", "work:dir")
            g("mkdir", b"work:dir/" + name)
            g("cp", b"work:" + name, b"work:dir/" + name)
            g("mv", b"work:dir/" + name + b"/" + name, b"work:dir/" + name + b"/moved")
            assert g("ls", b"work:dir/" + name) == b"moved\n"
            g("edit", "--old", "x" * 5, "--new", "y", b"work:" + name, status=5)
        g("rm", "-r", *(b"work:dir/" + n for n in ODD))
        assert g("ls", "work:dir") == b""
        g("rm", *(b"work:" + n for n in ODD))
        assert g("ls", "work:") == b"dir\n"


@test
def names_of_a_session_do_nothing_to_a_terminal():
    with Work() as (s, g, t):
        s.run(["python3", "-c", "open('a\\x1b]0;title\\x07', 'w').write('x')\nopen('b\\n\\x9b31m', 'w').write('y \\x1b[31m needle')\n"
               "open(b'c\\xff\\\\', 'w').write('x')\nimport os; os.symlink('t\\x1b[2J', 'd')"])
        tmux("kill-server")
        r = subprocess.run(["tmux", "-L", "garret-test", "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "sh"], env=g.env, capture_output=True, text=True)
        assert r.returncode == 0, r
        try:
            log = os.path.join(t, "log")
            tmux("pipe-pane", f"cat > {log}")
            for i, args in enumerate(("ls work:", "ls -l work:", "ls --json work:", "find work: '*'", "grep needle work:", "stat work:d", "workspace ls work",
                         "cat work:a*", "get -r work: " + t + "/new", "session list", "workspace list")):
                tmux("send-keys", f"clear; {GARRET} {args}; echo en''d{i}.", "Enter")
                wait_screen(f"end{i}.")
                text = screen()
                if args == "ls work:":
                    assert "a\\033]0;title\\a\n" in text and "b\\n\\302\\23331m\n" in text and "c\\377\\\\\n" in text, text
                if args.startswith("ls -l"):
                    assert "-> t\\033[2J" in text, text
                if args.startswith("session list"):
                    assert "SESSION" in text, text
                if args.startswith("workspace list"):
                    assert "LAST USED" in text, text
            tmux("pipe-pane")
            out = open(log, "rb").read()
        finally:
            tmux("kill-server")
        for bad in (b"\x1b]0;title", b"\xc2\x9b", b"\x1b[31m needle", b"t\x1b[2J"):
            assert bad not in out, (bad, out)
        # Not a terminal: the bytes as they are.
        assert b"a\x1b]0;title\x07\n" in g("ls", "work:")
        assert b"\nSESSION" not in b"\n" + g("session", "list")
        g.fails(4, "no\\033[31m", "cat", "work:no\x1b[31m")


# ---- transfers ----

@test
def files_go_both_ways():
    with Work() as (s, g, t):
        f = os.path.join(t, "f")
        for size in (0, 1, 65536, 5 << 20):
            data = os.urandom(size)
            open(f, "wb").write(data)
            os.chmod(f, 0o750)
            g("put", f, "work:f")
            assert s.sh("stat -c '%a %s' f; sha256sum < f")["stdout"].split()[:3] == ["750", str(size), hashlib.sha256(data).hexdigest()]
            assert g("cat", "work:f") == data == g("get", "work:f", "-")
            g("get", "work:f", f + ".back")
            assert open(f + ".back", "rb").read() == data and os.stat(f + ".back").st_mode & 0o7777 == 0o750
        assert g("cat", "work:f", "work:f") == data * 2
        # Set-id bits, and what the umask takes, don't come out.
        s.sh("chmod 777 f")
        g("get", "work:f", f + ".back", preexec_fn=lambda: os.umask(0o027))
        assert os.stat(f + ".back").st_mode & 0o7777 == 0o750
        # Into directories, as cp does it; standard input of unknown length; /proc says 0.
        s.sh("rm -rf f; mkdir d")
        g("put", f, "work:d")
        g("put", f, "work:")
        g("get", "work:d/f", t + "/")
        assert sorted(g("ls", "work:d").split()) == [b"f"] and b"f\n" in g("ls", "work:")
        g.fails(4, "no such directory", "put", f, "work:nodir/")
        g("put", "/proc/version", "work:version")
        assert g("cat", "work:version") == open("/proc/version", "rb").read()
        big = os.urandom(9 << 20)
        g("put", "-", "work:big", input=big)
        assert g("cat", "work:big") == big
        # What is no regular file is written to, not replaced; a link of the host is followed.
        # (With a pipe of our own: a failure here must not cost the machine a device.)
        pipe = os.path.join(t, "pipe")
        os.mkfifo(pipe)
        with open(f + ".piped", "wb") as out:
            reader = subprocess.Popen(["timeout", "20", "cat", pipe], stdout=out)
        g("get", "work:d/f", pipe)
        assert stat.S_ISFIFO(os.lstat(pipe).st_mode) and reader.wait() == 0 and open(f + ".piped", "rb").read() == data
        os.symlink("target", os.path.join(t, "link"))
        open(os.path.join(t, "target"), "w").close()
        g("get", "work:version", os.path.join(t, "link"))
        assert os.path.islink(os.path.join(t, "link")) and open(os.path.join(t, "target"), "rb").read() == open("/proc/version", "rb").read()
        os.rename(f, os.path.join(t, "a:b"))
        g("put", "./a:b", "work:colon", cwd=t)
        g("get", "work:colon", "./c:d", cwd=t)
        assert open(os.path.join(t, "c:d"), "rb").read() == data
        p = json.loads(g("put", "--json", "./a:b", "work:colon", cwd=t))
        assert p["size"] == len(data)
        # It comes slowly, and the daemon has no patience: it isn't asked before.
        p = subprocess.Popen([GARRET, "put", "-", "work:slow"], env=g.env, stdin=subprocess.PIPE)
        for i in range(8):
            p.stdin.write(b"a line\n")
            p.stdin.flush()
            time.sleep(1)
        p.stdin.close()
        assert p.wait(20) == 0 and g("cat", "work:slow") == b"a line\n" * 8


@test
def much_goes_both_ways_in_little_memory():
    with Work() as (s, g, t):
        size, block = 200 << 20, os.urandom(1 << 20)
        want = hashlib.sha256()
        f = os.path.join(t, "big")
        with open(f, "wb") as out:
            for _ in range(200):
                out.write(block)
                want.update(block)
        most = {}

        def run(*args, **kw):
            p = subprocess.Popen([GARRET, *args], env=g.env, **kw)
            name = args[0] + (" -" if "-" in args else " -r" if "-r" in args else "")
            most[name] = 0.0
            while p.poll() is None:
                try:
                    most[name] = max(most[name], peak(p.pid))
                except OSError:
                    pass
                time.sleep(0.01)
            assert p.returncode == 0, args

        run("put", f, "work:big")
        assert s.sh("sha256sum < big")["stdout"].split()[0] == want.hexdigest()
        run("get", "work:big", f + ".back")
        with open(f + ".back", "rb") as got:
            assert os.fstat(got.fileno()).st_size == size and hashlib.file_digest(got, "sha256").hexdigest() == want.hexdigest()
        with open(f, "rb") as stdin:
            p = subprocess.Popen(["cat"], stdin=stdin, stdout=subprocess.PIPE)
            run("put", "-", "work:piped", stdin=p.stdout)
            p.wait()
        assert s.sh("cmp big piped")["exit_code"] == 0
        os.unlink(f + ".back")
        os.mkdir(os.path.join(t, "d"))
        os.rename(f, os.path.join(t, "d", "f"))
        run("put", "-r", os.path.join(t, "d"), "work:d")
        assert s.sh("cmp big d/f")["exit_code"] == 0
        with open(os.devnull, "wb") as null:
            run("tar", "c", "work:d", stdout=null)
            run("cat", "work:big", stdout=null)
        print("     most memory: " + ", ".join(f"{k} {v:.1f} MiB" for k, v in most.items()))
        assert SLOW > 1 or max(most.values()) < 24, most


@test
def an_interrupted_get_leaves_nothing():
    with Work() as (s, g, t):
        s.sh("head -c 3000000000 /dev/zero > big 2>/dev/null || truncate -s 3G big; mkdir -p tree; echo a > tree/a; truncate -s 3G tree/b")
        f = os.path.join(t, "f")
        open(f, "w").write("old")
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = subprocess.Popen([GARRET, "get", "work:big", f], env=g.env)
            end = time.time() + 20
            while len(os.listdir(t)) < 2 or max(os.stat(os.path.join(t, n)).st_size for n in os.listdir(t)) < 1000000:
                assert time.time() < end and p.poll() is None
            p.send_signal(sig)
            assert p.wait(20) == -sig, p.returncode
            assert os.listdir(t) == ["f"] and open(f).read() == "old", os.listdir(t)
        p = subprocess.Popen([GARRET, "get", "-r", "work:tree", t + "/tree"], env=g.env)
        end = time.time() + 20
        while not os.path.isdir(t + "/tree") or len(os.listdir(t + "/tree")) < 2:
            assert time.time() < end and p.poll() is None
        p.terminate()
        assert p.wait(20) == -signal.SIGTERM and os.listdir(t + "/tree") == ["a"], os.listdir(t + "/tree")


@test
def an_interrupted_put_leaves_the_old_file():
    with Work() as (s, g, t):
        s.sh("echo old > f")
        p = subprocess.Popen([GARRET, "put", "-", "work:f"], env=g.env, stdin=subprocess.PIPE)
        try:
            p.stdin.write(bytes(20 << 20))
            p.stdin.flush()
            p.kill()
            p.stdin.close()
        except BrokenPipeError:
            pass
        p.wait()
        time.sleep(0.3)
        assert g("cat", "work:f") == b"old\n" and g("ls", "work:") == b"f\n"
        # A file that shrinks while it is read: no half of it.
        f = os.path.join(t, "f")
        with open(f, "wb") as out:
            out.truncate(2 << 30)
        p = subprocess.Popen([GARRET, "put", f, "work:f"], env=g.env, stderr=subprocess.PIPE, text=True)
        time.sleep(0.2)
        os.truncate(f, 1000)
        err = p.communicate(timeout=60)[1]
        assert p.returncode == 20 and "shrank" in err, (p.returncode, err)
        time.sleep(0.3)
        assert g("cat", "work:f") == b"old\n" and g("ls", "work:") == b"f\n"


class Fake(threading.Thread):
    """Answers each connection with the next of some texts, and closes it."""

    def __init__(self, *answers):
        super().__init__(daemon=True)
        self.answers = answers
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        self.asked = []
        self.start()

    def run(self):
        for a in self.answers:
            c, _ = self.sock.accept()
            c.settimeout(5)
            got = b""
            while b"\r\n\r\n" not in got:
                got += c.recv(65536)
            self.asked.append(got)
            c.sendall(a)
            c.shutdown(socket.SHUT_WR)
            try:
                while c.recv(65536):
                    pass
            except OSError:
                pass
            c.close()
        self.sock.close()


@test
def an_answer_that_is_cut_off_is_an_error():
    head = b"HTTP/1.1 200 OK\r\nx-garret-mode: 0644\r\n"
    with tempfile.TemporaryDirectory() as t:
        f = os.path.join(t, "f")
        for answer, status, word in (
                (head + b"Content-Length: 10\r\n\r\n12345", 19, "cut off"),
                (head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", 19, "cut off"),
                (head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n", 19, "cut off"),
                (head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n1234567\r\n0\r\n\r\n", 19, "HTTP"),
                (head + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n12345\r\n0\r\n\r\n", 19, "HTTP"),
                (head + b"\r\n12345", 19, "length"),
                (head + b"Content-Length: -1\r\n\r\n", 19, "length"),
                (head + b"Content-Le", 19, "cut off"),
                (b"SSH-2.0-OpenSSH\r\n\r\n", 19, "HTTP"),
                (b"", 9, "went away")):
            for args in (("cat", "s:/f"), ("get", "s:/f", f)):
                env = {**os.environ, "GARRET_URL": Fake(answer).url, "SANDBOXD_TOKEN": "t"}
                r = garret(*args, env=env)
                assert (r.returncode, word in r.stderr, os.listdir(t)) == (status, True, []), (answer, args, r, os.listdir(t))
        # Set-id bits aren't taken from an answer.
        whole = b"HTTP/1.1 200 OK\r\nx-garret-mode: 6755\r\nContent-Length: 1\r\n\r\nx"
        assert garret("get", "s:/f", f, env={**os.environ, "GARRET_URL": Fake(whole).url, "SANDBOXD_TOKEN": "t"}).returncode == 0
        assert os.stat(f).st_mode & 0o7777 == 0o755
        # The same file goes on where it ended; another one doesn't.
        tagged = head + b'ETag: "1"\r\n'
        rest = b"HTTP/1.1 206 Partial\r\nContent-Length: 5\r\n\r\n67890"
        for second, want in ((rest, (0, "1234567890")), (tagged + b"Content-Length: 2\r\n\r\nno", (20, "12345"))):
            fake = Fake(tagged + b"Content-Length: 10\r\n\r\n12345", second)
            r = garret("cat", "s:/f", env={**os.environ, "GARRET_URL": fake.url, "SANDBOXD_TOKEN": "t"})
            assert (r.returncode, r.stdout) == want, r
            assert b"Range: bytes=5-\r\n" in fake.asked[1] and b'If-Range: "1"\r\n' in fake.asked[1], fake.asked
        # A list that is cut off shows nothing as if it were all.
        cut = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{"entries":[{"name":"a","path":"/f/a","type":"file"},{"name":"b"'
        r = garret("ls", "s:/f", env={**os.environ, "GARRET_URL": Fake(cut).url, "SANDBOXD_TOKEN": "t"})
        assert r.returncode == 19 and not r.stdout, r
        # A refusal in the middle of a body is what counts.
        no = b'HTTP/1.1 507 No\r\nContent-Length: 50\r\n\r\n{"detail":{"error":"OSError","message":"full up"}}'
        r = garret("put", "-", "s:/f", input="x" * (9 << 20), env={**os.environ, "SANDBOXD_TOKEN": "t", "GARRET_URL": Fake(no).url})
        assert r.returncode == 17 and "full up" in r.stderr, r


@test
def a_daemon_that_dies_is_an_error():
    d = Daemon(build=os.path.dirname(GARRET)).start()
    with tempfile.TemporaryDirectory() as t:
        s = d.open("work")
        s.sh("truncate -s 8G big")
        f = os.path.join(t, "f")
        p = subprocess.Popen([GARRET, "get", "work:big", f], env=exec_env(d), stderr=subprocess.PIPE, text=True)
        while not os.listdir(t):
            time.sleep(0.01)
        os.kill(d.pid, signal.SIGKILL)
        err = p.communicate(timeout=30)[1]
        assert p.returncode in (9, 19) and "garret: " in err and not os.listdir(t), (p.returncode, err, os.listdir(t))
    d.stop()
    d.clean()


# ---- trees ----

@test
def trees_go_both_ways():
    with Work() as (s, g, t):
        src = os.path.join(t, "src")
        os.makedirs(src + "/d/empty")
        os.makedirs(src + "/" + "/".join(["long" * 20] * 5))
        for name in ODD:
            open(os.path.join(os.fsencode(src), b"d", name), "wb").write(name * 100)
        open(src + "/" + "/".join(["long" * 20] * 5) + "/" + "n" * 200, "w").write("deep")
        os.symlink("d/empty", src + "/link")
        os.symlink("../" * 2 + "src/" + "x" * 150, src + "/d/longlink")
        os.chmod(src + "/d/co:lon", 0o711)
        g("put", "-r", src, "work:")
        assert s.sh("stat -c %a src/d/co:lon; readlink src/link src/d/longlink")["stdout"] == f"711\nd/empty\n../../src/{'x' * 150}\n"
        g("get", "-r", "work:src", t + "/back", status=11)  # longlink leads above src
        assert "longlink" in g.err and g.err.count("\n") == 1, g.err
        want = tree_of(src)
        del want[b"d/longlink"]
        assert tree_of(t + "/back") == want
        assert os.stat(t + "/back/d/co:lon").st_mode & 0o7777 == 0o711
        # A second time: into the directory that is there now.
        g("put", "-r", src, "work:src")
        assert b"src\n" in g("ls", "work:src")
        g("put", "-r", src + "/.", "work:dots")
        assert b"link\n" in g("ls", "work:dots")
        g("get", "-r", "work:src/d", t + "/back", status=11)
        assert tree_of(t + "/back/d").keys() >= {b"empty", b"co:lon"}
        # A file with -r is a file; what can't be in an archive is said.
        g("put", "-r", src + "/d/co:lon", "work:one")
        g("get", "-r", "work:one", t + "/one")
        assert open(t + "/one").read() == "co:lon" * 100
        os.mkfifo(src + "/d/fifo")
        g.fails(16, "d/fifo: left out", "put", "-r", src + "/d", "work:fifo")
        assert b"co:lon\n" in g("ls", "work:fifo")
        # As archives.
        packed = g("tar", "c", "work:dots")
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            assert "link" in tar.getnames()
        assert json.loads(g("tar", "x", "work:behind", "--json", input=packed))["entries"] > 10
        assert json.loads(g("tar", "--json", "x", "work:unpacked/here", input=packed))["entries"] > 10
        assert s.sh("diff -r --no-dereference dots unpacked/here")["exit_code"] == 0
        g.fails(2, "ends early", "tar", "x", "work:cut", input=packed[:1500])
        g.fails(4, "work:none", "tar", "c", "work:none")


@test
def a_hostile_tree_stays_where_it_belongs():
    with Work() as (s, g, t):
        s.run(["python3", "-c", """
import os
os.makedirs('h/x/y'); os.makedirs('h/real')
links = {'up': '..', 'up2': '../../etc', 'abs': '/etc/passwd', 'x/y/top': '../..', 'x/y/above': '../../..', 'via': 'x/y/top/../..', 'dot': '.',
         'self': 'self', 'in': 'x/y', 'x/back': '../real/f', 'x/dots': './/../real', 'empty-ish': './', 'dangling': 'not/there', 'x/sneaky': 'y/../../../out', 'x/y/sly': 'top/../..'}
for name, to in links.items():
    os.symlink(to, 'h/' + name)
os.symlink(b'real/\\xff', 'h/bytes')
open('h/real/f', 'w').write('f')
for n in ('..a', '...', '. .', '..\\n', 'C:', '\\\\', '~', '*'):
    open('h/' + n, 'w').write(n)
os.mkfifo('h/fifo')
import socket; socket.socket(socket.AF_UNIX).bind('h/sock')
os.mkdir('h/closed', 0)
"""])
        for into in ("new", "old"):
            out = os.path.join(t, into)
            if into == "old":
                # What is there already: links out of the destination, in place of a directory, a file and a link.
                os.makedirs(t + "/elsewhere")
                os.makedirs(out + "/h")
                os.symlink(t + "/elsewhere", out + "/h/x")
                os.symlink(t + "/elsewhere/f", out + "/h/..a")
                os.symlink(t + "/elsewhere", out + "/h/in")
            r = subprocess.run([GARRET, "get", "-r", "work:h", out], env=g.env, capture_output=True, text=True, timeout=60)
            assert r.returncode == 11, r
            top = out + ("/h" if into == "old" else "")
            got = tree_of(top)
            links = {k for k, v in got.items() if v and v.startswith(b"-> ")}
            if into == "new":
                assert links == {b"x/y/top", b"dot", b"self", b"in", b"x/back", b"x/dots", b"empty-ish", b"dangling"}, links
                for gone in ("up", "up2", "abs", "above", "via", "sneaky", "sly", "bytes", "fifo", "sock"):
                    assert re.search(rf"work:/workspace/h/\S*{gone}: left out", r.stderr), (gone, r.stderr)
                assert "1 of it could not be read" in r.stderr, r.stderr
            else:
                assert os.listdir(t + "/elsewhere") == [], os.listdir(t + "/elsewhere")
                assert links >= {b"x", b"in"} and got[b"..a"] == b"..a" and not os.path.islink(top + "/..a")
            for name in (b"..a", b"...", b". .", b"..\n", b"C:", b"\\", b"~", b"*"):
                assert got[name] == name, name
            for at, dirs, names in os.walk(top):
                for n in dirs + names:
                    p = os.path.join(at, n)
                    mode = os.lstat(p).st_mode
                    assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode), p
                    if into == "new" and n != "self":
                        assert (os.path.realpath(p) + "/").startswith(os.path.realpath(top) + "/"), (p, os.path.realpath(p))
        assert sorted(os.listdir(t)) == ["elsewhere", "new", "old"]


@test
def a_list_that_lies_leads_nowhere():
    def entry(path, kind="file", **more):
        return {"name": "x", "path": path, "is_dir": kind == "directory", "size": 1, "type": kind, "mode": "4777", "link_target": None, **more}

    def answer(body, extra=b""):
        return b"HTTP/1.1 200 OK\r\n" + extra + f"Content-Length: {len(body)}\r\n\r\n".encode() + body

    for path in ("/f/../../out", "/out", "/f/..", "/f/a/../../b", "/f//x", "/f/./x", "/f", "/fx", "/f/"):
        for raw in (False, True):
            with tempfile.TemporaryDirectory() as t:
                named = {"raw_path": path.replace("..", "%2E%2E")} if raw else {}
                stat_answer = json.dumps({"results": [{"path": "/f", "entry": entry("/f", "directory"), "error": None}]}).encode()
                tree = json.dumps({"entries": [entry(path, **named)], "truncated": False, "skipped": 0}).encode()
                fake = Fake(answer(stat_answer, b"Connection: close\r\n"), answer(tree, b"Connection: close\r\n"), answer(b"content"))
                r = garret("get", "-r", "s:/f", t + "/d/", env={**os.environ, "GARRET_URL": fake.url, "SANDBOXD_TOKEN": "t"})
                assert r.returncode == 19 and "isn't below" in r.stderr, (path, raw, r)
                assert os.listdir(t) == ["d"] and os.listdir(t + "/d") == [], (path, raw)


# ---- changes and searches ----

@test
def files_are_changed():
    with Work() as (s, g, _):
        g("mkdir", "work:a", "work:b")
        g("mkdir", "-p", "work:a", "work:c/d/e")
        g("put", "-", "work:a/f", input=b"one two one\r\n\xff")
        g("cp", "work:a/f", "work:a/g")
        g("cp", "work:a/f", "work:b")
        g("cp", "-r", "work:a", "work:copy")
        assert g("ls", "work:a") == g("ls", "work:copy") == b"f\ng\n" and g("ls", "work:b") == b"f\n"
        g("cp", "-r", "work:a", "work:copy")
        assert g("ls", "work:copy") == b"a\nf\ng\n"
        g("mv", "work:copy", "work:moved")
        g("mv", "work:moved", "work:b")
        assert g("ls", "work:b") == b"f\nmoved\n"
        g.fails(4, "work:none", "mv", "work:none", "work:x")
        g("rm", "work:b/f")
        g.fails(5, "work:b", "rm", "work:b")
        g("rm", "-r", "work:b", "work:c")
        g.fails(4, "work:c", "rm", "work:c")
        g("rm", "-f", "work:c")
        g.fails(4, "No such session", "rm", "-f", "gone:c")
        assert g("ls", "work:") == b"a\n"
        g.fails(5, "2 times", "edit", "--old", "one", "--new", "1", "work:a/f")
        g.fails(5, "work:a/f", "edit", "--old", "one", "--new", "1", "--all", "--count", "3", "work:a/f")
        assert json.loads(g("edit", "--json", "--old", "one", "--new", "1", "--all", "--count", "2", "work:a/f"))["replacements"] == 2
        assert g("cat", "work:a/f") == b"1 two 1\r\n\xff"
        with tempfile.TemporaryDirectory() as t:
            open(t + "/old", "w").write(" two 1\r\n")
            open(t + "/new", "w").write("\nzw\u00f6lf")
            g("edit", "--old-file", t + "/old", "--new-file", t + "/new", "work:a/f")
        assert g("cat", "work:a/f") == "1\nzw\u00f6lf".encode() + b"\xff"
        for args in (["--old", "x"], ["--new", "x"], ["--old", "x", "--old-file", "/etc/passwd", "--new", ""], ["--old", b"\xff", "--new", "x"],
                     ["--old-file", "/dev/zero", "--new", ""]):
            g("edit", *args, "work:a/f", status=7 if "/dev/zero" in args else 2)


@test
def files_are_found():
    with Work() as (s, g, _):
        s.run(["python3", "-c", """
import os
os.makedirs('src/lib'); os.makedirs('.git'); open('.gitignore', 'w').write('*.o\\n')
for n, text in {'src/a.c': 'int needle;\\nneedle needle\\n', 'src/lib/b.h': 'NEEDLE\\n', 'src/x.o': 'needle\\n', '.hidden': 'needle\\n',
                'odd\\nname': 'a.c needle', b'\\xff.c': 'needle \\xc3\\xa9\\n', 'bin': 'needle\\0'}.items():
    open(n, 'w').write(text)
"""])
        assert g("find", "work:", "*.c") == b"src/a.c\n\xff.c\n"
        assert g("find", "work:src", "*.[ch]") == b"src/a.c\nsrc/lib/b.h\n"
        assert g("find", "work:/workspace/src", "*.c") == b"/workspace/src/a.c\n"
        assert g("find", "--no-ignore", "work:src", "*.o") == b"src/x.o\n" and g("find", "work:src", "*.o") == b""
        assert g("find", "-d", "work:", "l*") == b"src/lib\n" and g("find", "-i", "work:", "*.C") == b"src/a.c\n\xff.c\n"
        assert b".hidden\n" in g("find", "--hidden", "work:", "*") and b".hidden" not in g("find", "work:", "*")
        assert json.loads(g("find", "--json", "work:src", "a*"))["path"] == "/workspace/src/a.c"
        g.fails(4, "work:none", "find", "work:none", "*")
        assert g("grep", "needle", "work:src") == b"src/a.c:1:int needle;\nsrc/a.c:2:needle needle\n" == g("grep", "-n", "needle", "work:src/")
        assert g("grep", "-i", "-c", "needle", "work:src") == b"src/a.c:2\nsrc/lib/b.h:1\n"
        assert g("grep", "-l", "n(e+)dle", "work:src") == b"src/a.c\n" and g("grep", "-F", "n(e+)dle", "work:src", status=1) == b""
        assert g("grep", "--include", "*.h", "-i", "needle", "work:src") == b"src/lib/b.h:1:NEEDLE\n"
        assert g("grep", "needle", "work:src/a.c", "work:src/lib", status=0).count(b"\n") == 2
        assert g("grep", "--no-ignore", "-l", "needle", "work:src") == b"src/a.c\nsrc/x.o\n"
        matches = [json.loads(x) for x in g("grep", "--json", "needle", "work:src").splitlines()]
        assert [(m["line"], m["column"]) for m in matches] == [(1, 5), (2, 1), (2, 8)]
        r = subprocess.run([GARRET, "grep", "needle", "work:"], env=g.env, capture_output=True)
        assert r.returncode == 0 and b"odd\nname:1:a.c needle\n" in r.stdout and "\xff.c:1:needle \u00e9\n".encode("latin1")[:10] in r.stdout, r
        assert b"1 not searched" in r.stderr and b".hidden" not in r.stdout, r
        g.fails(2, "pattern", "grep", "(", "work:src")
        g.fails(2, "work:none", "grep", "x", "work:none")
        g.fails(2, "UTF-8", "grep", b"\xff", "work:src")
        g.fails(2, "usage", "grep", "x")
        assert g("grep", "--", "-dash", "work:src", status=1) == b""


@test
def a_long_list_is_shown_in_little_memory():
    one = '{"name":"f%06d","path":"/d/f%06d","is_dir":false,"size":1,"modified_at":null,"type":"file","mode":"0644","link_target":null}'
    body = ('{"entries":[' + ",".join(one % (i, i) for i in range(200000)) + '],"truncated":true,"skipped":0}').encode()
    fake = Fake(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    p = subprocess.Popen([GARRET, "ls", "s:/d"], env={**os.environ, "GARRET_URL": fake.url, "SANDBOXD_TOKEN": "t"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    first = p.stdout.read(1)
    used = peak(p.pid)  # it waits for us, and has the whole list
    out, err = p.communicate(timeout=60)
    assert (first + out) == b"".join(b"f%06d\n" % i for i in range(200000))
    assert p.returncode == 7 and b"there is more" in err, (p.returncode, err)
    assert SLOW > 1 or used < 12, used


@test
def kept_files_are_seen_and_deleted():
    with Work() as (s, g, _):
        g("mkdir", "work:d")
        g("put", "-", "work:d/f", input=b"kept\0\xff")
        assert json.loads(g("workspace", "list", "--json"))["session_id"] == "work"
        g.fails(5, "open", "workspace", "rm", "work")
        g("session", "close", "work")
        g.fails(4, "No such session", "ls", "work:")
        assert b"work " in g("workspace", "list")
        assert g("workspace", "ls", "work") == b"d/\n" and g("workspace", "ls", "work:d") == b"d/f\n" and g("workspace", "tree", "work") == b"d/\nd/f\n"
        assert g("workspace", "cat", "work:d/f") == b"kept\0\xff" and json.loads(g("workspace", "ls", "--json", "work"))["is_dir"]
        g.fails(4, "work:none", "workspace", "ls", "work:none")
        g.fails(4, "work:none", "workspace", "cat", "work:none")
        g.fails(2, "UTF-8", "workspace", "cat", b"work:\xff")
        # Closed already: its files are deleted all the same; a third time there is nothing.
        g("session", "close", "--purge", "work")
        assert g("workspace", "list") == b""
        g.fails(4, "work", "session", "close", "--purge", "work")
        g("session", "open", "two")
        g("session", "close", "two")
        g("workspace", "rm", "two")
        assert g("workspace", "list") == b""


# ---- what is said about them ----

@test
def a_transfer_that_takes_a_while_shows_how_far_it_is():
    with Work() as (s, g, t):
        p = subprocess.Popen(["tmux", "-L", "garret-test", "kill-server"], stderr=subprocess.DEVNULL)
        p.wait()
        r = subprocess.run(["tmux", "-L", "garret-test", "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "20", "sh"], env=g.env, capture_output=True)
        assert r.returncode == 0, r
        try:
            tmux("send-keys", f"(head -c 9000000 /dev/zero; sleep 1.5; head -c 1000000 /dev/zero; sleep 1) | {GARRET} put - work:slow; echo do''ne", "Enter")
            wait_screen("MiB/s")
            wait_screen("done")
            assert "MiB/s" not in screen(), screen()
            tmux("send-keys", f"clear; {GARRET} cat work:slow > /dev/null; echo en''d", "Enter")
            wait_screen("end")
        finally:
            tmux("kill-server")


@test
def help_completion_and_manual_agree():
    r = garret("--help")
    assert r.returncode == 0 and "--version" in r.stdout and "garret(1)" in r.stdout, r
    commands = re.findall(r"^  ([a-z]+) ", r.stdout, re.M)
    assert {"ls", "cat", "put", "get", "cp", "mv", "rm", "mkdir", "stat", "find", "grep", "edit", "tar", "workspace"} <= set(commands)
    page = open(os.path.join(TOP, "doc/man/garret.1.scd"), encoding="utf-8").read()
    words = {}
    for name, options in re.findall(r"^    ([a-z-]+)\) words=\"(.*?)\"", garret("completion", "bash").stdout, re.M):
        words[name] = options.split()
    for name in commands:
        if name == "completion":
            continue
        assert f"*garret {name}*" in page or re.search(rf"^\*{name}\*", page, re.M), f"garret.1 has no {name}"
        for sub in [name] if name not in ("session", "workspace", "scope", "doc") else [f"{name} {x}" for x in words[name]]:
            text = garret(*sub.split(), "--help").stdout
            assert text.startswith(f"Usage: garret {sub} "), (sub, text)
            for o in re.findall(r"--([a-z][a-z-]*) ", text[text.index("\n\n"):]):
                assert f"--{o}" in words[sub.replace(" ", "-")], (sub, o)
                assert f"--{o}" in page, f"garret.1 doesn't mention --{o} of {sub}"
    r = subprocess.run(["bash", "-c", f"source <({GARRET} completion bash); COMP_WORDS=(garret workspace ls --u); COMP_CWORD=3; _garret; echo ${{COMPREPLY[@]}}"],
                       capture_output=True, text=True)
    assert r.stdout.split() == ["--url"], r
