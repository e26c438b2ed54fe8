#!/usr/bin/env python3
"""Init behind a byte stream: in a stand-in of a container (namespaces of its own), entered as docker exec does.

usage: tests/provider/test_stream.py BUILD [NAME...]
"""
import hashlib
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from streambox import Container, children, descendants, driver, filesproto, wait_for  # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
TESTS = []
MIB = 1 << 20


def test(**options):
    def add(fn):
        TESTS.append((fn.__name__.replace("_", "-"), fn, options))
        return fn
    return add


def live(c):
    s = c.stream()
    s.event("live")
    return s, s.greeted()


# ---- commands ----

@test()
def a_command_says_what_it_has_to_say(c):
    s, k = live(c)
    r = k.sh("id -u; pwd; echo bad >&2; exit 3")
    assert r.out == {1: b"1000\n%s\n" % c.work.encode(), 2: b"bad\n"}, r.out
    assert (r.exit["code"], r.exit["cause"], r.exit["background"]) == (3, driver.NONE, 0), r.exit
    r = k.sh("echo x > /dev/stderr")
    assert r.out[2] == b"x\n" and r.exit["code"] == 0, (r.out, "a run can't open its own pipe")
    st = os.stat("/proc/%d/root%s" % (c.pid, c.work))
    assert st.st_uid == 1000, "the work directory isn't the runs'"


@test()
def ten_mebibytes_of_both_streams_are_fetched(c):
    s, k = live(c)
    for i in range(2):
        s.spool(i)
    r = k.sh("head -c 10485760 /dev/zero | tr '\\0' a; head -c 10485760 /dev/zero | tr '\\0' b >&2")
    assert (r.exit["total1"], r.exit["total2"], r.exit["code"]) == (10 * MIB, 10 * MIB, 0), r.exit
    index = r.exit["spool_index"]
    assert s.spooled(index, 1) == b"a" * 10 * MIB and s.spooled(index, 2) == b"b" * 10 * MIB
    inside = "/proc/%d/root%s/spool" % (c.pid, c.meet)
    held = sum(os.stat(inside + "/" + n).st_blocks * 512 for n in os.listdir(inside) if n.startswith("%d." % index))
    assert held <= 3 * MIB, "what was taken still costs the container %d bytes" % held
    again = k.send(driver.SPOOL, struct.pack("<I", index))
    assert k.answer(again)[0] == driver.ERROR, "a spool that is in use was given again"
    k.send(driver.FORGET, next(iter(k.results)))
    k.ping()
    assert not [n for n in os.listdir(inside) if n.startswith("%d." % index)], "the spool of a forgotten run stays"


@test()
def output_over_its_limit_ends_the_command(c):
    s, k = live(c)
    s.spool(0)
    r = k.sh("yes", limit=MIB, timeout=10000)
    assert r.exit["cause"] == driver.LIMIT and r.exit["total1"] == MIB, r.exit
    assert len(s.spooled(0, 1)) == MIB


@test()
def spool_space_that_runs_out_ends_the_command_too(c):
    s, k = live(c)
    s.spool(0)
    os.kill(c.relays()[0], signal.SIGSTOP)  # nothing is fetched, so nothing is punched out
    rid = k.run(["sh", "-c", "sleep 0.3; head -c 300000000 /dev/zero"])
    time.sleep(0.1)
    for pid in descendants(s.proc.pid):
        os.kill(pid, signal.SIGCONT)
    r = k.wait(rid)
    assert r.exit["cause"] in (driver.LIMIT, driver.NONE), r.exit
    assert len(s.spooled(0, 1)) == r.exit["total1"] > 65536, "the file isn't what was said"


@test()
def input_comes_whole_and_ends(c):
    s, k = live(c)
    s.spool(0)
    rid = k.run(["sha256sum"], flags=driver.WITH_STDIN)
    data = os.urandom(2 * MIB)
    sent = 0
    while sent < len(data):
        k.until(lambda: sent - k.results[rid].taken <= driver.WINDOW - 60000)
        k.send(driver.STDIN, rid + data[sent:sent + 60000])
        sent += 60000
    k.send(driver.STDIN, rid)
    assert k.wait(rid).out[1].split()[0].decode() == hashlib.sha256(data).hexdigest()


