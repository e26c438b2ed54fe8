"""Drives init by its protocol.  usage: test_init.py HOST PROGRAM [name ...]"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

import filesproto
from driver import *

HOST, PROGRAM = sys.argv[1:3]
TESTS = []


def test(leaf=(True,), **options):
    """Run the function with one session (two ways: with and without leaf cgroups)."""
    def wrap(fn):
        for l in leaf:
            TESTS.append((fn.__name__ + ("" if l else "_without_leaf"), fn, dict(options, leaf=l)))
        return fn
    return wrap


both = test(leaf=(True, False))


@both
def runs_and_tells_how_it_ended(i):
    c = i.connect()
    r = c.do(["echo", "hello"])
    assert (r.out[1], r.out[2], r.exit["code"], r.exit["cause"]) == (b"hello\n", b"", 0, NONE), r.exit
    assert r.pid and r.exit["total1"] == 6 and 0 < r.exit["wall"] < 10**7 and r.exit["rss"] > 0
    r = c.sh("echo out; echo err >&2; exit 7")
    assert (r.out[1], r.out[2], r.exit["code"]) == (b"out\n", b"err\n", 7)
    assert c.sh("kill -SEGV $$").exit["code"] == 139
    assert c.sh("exit 200").exit["code"] == 200
    assert c.ping() == (0, 0)


@test()
def says_what_could_not_be_run_as_a_shell_does(i):
    c = i.connect()
    open(i.path("plain"), "w").write("echo from a script: $1\n")
    os.chmod(i.path("plain"), 0o644)
    cases = [
        (["nosuch"], {}, 127, b"sh: 1: nosuch: not found\n"),
        (["/no/such"], {}, 127, b"sh: 1: /no/such: not found\n"),
        ([""], {}, 127, b"sh: 1: : not found\n"),
        (["/tmp"], {}, 126, b"sh: 1: /tmp: Permission denied\n"),
        ([i.path("plain")], {}, 126, b"sh: 1: %s: Permission denied\n" % os.fsencode(i.path("plain"))),
        (["plain"], {"env": ["PATH=/nowhere:%s:/bin" % i.dir]}, 126, b"sh: 1: plain: Permission denied\n"),
        (["true"], {"env": ["PATH=/nowhere"]}, 127, b"sh: 1: true: not found\n"),
        (["/etc/passwd/x"], {}, 127, b"sh: 1: /etc/passwd/x: not found\n"),
    ]
    for argv, kw, code, text in cases:
        r = c.do(argv, **kw)
        assert (r.exit["code"], r.out[2], r.exit["step"]) == (code, text, STEP_EXEC), (argv, r.exit, r.out)
        assert r.pid is None and r.exit["sys"] != 0
    # Found behind a directory where it can't be executed, and a script without #!.
    os.mkdir(i.path("good"))
    open(i.path("good/plain"), "w").write("echo from a script: $1\n")
    os.chmod(i.path("good/plain"), 0o755)
    r = c.do(["plain", "arg"], env=["PATH=%s:%s:/bin" % (i.dir, i.path("good"))])
    assert (r.exit["code"], r.out[1]) == (0, b"from a script: arg\n"), (r.exit, r.out)
    # An empty element of PATH is the current directory.
    r = c.do(["plain", "here"], env=["PATH=/nowhere:"], cwd=i.path("good"))
    assert r.out[1] == b"from a script: here\n", (r.exit, r.out)


@test()
def takes_arguments_up_to_the_kernels_limit(i):
    c = i.connect()
    args = ["x" * 131071] * 12
    i.spool(c, 1)
    r = c.do(["sh", "-c", "echo $#; for a; do echo ${#a}; done", "sh"] + args)
    assert r.out[1] == b"12\n" + b"131071\n" * 12, (r.exit, r.out[1][:100], r.out[2][:100])
    r = c.do(["printf", "%s", "-e\n'\"$HOME`*", "\xff\xfe".encode("latin-1")])
    assert r.out[1] == b"-e\n'\"$HOME`*\xff\xfe", r.out
    # Too much for the kernel: the stack of the run is what bounds it.
    r = c.do(["true"] + ["y" * 60000] * 30, env=["A=%s" % ("b" * 100000)])
    assert (r.exit["code"], r.exit["step"]) in ((0, 0), (126, STEP_EXEC))


@test()
def lays_the_environment_of_a_run_over_the_sessions(i):
    c = i.connect()
    env = dict(l.split(b"=", 1) for l in c.do(["env"]).out[1].splitlines())
    assert env[b"HOME"] == b"/home/agent" and env[b"PATH"] == b"/usr/local/bin:/usr/bin:/bin"
    assert env[b"GIT_CONFIG_COUNT"] == b"5" and env[b"GIT_CONFIG_VALUE_2"] == b"agent@sandbox.local"
    assert b"UV_SYSTEM_PYTHON" not in env and env[b"LANG"] == b"C.UTF-8"
    out = c.do(["env"], env=["HOME=/x", "NEW=1", "NEW=2", "EMPTY=", "HOM=short"]).out[1].splitlines()
    assert out.count(b"HOME=/x") == 1 and out.count(b"NEW=2") == 1 and b"NEW=1" not in out
    assert b"EMPTY=" in out and b"HOM=short" in out and len(out) == len(set(out))
    assert len(out) == len(env) + 3
    many = ["V%d=%d" % (n, n) for n in range(16000)]
    begin = time.monotonic()
    r = c.sh("echo $V0 $V15999", env=many)
    assert r.out[1] == b"0 15999\n" and time.monotonic() - begin < 1


@test()
def gives_a_run_its_user_limits_and_nothing_else(i):
    c = i.connect()
    r = c.sh("id -u; id -g; id -G; umask; ulimit -c; ulimit -n; ls /proc/self/fd | wc -l; ps -o sid= -p $$; echo $$")
    lines = r.out[1].decode().split("\n")
    assert lines[:6] == ["1000", "1000", "1000", "0022", "0", "256"], lines[:6]
    assert lines[6] == "4", lines[6]  # 0, 1, 2 and the directory itself
    text = c.do(["cat", "/proc/self/status"]).out[1].decode()
    status = dict(l.split(":\t", 1) for l in text.split("\n") if ":\t" in l)
    assert status["SigBlk"] == status["SigIgn"] == "0" * 16 and int(status["CapEff"], 16) == 0, status
    assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
    assert lines[-3].strip() == lines[-2].strip(), "not the leader of a session of its own"
    r = c.do(["python3", "-c", "import ctypes,os;l=ctypes.CDLL(None,use_errno=True);"
              "print(l.syscall(435,0,0),ctypes.get_errno())"], env=["PATH=" + os.environ["PATH"]])
    assert r.out[1] == b"-1 38\n", r.out


@test()
def lets_runs_die_of_memory_before_init(i):
    c = i.connect()
    assert c.sh("sleep 0.05; cat /proc/self/oom_score_adj").out[1] == b"500\n"
    own = open("/proc/%d/oom_score_adj" % i.pid).read()
    assert own == open("/proc/self/oom_score_adj").read() != "500\n", own
    assert os.stat("/proc/%d/mem" % i.pid).st_uid == 0, "init became dumpable"


@test()
def enters_the_working_directory(i):
    c = i.connect()
    os.mkdir(i.path("sub"))
    assert c.sh("pwd").out[1].decode().strip() == i.dir
    assert c.sh("pwd", cwd=i.path("sub")).out[1].decode().strip() == i.path("sub")
    for cwd, sys_ in (("/no/such", 2), ("/etc/passwd", 20), ("/proc/self/cwd", 40), ("/proc/self/root", 40), ("/root", 13)):
        r = c.sh("pwd", cwd=cwd)
        assert (r.exit["step"], r.exit["sys"], r.exit["code"]) == (STEP_CWD, sys_, 126), (cwd, r.exit)
        assert r.out[2].decode() == "sh: 1: cd: can't cd to %s\n" % cwd


@test()
def feeds_input_and_its_end(i):
    c = i.connect()
    r = c.do(["cat"])
    assert r.exit["code"] == 0 and r.out[1] == b""
    rid = c.run(["cat"], flags=WITH_STDIN)
    c.send(STDIN, rid + b"one ")
    c.send(STDIN, rid + b"two")
    c.until(lambda: c.results[rid].taken == 7)
    c.send(STDIN, rid)
    assert c.wait(rid).out[1] == b"one two"
    # More than a pipe holds, then a reader that goes away.
    rid = c.run(["sh", "-c", "sleep 0.2; wc -c"], flags=WITH_STDIN)
    for _ in range(4):
        c.send(STDIN, rid + b"x" * 60000)
    c.send(STDIN, rid)
    assert c.wait(rid).out[1].strip() == b"240000" and c.results[rid].taken == 240000
    rid = c.run(["sh", "-c", "exec <&-; sleep 300"], flags=WITH_STDIN)
    time.sleep(0.1)
    c.send(STDIN, rid + b"y" * 60000)
    c.until(lambda: c.results[rid].taken == 60000, 1)
    c.stop(rid, 0)
    c.wait(rid)
    rid = c.run(["sleep", "5"])
    assert c.answer(c.send(STDIN, rid + b"z"))[0] == ERROR
    c.stop(rid, 0)
    c.wait(rid)


@both
def keeps_a_head_and_spools_the_rest(i):
    c = i.connect()
    r = c.sh("head -c 65536 /dev/zero")
    assert r.out[1] == bytes(HEAD) and not r.exit["spooled1"]
    paths = i.spool(c, 7)
    size = 10 * 1024 * 1024
    begin = time.monotonic()
    r = c.sh("yes 0123456789abcde | head -c %d; echo small >&2" % size, limit=size + 6)
    took = time.monotonic() - begin
    assert (r.exit["code"], r.exit["cause"], r.exit["spooled1"], r.exit["spooled2"]) == (0, NONE, 1, 0), r.exit
    assert r.exit["total1"] == size and r.exit["spool_index"] == 7 and r.spooled[1] == (7, size)
    assert open(paths[0], "rb").read() == (b"0123456789abcde\n" * (size // 16)) and r.out[2] == b"small\n"
    print("   10 MiB to the spool in %.1f ms" % (took * 1000))
    # No pair is there: the writer waits, nothing is lost, init is not deaf.
    rid = c.run(["sh", "-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; echo end"])
    c.settle(0.3)
    assert c.results[rid].exit is None and c.ping()[0] == 1
    paths = i.spool(c, 8)
    r = c.wait(rid)
    assert (r.exit["total1"], r.exit["total2"], r.exit["spool_index"]) == (300004, 200000, 8)
    assert open(paths[0], "rb").read() == bytes(300000) + b"end\n" and open(paths[1], "rb").read() == bytes(200000)
    # The same when the command has exited meanwhile: what it wrote is owed.
    rid = c.run(["head", "-c", "65546", "/dev/zero"])
    c.settle(0.3)
    assert c.results[rid].exit is None
    paths = i.spool(c, 9)
    assert c.wait(rid).exit["total1"] == 65546 and os.path.getsize(paths[0]) == 65546
    # ... but not longer than its deadline.
    r = c.do(["head", "-c", "65546", "/dev/zero"], timeout=300)
    assert (r.exit["cause"], r.exit["total1"], len(r.out[1])) == (TIMEOUT, HEAD, HEAD), r.exit
    # A writer that never pauses doesn't keep init from anything else.
    null = os.open("/dev/null", os.O_RDWR)
    c.send(SPOOL, struct.pack("<I", 10), [null, null])
    os.close(null)
    rid = c.run(["sh", "-c", "yes & yes"])
    c.until(lambda: c.results[rid].spooled)
    for _ in range(5):
        begin = time.monotonic()
        c.ping()
        assert time.monotonic() - begin < 0.2
    begin = time.monotonic()
    c.answer(c.stop(rid, 0))
    assert time.monotonic() - begin < 0.5


@both
def stops_at_the_output_limit(i):
    c = i.connect()
    paths = i.spool(c, 1)
    limit = 1000 * 1000
    begin = time.monotonic()
    r = c.sh("yes", limit=limit)
    assert (r.exit["cause"], r.exit["total1"]) == (LIMIT, limit), r.exit
    assert os.path.getsize(paths[0]) == limit and time.monotonic() - begin < 1
    r = c.sh("trap '' TERM; echo 12345; echo 678 >&2; echo x; sleep 60", limit=10)
    assert (r.exit["cause"], r.exit["total1"] + r.exit["total2"]) == (LIMIT, 10), r.exit
    assert len(r.out[1]) + len(r.out[2]) == 10
    r = c.sh("printf 1234567890", limit=10)  # exactly the limit is fine
    assert (r.exit["cause"], r.exit["code"], r.out[1]) == (NONE, 0, b"1234567890")
    assert not i.inside(), i.inside()


@both
def ends_a_run_at_its_deadline(i):
    c = i.connect()
    begin = time.monotonic()
    r = c.sh("echo before; sleep 300 & wait", timeout=50)
    took = time.monotonic() - begin
    assert r.exit["cause"] == TIMEOUT and r.out[1] == b"before\n" and took < 0.5, (r.exit, took)
    assert not i.inside()
    # TERM is ignored by all of them: gone after the grace.
    begin = time.monotonic()
    r = c.sh("trap '' TERM; sleep 300 & sleep 300 & (sleep 300; :) & wait; wait", timeout=100)
    took = time.monotonic() - begin
    assert r.exit["cause"] == TIMEOUT and 2 < took < 3, (r.exit, took)
    assert not i.inside()
    # A stopped one must die as well, and a child that left the process group too.
    begin = time.monotonic()
    r = c.sh("kill -STOP $$", timeout=50)
    assert r.exit["cause"] == TIMEOUT and time.monotonic() - begin < 0.3
    r = c.do(["bash", "-m", "-c", "trap '' TERM; sleep 300 & wait"], timeout=50)
    assert r.exit["cause"] == TIMEOUT and not i.inside()
    assert c.ping() == (0, 0)


@both
def kills_what_forks_faster_than_it_is_killed(i):
    c = i.connect()
    r = c.do(["python3", "-c", "import os,signal\nsignal.signal(15,signal.SIG_IGN)\n"
              "for _ in range(30):\n  if not os.fork():\n    while True:\n      p=os.fork()\n      if p: os._exit(0)\n"
              "while True:\n  signal.pause()"], timeout=300, env=["PATH=" + os.environ["PATH"]])
    assert r.exit["cause"] == TIMEOUT, r.exit
    assert not [p for p in i.inside() if p[1] != "Z"], i.inside()[:5]


@both
def lets_background_children_live_and_write(i):
    c = i.connect()
    i.spool(c, 1)
    begin = time.monotonic()
    r = c.sh("(sleep 0.5; head -c 1048576 /dev/zero && echo wrote >%s; exec sleep 100) & echo started" % i.path("late"))
    took = time.monotonic() - begin
    assert r.exit["code"] == 0 and r.out[1] == b"started\n" and took < 0.4, (r.exit, took)
    assert r.exit["background"] >= 1 and c.ping()[1] >= 1, r.exit
    time.sleep(0.9)
    assert open(i.path("late")).read() == "wrote\n", "it met SIGPIPE or a full pipe"
    assert [p for p in i.inside() if p[2] == "sleep"]
    # What is written within the drain belongs to the answer.
    r = c.sh("(sleep 0.02; echo second) & echo first")
    assert r.out[1] == b"first\nsecond\n", r.out


@both
def spares_what_called_setsid(i):
    c = i.connect()
    begin = time.monotonic()
    r = c.sh("setsid sh -c 'while sleep 0.05; do date +%%s%%N >%s; done' & setsid sh -c 'trap \"\" TERM; sleep 112' & "
             "trap '' TERM; sleep 222 & wait" % i.path("tick"), timeout=300)
    assert r.exit["cause"] == TIMEOUT and time.monotonic() - begin < 3
    tick = open(i.path("tick")).read()
    time.sleep(0.3)
    assert open(i.path("tick")).read() != tick, "it was left frozen"
    names = [p for p in i.inside() if p[1] != "Z"]
    assert len(names) in (3, 4, 5), names  # two shells and their sleeps, a date now and then
    assert r.exit["background"] >= 3 and c.ping()[1] >= 3, (r.exit, c.ping())


@test(killed=True)
def does_without_leaves_where_they_kill(i):
    c = i.connect()
    for n in range(5):
        r = c.sh("echo %d" % n)
        assert r.out[1] == b"%d\n" % n and r.exit["code"] == 0, r.exit
    r = c.sh("sleep 300 & wait", timeout=50)
    assert r.exit["cause"] == TIMEOUT and not i.inside()


@both
def survives_a_fellow_that_stops_everything(i):
    c = i.connect()
    env = ["PATH=" + os.environ["PATH"]]
    bully = c.run(["python3", "-c", "import os,signal\nprint(1,flush=True)\nwhile True:\n  try: os.kill(-1,signal.SIGSTOP)\n"
                   "  except ProcessLookupError: pass"], env=env)
    c.until(lambda: c.results[bully].out[1])
    hit = False
    for _ in range(10):  # the bully needs luck to meet one between its birth and exec
        begin = time.monotonic()
        rids = [c.run(["true"], timeout=200) for _ in range(40)]
        for rid in rids:
            assert c.wait(rid, 6).exit["cause"] in (NONE, TIMEOUT)
        assert time.monotonic() - begin < 4, "a stopped child kept its run"
        hit = any(c.results[r].exit["cause"] == TIMEOUT for r in rids)
        if hit:
            break
    assert hit, "none of 400 was stopped: the bully doesn't work"
    begin = time.monotonic()
    c.answer(c.stop(bully, 0))
    assert time.monotonic() - begin < 0.5
    assert not i.inside(), i.inside()


@test()
def bounds_what_it_keeps_for_nobody(i):
    c = i.connect()
    rids = []
    for n in range(200):
        rids.append(c.run(["head", "-c", "65536", "/dev/zero"]))
        c.wait(rids[-1])
        c.send(DETACH, rids[-1])
    assert c.answer(c.attach(rids[0]))[0] == ERROR
    c.attach(rids[-1])
    assert len(c.wait(rids[-1]).out[1]) == HEAD
    rss = int(open("/proc/%d/statm" % i.pid).read().split()[1]) * 4
    assert rss < 16 * 1024 or "asan" in open("/proc/%d/maps" % i.pid).read(), rss


@test(oom=True)
def tells_that_memory_ran_out(i):
    c = i.connect()
    assert c.do(["true"]).exit["oom"] == 0
    r = c.sh("printf 'under_oom 0\noom_kill 1\n' >%s" % i.path("oom"))
    assert r.exit["oom"] == 1
    assert c.do(["true"]).exit["oom"] == 0


@test()
def removes_leaves_when_they_are_empty(i):
    c = i.connect()
    for _ in range(20):
        c.do(["true"])
    c.sh("setsid sleep 1 >/dev/null 2>&1 &")
    time.sleep(0.1)
    leaves = [d for d in os.listdir(i.cgroup) if d.startswith("r")]
    assert len(leaves) == 3, leaves  # two ready, one lingers
    time.sleep(1.6)
    assert len([d for d in os.listdir(i.cgroup) if d.startswith("r")]) == 2


@both
def reaps_everything(i):
    c = i.connect()
    r = c.do(["python3", "-c", "import os\nfor _ in range(2000):\n  p=os.fork()\n  if not p:\n"
              "    if os.fork(): os._exit(0)\n    os._exit(0)\n  os.waitpid(p,0)\nprint('done')"],
             env=["PATH=" + os.environ["PATH"]])
    assert r.out[1] == b"done\n", r.out
    time.sleep(0.1)
    assert not i.inside(), i.inside()[:3]


@both
def stops_and_signals_on_request(i):
    c = i.connect()
    rid = c.run(["sleep", "300"])
    c.until(lambda: c.results[rid].pid)
    request = c.stop(rid)
    r = c.wait(rid, 2)
    assert (r.exit["cause"], r.exit["code"]) == (STOPPED, 143), r.exit
    assert c.answer(request)[0] == DONE
    rid = c.run(["sh", "-c", "trap '' TERM; echo up; sleep 300"])
    c.until(lambda: c.results[rid].out[1])
    begin = time.monotonic()
    c.answer(c.stop(rid, 300))
    assert 0.3 <= time.monotonic() - begin < 0.8 and c.wait(rid).exit["code"] == 137
    assert c.answer(c.stop(rid))[0] == DONE  # it has ended
    assert c.answer(c.stop(b"n" * 16))[0] == ERROR
    rid = c.run(["sh", "-c", "trap 'echo usr; exit 3' USR1; echo up; while :; do sleep 0.05; done"])
    c.until(lambda: c.results[rid].out[1])
    c.signal(rid, 10, group=0)
    r = c.wait(rid)
    assert r.exit["code"] == 3 and r.out[1] == b"up\nusr\n" and r.exit["cause"] == NONE
    assert c.answer(c.signal(rid, 10))[0] == ERROR
    for group in (0, 1):  # sent with the request: it must not be lost while the program starts
        for _ in range(20):
            rid = c.run(["sleep", "300"])
            c.signal(rid, 2, group=group)
            assert c.wait(rid, 5).exit["code"] == 130


@both
def gives_every_connection_the_whole_run(i):
    c = i.connect()
    rid = c.run(["sh", "-c", "echo first; sleep 0.3; echo second; exit 4"])
    c.until(lambda: c.results[rid].out[1])
    d = i.connect()
    d.attach(rid)
    r = d.wait(rid)
    assert r.out[1] == b"first\nsecond\n" and r.exit["code"] == 4 and r.pid == c.wait(rid).pid
    # The owner dies in the middle; the next one asks with the same RUN.
    c.close()
    d.close()
    e = i.connect()
    rid = e.run(["sh", "-c", "for n in 1 2 3 4 5 6 7 8; do echo line $n; sleep 0.05; done"])
    e.until(lambda: e.results[rid].out[1])
    e.close()
    time.sleep(0.15)
    f = i.connect()
    f.run(["false"], rid=rid)
    r = f.wait(rid)
    assert r.out[1] == b"".join(b"line %d\n" % n for n in range(1, 9)) and r.exit["code"] == 0
    # Ended while nobody was there, kept until it is forgotten.
    g = i.connect()
    g.attach(rid)
    assert g.wait(rid).out[1] == r.out[1]
    g.send(FORGET, rid)
    assert g.answer(g.send(ATTACH, rid))[0] == ERROR
    # Detached: nothing more comes.
    rid = g.run(["sh", "-c", "sleep 0.1; echo late"])
    g.send(DETACH, rid)
    g.settle(0.3)
    assert not g.results[rid].out[1] and g.results[rid].exit is None
    g.attach(rid)
    assert g.wait(rid).out[1] == b"late\n"


@test()
def tells_a_new_owner_what_there_is(i):
    c = i.connect()
    i.spool(c, 7)
    ended = c.run(["echo", "kept"])
    c.wait(ended)
    reader = c.run(["cat"], flags=WITH_STDIN)
    c.send(STDIN, reader + b"x" * 60000)
    c.send(STDIN, reader + b"x" * 60000)
    c.until(lambda: c.results[reader].held == 120000)
    deaf = c.run(["sleep", "300"], flags=WITH_STDIN)
    for _ in range(3):
        c.send(STDIN, deaf + b"y" * 60000)
    c.until(lambda: c.results[deaf].held == 180000)
    c.send(STDIN, deaf)
    c.until(lambda: c.results[deaf].input_ended)
    assert c.results[deaf].taken < 180000, "a pipe that nobody reads is full at 64 KiB"
    live = c.run(["sleep", "300"], flags=STREAM)
    many = [c.run(["true"]) for _ in range(2000)]
    for rid in many:
        c.wait(rid)
    c.close()
    d = i.connect()
    spools, runs = d.list()
    assert spools == [] or spools == [7], spools
    assert len(runs) == 2004 and set(many) < set(runs)
    assert runs[ended][:2] == (0, 1) and runs[reader][0] == WITH_STDIN and runs[reader][3:] == (120000, 0), runs[reader]
    assert runs[deaf][3:] == (180000, 1) and runs[live][:2] == (STREAM, 0)
    assert 0 < runs[ended][2] < 60e6
    d.attach(ended)
    assert d.wait(ended).out[1] == b"kept\n"
    for rid in (reader, deaf, live):
        d.attach(rid)
        d.stop(rid, 0)
    d.send(FORGET, ended)
    d.wait(deaf), d.wait(live)
    assert ended not in d.list()[1]


@test()
def loses_nothing_for_a_slow_owner(i):
    c = i.connect()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    rids = [c.run(["sh", "-c", "head -c 60000 /dev/urandom | tee %s" % i.path("o%d" % n)]) for n in range(40)]
    time.sleep(0.7)
    for n, rid in enumerate(rids):
        r = c.wait(rid)
        assert r.exit["total1"] == 60000 and r.out[1] == open(i.path("o%d" % n), "rb").read()


@test()
def streams_with_a_window(i):
    c = i.connect()
    c.auto_ack = False
    rid = c.run(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo end"], flags=STREAM)
    c.settle(0.4)
    r = c.results[rid]
    assert len(r.out[1]) == WINDOW and r.exit is None, len(r.out[1])
    # Another owner goes on from what was acknowledged.
    c.send(ACK, rid + struct.pack("<BQ", 1, 100000))
    c.settle(0.2)
    assert len(r.out[1]) == WINDOW + 100000
    c.close()
    d = i.connect()
    d.attach(rid)
    d.results[rid].out[1] = b"x" * 100000
    d.settle(0.2)
    d.send(ACK, rid + struct.pack("<BQ", 1, len(d.results[rid].out[1])))
    r = d.wait(rid)
    assert r.out[1] == b"x" * 1000000 + b"end\n" and r.exit["total1"] == 1000004
    # An owner that never acknowledges can still stop it.
    d.auto_ack = False
    rid = d.run(["yes"], flags=STREAM, timeout=200)
    assert d.wait(rid).exit["cause"] == TIMEOUT


@test()
def offers_a_terminal(i):
    c = i.connect()
    rid = c.run(["sh", "-c", "tty; stty size; trap 'stty size' WINCH; test -t 2 && echo yes; until read line; do :; done; echo got $line; "
                 "read line || echo eof; ps -o tty= -p $$"], flags=STREAM | PTY, size=(30, 100))
    r = c.results[rid]
    c.until(lambda: b"yes" in r.out[1])
    assert b"/dev/pts/" in r.out[1] and b"30 100" in r.out[1], r.out
    c.send(WINCH, rid + struct.pack("<HH", 40, 120))
    time.sleep(0.2)
    c.send(STDIN, rid + b"hello\n")
    c.until(lambda: b"got hello" in r.out[1])
    assert b"40 120" in r.out[1]
    c.send(STDIN, rid)
    c.wait(rid)
    assert b"eof" in r.out[1] and b"pts/" in r.out[1].split(b"eof")[1] and r.exit["code"] == 0, r.out
    # Everything that was written is there, also at the end.
    r = c.do(["sh", "-c", "seq 1 20000; echo last"], flags=STREAM | PTY)
    assert r.out[1].replace(b"\r", b"") == b"".join(b"%d\n" % n for n in range(1, 20001)) + b"last\n"
    # ^C reaches the foreground.
    rid = c.run(["sleep", "300"], flags=STREAM | PTY)
    c.until(lambda: c.results[rid].pid)
    time.sleep(0.05)
    c.send(STDIN, rid + b"\x03")
    assert c.wait(rid).exit["code"] == 130


@test()
def hands_descriptors_through(i):
    c = i.connect()
    files = [os.open(i.path(n), os.O_RDWR | os.O_CREAT) for n in "abc"]
    os.write(files[0], b"from a")
    os.lseek(files[0], 0, 0)
    r = c.sh("cat; echo err >&2; exit 5", flags=FDS, fds=files)
    assert r.exit["code"] == 5 and open(i.path("b")).read() == "from a" and open(i.path("c")).read() == "err\n"
    rid = c.run(["nosuch"], flags=FDS, fds=files)
    assert c.wait(rid).exit["code"] == 127 and open(i.path("c")).read() == "err\nsh: 1: nosuch: not found\n"
    c.answers.clear()
    rid = c.run(["true"], flags=FDS, fds=files[:2])
    c.until(lambda: c.answers)
    assert c.answers[0][0] == ERROR
    for fd in files:
        os.close(fd)


@test()
def refuses_garbage_and_lives(i):
    good = i.connect()
    rid = good.run(["sh", "-c", "sleep 0.6; echo fine"])
    junk = [b"", b"x", bytes(16), os.urandom(300), encode(RUN, os.urandom(200)), encode(RUN), encode(STOP, b"short"),
            struct.pack("<IHHQ", 99, PING, 0, 1), encode(PING, b"more"), encode(HELLO, b""), encode(ACK, bytes(25)),
            encode(SPOOL, bytes(4)), encode(RUN, bytes(16) + b"\xff" * 60)]
    for n, data in enumerate(junk[1:]):
        d = i.connect()
        d.sock.send(data)
        if data[4:6] == struct.pack("<H", ACK):  # of an unknown run: nobody's business
            assert d.ping()
        else:
            try:
                while True:
                    d.frame(5)
            except (EOFError, ConnectionResetError):
                pass
        d.close()
        i.conns.remove(d)
    d = i.connect(hello=False)
    d.send(PING)
    try:
        d.frame(5)
        raise AssertionError("served without HELLO")
    except (EOFError, ConnectionResetError):
        pass
    # An unknown type is answered; strings that lie are an error, not an end.
    d = i.connect()
    assert d.answer(d.send(50))[0] == ERROR
    fields = struct.pack("<IIQHHII", 0, 0, 0, 0, 0, 2, 0) + struct.pack("<I", 0) + b"\0"
    bad = strings([b"one"])
    assert d.answer(d.send(RUN, os.urandom(16) + fields + struct.pack("<I", len(bad)) + bad))[0] == ERROR
    assert d.answer(d.send(ATTACH, b"q" * 16))[0] == ERROR
    # Descriptors where none belong.
    r, w = os.pipe()
    d.send(PING, b"", [r])
    try:
        while True:
            d.frame(5)
    except (EOFError, ConnectionResetError):
        pass
    os.close(w)
    os.close(r)
    assert good.wait(rid).out[1] == b"fine\n" and i.alive()
    assert good.ping() == (0, 0)


@both
def runs_five_hundred_at_once(i):
    c = i.connect()
    begin = time.monotonic()
    rids = [c.run(["sh", "-c", "sleep 0.5; echo $1", "sh", str(n)]) for n in range(500)]
    for n, rid in enumerate(rids):
        r = c.wait(rid, 60)
        assert r.exit["code"] == 0 and r.out[1] == b"%d\n" % n, (n, r.exit, r.out)
        c.send(FORGET, rid)
    print("   500 runs in %.2f s" % (time.monotonic() - begin))
    assert c.ping() == (0, 0)
    fds = len(os.listdir("/proc/%d/fd" % i.pid))
    assert fds < 20, fds


@test()
def reports_that_no_process_can_be_made(i):
    pids = "/sys/fs/cgroup/pids"
    if not os.path.isdir(pids):
        return
    group = "%s/garret-test-%d" % (pids, os.getpid())
    os.mkdir(group)
    try:
        open(group + "/cgroup.procs", "w").write(str(i.pid))
        open(group + "/pids.max", "w").write("3")
        c = i.connect()
        hogs = [c.run(["sleep", "300"]) for _ in range(2)]
        c.until(lambda: all(c.results[h].pid for h in hogs))
        r = c.do(["true"])
        assert (r.exit["step"], r.exit["sys"], r.exit["code"]) == (STEP_SPAWN, 11, 125), r.exit
        for h in hogs:
            c.stop(h, 0)
            assert c.wait(h).exit["code"] == 137
        assert c.do(["true"]).exit["code"] == 0
    finally:
        os.kill(i.pid, 9)
        i.proc.wait(10)
        remove_soon(group)


@test(conn=True)
def ends_with_its_only_connection(i):
    c = i.conns[0]
    c.run(["sh", "-c", "setsid sleep 300 & sleep 300"])
    assert c.do(["echo", "x"]).out[1] == b"x\n"
    c.close()
    assert i.proc.wait(5) == 0


@test()
def works_as_a_program(i):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    p = subprocess.Popen([PROGRAM, "--conn", str(theirs.fileno()), "--work-dir", "/usr"], pass_fds=[theirs.fileno()],
                         env={"PATH": "/bin", "MARK": "here"})
    theirs.close()
    ours.settimeout(10)
    ours.send(encode(HELLO, struct.pack("<HH", 1, 0) + NONCE))
    ours.recv(65536)
    c = Conn(ours, hello=False)
    r = c.sh("pwd; echo $MARK")
    assert r.out[1] == b"/usr\nhere\n", r.out
    c.close()
    assert p.wait(5) == 0
    assert subprocess.run([PROGRAM, "--what", "1"], stderr=subprocess.DEVNULL).returncode == 2


@test()
def a_file_worker_has_time_to_undo_when_its_slot_is_asked_for_again(i):
    class Worker(filesproto.Worker):
        def __init__(self, conn):
            self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.sock.settimeout(20)
            conn.send(WORKER, struct.pack("<I", 0), [theirs.fileno()])
            theirs.close()

    c = i.connect()
    path = i.path("f")
    with open(path, "w") as f:
        f.write("begin")
    os.chmod(path, 0o666)
    first = Worker(c)
    first.start("write", path, "append")
    first.send(filesproto.BODY, b"z" * 1000)
    until(lambda: os.path.getsize(path) == 1005)
    pid, = i.hosts("garret-files")
    os.kill(pid, signal.SIGSTOP)
    first.sock.close()
    second = Worker(c)
    assert second.do("stat", path).info.size == 1005
    second.sock.close()
    os.kill(pid, signal.SIGCONT)
    until(lambda: os.path.getsize(path) == 5)
    until(lambda: not i.hosts("garret-files"))
    # Those that never end by themselves are not many.
    stopped = {}
    for _ in range(12):
        w = Worker(c)
        pid = until(lambda: set(i.hosts("garret-files")) - stopped.keys()).pop()
        os.kill(pid, signal.SIGSTOP)
        stopped[pid] = w
    until(lambda: i.hosts("garret-files") == list(stopped)[3:])


@test()
def is_small_and_quick(i):
    c = i.connect()
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        rid = c.run(["true"])
        r = c.wait(rid)
        times.append(time.perf_counter() - begin)
        c.send(FORGET, rid)
    times.sort()
    time.sleep(1.3)
    rollup = open("/proc/%d/smaps_rollup" % i.pid).read()
    if os.environ.get("SMAPS"):
        print(open("/proc/%d/smaps" % i.pid).read())
    dirty = next(l for l in rollup.splitlines() if l.startswith("Private_Dirty"))
    print("   true: p50 %.0f us, min %.0f us; idle %s" % (times[150] * 1e6, times[0] * 1e6, " ".join(dirty.split())))


def main():
    wanted = sys.argv[3:]
    passed = failed = 0
    for name, fn, options in TESTS:
        if wanted and not any(w in name for w in wanted):
            continue
        begin = time.monotonic()
        try:
            with Init(HOST, **options) as i:
                fn(i)
                if fn not in (ends_with_its_only_connection, reports_that_no_process_can_be_made):
                    assert i.alive(), "init is gone"
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
