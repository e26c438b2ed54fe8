"""The engine on this host, as root: what a session is, what it leaves, what it refuses."""

import fcntl
import glob
import os
import random
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import garretproto as g  # noqa: E402
import inject  # noqa: E402

MiB = 1 << 20


def wait_until(what, seconds=10):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def below(pid):
    """The living descendants of a process: {(pid, start time, name)}."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                line = f.read()
        except OSError:
            continue
        fields = line[line.rindex(")") + 2:].split()
        if fields[0] != "Z":
            name = line[line.index("(") + 1:line.rindex(")")]
            parents[int(line.split()[0])] = (int(fields[1]), fields[19], name)
    found = {pid}
    while True:
        more = {p for p, (parent, _, _) in parents.items() if parent in found} - found
        if not more:
            return {(p, *parents[p][1:]) for p in found - {pid} if p in parents}
        found |= more


def host_state(group):
    """What an engine with this cgroup_parent could leave behind."""
    with open("/proc/self/mountinfo") as f:
        mounts = sorted(line.split(" ", 5)[4] for line in f)
    groups = glob.glob(f"/sys/fs/cgroup/*/{group}/**", recursive=True) + glob.glob(f"/sys/fs/cgroup/{group}/**")
    members = set()
    for path in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            with open(path) as f, open(path.replace("cgroup", "status")) as status:
                if f":/{group}/" in f.read() and "State:\tZ" not in status.read():
                    members.add(path)
        except OSError:
            pass
    return {"mounts": mounts, "groups": groups, "members": members, "children": below(os.getpid())}


class EngineTest(unittest.TestCase):
    config = ""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="garret-engine-test-")
        self.state = os.path.join(self.dir, "state")
        self.group = f"garret-test-{os.getpid()}"
        self.config_file = os.path.join(self.dir, "engine.conf")
        with open(self.config_file, "w") as f:
            f.write(self.config + f"cgroup_parent = {self.group}\n")
        self.log = open(os.path.join(self.dir, "log"), "w+")
        self.engines = []
        self.prepare()
        self.engine = self.start()

    def prepare(self):
        """What there has to be before the engine."""

    def start(self, **more):
        engine = g.Engine(self.state, args=["--config", self.config_file], stderr=self.log,
                          env={"GARRET_LOG_LEVEL": "info"}, **more)
        self.engines.append(engine)
        return engine

    def tearDown(self):
        for engine in self.engines:
            engine.sock.close()
            try:
                engine.process.wait(20)
            except subprocess.TimeoutExpired:
                engine.process.kill()
                engine.process.wait()
                self.fail("the engine didn't end")
        self.log.close()
        self.remove()

    def remove(self):
        shutil.rmtree(self.dir)

    def error(self, code, call, *args, **more):
        with self.assertRaises(g.EngineError) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.code, code, caught.exception.message)
        return caught.exception.message


class Session(EngineTest):
    def setUp(self):
        super().setUp()
        self.session = self.engine.open("s")

    def sh(self, command, code=0, **more):
        result = self.session.sh(command, **more)
        if code is not None:
            self.assertEqual(result.code, code, result)
        return result.stdout.decode(errors="replace")

    def test_identity(self):
        self.assertEqual(self.sh("id -u; id -g; id -G; id -un; whoami").split(),
                         ["1000", "1000", "1000", "agent", "agent"])
        self.assertEqual(self.sh("hostname; pwd; echo $HOME; cd; pwd").split(),
                         ["garret", "/workspace", "/home/agent", "/home/agent"])
        self.assertEqual(set(re.findall(r"Cap\w+:\s+(\w+)", self.sh("cat /proc/self/status"))), {"0" * 16})
        self.assertIn("NoNewPrivs:\t1", self.sh("cat /proc/self/status"))

    def test_tools_work(self):
        self.sh("echo 'int main(void){return 7;}' > a.c && gcc a.c -o a && ./a", code=7)
        self.assertEqual(self.sh("python3 -c 'import ssl, sqlite3, multiprocessing as m; "
                                 "print(m.Pool(2).map(abs, [-1, -2]))'").strip(), "[1, 2]")
        self.sh("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x "
                "&& git log --oneline | grep -q x")
        self.assertEqual(self.sh("echo a b | awk '{print $2}'; printf x | base64; "
                                 "printf 1234 > f; cp f f2; dd if=f2 bs=2 count=1 2>/dev/null; echo; "
                                 "find . -maxdepth 1 -name 'f*' -type f | sort | tr '\\n' ' '").split(),
                         ["b", "eA==", "12", "./f", "./f2"])
        for program in ("node", "java", "perl", "gdb", "strace"):
            if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"):
                flag = "-version" if program == "java" else "--version"
                self.sh(f"{program} {flag}")
        if shutil.which("strace"):
            self.sh("strace -f -o t true && grep -q execve t")
        self.sh("echo > /dev/null; head -c 4 /dev/urandom | wc -c; test -w /dev/shm; test -w /var/tmp; test -w /tmp")
        self.sh("script -qec 'tty' /dev/null | grep -q /dev/pts/ || ! command -v script")

    def test_loopback_only(self):
        self.assertEqual(self.sh("ls /sys 2>/dev/null; awk 'NR > 2 {print $1}' /proc/net/dev").split(), ["lo:"])
        self.sh("python3 -c \"import socket as s; a=s.socket(); a.bind(('127.0.0.1', 0)); a.listen(); "
                "s.create_connection(a.getsockname())\"")
        self.assertIn("unreachable", self.sh("python3 -c \"import socket as s; s.create_connection(('1.1.1.1', 53), 2)\" "
                                             "2>&1", code=None).lower())

    def test_own_name_resolves(self):
        self.session.close()
        self.session = self.engine.open("s", hostname="box-7.example")
        self.assertEqual(self.sh("hostname; getent hosts box-7.example; getent hosts localhost").split(),
                         ["box-7.example", "127.0.1.1", "box-7.example", "::1", "localhost", "ip6-localhost",
                          "ip6-loopback"])

    def test_nothing_of_the_host(self):
        self.assertEqual(self.sh("ls /opt /mnt /srv").split(), ["/mnt:", "/opt:", "/srv:"])
        self.sh("ls /root", code=2)
        self.assertEqual(self.sh("ls /etc/shadow /etc/ssh 2>/dev/null", code=None), "")
        self.assertLessEqual(int(self.sh("ls -d /proc/[0-9]* | wc -l")), 1 + 3)  # init, sh, ls, wc
        self.assertEqual(self.sh("ls -l /proc/self/fd | grep -c '\\->'").strip(), "4")  # and ls's own
        for path in ("exe", "root", "fd", "mem", "environ", "ns/mnt"):
            self.sh(f"cat /proc/1/{path} >/dev/null 2>&1 || ls /proc/1/{path}/", code=2)

    def test_what_is_refused(self):
        attempts = r"""
import ctypes, os, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    r = libc.syscall(*a)
    return "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()]