@test()
def long_arguments_travel(c):
    s, k = live(c)
    words = ["x" * 100000 for _ in range(15)]
    r = k.do(["sh", "-c", "echo $#; printf %s \"$*\" | wc -c", "sh", *words])
    assert r.out[1].split() == [b"15", b"1500014"], r.out


@test()
def time_outs_and_stops_leave_only_what_called_setsid(c):
    s, k = live(c)
    r = k.sh("setsid sleep 301 & sleep 302 & trap '' TERM; sleep 303", timeout=300)
    assert r.exit["cause"] == driver.TIMEOUT and r.exit["background"] == 1, r.exit
    rid = k.run(["sh", "-c", "setsid sh -c 'echo up; exec sleep 304' & sleep 305 & wait"])
    k.until(lambda: k.results[rid].out[1])
    assert k.answer(k.stop(rid))[0] == driver.DONE
    assert k.wait(rid).exit["cause"] == driver.STOPPED
    left = subprocess.run(["pgrep", "-fa", "sleep 30[1-5]"], capture_output=True, text=True).stdout
    left = {line.split()[2] for line in left.splitlines() if line.split()[1].endswith("sleep")}
    assert left == {"301", "304"}, left
    assert k.ping() == (0, 2)


@test()
def signals_reach_the_group(c):
    s, k = live(c)
    rid = k.run(["sh", "-c", "trap 'echo got; exit 7' USR1; echo up; while :; do sleep 0.05; done"])
    k.until(lambda: k.results[rid].out[1])
    k.signal(rid, signal.SIGUSR1)
    r = k.wait(rid)
    assert r.out[1] == b"up\ngot\n" and r.exit["code"] == 7, (r.out, r.exit)


@test()
def a_terminal_has_its_size_and_echo(c):
    s, k = live(c)
    rid = k.run(["sh", "-c", "tty >/dev/null && stty size; read a; stty size; echo \"<$a>\"; test -O $(tty) && echo mine"],
                flags=driver.STREAM | driver.PTY | driver.WITH_STDIN, size=(30, 100))
    k.until(lambda: b"30 100" in k.results[rid].out[1])
    k.send(driver.WINCH, rid + struct.pack("<HH", 40, 120))
    k.send(driver.STDIN, rid + b"word\n")
    out = k.wait(rid).out[1]
    assert b"40 120" in out and b"<word>" in out and b"mine" in out, out


@test()
def many_commands_at_a_time(c):
    s, k = live(c)
    for i in range(8):
        s.spool(i)
    rids = [k.run(["sh", "-c", "head -c %d /dev/zero; exit %d" % (i * 3000, i)]) for i in range(64)]
    given = 8
    while any(k.results[r].exit is None for r in rids):
        k.step()
        used = len({r.spooled[1][0] for r in k.results.values() if r.spooled})
        while given < used + 8:
            s.spool(given)
            given += 1
    for i, rid in enumerate(rids):
        r = k.results[rid]
        n = len(s.spooled(r.exit["spool_index"], 1)) if r.exit["spooled1"] else len(r.out[1])
        assert (r.exit["code"], n) == (i, i * 3000), (i, r.exit, n)


# ---- files ----

def read_all(fd):
    parts = []
    while True:
        data = os.read(fd, 1 << 20)
        if not data:
            os.close(fd)
            return b"".join(parts)
        parts.append(data)


