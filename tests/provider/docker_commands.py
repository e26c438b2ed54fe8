#!/usr/bin/env python3
"""The Docker provider, against a real engine: commands and files, by init and by an exec each.  usage: docker_commands.py --build DIR [NAME...]"""
import hashlib
import os
import signal
import sys
import time
from dockersuite import EXEC, INIT, both, main, opened, refused, same, test, until

# ---- commands ----


@both
def streams_come_back_apart_with_arguments_as_they_are(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="r"))
    r = p.run("echo out; echo err >&2; exit 3")
    same((r["out"], r["err"], r["code"]), (b"out\n", b"err\n", 3))
    same(p.run(["printf", "%s|", "a b", "$HOME", "'", '"', ";", "", "*", "-n"])["out"], b"a b|$HOME|'|\"|;||*|-n|")
    same(p.run("pwd")["out"], b"/workspace\n")
    same(p.run("pwd", cwd="/tmp")["out"], b"/tmp\n")
    same(p.run("echo $A-$B", env=["A=1 2", "B=$A"])["out"], b"1 2-$A\n")
    same(p.run("echo $A.")["out"], b".\n")
    same(p.run(["/no/such/program"])["code"], 127)
    same(p.run("cat; echo end")["out"], b"end\n")
    same(p.run("printf '\\377\\000\\n'")["out"], b"\xff\0\n")
    r = p.run(["head", "-c", "300000", "/dev/zero"])
    same((len(r["out"]), r["out_total"]), (300000, 300000))
    same(p.run(["sh", "-c", "kill -9 $$"])["code"], 137)
    same(p.run(["sh", "-c", "kill -9 $$"])["gone"], False)


@both
def a_time_limit_ends_the_whole_tree_and_keeps_what_there_was(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="t"))
    start = time.time()
    r = p.run("echo before; sleep 4711 & sleep 4711", timeout_ms=700)
    assert r["timed_out"] and not r["gone"] and r["out"] == b"before\n", r
    assert 0.6 < time.time() - start < 6
    until(lambda: b"4711" not in p.run("ps")["out"], 5, "the end of the tree")
    r = p.run("trap '' TERM; echo deaf; while :; do sleep 0.1; done", timeout_ms=500)
    assert r["timed_out"] and r["out"] == b"deaf\n", r
    until(lambda: b"while :" not in p.run("ps")["out"], 5, "the end of a deaf one")


@both
def too_much_output_stops_the_command(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="o"))
    r = p.run("yes 0123456789 & yes abcdefghi >&2", limit=200000)
    assert r["limited"] and not r["timed_out"], {k: v for k, v in r.items() if k not in ("out", "err")}
    same(r["out_total"] + r["err_total"], 200000)
    until(lambda: b" yes " not in p.run("ps")["out"], 5, "the end of both")


@both
def much_output_of_many_at_once_is_whole(w, way):
    p = w.provider(way=way)
    for n in range(3):
        opened(p.open(n, id=f"much{n}"))
    script = "head -c 1500000 /dev/zero; head -c 700000 /dev/zero >&2"
    tags = [p.send("run", box=n % 3, run=n, argv=["/bin/sh", "-c", script]) for n in range(9)]
    for t in tags:
        r = p.wait(t, "ended")
        same((len(r["out"]), len(r["err"]), r["code"], r["limited"]), (1500000, 700000, 0, False))


@both
def a_stop_is_heard_among_many_commands(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="s"))
    tags = [p.send("run", box=0, run=n, argv=["sleep", "4712"]) for n in range(20)]
    time.sleep(3 if way == EXEC else 0.5)
    start = time.time()
    p.send("stop", run=7)
    r = p.wait(tags[7], "ended")
    assert r["stopped"] and not r["timed_out"] and time.time() - start < 5, r
    same(p.run("echo others go on; ps | grep -c '[s]leep 4712'")["out"].split(b"\n")[0], b"others go on")
    for n in range(20):
        p.send("stop", run=n)
    for t in tags[:7] + tags[8:]:
        assert p.wait(t, "ended")["stopped"]


@both
def input_reaches_a_command_and_ends(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="i"))
    tag = p.send("run", box=0, run=1, argv=["cat"], input=True)
    p.send("input", run=1, data="hello ")
    time.sleep(0.3)
    p.send("input", run=1, data="there", end=True)
    r = p.wait(tag, "ended")
    same((r["out"], r["code"]), (b"hello there", 0))
    tag = p.send("run", box=0, run=1, argv=["cat"], input=True)
    p.send("input", run=1, data="x" * 100000, end=True)
    r = p.wait(tag, "ended")
    same((len(r["out"]), r["out_total"], r["code"]), (100000, 100000, 0))