print("unshare", call(272, 0x10000000))
print("clone3", call(435, 0, 0))
print("openat2", call(437, -100, b"/", 0, 0))
print("mount", call(165, b"x", b"/tmp", b"tmpfs", 0, 0))
print("bpf", call(321, 0, 0, 0))
print("keyctl", call(250, 0, -3, 0))
print("io_uring", call(425, 1, 0))
print("chroot", call(161, b"/tmp"))
print("personality", call(135, 0x0040000))
print("tiocsti", call(16, 0, 0x5412, b"x"))
print("tiocsti_high", call(16, 0, 0x100005412, b"x"))
print("vsock", call(41, 40, 1, 0), "alg", call(41, 38, 5, 0), "raw", call(41, 2, 3, 1))
print("netlink_route", call(41, 16, 3, 0), "netfilter", call(41, 16, 3, 12))
print("new_call", call(470, 0))
open("f", "w").close()
print("suid", call(90, b"f", 0o4755), call(268, -100, b"f", 0o4755), call(452, -100, b"f", 0o4755, 0))
print("suid_open", call(257, -100, b"g", os.O_CREAT | os.O_WRONLY, 0o4755), call(85, b"h", 0o4755))
print("suid_mknod", call(133, b"n", 0o104755, 0), "dev", call(133, b"d", 0o20666, 0), call(133, b"d", 0o60666, 0x800))
print("fifo", call(133, b"p", 0o10666, 0), "sgid", call(90, b"f", 0o2755))
print("prlimit1", call(302, 1, 7, ctypes.byref((ctypes.c_ulong * 2)(1, 1)), 0))
print("ptrace1", call(101, 16, 1, 0, 0))
print("handle", call(304, -100, b"x" * 16, 0))
print("dumpable", os.access("/proc/1/mem", os.R_OK))
"""
        with open(os.path.join(self.state, "workspaces/s/workspace/try.py"), "w") as f:
            f.write(attempts)
        out = dict((w := line.split())[0:1] + [w[1:]] for line in self.sh("python3 try.py").splitlines())
        want = {
            "unshare": ["EPERM"], "clone3": ["ENOSYS"], "openat2": ["ENOSYS"], "mount": ["EPERM"],
            "bpf": ["EPERM"], "keyctl": ["EPERM"], "io_uring": ["EPERM"], "chroot": ["EPERM"],
            "personality": ["EPERM"], "tiocsti": ["EPERM"], "tiocsti_high": ["EPERM"],
            "vsock": ["EPERM", "alg", "EPERM", "raw", "EPERM"], "netlink_route": ["ok", "netfilter", "EPERM"],
            "new_call": ["ENOSYS"], "suid": ["EPERM"] * 3, "suid_open": ["EPERM"] * 2,
            "suid_mknod": ["EPERM", "dev", "EPERM", "EPERM"], "fifo": ["ok", "sgid", "ok"],
            "prlimit1": ["EPERM"], "ptrace1": ["EPERM"], "handle": ["EPERM"], "dumpable": ["False"],
        }
        for name, result in want.items():
            self.assertEqual(out[name], result, name)

    def test_foreign_architecture_kills(self):
        self.sh(r"""printf '#include <unistd.h>\nint main(void){int r;__asm__("int $0x80":"=a"(r):"a"(20));return 0;}' > x.c
                    gcc x.c -o x && ./x""", code=128 + signal.SIGSYS)

    def test_namespaces_are_used_up(self):
        self.assertEqual(self.sh("cat /proc/sys/user/max_user_namespaces /proc/sys/user/max_mnt_namespaces").split(),
                         ["0", "0"])

    def test_masks(self):
        for path in ("kcore", "keys", "kmsg", "timer_list", "sysrq-trigger"):
            self.assertEqual(self.sh(f"test ! -e /proc/{path} || head -c 9 /proc/{path} | wc -c").strip() or "0", "0")
        for path in ("sys/kernel/core_pattern", "sys/kernel/hostname", "sysrq-trigger", "sys/vm/overcommit_memory"):
            self.sh(f"echo 1 > /proc/{path}", code=None)
        self.assertNotEqual(socket.gethostname(), "1")
        with open("/proc/sys/kernel/core_pattern") as f:
            self.assertNotEqual(f.read().strip(), "1")

    def test_files_on_disk(self):
        owner = 0x6F000000 + 65536
        self.sh("echo hi > f; mkdir d; ln -s / l; echo x > ~/h; echo y > /var/tmp/v")
        base = os.path.join(self.state, "workspaces/s/workspace")
        for name in ("f", "d", "l"):
            st = os.lstat(os.path.join(base, name))
            self.assertEqual((st.st_uid, st.st_gid), (owner, owner))
        for root, dirs, files in os.walk(os.path.join(self.state, "sessions")):
            for name in set(files) - {"hosts", "meta"}:  # the engine's own
                self.assertEqual(os.lstat(os.path.join(root, name)).st_uid, owner)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.state, "workspaces/s")).st_mode), 0o700)

    def test_workspace_stays_and_home_goes(self):
        self.sh("echo kept > f; echo gone > ~/f")
        self.session.close()
        self.session = self.engine.open("s")
        self.assertEqual(self.sh("cat f; ls -A ~").split(), ["kept"])
        self.session.close(purge=True)
        self.assertFalse(os.path.exists(os.path.join(self.state, "workspaces/s")))
        self.session = self.engine.open("s")
        self.assertEqual(self.sh("ls -A"), "")

    def test_ephemeral_leaves_what_is_there(self):
        self.sh("echo kept > f")
        self.session.close()
        s = self.engine.open("s", flags=g.CONNECTED | g.EPHEMERAL)
        self.assertEqual(s.sh("ls; echo x > g; ls").stdout, b"g\n")
        s.close(purge=True)
        self.session = self.engine.open("s")
        self.assertEqual(self.sh("ls"), "f\n")

    def test_read_only_parts(self):
        for path in ("/x", "/etc/x", "/usr/x", "/dev/x", "/proc/x", "/run/x", "/home/x", "/var/x"):
            self.sh(f"echo > {path} 2>/dev/null", code=None)
            self.sh(f"test -e {path}", code=1)

    def test_one_session_per_name(self):
        self.error("CONFLICT", self.engine.open, "s")
        other = self.engine.open("s2")
        self.assertNotEqual(other.pid_namespace, self.session.pid_namespace)
        with open(f"/proc/{other.pid}/uid_map") as a, open(f"/proc/{self.session.pid}/uid_map") as b:
            self.assertNotEqual(a.read(), b.read())

    def test_init_looks_as_told(self):
        with open(f"/proc/{self.session.pid}/status") as f:
            status = f.read()
        self.assertIn("CapPrm:\t00000000000000e0", status)
        self.assertIn("CapBnd:\t0000000000000000", status)
        self.assertIn("Seccomp:\t2", status)
        self.assertRegex(status, r"NSpid:\t\d+\t1\n")
        self.assertEqual(os.stat(f"/proc/{self.session.pid}/ns/pid").st_ino, self.session.pid_namespace)
        links = {os.readlink(p) for p in glob.glob(f"/proc/{self.session.pid}/fd/*")}
        for link in links:
            self.assertRegex(link, r"^(/dev/null|socket:.*|anon_inode:.*|pipe:.*|.*/garret-test-.*)$")

    def test_durable_is_neither_a_view_nor_connected(self):
        self.engine.call(g.OWNER, b"o" * 16)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        for flags, word in ((g.FILES, "durable"), (g.CONNECTED, "listens")):
            with self.assertRaisesRegex(g.EngineError, "INVALID: .*" + word):
                self.engine.call(g.OPEN, g.open_body("other", flags=g.DURABLE | flags), [listener.fileno()], want=g.OPENED)

    def test_owner_closes(self):
        self.session.sock.close()
        self.assertEqual(self.engine.wait_died(self.session.handle), "closed")
        self.assertFalse(os.path.exists(f"/proc/{self.session.pid}"))

    def test_killed_init(self):
        os.kill(self.session.pid, signal.SIGKILL)
        self.assertEqual(self.engine.wait_died(self.session.handle), "exit")
        self.error("NOT_FOUND", self.engine.usage, self.session.handle)


class Files(EngineTest):
    """Sessions that hold nothing but a workspace."""

    config = "max_sessions = 2\n"

    def setUp(self):
        super().setUp()
        self.session = self.engine.open("s")
        self.session.sh("echo hi > f; mkdir d; echo x > d/x; ln -s / l; ln -s /etc/passwd d/p")

    def view(self, name="s", **more):
        return self.engine.open(name, flags=g.CONNECTED | g.FILES, **more)

    def test_nothing_else_is_reachable(self):
        view = self.view(work_dir="/srv/a/b")
        root = f"/proc/{view.pid}/root"
        found = {os.path.join(at, name)[len(root):] for at, dirs, files in os.walk(root) for name in dirs + files}
        self.assertEqual(found, {"/srv", "/srv/a", "/srv/a/b"} | {"/srv/a/b/" + n for n in ("f", "d", "d/x", "d/p", "l")})
        with open(f"/proc/{view.pid}/mountinfo") as f:
            mounts = {line.split()[4]: set(line.split()[5].split(",")) for line in f}
        self.assertEqual(set(mounts), {"/", "/srv/a/b"})
        for options in mounts.values():
            self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, options)
        self.assertEqual(os.readlink(f"/proc/{view.pid}/cwd"), "/")
        for fd in os.listdir(f"/proc/{view.pid}/fd"):
            st = os.stat(f"/proc/{view.pid}/fd/{fd}")
            what = (stat.S_IFMT(st.st_mode), st.st_rdev)  # /dev/null, sockets, what epoll and signalfd are
            self.assertIn(what, [(stat.S_IFCHR, os.makedev(1, 3)), (stat.S_IFSOCK, 0), (0, 0)], fd)
        self.assertNotEqual(os.readlink(f"/proc/{view.pid}/ns/net"), os.readlink("/proc/self/ns/net"))
        with open(f"/proc/{view.pid}/status") as f:
            status = f.read()
        self.assertIn("Seccomp:\t2", status)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("CapPrm:\t00000000000000e0", status)

    def test_filter(self):
        """Every call is made by that init itself."""
        view = self.view()
        with inject.Process(view.pid) as p:
            path = b"/workspace/f\0"
            refused = ("execve execveat socket socketpair ptrace mount umount2 move_mount open_tree fsopen fsmount chroot "
                       "pivot_root setns unshare mkdir mkdirat unlink unlinkat rename renameat renameat2 link linkat symlink "
                       "symlinkat mknod mknodat chmod fchmod fchmodat chown fchown fchownat truncate ftruncate fallocate "
                       "utimensat setxattr fsetxattr removexattr pwrite64 creat open bpf keyctl add_key io_uring_setup "
                       "perf_event_open process_vm_readv process_vm_writev pidfd_getfd memfd_create userfaultfd ioctl "
                       "inotify_init1 fanotify_init open_by_handle_at name_to_handle_at bind connect listen shmget "
                       "msgget mq_open personality reboot sethostname kexec_load").split()
            for name in refused:
                self.assertEqual(p.call(name, path, path, path, 0, 0), "EPERM", name)
            self.assertEqual(p.call("clone3", 0, 0), "ENOSYS")
            self.assertEqual(p.call("clone", 0x10000000 | 17, 0), "EPERM")  # a user namespace
            self.assertEqual(p.call("mmap", 0, 4096, 7, 0x22, -1, 0), "EPERM")
            for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE):
                self.assertEqual(p.call("openat", -100, path, flags, 0o600), "EPERM", flags)
            how = struct.pack("<QQQ", os.O_RDWR, 0, 0)
            self.assertIn(p.call("openat2", -100, path, how, 24), ("EROFS", "EACCES"))  # init isn't the files' user
            how = struct.pack("<QQQ", os.O_RDONLY | os.O_DIRECTORY, 0, 0)
            fd = p.call("openat2", -100, b"/workspace/../../..\0", how, 24)
            self.assertIsInstance(fd, int)
            self.assertEqual(p.names(fd), {".", "..", "workspace"})
            self.assertEqual(p.call("close", fd), 0)
            fd = p.call("openat", -100, b"/workspace/d\0", os.O_RDONLY | os.O_DIRECTORY, 0)
            self.assertEqual(p.names(fd), {".", "..", "x", "p"})
            self.assertEqual(p.call("openat", fd, b"x\0", os.O_RDONLY, 0), fd + 1)
            self.assertEqual(p.read(fd + 1), b"x\n")
            self.assertEqual(p.call("openat", fd, b"p\0", os.O_RDONLY, 0), "ENOENT")
            for n in (fd, fd + 1):
                self.assertEqual(p.call("close", n), 0)
        view.close()

    def test_no_runs(self):
        view = self.view()
        view.start(["true"])
        with self.assertRaises(g.EngineError) as caught:
            view.step()
        self.assertEqual(caught.exception.code, "UNSUPPORTED")
        view.send(g.I_PING)
        self.assertEqual(view.step()[0], g.I_PONG)
        self.assertEqual(self.engine.usage(view.handle)["memory_limit"], 256 * MiB)
        self.assertLessEqual(self.engine.usage(view.handle)["pids"], 1)

    def test_beside_a_session_and_without(self):
        views = [self.view(), self.view()]
        self.session.sh("echo new > g")
        for v in views:
            with open(f"/proc/{v.pid}/root/workspace/g") as f:
                self.assertEqual(f.read(), "new\n")
        self.session.close()
        views.append(self.view())
        self.session = self.engine.open("s")
        for v in views:
            self.assertEqual(sorted(os.listdir(f"/proc/{v.pid}/root/workspace")), ["d", "f", "g", "l"])
            v.close()
        self.assertEqual(self.session.sh("cat g").stdout, b"new\n")

    def test_nothing_is_made(self):
        base = os.path.join(self.state, "workspaces")
        os.makedirs(base + "/own/workspace")
        os.chmod(base + "/own", 0o755)
        os.chown(base + "/own/workspace", 4321, 4322)
        os.makedirs(base + "/roots/workspace")
        os.makedirs(base + "/foreign/other")
        os.symlink(base + "/own", base + "/link")
        os.makedirs(base + "/half")
        os.symlink(base + "/own/workspace", base + "/half/workspace")

        def state():
            found = [os.path.join(at, n) for at, dirs, files in os.walk(base) for n in dirs + files]
            return sorted((p, st.st_mode, st.st_uid, st.st_mtime_ns, st.st_ctime_ns) for p in found for st in [os.lstat(p)])

        before = state()
        self.view("own").close()
        for name in ("absent", "foreign"):
            self.error("NOT_FOUND", self.view, name)
        for name in ("roots", "link", "half"):
            with self.assertRaises(g.EngineError):
                self.view(name)
        self.assertEqual(state(), before)

    def test_what_cannot_be_asked_for(self):
        for field, name in (("memory", "memory"), ("memory_swap", "memory and swap"), ("cpu_millis", "cpus"),
                            ("cpu_shares", "cpu shares"), ("pids", "pids"), ("tmpfs", "tmpfs")):
            self.assertIn(name, self.error("INVALID", self.view, **{field: 64 * MiB}))
        self.assertIn("volumes", self.error("INVALID", self.view, volumes=[(self.dir, "/data", True)]))
        self.assertIn("network", self.error("INVALID", self.view, network=g.HOST))
        self.assertIn("ephemeral", self.error("INVALID", self.engine.open, "s", flags=g.CONNECTED | g.FILES | g.EPHEMERAL))
        self.error("INVALID", self.engine.open, "s", flags=g.FILES)  # this socket doesn't listen
        view = self.view()
        self.error("INVALID", self.engine.call, g.CLOSE, struct.pack("<QB", view.handle, 1))

    def test_bounds(self):
        second = self.engine.open("second")
        self.error("EXHAUSTED", self.engine.open, "third")
        views = [self.view() for _ in range(4)]  # not of the same number
        self.error("EXHAUSTED", self.view)
        views.pop().close()
        views.append(self.view("second"))
        second.close()
        self.engine.open("third").close()

    def test_purge_ends_it(self):
        views = [self.view(), self.view()]
        self.session.close(purge=True)
        for v in views:
            self.assertEqual(self.engine.wait_died(v.handle), "exit")
        self.error("NOT_FOUND", self.view)
        self.session = self.engine.open("s")
        self.assertEqual(self.session.sh("ls -A").stdout, b"")
        view = self.view()
        self.assertEqual(os.listdir(f"/proc/{view.pid}/root/workspace"), [])
        trash = os.path.join(self.state, "workspaces/.trash")
        self.assertTrue(wait_until(lambda: not os.listdir(trash)))


class Workspaces(EngineTest):
    """What is kept, how much it is, and how it goes."""

    def setUp(self):
        super().setUp()
        self.base = os.path.join(self.state, "workspaces")

    def remove(self):
        for _ in range(50):  # deeper than Python's stack; an engine's reaper may still be at it
            if subprocess.run(["rm", "-rf", self.dir], stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.1)
        self.fail(f"{self.dir} can't be removed")

    def test_sizes(self):
        began = time.time()
        s = self.engine.open("a")
        s.sh("dd if=/dev/zero of=big bs=1M count=3 2>/dev/null; ln big second; mkdir -p d/e; echo > d/e/f; ln -s / l; "
             "mkfifo p; truncate -s 1g hole; sync")
        self.engine.open("empty").close()
        self.engine.open("gone", flags=g.CONNECTED | g.EPHEMERAL)
        found = self.engine.workspaces()
        self.assertEqual(set(found), {"a", "empty"})
        size, files, used, partial = found["a"]
        want = 512 * sum(st.st_blocks / (1 if stat.S_ISDIR(st.st_mode) else st.st_nlink) for at, dirs, names in
                         os.walk(self.base + "/a/workspace") for n in dirs + names for st in [os.lstat(os.path.join(at, n))])
        self.assertEqual((size, files, partial), (want, 8, 0))
        self.assertTrue(3 * MiB <= size < 4 * MiB, size)
        self.assertEqual(found["empty"][:2], (0, 0))
        for _, _, used, _ in found.values():
            self.assertTrue(began - 1 <= used <= time.time() + 1, used)
        os.utime(self.base + "/empty", (1000, 1000))
        self.assertEqual(self.engine.workspaces()["empty"][2], 1000)
        self.engine.open("empty", flags=g.CONNECTED | g.ATTACH).close()
        self.assertGreater(self.engine.workspaces()["empty"][2], began - 1)

    def test_some_are_ready(self):
        self.engine.open("first").close()
        spare = self.base + "/.spare"
        self.assertTrue(wait_until(lambda: len(os.listdir(spare)) == 4))
        ready = {os.stat(f"{spare}/{n}/workspace").st_ino for n in os.listdir(spare)}
        self.engine.open("second").close()
        self.assertIn(os.stat(self.base + "/second/workspace").st_ino, ready)
        self.assertTrue(wait_until(lambda: len(os.listdir(spare)) == 4))
        self.assertEqual(set(self.engine.workspaces()), {"first", "second"})
        self.engine.stop()
        self.engine = self.start()
        self.engine.open("third").close()
        self.assertTrue(wait_until(lambda: len(os.listdir(spare)) == 4))

    def test_only_ours(self):
        self.engine.open("ours").close()
        outside = os.path.join(self.dir, "outside")
        os.makedirs(outside + "/workspace")
        os.makedirs(self.base + "/foreign/data")
        os.makedirs(self.base + "/no name/workspace")
        os.makedirs(self.base + "/" + "x" * 65 + "/workspace")
        os.makedirs(self.base + "/half")
        os.symlink(outside, self.base + "/link")
        os.symlink(outside + "/workspace", self.base + "/half/workspace")
        os.makedirs(self.base + "/file")
        for path in (self.base + "/file/workspace", self.base + "/plain"):
            with open(path, "w"):
                pass
        before = sorted(os.listdir(self.base))
        self.assertEqual(set(self.engine.workspaces()), {"ours"})
        for name in ("foreign", "half", "link", "file", "plain", "absent"):
            self.error("NOT_FOUND", self.engine.purge, name)
        for name in ("no name", "x" * 65, ".trash", ".spare", "..", "", "a/b", "ours/workspace"):
            self.error("INVALID", self.engine.purge, name)
        self.assertEqual(sorted(os.listdir(self.base)), before)
        self.assertTrue(os.path.isdir(outside + "/workspace"))

    def test_purge(self):
        for name in ("a", "b"):
            s = self.engine.open(name)
            s.sh("mkdir -p d/$(seq -s/ 300); echo > d/f")
            s.close()
        open_one = self.engine.open("a")
        self.error("CONFLICT", self.engine.purge, "a")
        open_one.close()
        view = self.engine.open("a", flags=g.CONNECTED | g.FILES)
        self.engine.purge("a")
        self.error("NOT_FOUND", self.engine.purge, "a")
        self.assertEqual(self.engine.wait_died(view.handle), "exit")
        self.assertEqual(set(self.engine.workspaces()), {"b"})
        self.assertEqual(self.engine.open("a").sh("ls -A").stdout, b"")
        self.assertTrue(wait_until(lambda: not os.listdir(self.base + "/.trash")))
        eph = self.engine.open("b", flags=g.CONNECTED | g.EPHEMERAL)
        self.error("CONFLICT", self.engine.purge, "b")
        eph.close()
        self.engine.purge("b")

    def test_any_depth_few_descriptors(self):
        s = self.engine.open("deep")
        r = s.run(["/usr/bin/python3", "-c", "import os\n"
                   "for i in range(5000):\n    os.mkdir('d'); os.chdir('d')\n    open('f', 'w').close() if i % 100 == 0 else 0"])
        self.assertEqual(r.code, 0, r)
        s.sh("mkdir wide; cd wide; seq 3000 | xargs mkdir; for i in $(seq 50); do echo > $i/f; done")
        request = self.engine.send(g.WORKSPACES, g.SIZES)
        most = 0
        pid = self.engine.process.pid
        while not self.engine_has_answer():
            for path in glob.glob("/proc/[0-9]*/comm"):
                try:
                    with open(path) as f:
                        if f.read() == "garret-kept\n":
                            with open(path.replace("comm", "stat")) as stat_file:
                                if int(stat_file.read().rsplit(")", 1)[1].split()[1]) == pid:
                                    most = max(most, len(os.listdir(path.replace("comm", "fd"))))
                except OSError:
                    pass
        found = self.engine.workspaces(request)["deep"]
        self.assertEqual(found[1:2] + found[3:], (5000 + 50 + 1 + 3000 + 50, 0))
        self.assertTrue(0 < most <= 10, most)
        s.close(purge=True)

    def engine_has_answer(self):
        return select.select([self.engine.sock], [], [], 0)[0]

    def test_while_it_changes(self):
        """Directories that move about meanwhile: it ends, and says when it isn't all."""
        s = self.engine.open("w")
        s.sh("mkdir -p a/$(seq -s/ 100) b; touch a/f b/g")
        run = s.start(["/usr/bin/python3", "-c", "import os\nwhile True:\n    os.rename('a/1/2/3', 'b/3')\n"
                       "    os.rename('b/3', 'a/1/2/3')"])
        partial = 0
        for _ in range(100):
            found = self.engine.workspaces()["w"]
            self.assertLessEqual(found[1], 2 * 104)
            partial += found[3]
            if not found[3]:
                self.assertGreaterEqual(found[1], 5)
        s.sock.close()
        self.engine.wait_died(s.handle)

    def test_many_and_a_slow_reader(self):
        for i in range(3000):
            os.makedirs(f"{self.base}/w{i}/workspace")
        request = self.engine.send(g.WORKSPACES, g.SIZES)
        s = self.engine.open("used")  # its answer comes through
        time.sleep(1)
        self.error("CONFLICT", self.engine.call, g.WORKSPACES, g.SIZES)
        self.assertEqual(s.sh("echo fine").stdout, b"fine\n")
        for _ in range(5):
            self.engine.usage(s.handle)
        self.assertLessEqual({f"w{i}" for i in range(3000)}, self.rest(request))
        self.assertIn("used", self.engine.workspaces())

    def rest(self, request):
        """answer() throws away what isn't asked for: count what is still to come, and ask again."""
        while self.engine.answer(request)[0] == g.WORKSPACE:
            pass
        return set(self.engine.workspaces())

    def test_what_counts_is_killed(self):
        s = self.engine.open("k")
        s.sh("seq 20000 | xargs touch")
        request = self.engine.send(g.WORKSPACES, g.SIZES)
        victims = set()
        end = time.monotonic() + 10
        while not victims and time.monotonic() < end:
            victims = {p for p, _, name in below(self.engine.process.pid) if name == "garret-kept"}
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        kind, body = self.engine.answer(request)
        if kind == g.WORKSPACE:
            kind, body = self.engine.answer(request)
        self.assertIn(kind, (g.ERROR, g.DONE))
        self.assertIn("k", self.engine.workspaces())