@test()
def all_file_operations(c):
    s, k = live(c)
    w = s.worker()
    base = c.work
    big = random.randbytes(8 * MIB) * 8

    def do(op, path, *flags, **kw):
        w.start(op, path, *flags, **kw)
        g = w.finish()
        assert g.end.code == "ok", (op, g.end)
        return g

    def body(op, path, data, *flags, **kw):
        w.start(op, path, *flags, **kw)
        for at in range(0, len(data), 60000):
            w.send(filesproto.BODY, data[at:at + 60000])
        w.send(filesproto.BODY_END)
        g = w.finish()
        assert g.end.code == "ok", (op, g.end)
        return g

    assert body("write", base + "/a/big", big, "parents").info.size == len(big)
    assert do("stat", base + "/a/big").info.uid == 1000
    assert do("read", base + "/a/big", length=filesproto.REST).data == big
    assert do("digest", base + "/a/big").end.digest == hashlib.sha256(big).digest()
    w.start("read", base + "/a/big", "by_pipe", length=filesproto.REST)
    assert w.frame()[0] == filesproto.INFO
    assert read_all(w.pipe()) == big
    assert w.frame()[0] == filesproto.END
    body("write", base + "/a/text", b"one\ntwo\n")
    body("edit", base + "/a/text", filesproto.edit_body((b"two", b"three")))
    assert do("read", base + "/a/text", length=filesproto.REST).data == b"one\nthree\n"
    do("mkdir", base + "/b/c", "parents")
    do("copy", base + "/a/text", to=base + "/b/c/copy")
    do("rename", base + "/b/c/copy", to=base + "/b/c/moved")
    do("chmod", base + "/b/c/moved", mode=0o600)
    assert [e.name for e in do("list", base).entries] == [b"a", b"b"]
    assert {e.name for e in do("walk", base).entries} >= {b"a/big", b"b/c/moved"}
    assert [e.name for e in do("glob", base, pattern="**/moved").entries] == [b"b/c/moved"]
    assert [m.text for m in do("grep", base, pattern="thr.e").matches] == [b"three", b"three"]
    assert do("realpath", base + "/a/../b").end.path == (base + "/b").encode()
    tar = do("tar_out", base + "/b").data
    do("mkdir", base + "/t")
    body("tar_in", base + "/t", tar)
    assert do("list", base + "/t").entries
    do("remove", base + "/b", "tree")
    w.start("stat", base + "/b")
    assert w.finish().end.code == "not_found"
    assert k.ping() == (0, 0), "a worker counts as a process of the session"
    w.close()


@test()
def a_slow_reader_holds_up_only_itself(c):
    s, k = live(c)
    w = s.worker(0)
    w.start("write", c.work + "/big")
    for _ in range(400):
        w.send(filesproto.BODY, bytes(60000))
    w.send(filesproto.BODY_END)
    assert w.finish().info.size == 24000000
    w.start("read", c.work + "/big", length=filesproto.REST)  # and nothing is taken
    piped = s.worker(1)
    piped.start("read", c.work + "/big", "by_pipe", length=filesproto.REST)
    assert piped.frame()[0] == filesproto.INFO
    r = piped.pipe()
    time.sleep(0.3)
    times = []
    other = s.worker(2)
    for i in range(50):
        begin = time.monotonic()
        assert k.sh("echo %d" % i).out[1] == b"%d\n" % i
        other.start("stat", c.work)
        assert other.finish().end.code == "ok"
        times.append(time.monotonic() - begin)
    assert max(times) < 1, times
    for pid in (s.proc.pid, c.relays()[0]):
        rss = int(next(x for x in open("/proc/%d/status" % pid) if x.startswith("VmRSS")).split()[1])
        assert rss < (100000 if "asan" in BUILD else 12000), "%d KiB are kept for slow readers" % rss
    assert len(w.finish().data) == 24000000
    assert len(read_all(r)) == 24000000


@test()
def who_gives_a_read_up_leaves_no_worker(c):
    s, k = live(c)
    w = s.worker(0)
    w.start("read", c.program, length=filesproto.REST)
    w.frame()
    assert children(c.pid), "there is no worker"
    w.close()
    wait_for(lambda: not children(c.pid))


# ---- cuts ----