# When the new size comes is the engine's to choose: it is waited for.
SIZES = 'stty size; read x; echo got $x; until [ "$(stty size)" = "44 120" ]; do sleep 0.1; done; stty size; read y; exit 5'


@both
def live_streams_and_terminals(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="l"))
    tag = p.send("stream", box=0, run=1, argv=["/bin/sh", "-c", SIZES], tty=True, rows=33, columns=101)
    got = b""
    while b"33 101" not in got:
        got += p.wait(tag, "output")["data"]
    p.send("stop", run=1, rows=44, columns=120)
    p.send("input", run=1, data="line\n")
    while b"44 120" not in got:
        got += p.wait(tag, "output")["data"]
    assert b"got line" in got
    p.send("input", run=1, end=True)
    same(p.wait(tag, "ended")["code"], 5)
    # Much, with acknowledgement as it goes.
    tag = p.send("stream", box=0, run=2, argv=["head", "-c", "5000000", "/dev/zero"])
    n = 0
    while True:
        e = p.wait(tag)
        if e["event"] == "ended":
            break
        n += len(e["data"])
    same((n, e["code"]), (5000000, 0))
    tag = p.send("stream", box=0, run=3, argv=["/bin/sh", "-c", "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.1; done"])
    same(p.wait(tag, "output")["data"], b"ready\n")
    p.send("stop", run=3, signal=10)
    got = b""
    while b"caught" not in got:
        got += p.wait(tag, "output")["data"]
    same(p.wait(tag, "ended")["code"], 9)


@both
def what_called_setsid_lives_on(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="d"))
    start = time.time()
    same(p.run("setsid sleep 4713 >/dev/null 2>&1 & echo started")["out"], b"started\n")
    assert time.time() - start < 5
    same(p.run("ps | grep -c '[s]leep 4713'")["out"], b"1\n")
    if way == INIT:
        return
    # Attached to again, by the same ref, nothing is ended.
    ref = list(w.engine.containers())[0]
    p.close("leave")
    opened(p.open(0, ref=ref))
    same(p.run("ps | grep -c '[s]leep 4713'")["out"], b"1\n")


@both
def an_end_of_the_container_under_a_command_is_told(w, way):
    for how in ("remove", "stop", "kill"):
        p = w.provider(way=way)
        e = opened(p.open(0, id="gone-" + how))
        tag = p.send("run", box=0, argv=["/bin/sh", "-c", "echo before; sleep 4714"])
        time.sleep(1)
        if how == "remove":
            w.engine.remove(e["ref"])
        else:
            w.engine.ask("POST", f"/containers/{e['ref']}/{how}?t=1" if how == "stop" else f"/containers/{e['ref']}/kill")
        r = p.wait(tag, "ended", 30)
        assert r["gone"] and r["out"] == b"before\n", r
        same(p.wait(e["opened_tag"], "died", 10)["event"], "died")
        refused(p.run("echo x"), "GONE")
        assert "error" in p.file("read", "/etc/passwd")
        same(p.close("purge").get("error"), None)
        if how != "remove":
            until(lambda: e["ref"] not in w.engine.containers(), 5, "the removal")


@both
def a_paused_container_holds_a_command_up_and_a_new_one_wakes_it(w, way):
    p = w.provider(way=way)
    e = opened(p.open(0, id="p"))
    tag = p.send("run", box=0, argv=["/bin/sh", "-c", "echo a; sleep 2; echo b"])
    time.sleep(0.7)
    w.engine.ask("POST", f"/containers/{e['ref']}/pause")
    if way == EXEC:
        same(p.run("echo c", timeout=30)["out"], b"c\n")
    else:
        time.sleep(1.5)
        w.engine.ask("POST", f"/containers/{e['ref']}/unpause")
    r = p.wait(tag, "ended", 30)
    same((r["out"], r["gone"], r["code"]), (b"a\nb\n", False, 0))