class Limits(EngineTest):
    def test_memory(self):
        s = self.engine.open("m", memory=64 * MiB)
        self.assertEqual(self.engine.usage(s.handle)["memory_limit"], 64 * MiB)
        r = s.run(["python3", "-c", "a = bytearray(200 << 20)"])
        self.assertEqual(r.code, 128 + 9)
        self.assertGreater(self.engine.usage(s.handle)["oom_kills"], 0)
        self.assertEqual(s.sh("echo alive").stdout, b"alive\n")

    def test_pids(self):
        s = self.engine.open("p", pids=20)
        r = s.sh("for i in $(seq 60); do sleep 20 & done; wait", timeout=5)
        self.assertIn(b"fork", (r.stdout + r.stderr).lower())
        s.close()

    def test_cpu(self):
        s = self.engine.open("c", cpu_millis=200)
        begin = self.engine.usage(s.handle)["cpu_us"]
        s.sh("timeout 1 sh -c 'while :; do :; done'")
        used = self.engine.usage(s.handle)["cpu_us"] - begin
        self.assertLess(used, 500000)

    def test_tmpfs(self):
        s = self.engine.open("t", tmpfs=4 * MiB)
        r = s.sh("dd if=/dev/zero of=/tmp/f bs=1M count=8 2>/dev/null; stat -c %s /tmp/f")
        self.assertEqual(int(r.stdout), 4 * MiB)

    def test_bounds(self):
        for field, value in (("memory", 1), ("memory", 1 << 62), ("memory_swap", 1), ("cpu_millis", 1),
                             ("cpu_millis", 1 << 31), ("cpu_shares", 1), ("pids", 1 << 31), ("tmpfs", 1),
                             ("tmpfs", 1 << 62)):
            self.error("INVALID", self.engine.open, "b", **{field: value})