@test()
def cuts_lose_and_double_nothing(c):
    """Commands with output, input and spools, while the relay is killed again and again."""
    s, k = live(c)
    for i in range(4):
        s.spool(i)
    stop = threading.Event()

    def cut():
        while not stop.wait(0.06):
            for pid in c.relays():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
    lines = k.run(["sh", "-c", "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; sleep 0.003; done"])
    spooled = k.run(["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero | tr '\\0' $i; sleep 0.1; done"])
    echo = k.run(["cat"], flags=driver.WITH_STDIN | driver.STREAM)
    count = c.dir + "/count"
    open(count, "w").close()
    os.chmod(count, 0o666)
    thread = threading.Thread(target=cut)
    thread.start()
    try:
        sent = b""
        small = []
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            piece = os.urandom(300)
            k.send(driver.STDIN, echo + piece)
            sent += piece
            small.append(k.run(["sh", "-c", "echo x >> %s; echo %d" % (count, len(small))]))
            k.settle(0.03)
    finally:
        stop.set()
        thread.join()
    k.send(driver.STDIN, echo)
    assert k.wait(echo).out[1] == sent, (len(k.results[echo].out[1]), len(sent))
    for i, rid in enumerate(small):
        assert k.wait(rid).out[1] == b"%d\n" % i, (i, k.results[rid].out)
    assert open(count).read() == "x\n" * len(small), "commands were carried out twice, or not at all"
    assert k.wait(lines).out[1] == b"".join(b"%d\n" % i for i in range(1, 401))
    r = k.wait(spooled)
    want = b"".join(b"%d" % i * 1000000 for i in range(1, 9))
    assert s.spooled(r.exit["spool_index"], 1) == want, "the spool isn't whole"
    cuts = 0
    while not s.events.empty():
        cuts += s.events.get().startswith("cut")
    assert cuts > 5, "only %d cuts" % cuts


@test()
def a_stream_cut_in_transfers_ends_only_them(c):
    s, k = live(c)
    w, x = s.worker(0), s.worker(1)
    w.start("write", c.work + "/half")
    for _ in range(100):
        w.send(filesproto.BODY, bytes(60000))
    x.start("read", c.program, length=filesproto.REST)
    x.frame()
    s.say("drop")
    for worker in (w, x):
        try:
            while True:
                worker.frame()
        except EOFError:
            pass
    s.event("live")
    y = s.worker(0)
    y.start("list", c.work)
    assert not y.finish().entries, "half a file stays"


@test()
def a_worker_that_was_not_started_when_it_was_cut_is_told(c):
    s, k = live(c)
    os.kill(c.pid, signal.SIGSTOP)
    w = s.worker(0)
    time.sleep(0.1)
    s.say("drop")
    kind, _, payload = k.answer(w.request)
    assert kind == driver.ERROR and struct.unpack("<I", payload[:4])[0] == filesproto.CODES.index("unavailable")
    os.kill(c.pid, signal.SIGCONT)
    s.event("live")
    w = s.worker(0)
    assert k.answer(w.request)[0] == driver.DONE


@test()
def what_is_asked_meanwhile_waits(c):
    s, k = live(c)
    rid = k.run(["sleep", "30"])
    k.until(lambda: k.results[rid].pid)
    s.say("hold")
    s.say("drop")
    s.event("cut")
    k.stop(rid, 0)
    other = k.run(["echo", "later"])
    listing = k.send(driver.LIST)
    time.sleep(0.2)
    s.say("go")
    assert k.wait(rid).exit["cause"] == driver.STOPPED
    assert k.wait(other).out[1] == b"later\n"
    assert k.answer(listing)[0] in (driver.LISTED, driver.DONE)