@test
def a_broken_connection_to_init_is_made_again_and_commands_notice_nothing(w):
    p = w.provider()
    e = opened(p.open(0, id="cut"))
    tag = p.send("run", box=0, argv=["/bin/sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"])
    time.sleep(0.8)
    top = w.engine.ask("GET", f"/containers/{e['ref']}/top")[1]
    pid = next(int(x[1]) for x in top["Processes"] if "connect" in x[-1])
    os.kill(pid, signal.SIGKILL)
    r = p.wait(tag, "ended", 30)
    same((r["out"], r["code"], r["gone"]), (b"1\n2\n3\n4\n5\n6\n", 0, False))
    same(p.run("echo still")["out"], b"still\n")


@test
def a_box_is_adopted_by_its_mark_with_its_commands(w):
    p = w.provider()
    e = opened(p.open(0, id="adopt"))
    p.send("run", box=0, argv=["/bin/sh", "-c", "sleep 1; echo done >/workspace/done; sleep 100"])
    time.sleep(0.5)
    p.kill()
    q = w.provider()
    a = opened(q.open(0, id="adopt", mark=e["mark"]))
    same((a["ref"], a["reach"]), (e["ref"], "init"))
    until(lambda: q.file("read", "/workspace/done").get("data") == b"done\n", 5, "what was begun before")
    same(q.close("purge").get("error"), None)
    refused(q.open(0, id="adopt", mark=e["mark"]), "NOT_FOUND")
    refused(q.open(0, id="adopt", mark="nonsense"), "NOT_FOUND")


@both
def an_engine_that_goes_away_is_told_and_found_again(w, way):
    p = w.provider(way=way)
    e = opened(p.open(0, id="engine"))
    tag = p.send("run", box=0, argv=["sleep", "4715"])
    time.sleep(0.5)
    w.engine.process.terminate()
    w.engine.process.wait(60)
    r = p.wait(tag, "ended", 40)
    assert r["gone"] or "error" in r, r
    refused(p.open(1, id="other"), "UNAVAILABLE", w.engine.socket)
    w.engine.start()
    p.wait(e["opened_tag"], "died", 40)
    p.close("leave")
    same(opened(p.open(0, ref=e["ref"]))["ref"], e["ref"])
    same(p.run("echo back")["out"], b"back\n")


# ---- files ----


@both
def files_are_read_written_listed_and_removed(w, way):
    p = w.provider(way=way)
    opened(p.open(0, id="f"))
    same(p.file("write", "/workspace/a/b c/'f'", data="hello\n").get("error"), None)
    same(p.file("read", "/workspace/a/b c/'f'")["data"], b"hello\n")
    same(p.run("cat 'a/b c/'*")["out"], b"hello\n")
    same(p.file("stat", "/workspace/a/b c/'f'")["rows"][0]["size"], 6)
    same(sorted(r["name"] for r in p.file("list", "/workspace/a")["rows"]), ["b c"])
    refused(p.file("read", "/workspace/none"), "NOT_FOUND")
    refused(p.file("read", "/workspace/a"), "IS_DIRECTORY")
    refused(p.file("list", "/workspace/a/b c/'f'"), "NOT_DIRECTORY")
    same(p.file("write", "/workspace/big", data="0123456789abcdef" * 64, times=3000).get("error"), None)
    r = p.file("read", "/workspace/big")
    same(hashlib.sha256(r["data"]).hexdigest(), hashlib.sha256(b"0123456789abcdef" * 64 * 3000).hexdigest())
    same(p.file("write", "/workspace/empty", data="").get("error"), None)
    same(p.file("read", "/workspace/empty")["data"], b"")
    same(p.file("remove", "/workspace/a").get("error"), None)
    refused(p.file("stat", "/workspace/a"), "NOT_FOUND")


# ---- is it worth it? ----


@test
def init_is_ten_times_faster_than_an_exec_each(w):
    took = {}
    for way in (INIT, EXEC):
        p = w.provider(way=way, owner=f"w{way}")
        opened(p.open(0, id=f"speed{way}"))
        p.file("write", "/workspace/kib", data="x" * 1024)
        n = 40 if way == INIT else 8
        runs = sorted(p.run(["true"])["us"] for _ in range(n))
        reads = sorted(p.file("read", "/workspace/kib").get("us", 0) for _ in range(n))
        took[way] = runs[n // 2], reads[n // 2]
    print(f"   true: {took[INIT][0]} us by init, {took[EXEC][0]} us by exec; read 1 KiB: {took[INIT][1]} us, {took[EXEC][1]} us")
    assert took[EXEC][0] >= 10 * took[INIT][0], took
    assert took[EXEC][1] >= 10 * took[INIT][1] > 0, took


sys.exit(main(__doc__))