class NewLimits(EngineTest):
    """ENGINE_LIMITS: a living session gets others."""

    def limit_files(self, session, *names):
        with open(f"/proc/{session.pid}/cgroup") as f:
            paths = {line.rstrip().split(":", 2)[2] for line in f}
        found = set()
        for path in paths:
            path = path.removesuffix("/init")
            for at in glob.glob(f"/sys/fs/cgroup/*{path}") + [f"/sys/fs/cgroup{path}"]:
                for name in names:
                    if self.group in at and os.path.exists(f"{at}/{name}"):
                        with open(f"{at}/{name}") as f:
                            found.add(f.read().strip())
        return found

    def memory_and_swap(self, session):
        return (self.limit_files(session, "memory.limit_in_bytes", "memory.max"),
                self.limit_files(session, "memory.memsw.limit_in_bytes"))

    def test_memory_in_every_direction(self):
        s = self.engine.open("m", memory=64 * MiB)
        # Up, down, swap alone, crossing: the kernel wants memory <= memory and swap at every moment.
        for memory, swap in ((128, 128), (64, 64), (64, 300), (200, 300), (300, 300), (100, 400), (390, 395), (64, 64), (500, 600), (32, 700)):
            self.engine.relimit(s.handle, g.L_MEMORY | g.L_SWAP, memory * MiB, swap * MiB)
            have, both = self.memory_and_swap(s)
            self.assertEqual(have, {str(memory * MiB)})
            self.assertLessEqual(both, {str(swap * MiB)})
            self.assertEqual(self.engine.usage(s.handle)["memory_limit"], memory * MiB)
        self.engine.relimit(s.handle, g.L_MEMORY | g.L_SWAP, 400 * MiB)  # swap as memory
        self.assertLessEqual(self.memory_and_swap(s)[1], {str(400 * MiB)})
        self.assertEqual(s.run(["python3", "-c", "a = bytearray(200 << 20)"]).code, 0)
        s.close()

    def test_only_what_is_named(self):
        s = self.engine.open("o", memory=64 * MiB, cpu_millis=500, cpu_shares=512, pids=30)
        self.engine.relimit(s.handle, g.L_PIDS, memory=1, swap=1, cpu_millis=1, cpu_shares=1, pids=40)
        self.assertEqual(self.memory_and_swap(s)[0], {str(64 * MiB)})
        self.assertEqual(self.limit_files(s, "pids.max"), {"41"})
        self.assertTrue(self.limit_files(s, "cpu.cfs_quota_us", "cpu.max") & {"50000", "50000 100000"})
        self.engine.relimit(s.handle, g.L_CPUS | g.L_SHARES, cpu_millis=700, cpu_shares=2048)
        self.assertTrue(self.limit_files(s, "cpu.cfs_quota_us", "cpu.max") & {"70000", "70000 100000"})
        self.assertTrue(self.limit_files(s, "cpu.shares", "cpu.weight") & {"2048", "79"})
        self.engine.relimit(s.handle, g.L_SHARES)  # the default again
        self.assertTrue(self.limit_files(s, "cpu.shares", "cpu.weight") & {"1024", "100"})
        s.close()

    def test_memory_in_use_is_not_taken(self):
        s = self.engine.open("u", memory=300 * MiB)
        rid = s.start(["python3", "-c", "import time; a = bytearray(100 << 20); a[::4096] = b'x' * len(a[::4096]); print('has', flush=True); time.sleep(60)"])
        while not s.runs[rid].stdout:
            s.step()
        before = self.memory_and_swap(s)
        self.error("CONFLICT", self.engine.relimit, s.handle, 31, 50 * MiB, 50 * MiB, 100, 2, 20)
        self.assertEqual(self.memory_and_swap(s), before)  # nor anything else of it
        self.assertFalse(self.limit_files(s, "pids.max") & {"21"})
        self.assertEqual(s.sh("echo alive").stdout, b"alive\n")
        self.assertEqual(self.engine.usage(s.handle)["oom_kills"], 0)
        self.engine.relimit(s.handle, g.L_MEMORY | g.L_SWAP, 200 * MiB, 200 * MiB)  # fits
        self.assertEqual(self.memory_and_swap(s)[0], {str(200 * MiB)})
        s.close()

    def test_page_cache_is_taken(self):
        s = self.engine.open("c", memory=400 * MiB)
        s.sh("head -c 200000000 /dev/zero > f; cat f > /dev/null")
        self.engine.relimit(s.handle, g.L_MEMORY | g.L_SWAP, 64 * MiB, 64 * MiB)
        self.assertEqual(self.memory_and_swap(s)[0], {str(64 * MiB)})
        self.assertEqual(s.sh("stat -c %s f").stdout, b"200000000\n")
        s.close(purge=True)

    def test_bounds(self):
        s = self.engine.open("b", memory=64 * MiB)
        for which, fields in ((g.L_MEMORY, {"memory": 1}), (g.L_MEMORY, {"memory": 1 << 62}), (g.L_MEMORY, {"memory": 128 * MiB}),
                              (g.L_SWAP, {"swap": 32 * MiB}), (g.L_SWAP, {"swap": 1 << 62}), (g.L_CPUS, {"cpu_millis": 1}), (g.L_CPUS, {"cpu_millis": 1 << 31}),
                              (g.L_SHARES, {"cpu_shares": 1}), (g.L_PIDS, {"pids": 1 << 31}), (0, {}), (32, {}), (255, {"memory": 64 * MiB})):
            self.error("INVALID", self.engine.relimit, s.handle, which, **fields)
        self.assertEqual(self.memory_and_swap(s)[0], {str(64 * MiB)})
        self.error("NOT_FOUND", self.engine.relimit, s.handle + 1, g.L_PIDS, pids=20)
        self.error("NOT_FOUND", self.engine.relimit, 0, g.L_PIDS, pids=20)
        s.close()
        self.error("NOT_FOUND", self.engine.relimit, s.handle, g.L_PIDS, pids=20)

    def test_many_at_once_and_a_close_between(self):
        sessions = [self.engine.open(f"n{i}", memory=200 * MiB) for i in range(6)]
        asked = []
        for size in (180, 160, 300, 64):
            for s in sessions:
                body = struct.pack("<QBQQIII", s.handle, 3, size * MiB, size * MiB, 0, 0, 0)
                asked.append((s, self.engine.send(g.LIMITS, body)))
        closing = self.engine.send(g.CLOSE, struct.pack("<QB", sessions[0].handle, 0))
        answers = {}
        while len(answers) < len(asked) + 1:
            kind, number, body = self.engine.receive()
            answers[number] = kind
        self.assertEqual(answers.pop(closing), g.DONE)
        for s, number in asked:
            self.assertIn(answers[number], (g.DONE, g.ERROR) if s is sessions[0] else (g.DONE,))
        for s in sessions[1:]:
            self.assertEqual(self.memory_and_swap(s)[0], {str(64 * MiB)})
            s.close()


FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820