@test()
def another_owner_adopts(c):
    s, k = live(c)
    s.spool(0)
    s.spool(1)
    big = k.run(["sh", "-c", "head -c 3000000 /dev/zero; sleep 0.7; head -c 3000000 /dev/zero"])
    small = k.run(["sh", "-c", "echo first; sleep 0.7; echo second"])
    k.until(lambda: k.results[big].spooled and k.results[small].out[1])
    t, q = live(c)
    cut = s.event("cut")
    assert "another stream" in cut, cut
    s.say("hold")
    spools, runs = q.list()
    assert len(spools) == 1 and set(runs) == {big, small}, (spools, runs)
    q.attach(big), q.attach(small)
    assert q.wait(small).out[1] == b"first\nsecond\n"
    assert q.wait(big).exit["total1"] == 6000000
    assert t.spooled(q.results[big].exit["spool_index"], 1) == bytes(6000000)


@test()
def two_hundred_reconnects_leak_nothing(c):
    s, k = live(c)
    init = "/proc/%d/fd" % c.pid

    def counts():
        k.sh("true")
        s.say("fds")
        return int(s.event("fds").split()[1]), len(os.listdir(init))

    before = counts()
    for i in range(200):
        w = s.worker(i % 4) if i % 3 else None
        s.say("drop")
        s.event("live")
        if w:
            w.close()
    for _ in range(2):
        k.settle(0.1)
    wait_for(lambda: len(c.relays()) == 1)
    after = counts()
    assert after == before, (before, after)


# ---- ends, and those who have no business here ----

@test()
def a_killed_init_is_told_as_gone(c):
    s, k = live(c)
    k.run(["sleep", "20"])
    os.kill(c.pid, signal.SIGKILL)
    s.say("hold")
    s.event("cut")
    c.proc.wait(5)


@test()
def init_ends_at_once_when_the_container_is_stopped(c):
    s, k = live(c)
    k.run(["sh", "-c", "trap '' TERM; sleep 20"])
    k.ping()
    begin = time.monotonic()
    os.kill(c.pid, signal.SIGTERM)
    c.proc.wait(5)
    assert time.monotonic() - begin < 0.5
    s.say("hold")


@test()
def a_relay_without_an_init_says_so(c):
    p = subprocess.Popen(c.enter([c.program, "connect", "--dir", "/nonexistent"]), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
    out, _ = p.communicate(timeout=10)
    n, channel, kind = struct.unpack("<IIB", out[:9])
    assert kind == 13 and out[12] == 2 and b"nonexistent" in out and p.returncode == 3, (out, p.returncode)
    s = c.stream(c.enter(["sh", "-c", "echo exec failed: no such file; sleep 0.2"]))
    line = s.event("cut")
    assert line.startswith("cut %d" % filesproto.CODES.index("protocol")) and "exec failed" in line, line


@test()
def frames_that_make_no_sense_end_the_relay(c):
    hello = struct.pack("<IHH", 0x53545247, 1, 0) + bytes(16) + struct.pack("<I", 1) + b"t\0"
    head = struct.pack("<IIB3x", len(hello), 0, 1) + hello
    control = driver.encode(driver.RUN, bytes(16) + struct.pack("<I", 1))
    worker = driver.encode(driver.WORKER, bytes(4))
    bad = [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<IIB3x", 1 << 30, 0, 1), struct.pack("<IIB3x", 4, 0, 2) + b"abcd",
           head + struct.pack("<IIB3x", 0, 0, 99), head + head, head + struct.pack("<IIB3x", len(control), 0, 2) + control,
           head + struct.pack("<IIB3x", 3, 0, 9) + b"abc",
           head + struct.pack("<IIB3x", len(worker), 5, 4) + worker + struct.pack("<IIB3x", 4, 5, 8) + b"\xff" * 4,
           head + (struct.pack("<IIB3x", len(worker), 5, 4) + worker) * 2]
    for data in bad:
        p = c.raw()
        out, _ = p.communicate(data, timeout=10)
        assert p.returncode in (0, 1) and (p.returncode == 1 or data == bad[1]), (data[:40], p.returncode)
    p = c.raw()  # half a frame, and then nothing more
    p.stdin.write(head[:20])
    p.stdin.close()
    assert p.wait(5) == 0
    p.stdout.close()
    s, k = live(c)
    assert k.sh("echo fine").out[1] == b"fine\n"


@test()
def no_mutation_of_a_stream_breaks_more_than_its_relay(c):
    rng = random.Random(7)

    def part(kind, body=b"", channel=0):
        return struct.pack("<IIB3x", len(body), channel, kind) + body
    hello = part(1, struct.pack("<IHH", 0x53545247, 1, 0) + bytes(16) + struct.pack("<I", 1) + b"t\0")
    rid = bytes(range(16))
    strings = driver.strings([b"true"])
    run = rid + struct.pack("<IIQHHIII", 0, 0, 0, 0, 0, 1, 0, 0) + b"\0" + struct.pack("<I", len(strings)) + strings
    request = struct.pack("<BII", 2, 0, 0) + filesproto.string("/") + filesproto.string("") * 3 + bytes(68)
    good = [part(2, driver.encode(driver.RUN, run, 1)), part(2, driver.encode(17, struct.pack("<Q", 5))),
            part(4, driver.encode(driver.WORKER, bytes(4), 2), 1), part(5, driver.encode(1, request), 1), part(3, b"blob"),
            part(6, struct.pack("<I", 9), 1), part(7, b"", 1), part(8, struct.pack("<I", 0), 1), part(11, b"ping"),
            part(9, struct.pack("<IBQI", 1, 0, 0, 1000)), part(2, driver.encode(driver.LIST, b"", 3))]
    for _ in range(40):
        data = bytearray(b"".join(rng.choices(good, k=rng.randrange(1, 12))))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7f, 0xff, rng.randrange(256)])
        p = c.raw()
        p.communicate(hello + data, timeout=10)
        assert p.returncode in (0, 1), (p.returncode, bytes(data))
    s, k = live(c)
    assert k.sh("echo fine").out[1] == b"fine\n"


@test()
def nobody_inside_can_speak_to_init(c):
    s, k = live(c)
    r = k.do([c.program, "connect", "--dir", c.meet])
    assert r.exit["code"] == 3, r.exit


@test(uid=0)
def not_even_init_s_own_user_can(c):
    s, k = live(c)
    probe = ("import socket,sys; s=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('%s/init.sock'); "
             "s.settimeout(3); s.send(bytes.fromhex('%s')); sys.stdout.write(repr(s.recv(100)))" %
             (c.meet, driver.encode(driver.HELLO, struct.pack("<HH", 1, 0) + bytes(16)).hex()))
    out = k.do(["python3", "-c", probe])
    assert b"b''" in out.out[1] or b"reset" in out.out[2] or b"Broken" in out.out[2], out.out
    assert k.sh("true").exit["code"] == 0


@test(user=1000)
def a_container_without_root(c):
    """Runs have init's own user: they can't speak to it, nor look into it or its relay."""
    s, k = live(c)
    r = k.sh("id -u; pwd")
    assert r.out[1] == b"1000\n%s\n" % c.work.encode(), r.out
    r = k.sh("for p in 1 $(pgrep -f '[g]arret-init connect'); do cat /proc/$p/environ /proc/$p/maps >/dev/null && echo read $p; done")
    assert r.out[1] == b"" and r.out[2].count(b"denied") == 4, r.out
    r = k.sh("%s connect --dir %s < /dev/null" % (c.program, c.meet))
    assert r.exit["code"] != 0 and b"GRTS" not in r.out[1][:20], r.out
    w = s.worker()
    w.start("mkdir", c.work + "/new")
    assert w.finish().end.code == "ok"