def project_of(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("<5I8x", fcntl.ioctl(fd, FSGETXATTR, bytes(28)))[3]
    finally:
        os.close(fd)


class DiskQuota(EngineTest):
    """State and workspaces on a file system with project quotas, made for the test."""

    def prepare(self):
        image, self.disk = self.dir + "/image", self.dir + "/disk"
        os.mkdir(self.disk)
        with open(image, "w") as f:
            f.truncate(96 * MiB)
        subprocess.run(["mkfs.ext4", "-q", "-N", "16384", "-O", "quota,project", "-E", "quotatype=prjquota", image], check=True)
        if subprocess.run(["mount", "-o", "loop,prjquota", image, self.disk], capture_output=True).returncode:
            self.log.close()
            shutil.rmtree(self.dir)
            self.skipTest("no project quotas in this kernel")
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)
        self.state = self.disk + "/state"
        self.base = self.state + "/workspaces"

    def remove(self):
        """Later: it is still mounted."""

    def fill(self, session, path, mib):
        """How much of it got there, and what the writer was told."""
        r = session.sh(f"dd if=/dev/zero of={path} bs=64k count={mib * 16}; stat -c %s {path}")
        return int(r.stdout), r.stderr.decode()

    def test_only_the_writer_is_told(self):
        self.assertTrue(self.engine.limits & 32)
        self.assertEqual([row[0] for row in self.engine.doctor() if row[1] == "limit disk"], [0])
        s, other, free = self.engine.open("s", disk=4 * MiB), self.engine.open("o", disk=4 * MiB), self.engine.open("f")
        for path in ("big", "/home/agent/big"):
            size, said = self.fill(s, path, 8)
            self.assertTrue(3 * MiB <= size <= 4 * MiB, (path, size))
            self.assertIn("quota", said.lower())
        self.assertIn("quota", self.fill(s, "/var/tmp/big", 8)[1].lower())  # together with the home directory
        self.assertEqual(self.fill(other, "big", 3)[0], 3 * MiB)
        self.assertEqual(self.fill(free, "big", 8)[0], 8 * MiB)
        self.assertEqual(s.sh("rm big; echo again > small; cat small").stdout, b"again\n")
        size, files, _, partial = self.engine.workspaces()["o"]
        self.assertTrue(3 * MiB <= size <= 3 * MiB + 64 * 1024 and files == 1 and not partial, (size, files))

    def test_ephemeral(self):
        s = self.engine.open("e", flags=g.CONNECTED | g.EPHEMERAL, disk=MiB)
        self.assertLessEqual(self.fill(s, "big", 2)[0], MiB)
        s.close()
        for _ in range(12):  # what an earlier one left and is still being deleted isn't this one's
            s = self.engine.open("e", flags=g.CONNECTED | g.EPHEMERAL, disk=MiB)
            self.assertGreaterEqual(self.fill(s, "big", 2)[0], MiB * 3 // 4)
            s.close()

    def test_files_are_bounded_too(self):
        s = self.engine.open("n", disk=MiB)
        s.sh("seq 3000 | xargs touch 2>/dev/null")
        n = int(s.sh("ls | wc -l").stdout)
        self.assertTrue(1000 < n < 1540, n)

    def test_not_from_inside(self):
        s = self.engine.open("i", disk=MiB)
        s.sh("mkdir d; echo > f")
        code = f"""
import errno, fcntl, os, struct
for path in (".", "d", "f"):
    fd = os.open(path, os.O_RDONLY)
    old = fcntl.ioctl(fd, {FSGETXATTR}, bytes(28))
    flags, extent, n, project, cow = struct.unpack("<5I8x", old)
    for f, p in ((flags, 0), (flags, project + 1), (flags ^ 0x200, project), (0, 0)):
        try:
            fcntl.ioctl(fd, {FSSETXATTR}, struct.pack("<5I8x", f, extent, n, p, cow))
            print("done", path, hex(f), p)
        except OSError as e:
            assert e.errno in (errno.EINVAL, errno.EPERM), e
    assert fcntl.ioctl(fd, {FSGETXATTR}, bytes(28)) == old
print("end")
"""
        self.assertIn(s.run(["/usr/bin/python3", "-c", code]).stdout, (b"end\n", b"done f 0x200 0\nend\n"))
        self.assertLessEqual(self.fill(s, "d/big", 4)[0], MiB)

    def test_next_limit_and_restart(self):
        s = self.engine.open("r", disk=MiB)
        self.assertLessEqual(self.fill(s, "a", 4)[0], MiB)
        project = project_of(self.base + "/r")
        self.assertEqual(project_of(self.base + "/r/workspace/a"), project)
        self.assertEqual(project >> 24, 0x5F)
        s.close()
        self.engine.stop()
        self.engine = self.start()
        s = self.engine.open("r", disk=3 * MiB)
        self.assertEqual(project_of(self.base + "/r"), project)
        self.assertTrue(2 * MiB < self.fill(s, "a", 4)[0] <= 3 * MiB)
        s.close()
        s = self.engine.open("r")
        self.assertEqual(self.fill(s, "a", 8)[0], 8 * MiB)
        s.close()
        self.engine.open("q").close()
        self.assertNotEqual(project_of(self.base + "/q"), project)

    def test_one_from_before(self):
        old = self.base + "/old/workspace"
        os.makedirs(old + "/deep/" + "/".join("x" * 20))
        for path in ("/a", "/deep/b"):
            with open(old + path, "wb") as f:
                f.write(b"x" * MiB)
        os.symlink("/", old + "/l")
        os.mkfifo(old + "/p")
        os.link(old + "/a", old + "/hard")
        subprocess.run(["chown", "-hR", "1862336512:1862336512", old], check=True)
        os.chmod(self.base + "/old", 0o700)
        self.engine.open("old").close()
        self.assertEqual(project_of(old + "/a"), 0)  # no limit, no work
        self.assertGreater(self.engine.workspaces()["old"][0], 2 * MiB)
        s = self.engine.open("old", disk=4 * MiB)
        for path in ("", "/a", "/deep/b", "/deep/" + "/".join("x" * 20)):
            self.assertEqual(project_of(old + path), project_of(self.base + "/old"), path)
        self.assertEqual(s.sh("mv l p hard deep && mv deep/x d2 && cat deep/hard deep/b | wc -c").stdout, f"{2 * MiB}\n".encode())
        self.assertTrue(MiB < self.fill(s, "more", 4)[0] < 2 * MiB)

    def test_purged_and_new(self):
        for i in range(5):
            s = self.engine.open("p", disk=2 * MiB)
            self.assertGreater(self.fill(s, "a", 4)[0], MiB)
            s.close()
            self.engine.purge("p")

    def test_a_root_that_belongs_to_another_project(self):
        self.engine.stop()
        fd = os.open(self.base, os.O_RDONLY)
        flags, extent, n, _, cow = struct.unpack("<5I8x", fcntl.ioctl(fd, FSGETXATTR, bytes(28)))
        fcntl.ioctl(fd, FSSETXATTR, struct.pack("<5I8x", flags | 0x200, extent, n, 77, cow))
        os.close(fd)
        self.engine = self.start()
        self.assertIn("belongs to project 77", [row[2] for row in self.engine.doctor() if row[1] == "limit disk"][0])
        self.engine.open("x").close()
        self.assertEqual(project_of(self.base + "/x/workspace"), 77)

    def test_bounds(self):
        for value in (1, 4096, 1 << 61, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            self.error("INVALID", self.engine.open, "b", disk=value)
        self.assertIn("disk", self.error("INVALID", self.engine.open, "b", flags=g.CONNECTED | g.FILES, disk=MiB))


class DiskQuotaByDefault(DiskQuota):
    config = "workspace_bytes = 2m\nmax_workspace_bytes = 3m\n"

    def test_default(self):
        s = self.engine.open("d")
        self.assertTrue(MiB < self.fill(s, "a", 4)[0] <= 2 * MiB)
        s.close()
        s = self.engine.open("d", disk=3 * MiB)
        self.assertTrue(2 * MiB < self.fill(s, "a", 4)[0] <= 3 * MiB)
        self.error("INVALID", self.engine.open, "e", disk=4 * MiB)


for name in [n for n in dir(DiskQuota) if n.startswith("test_")]:
    setattr(DiskQuotaByDefault, name, None)  # its fixture, not its tests


class OwnFileSystem(EngineTest):
    """The state directory on a file system that can't be mounted with other ids."""

    def prepare(self):
        self.disk = self.dir + "/disk"
        for name in ("disk", "lower", "upper", "work"):
            os.mkdir(f"{self.dir}/{name}")
        options = f"lowerdir={self.dir}/lower,upperdir={self.dir}/upper,workdir={self.dir}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, self.disk], check=True)
        self.state = self.disk + "/state"

    def remove(self):
        self.assertEqual(self.mounted(), [])
        subprocess.run(["umount", self.disk], check=True)
        shutil.rmtree(self.dir)

    def mounted(self):
        return [line.split()[4] for line in open("/proc/self/mountinfo") if line.split()[4].startswith(self.state)]

    def end(self, sig=signal.SIGTERM):
        engine = self.engines.pop()
        engine.process.send_signal(sig)
        engine.process.wait(20)
        engine.sock.close()

    def test_it_works_and_is_kept(self):
        self.assertEqual(self.mounted(), [self.state + "/store/mounted"])
        text = [row[2] for row in self.engine.doctor() if row[1] == "store"]
        self.assertTrue(text and "image" in text[0], text)
        s = self.engine.open("s")
        self.assertEqual(s.sh("echo kept > f; stat -c '%U %u' f; cat f").stdout, b"agent 1000\nkept\n")
        s.close()
        base = self.state + "/store/mounted/workspaces/s/workspace"
        self.assertEqual(open(base + "/f").read(), "kept\n")
        self.assertGreater(os.stat(base + "/f").st_uid, 1 << 30)
        self.end()
        self.assertEqual(self.mounted(), [])
        self.engine = self.start()
        self.assertEqual(self.engine.open("s").sh("cat f").stdout, b"kept\n")

    def test_a_killed_engine(self):
        s = self.engine.open("s")
        s.sh("echo kept > f")
        self.end(signal.SIGKILL)
        self.engine = self.start()
        self.assertEqual(self.mounted(), [self.state + "/store/mounted"])
        self.assertEqual(self.engine.open("s").sh("cat f").stdout, b"kept\n")

    def test_a_limit_of_disk_within_it(self):
        s = self.engine.open("s", disk=4 * MiB)
        self.assertIn(b"No space", s.sh("dd if=/dev/zero of=big bs=64k count=160 2>&1").stdout)
        self.assertEqual(self.engine.open("o").sh("head -c 9000000 /dev/zero > f; stat -c %s f").stdout, b"9000000\n")


class DiskImages(EngineTest):
    """File systems in files, where there are no project quotas."""

    def setUp(self):
        super().setUp()
        self.base = self.state + "/workspaces"
        self.images = set()
        text = [row[2] for row in self.engine.doctor() if row[1] == "limit disk"][0]
        if not text.startswith("images"):
            self.skipTest(text)

    def fill(self, session, path, mib):
        r = session.sh(f"dd if=/dev/zero of={path} bs=64k count={mib * 16}; stat -c %s {path}")
        return int(r.stdout), r.stderr.decode()

    def loops(self):
        """The devices of our images, also of those that were removed since the last look."""
        for path in glob.glob(self.base + "/*/image"):
            self.images.add((os.stat(path).st_dev, os.stat(path).st_ino))
        found = []
        for path in glob.glob("/sys/block/loop*/loop"):
            try:
                fd = os.open("/dev/" + path.split("/")[3], os.O_RDONLY)
            except OSError:
                continue
            try:
                status = fcntl.ioctl(fd, 0x4C05, bytes(232))  # LOOP_GET_STATUS64
                found += [path] if struct.unpack("<QQ", status[:16]) in self.images else []
            except OSError:
                pass
            finally:
                os.close(fd)
        return found

    def no_loops(self):
        return wait_until(lambda: not self.loops())

    def test_only_the_writer_is_told(self):
        self.assertTrue(self.engine.limits & 32)
        s, other = self.engine.open("s", disk=8 * MiB), self.engine.open("o", disk=8 * MiB)
        self.assertEqual(s.sh("ls -A; stat -c %U.%a .; touch f; stat -c %U f").stdout, b"agent.755\nagent\n")
        size, said = self.fill(s, "big", 16)
        self.assertTrue(5 * MiB <= size <= 8 * MiB, size)
        self.assertIn("No space left", said)
        self.assertEqual(self.fill(other, "big", 4)[0], 4 * MiB)
        self.assertEqual(s.sh("rm big; echo again > small; cat small").stdout, b"again\n")
        for path in ("/home/agent/big", "/var/tmp/big"):
            self.assertLessEqual(self.fill(s, path, 16)[0], 8 * MiB)
        self.assertEqual(s.sh("cd; rm -f big /var/tmp/big; stat -c %U.%a . /var/tmp; touch f").stdout, b"agent.755\nagent.1777\n")
        self.assertEqual(os.lstat(self.base + "/s/workspace").st_size, 4096)  # nothing of it shows on the host
        self.assertEqual(os.listdir(self.base + "/s/workspace"), [])
        with open(f"/proc/{s.pid}/mountinfo") as f:
            options = {line.split()[4]: line.split()[5].split(",") for line in f}["/workspace"]
        self.assertLessEqual({"nosuid", "nodev", "rw"}, set(options))
        size, _, _, partial = self.engine.workspaces()["o"]
        self.assertTrue(4 * MiB <= size <= 9 * MiB and partial, size)
        free = self.engine.open("free")
        self.assertEqual(self.fill(free, "big", 16)[0], 16 * MiB)

    def test_kept_and_grown(self):
        self.engine.open("k", disk=4 * MiB).sh("echo kept > f; mkdir d")
        self.engine.stop()
        self.assertTrue(self.no_loops())
        self.engine = self.start()
        s = self.engine.open("k")  # asked for nothing: it stays as it is
        self.assertEqual(s.sh("cat f; ls -A").stdout, b"kept\nd\nf\n")
        self.assertLessEqual(self.fill(s, "big", 8)[0], 4 * MiB)
        s.close()
        self.assertIn("disk can't be less", self.error("INVALID", self.engine.open, "k", disk=2 * MiB))
        with open("/proc/self/status") as f:
            may_grow = int(re.search(r"CapEff:\t(\w+)", f.read())[1], 16) >> 24 & 1  # CAP_SYS_RESOURCE
        if may_grow:
            s = self.engine.open("k", disk=16 * MiB)
            self.assertTrue(8 * MiB <= self.fill(s, "big", 32)[0] <= 16 * MiB)
        else:
            self.assertIn("grow", self.error("DENIED", self.engine.open, "k", disk=16 * MiB))
            self.assertEqual(os.stat(self.base + "/k/image").st_size, 4 * MiB)
            s = self.engine.open("k", disk=4 * MiB)
        self.assertEqual(s.sh("rm -f big; cat f").stdout, b"kept\n")
        s.close()
        self.assertTrue(self.no_loops())
        self.assertEqual(subprocess.run(["e2fsck", "-fn", self.base + "/k/image"], capture_output=True).returncode, 0)

    def test_again_and_again(self):
        """A session that is opened while the last one's device is still being taken down."""
        self.engine.open("a", disk=4 * MiB).close()
        for i in range(25):
            s = self.engine.open("a", disk=4 * MiB)
            self.assertEqual(s.sh(f"echo {i} >> n; wc -l < n").stdout.strip(), str(i + 1).encode())
            self.assertEqual(len(self.loops()), 1)
            if i % 3 == 0:
                os.kill(s.pid, signal.SIGKILL)
                self.engine.wait_died(s.handle)
            else:
                s.close()
        self.assertTrue(self.no_loops())
        self.assertEqual(subprocess.run(["e2fsck", "-fn", self.base + "/a/image"], capture_output=True).returncode, 0)

    def test_views(self):
        s = self.engine.open("v", disk=4 * MiB)
        s.sh("echo one > f")
        flags = g.CONNECTED | g.FILES
        views = [self.engine.open("v", flags=flags) for _ in range(2)]
        s.sh("echo two > f")
        for v in views:
            with open(f"/proc/{v.pid}/root/workspace/f") as f:
                self.assertEqual(f.read(), "two\n")
            with open(f"/proc/{v.pid}/mountinfo") as f:
                mounts = {line.split()[4]: line.split()[5].split(",") for line in f}
            self.assertEqual(set(mounts), {"/", "/workspace"})
            self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, set(mounts["/workspace"]))
        self.assertEqual(len(self.loops()), 1)  # one file system, or it would be destroyed
        s.close()
        views[0].close()
        s = self.engine.open("v", disk=4 * MiB)
        self.assertEqual(s.sh("cat f; echo three > f").stdout, b"two\n")
        with open(f"/proc/{views[1].pid}/root/workspace/f") as f:
            self.assertEqual(f.read(), "three\n")
        s.close()
        views[1].close()
        self.assertTrue(self.no_loops())
        alone = self.engine.open("v", flags=flags)
        with open(f"/proc/{alone.pid}/root/workspace/f") as f:
            self.assertEqual(f.read(), "three\n")
        self.engine.purge("v")
        self.engine.wait_died(alone.handle)
        self.assertTrue(wait_until(lambda: not os.listdir(self.base + "/.trash")))
        self.assertTrue(self.no_loops())
        self.assertEqual(self.engine.open("v", disk=4 * MiB).sh("ls -A").stdout, b"")

    def test_all_at_once(self):
        s = self.engine.open("c", disk=4 * MiB)
        s.sh("echo x > f")
        s.close()
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
        asked = {self.engine.send(g.OPEN, g.open_body("c", flags=g.CONNECTED | (g.FILES if i else 0)), [theirs.fileno()]): ours
                 for i, (ours, theirs) in enumerate(pairs)}
        for _, theirs in pairs:
            theirs.close()
        while asked:
            kind, request, body = self.engine.receive()
            self.assertEqual(kind, g.OPENED, body)
            asked.pop(request)
            self.assertEqual(len(self.loops()), 1)

    def test_ephemeral(self):
        s = self.engine.open("e", flags=g.CONNECTED | g.EPHEMERAL, disk=2 * MiB, work_dir="/home/agent/w")
        self.assertEqual(s.sh("stat -c %U .; pwd").stdout, b"agent\n/home/agent/w\n")
        self.assertLessEqual(self.fill(s, "big", 8)[0], 2 * MiB)
        s.close()
        self.assertEqual(self.loops(), [])

    def test_one_from_before(self):
        self.engine.open("old").close()
        s = self.engine.open("old", disk=2 * MiB)  # nothing is in it yet
        s.close()
        s = self.engine.open("full")
        s.sh("echo > f")
        s.close()
        self.assertIn("without a limit", self.error("UNSUPPORTED", self.engine.open, "full", disk=2 * MiB))
        self.assertEqual(self.engine.open("full").sh("ls").stdout, b"f\n")

    def test_what_is_no_image(self):
        """The directory is the engine's alone, but it doesn't follow what was put there either."""
        for name, content in (("empty", b""), ("noise", os.urandom(1 << 20))):
            self.engine.open(name).close()
            with open(f"{self.base}/{name}/image", "wb") as f:
                f.write(content)
            with self.assertRaises(g.EngineError):
                self.engine.open(name)
        self.engine.open("link").close()
        os.symlink("/etc/passwd", self.base + "/link/image")
        self.engine.open("link").close()
        def look():
            st = os.stat("/etc/passwd")
            return st.st_ino, st.st_size, st.st_mtime_ns, st.st_mode

        before = look()
        self.engine.open("link", disk=2 * MiB).close()  # a new one takes the link's place
        self.assertTrue(stat.S_ISREG(os.lstat(self.base + "/link/image").st_mode))
        self.assertEqual(look(), before)
        self.assertTrue(self.no_loops())


class DiskWithout(EngineTest):
    def test_refused_by_name(self):
        row = [r for r in self.engine.doctor() if r[1] == "limit disk"][0]
        if self.engine.limits & 32:
            self.skipTest(row[2])
        message = self.error("UNSUPPORTED", self.engine.open, "x", disk=MiB)
        self.assertIn("project", message)
        self.assertIn("image", message)
        self.assertEqual(row[0], 1)
        self.engine.open("x").close()
        self.engine.stop()
        with open(self.config_file, "a") as f:
            f.write("workspace_bytes = 1m\n")
        self.engine = self.start()
        self.error("UNSUPPORTED", self.engine.open, "x")
        self.assertEqual([r[0] for r in self.engine.doctor() if r[1] == "limit disk"], [2])


class Volumes(EngineTest):
    def setUp(self):
        super().setUp()
        self.volume = os.path.join(self.dir, "volume")
        os.mkdir(self.volume)
        os.chown(self.volume, 4321, 4322)
        with open(os.path.join(self.volume, "theirs"), "w") as f:
            f.write("theirs")
        os.chown(os.path.join(self.volume, "theirs"), 4321, 4322)

    def test_owner_is_kept(self):
        s = self.engine.open("v", volumes=[(self.volume, "/data", False)])
        r = s.sh("stat -c %U /data /data/theirs; echo new > /data/new; mkdir /data/d; pwd")
        self.assertEqual(r.stdout.split(), [b"agent", b"agent", b"/workspace"], r)
        for name in ("new", "d"):
            st = os.stat(os.path.join(self.volume, name))
            self.assertEqual((st.st_uid, st.st_gid), (4321, 4322))
        self.assertEqual(s.sh("touch /x /data2 2>&1; ls -d /x").code, 2)
        self.assertEqual(s.sh("echo t > /tmp/a && cat /etc/passwd | wc -l && ls /usr/bin | wc -l").code, 0)

    def test_read_only(self):
        s = self.engine.open("v", volumes=[(self.volume, "/data", True)])
        self.assertEqual(s.sh("cat /data/theirs").stdout, b"theirs")
        self.assertNotEqual(s.sh("echo > /data/new").code, 0)
        self.assertFalse(os.path.exists(os.path.join(self.volume, "new")))

    def test_as_work_directory(self):
        s = self.engine.open("v", volumes=[(self.volume, "/workspace", False)])
        self.assertEqual(s.sh("pwd; cat theirs").stdout, b"/workspace\ntheirs")
        self.assertFalse(os.path.exists(os.path.join(self.state, "workspaces/v")))

    def test_a_file(self):
        s = self.engine.open("v", volumes=[(os.path.join(self.volume, "theirs"), "/workspace/sub/f", False)])
        self.assertEqual(s.sh("cat sub/f; echo more >> sub/f").code, 0)
        with open(os.path.join(self.volume, "theirs")) as f:
            self.assertEqual(f.read(), "theirsmore\n")

    def test_root_owned_refuses_set_id(self):
        os.chown(self.volume, 0, 0)
        s = self.engine.open("v", volumes=[(self.volume, "/data", False)])
        self.assertEqual(s.sh("echo > /data/f; chmod 4755 /data/f || chmod 2755 /data/f || echo no").stdout, b"no\n")
        self.assertEqual(os.stat(os.path.join(self.volume, "f")).st_uid, 0)

    def test_other_work_directory(self):
        s = self.engine.open("v", work_dir="/srv/project")
        self.assertEqual(s.sh("pwd; touch f; ls").stdout, b"/srv/project\nf\n")
        self.assertNotEqual(s.sh("touch /srv/x").code, 0)

    def test_nested(self):
        s = self.engine.open("v", work_dir="/home/agent/w", volumes=[(self.volume, "/home/agent/w/v/deep", True)])
        self.assertEqual(s.sh("pwd; cat v/deep/theirs").stdout, b"/home/agent/w\ntheirs")

    def test_planted_links(self):
        s = self.engine.open("v")
        s.sh("ln -s / link; ln -s /etc/passwd f; mkdir -p a; ln -s /usr a/b")
        s.close()
        for inside in ("/workspace/link", "/workspace/link/tmp/x", "/workspace/a/b/c"):
            with self.assertRaises(g.EngineError) as caught:
                self.engine.open("v", volumes=[(self.volume, inside, False)])
            self.assertIn(inside, caught.exception.message)
        with self.assertRaises(g.EngineError):
            self.engine.open("v", volumes=[(os.path.join(self.volume, "theirs"), "/workspace/f", False)])
        self.engine.open("v").close()

    def test_workspace_that_is_a_link(self):
        self.engine.open("w").close(purge=True)
        os.makedirs(os.path.join(self.state, "workspaces/w"), 0o700)
        os.symlink(self.volume, os.path.join(self.state, "workspaces/w/workspace"))
        with self.assertRaises(g.EngineError):
            self.engine.open("w")
        os.symlink(self.volume, os.path.join(self.state, "workspaces/x"))
        with self.assertRaises(g.EngineError):
            self.engine.open("x")

    def test_what_is_no_volume(self):
        r, w = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY)
        proc = os.open("/proc", os.O_RDONLY)
        for fd in (r, null, proc, self.engine.sock.fileno()):
            with self.assertRaises(g.EngineError):
                self.engine.open("v", volumes=[(fd, "/data", False)])
        for fd in (r, w, null, proc):
            os.close(fd)

    def test_places_that_are_closed(self):
        for inside in ("/proc", "/proc/sys", "/dev", "/dev/shm", "/sys", "/", "/etc", "/usr/x", "/bin", "/tmp", "/var",
                       "/home", "relative", "/a/../b", "/a//b", "/a/", "/a/.", "", "/x\ny"):
            for more in ({"volumes": [(self.volume, inside, False)]}, {"work_dir": inside}):
                with self.assertRaises(g.EngineError, msg=inside) as caught:
                    self.engine.open("v", **more)
                self.assertIn(caught.exception.code, ("INVALID", "DENIED"), inside)