@test(first=["sleep", "1000"])
def a_daemon_in_a_container_of_others(c):
    c.meet += "/not/there/yet"
    serve = c.enter(c.serve("--detach"))
    begun = [subprocess.Popen(serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(4)]
    for p in begun:
        p.communicate(timeout=10)
        assert p.returncode == 0
    served = subprocess.run(["pgrep", "-fc", "%s serve" % c.program], capture_output=True, text=True).stdout
    assert int(served) == 1, served
    s, k = live(c)
    r = k.sh("setsid sleep 311 >/dev/null 2>&1 & echo hi")
    assert r.out[1] == b"hi\n" and r.exit["background"] == 1, (r.out, r.exit)
    again = subprocess.run(serve, timeout=10)
    assert again.returncode == 0
    assert k.sh("echo on").out[1] == b"on\n"
    pid = subprocess.run(["pgrep", "-f", "%s serve" % c.program], capture_output=True, text=True).stdout.split()
    rid = k.run(["sleep", "312"])
    k.until(lambda: k.results[rid].pid)
    os.kill(int(pid[0]), signal.SIGTERM)
    assert s.event("cut").split()[1] == str(filesproto.CODES.index("gone"))
    wait_for(lambda: subprocess.run(["pgrep", "-f", "sleep 312"], capture_output=True).returncode == 1)
    assert c.alive()


CLONE3, OPENAT2 = 435, 437


@test(without=[CLONE3])
def a_filter_without_clone3_is_enough(c):
    """Docker's own has none."""
    s, k = live(c)
    assert k.sh("echo on; exit 3").out[1] == b"on\n"
    r = k.sh("sleep 20", timeout=200)
    assert r.exit["cause"] == driver.TIMEOUT, r.exit
    assert k.do(["/nonexistent"]).exit["code"] == 127
    w = s.worker()
    w.start("list", "/")
    assert w.finish().entries


@test(without=[OPENAT2])
def a_call_that_is_missing_is_named(c):
    assert c.proc.wait(5) == 1
    errors = open(c.dir + "/errors").read()
    assert "it has no openat2" in errors, errors


@test(first=["setpriv", "--bounding-set=-kill", "@serve"])
def a_capability_that_is_missing_is_named(c):
    """Without it a command would begin, and never be ended."""
    assert c.proc.wait(5) == 1
    errors = open(c.dir + "/errors").read()
    assert "need the capability KILL" in errors, errors


@test()
def a_box_is_composed_of_it(c):
    """The shared operations of boxes, in C, over a stream that is cut."""
    p = subprocess.run([c.build + "/tests/provider/test-stream-box", c.dir + "/runs", c.work, *c.connect_command()],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    assert p.returncode == 0, p.stdout
    assert p.stdout.split("\n")[:5] == ["commands", "streams", "files", "adoption", "another init"], p.stdout


@test()
def figures(c):
    s, k = live(c)
    w = s.worker()
    w.start("write", c.work + "/kib")
    w.send(filesproto.BODY, bytes(1024))
    w.send(filesproto.BODY_END)
    w.finish()
    runs, reads = [], []
    for _ in range(200):
        begin = time.perf_counter()
        rid = k.run(["true"])
        k.wait(rid)
        runs.append(time.perf_counter() - begin)
        k.send(driver.FORGET, rid)
        begin = time.perf_counter()
        w.start("read", c.work + "/kib", length=filesproto.REST)
        assert len(w.finish().data) == 1024
        reads.append(time.perf_counter() - begin)
    runs.sort(), reads.sort()
    print("   true: p50 %.0f us, min %.0f us; a read of 1 KiB: p50 %.0f us, min %.0f us" %
          (runs[100] * 1e6, runs[0] * 1e6, reads[100] * 1e6, reads[0] * 1e6))


def main():
    passed = failed = 0
    for name, fn, options in TESTS:
        if sys.argv[2:] and not any(w in name for w in sys.argv[2:]):
            continue
        begin = time.monotonic()
        c = None
        try:
            with Container(BUILD, **{"uid": 1000, **options}) as c:
                fn(c)
            passed += 1
            print("ok   %s (%.2f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:
            failed += 1
            print("FAIL %s" % name, flush=True)
            traceback.print_exc()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if os.geteuid() != 0:
    print("needs root for namespaces")
    sys.exit(77)
sys.exit(main())