class OtherPeer(EngineTest):
    """A peer that isn't root gets its own rights, not the owner's."""

    def setUp(self):
        super().setUp()
        self.dirs = {}
        for name, uid, mode in (("own", 4321, 0o700), ("closed", 99, 0o700), ("shared", 99, 0o777),
                                ("readable", 99, 0o755)):
            self.dirs[name] = os.path.join(self.dir, name)
            os.mkdir(self.dirs[name])
            os.chmod(self.dirs[name], mode)
            os.chown(self.dirs[name], uid, uid)
        with open(os.path.join(self.dirs["shared"], "secret"), "w") as f:
            os.fchmod(f.fileno(), 0o600)
            os.fchown(f.fileno(), 99, 99)
        self.engine.stop()
        self.engine = self.start(peer_uid=4321)

    def test_volumes(self):
        s = self.engine.open("v", volumes=[(self.dirs["own"], "/own", False), (self.dirs["shared"], "/shared", True),
                                           (self.dirs["readable"], "/readable", True)])
        self.assertEqual(s.sh("touch /own/f && ls /readable /shared && ! cat /shared/secret").code, 0)
        self.assertEqual(os.stat(os.path.join(self.dirs["own"], "f")).st_uid, 4321)
        s.close()
        self.error("DENIED", self.engine.open, "v", volumes=[(self.dirs["closed"], "/x", True)])
        self.error("DENIED", self.engine.open, "v", volumes=[(self.dirs["readable"], "/x", False)])
        self.error("DENIED", self.engine.open, "v", volumes=[(self.dirs["shared"], "/x", False)])


class Hostile(EngineTest):
    def test_requests(self):
        bad = [
            ("INVALID", {"name": ""}), ("INVALID", {"name": "../x"}), ("INVALID", {"name": "a/b"}),
            ("INVALID", {"name": ".x"}), ("INVALID", {"runtime": "python:3"}), ("INVALID", {"hostname": "a b"}),
            ("INVALID", {"hostname": "-a"}), ("DENIED", {"network": g.HOST}), ("UNSUPPORTED", {"network": g.BRIDGE}),
            ("INVALID", {"network": 7}), ("INVALID", {"flags": 0x80}), ("INVALID", {"flags": 0}),
        ]
        for code, fields in bad:
            self.error(code, self.engine.open, **{"name": "x", **fields})
        self.error("NOT_FOUND", self.engine.usage, 12345)
        self.error("NOT_FOUND", self.engine.call, g.CLOSE, struct.pack("<QB", 1, 0))
        self.error("INVALID", self.engine.call, g.CLOSE, b"")
        self.error("INVALID", self.engine.call, g.CLOSE, struct.pack("<QB", 1, 3))
        self.error("UNSUPPORTED", self.engine.call, 99)
        self.error("PROTOCOL", self.engine.call, g.HELLO, struct.pack("<HH", 1, 0))
        self.engine.open("fine").close()

    def test_before_hello(self):
        self.engine.stop()
        engine = self.start(hello=False)
        self.error("PROTOCOL", engine.call, g.DOCTOR)
        self.error("UNSUPPORTED", engine.call, g.HELLO, struct.pack("<HH", 99, 0))
        engine.call(g.HELLO, struct.pack("<HH", 1, 0), want=g.HELLO_OK)

    def test_fuzzed_opens(self):
        rng = random.Random(7)
        good = bytearray(g.open_body("fuzz"))
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for _ in range(400):
            body = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                body[rng.randrange(len(body))] = rng.choice([0, 1, 255, rng.randrange(256)])
            if rng.random() < 0.3:
                body = body[:rng.randrange(len(body))]
            elif rng.random() < 0.2:
                body += os.urandom(rng.randint(1, 2000))
            kind, answer = self.engine.answer(self.engine.send(g.OPEN, bytes(body), rng.choice([[], [b.fileno()]])))
            if kind == g.OPENED:
                self.engine.call(g.CLOSE, struct.pack("<QB", struct.unpack("<Q", answer[:8])[0], 1))
            else:
                self.assertEqual(kind, g.ERROR)
        a.close()
        b.close()
        self.engine.open("fine").close()

    def test_descriptors_are_not_kept(self):
        def count():
            return len(os.listdir(f"/proc/{self.engine.process.pid}/fd"))

        self.engine.open("x").close()
        time.sleep(0.5)
        before = count()
        r, w = os.pipe()
        for _ in range(20):
            self.engine.answer(self.engine.send(g.OPEN, b"x" * 100, [r] * 8))
            self.engine.answer(self.engine.send(g.DOCTOR + 20, b"", [r]))
            self.engine.answer(self.engine.send(g.OPEN, g.open_body("y"), [r, w]))
        os.close(r)
        os.close(w)
        self.assertTrue(wait_until(lambda: count() <= before), (before, count()))

    def test_false_header_ends_the_peer(self):
        self.engine.sock.send(b"\1\0\0\0nonsense-nonsense")
        self.assertEqual(self.engine.process.wait(10), 0)


class Ends(EngineTest):
    def test_nothing_is_left(self):
        self.engine.stop()
        before = host_state(self.group)
        engine = self.start()
        sessions = [engine.open(f"n{i}") for i in range(3)]
        sessions[0].sh("setsid sleep 1000 & sleep 1000 & echo")
        sessions[1].sh("mkdir -p d/$(seq -s/ 200); touch d/f")
        sessions[2].close(purge=True)
        engine.open("e", flags=g.CONNECTED | g.EPHEMERAL)
        self.assertEqual(engine.stop(), 0)
        after = host_state(self.group)
        for what in before:
            self.assertEqual(before[what], after[what], what)
        self.assertEqual(os.listdir(os.path.join(self.state, "sessions")), [])
        self.assertEqual(os.listdir(os.path.join(self.state, "trash")), [])
        self.assertEqual(sorted(os.listdir(os.path.join(self.state, "workspaces"))), [".spare", ".trash", "n0", "n1"])
        self.assertEqual(os.listdir(os.path.join(self.state, "workspaces/.trash")), [])

    def test_sigterm(self):
        s = self.engine.open("t")
        self.engine.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.engine.process.wait(20), 0)
        self.assertFalse(os.path.exists(f"/proc/{s.pid}"))

    def test_killed_engine_is_swept(self):
        self.engine.stop()
        before = host_state(self.group)
        engine = self.start()
        kept = engine.open("k")
        kept.start(["sleep", "1000"])
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind("")
        listener.listen()
        body = engine.call(g.OPEN, g.open_body("l", flags=0), [listener.fileno()], want=g.OPENED)
        pid = struct.unpack("<QI", body[:12])[1]
        engine.process.kill()
        engine.process.wait()
        self.assertTrue(os.path.exists(f"/proc/{pid}"))  # a session outlives its engine
        next_one = self.start()
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{pid}")))
        next_one.open("k").close()
        next_one.stop()
        self.assertTrue(wait_until(lambda: host_state(self.group) == before), (before, host_state(self.group)))
        self.assertEqual(os.listdir(os.path.join(self.state, "sessions")), [])

    def test_groups_of_a_dead_engine_are_removed_by_any_other(self):
        mine = len(glob.glob(f"/sys/fs/cgroup/*/{self.group}/*/"))
        other = g.Engine(self.dir + "/other", args=["--config", self.config_file], stderr=self.log)
        other.open("x")
        self.assertEqual(len(glob.glob(f"/sys/fs/cgroup/*/{self.group}/*/")), 2 * mine)
        other.process.kill()
        other.process.wait()
        other.sock.close()
        time.sleep(0.5)  # its helpers end
        third = g.Engine(self.dir + "/third", args=["--config", self.config_file], stderr=self.log)
        third.stop()
        self.assertEqual(len(glob.glob(f"/sys/fs/cgroup/*/{self.group}/*/")), mine)
        self.engine.open("works").close()

    def test_one_engine_per_state(self):
        second = g.Engine(self.state, args=["--config", self.config_file], hello=False, stderr=self.log)
        self.assertEqual(second.process.wait(30), 1)  # it waits a while for one that ends
        second.sock.close()

    def test_dead_zygote_is_replaced(self):
        self.engine.open("z1").close()
        pid = self.engine.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = [int(p) for p in f.read().split()]
        for child in children:
            with open(f"/proc/{child}/comm") as f:
                if f.read() == "garret-zygote\n":
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.2)
        self.engine.open("z2").close()

    def test_changed_host_renews_the_template(self):
        old = self.engine.open("old")
        os.utime("/etc/alternatives")
        new = self.engine.open("new")
        for s in (old, new):
            self.assertEqual(s.sh("cc --version >/dev/null && echo ok").stdout, b"ok\n")
        self.log.seek(0)
        self.assertIn("template_renewed", self.log.read())
        self.log.seek(0, 2)
        old.sock.close()
        self.assertEqual(self.engine.wait_died(old.handle), "closed")

    def test_networks_are_used_again(self):
        seen = set()
        for i in range(12):
            s = self.engine.open(f"r{i % 2}")
            net = os.readlink(f"/proc/{s.pid}/ns/net")
            seen.add(net)
            s.close()
            time.sleep(0.3)
        self.assertLess(len(seen), 12)


class Crowd(EngineTest):
    def test_many_at_once(self):
        rng = random.Random(3)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(60)]
        asked = {self.engine.send(g.OPEN, g.open_body(f"c{i}", flags=3), [theirs.fileno()]): ours
                 for i, (ours, theirs) in enumerate(pairs)}
        for _, theirs in pairs:
            theirs.close()
        sessions = []
        while asked:
            kind, request, body = self.engine.receive()
            self.assertEqual(kind, g.OPENED, body)
            sessions.append(g.Session(self.engine, asked.pop(request), *struct.unpack("<QIQQI", body[:32])))
        self.assertEqual(len({s.pid_namespace for s in sessions}), 60)
        for s in sessions:
            self.assertEqual(s.run(["true"]).code, 0)
        rng.shuffle(sessions)
        for s in sessions[:20]:
            os.kill(s.pid, signal.SIGKILL)
        for s in sessions[20:40]:
            s.sock.close()
        for s in sessions[40:50]:
            s.close()
        for s in sessions[:40]:
            self.assertIn(self.engine.wait_died(s.handle), ("exit", "closed"))
        self.assertEqual(self.engine.stop(), 0)
        self.assertEqual(host_state(self.group)["members"], set())
        self.assertEqual(sorted(os.listdir(os.path.join(self.state, "workspaces"))), [".spare", ".trash"])


class System(unittest.TestCase):
    """The engine that many may connect to."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="garret-engine-test-")
        os.chmod(self.dir, 0o755)
        self.path = os.path.join(self.dir, "socket")
        config = os.path.join(self.dir, "conf")
        with open(config, "w") as f:
            f.write(f"allow_uids = 4321\ncgroup_parent = garret-test-{os.getpid()}\n")
        with open("/etc/group") as f:
            group, _, self.gid, _ = f.readlines()[-1].split(":")
        self.process = subprocess.Popen([os.environ["GARRET_ENGINE"], "--system", "--socket", self.path, "--group", group,
                                         "--state", self.dir + "/state", "--config", config], stderr=subprocess.DEVNULL)
        self.assertTrue(wait_until(lambda: os.path.exists(self.path) and
                                   stat.S_IMODE(os.stat(self.path).st_mode) == 0o660))

    def tearDown(self):
        self.process.terminate()
        self.assertEqual(self.process.wait(20), 0)
        shutil.rmtree(self.dir)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.assertTrue(wait_until(lambda: sock.connect_ex(self.path) == 0))
        peer = g.Engine.__new__(g.Engine)
        g.Sock.__init__(peer, sock)
        peer.died = []
        peer.call(g.HELLO, struct.pack("<HH", 1, 0), want=g.HELLO_OK)
        return peer

    def connect_as(self, uid):
        """What a process of that user is told after connecting: its first bytes, or b""."""
        code = f"""import os, socket, struct
os.setgroups([{self.gid}]); os.setgid({self.gid}); os.setuid({uid})
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect({self.path!r})
try:
    s.send(struct.pack("<IHHQHH", 20, 1, 0, 1, 1, 0))
    print(len(s.recv(100)))
except OSError:
    print(0)
"""
        return int(subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, check=True).stdout)

    def test_who_may_connect(self):
        self.assertEqual(os.stat(self.path).st_gid, int(self.gid))
        self.assertGreater(self.connect_as(4321), 0)
        self.assertEqual(self.connect_as(4322), 0)

    def test_peers_are_apart(self):
        a, b = self.connect(), self.connect()
        s = a.open("mine")
        with self.assertRaises(g.EngineError) as caught:
            b.usage(s.handle)
        self.assertEqual(caught.exception.code, "NOT_FOUND")
        with self.assertRaises(g.EngineError):
            b.call(g.CLOSE, struct.pack("<QB", s.handle, 1))
        other = b.open("theirs")
        a.sock.close()
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{s.pid}")))
        self.assertEqual(other.sh("echo alive").stdout, b"alive\n")
        b.open("mine").close()

    def test_files_of_another_peer(self):
        a, b = self.connect(), self.connect()
        s = a.open("mine")
        with self.assertRaises(g.EngineError) as caught:
            b.open("mine", flags=g.CONNECTED | g.FILES)
        self.assertEqual(caught.exception.code, "CONFLICT")
        a.open("mine", flags=g.CONNECTED | g.FILES).close()
        s.close()
        b.open("mine", flags=g.CONNECTED | g.FILES).close()


class HostNetwork(EngineTest):
    config = "networks = none host\nmax_pids = 100\n# comment\n\npool_slots = 1\n"

    def test_host_network(self):
        self.assertEqual(self.engine.networks, 3)
        self.assertEqual(self.engine.max_pids, 100)
        s = self.engine.open("h", network=g.HOST)
        self.assertEqual(os.readlink(f"/proc/{s.pid}/ns/net"), os.readlink("/proc/self/ns/net"))

    def test_doctor(self):
        rows = {name: (level, text) for level, name, text in self.engine.doctor()}
        for name in ("kernel", "cgroup", "limit memory", "id-mapped mounts", "seccomp", "network none", "ids",
                     "runtime host", "open files"):
            self.assertIn(name, rows)
        self.assertEqual(rows["network host"][0], 0)


class Configuration(unittest.TestCase):
    def refused(self, text, words, mode=0o600):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "conf")
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, mode)
            a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            p = subprocess.run([os.environ["GARRET_ENGINE"], "--fd", str(b.fileno()), "--state", d + "/s",
                                "--config", path], pass_fds=[b.fileno()], capture_output=True, text=True, timeout=10)
            a.close()
            b.close()
            self.assertEqual(p.returncode, 1)
            self.assertIn(words, p.stderr)

    def test_refused(self):
        self.refused("# fine\nmemory = 1\n", "line 2: unknown key memory")
        self.refused("max_memory = much\n", "line 1")
        self.refused("max_pids\n", "line 1")
        self.refused("networks = bridge\n", "line 1")
        self.refused("state_dir = relative\n", "line 1")
        self.refused("id_start = 0\n", "id_start")
        self.refused("max_files_sessions = 65\n", "max_files_sessions")
        self.refused("workspace_bytes = 1k\n", "workspace_bytes")
        self.refused("max_workspace_bytes = some\n", "line 1")
        self.refused("", "nobody else can write", mode=0o622)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root")
        sys.exit(77)
    unittest.main(warnings="ignore")
