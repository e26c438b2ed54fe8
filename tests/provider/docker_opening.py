#!/usr/bin/env python3
"""The Docker provider, against a real engine: names, refs, states, owners, what a container is made of.  usage: docker_opening.py --build DIR [NAME...]"""
import os
import random
import re
import sys
import time

from dockerbox import NO_SHELL
from fakeengine import FakeEngine
from dockersuite import EXEC, INIT, both, main, opened, refused, same, test, until

NAME = re.compile(r"pydantic-ai-workspace-[0-9a-f]{16}\Z")


# ---- names, refs, states ----


@test
def first_use_makes_a_labelled_container_and_says_its_name_first(w):
    p = w.provider()
    e = opened(p.open(id="a"))
    same(p.odd[0]["event"], "named")
    same(p.odd[0]["ref"], e["ref"])
    assert NAME.match(e["ref"]), e["ref"]
    c = w.engine.inspect(e["ref"])
    labels = c["Config"]["Labels"]
    same(labels["io.garret.owner"], "tests")
    same(labels["io.garret.workspace"], e["ref"])
    assert labels["io.garret.version"]
    same(e["reach"], "init")
    same(len(w.engine.containers()), 1)


@test
def the_same_workspace_is_found_again_and_another_is_another(w):
    p = w.provider()
    a, again, b = opened(p.open(0, id="a")), opened(p.open(1, id="a")), opened(p.open(2, id="b"))
    same(a["ref"], again["ref"])
    assert b["ref"] != a["ref"]
    same(p.run("echo x >f", 0)["code"], 0)
    same(p.run("cat f", 1)["out"], b"x\n")
    same(p.run("cat f", 2)["code"], 1)


@both
def a_ref_attaches_starts_and_unpauses_but_never_replaces(w, way):
    p = w.provider(way=way)
    ref = opened(p.open(0, id="a"))["ref"]
    same(p.run("echo kept >f")["code"], 0)
    same(p.close("leave").get("error"), None)
    same(w.engine.inspect(ref)["State"]["Status"], "running")
    opened(p.open(0, ref=ref))
    same(p.run("cat f")["out"], b"kept\n")
    p.close("leave")
    w.engine.ask("POST", f"/containers/{ref}/stop?t=1")
    same(w.engine.inspect(ref)["State"]["Status"], "exited")
    opened(p.open(0, ref=ref))
    same(p.run("cat f")["out"], b"kept\n")
    p.close("leave")
    w.engine.ask("POST", f"/containers/{ref}/pause")
    opened(p.open(0, ref=ref))
    same(p.run("cat f")["out"], b"kept\n")
    p.close("leave")
    w.engine.remove(ref)
    refused(p.open(0, ref=ref), "GONE", "no longer exists")
    same(w.engine.containers(), {})


@test
def a_ref_never_reaches_a_container_of_another_shape(w):
    hexes = "0123456789abcdef"
    names = ["database", "pydantic-ai-workspace-" + hexes.upper(), "pydantic-ai-workspace-" + hexes + "0", "pydantic-ai-workspace-" + hexes[:15],
             "xpydantic-ai-workspace-" + hexes, "pydantic-ai-workspace-" + hexes + ".x", "sandboxd-a", "pydantic-ai-workspace-" + "g" * 16]
    ids = {n: w.engine.make(n) for n in names}
    p = w.provider()
    for n in [*names, *(i for i in ids.values()), ids["database"][:12], "", "../version", "a/b"]:
        refused(p.open(0, ref=n), "GONE", "was not created by this provider")
        done = p.ask("forget", "done", ref=n)
        refused(done, "INVALID", "was not created by this provider")
    same(sorted(w.engine.containers()), sorted(names))
    for n, i in ids.items():
        c = w.engine.inspect(n)
        same((c["Id"], c["State"]["Status"]), (i, "running"))
        assert not c["Config"]["Labels"]


@test
def a_ref_in_our_shape_without_our_labels_is_the_one_that_was_named(w):
    """Of the published library: found by its exact name; its neighbours stay."""
    old = "pydantic-ai-workspace-" + "0" * 16
    w.engine.make(old)
    w.engine.make("pydantic-ai-workspace-" + "1" * 16)
    p = w.provider()
    e = opened(p.open(0, ref=old))
    same(p.run("echo hi")["out"], b"hi\n")
    same(e["reach"], "init")
    same(p.ask("kept", "done")["rows"], [])
    same(p.close("leave").get("error"), None)
    same(p.ask("forget", "done", ref=old).get("error"), None)
    same(list(w.engine.containers()), ["pydantic-ai-workspace-" + "1" * 16])


@test
def a_configured_name_is_made_attached_to_and_made_anew(w):
    p = w.provider(container_name="mine")
    e = opened(p.open(0))
    same(e["ref"], "mine")
    first = w.engine.inspect("mine")["Id"]
    p.close("leave")
    same(opened(p.open(0, ref="mine"))["ref"], "mine")
    same(w.engine.inspect("mine")["Id"], first)
    p.close("plain")
    same(w.engine.inspect("mine")["State"]["Status"], "exited")
    opened(p.open(0))
    same(w.engine.inspect("mine")["Id"], first)
    p.close("leave")
    w.engine.remove("mine")
    refused(p.open(0, ref="mine"), "GONE", "no longer exists")
    opened(p.open(0))
    assert w.engine.inspect("mine")["Id"] != first
    refused(p.open(1, ref="other"), "GONE", "was not created")
    same(p.close("purge").get("error"), None)
    same(w.engine.containers(), {})


@test
def a_configured_name_that_is_the_beginning_of_an_id_is_not_that_container(w):
    other = w.engine.make("innocent")
    p = w.provider(container_name=other[:12])
    same(opened(p.open(0))["ref"], other[:12])
    same(len(w.engine.containers()), 2)
    same(p.run("hostname")["code"], 0)
    p.close("purge")
    same(list(w.engine.containers()), ["innocent"])
    # Nothing by that name any more: removal finds the other one by its id, and leaves it.
    refused(p.ask("forget", "done", ref=other[:12]), "NOT_FOUND")
    same(list(w.engine.containers()), ["innocent"])


@test
def two_owners_of_one_engine_never_touch_each_other(w):
    a, b = w.provider("alice"), w.provider("bob")
    ra, rb = opened(a.open(0, id="same"))["ref"], opened(b.open(0, id="same"))["ref"]
    assert ra != rb
    refused(b.open(1, ref=ra), "GONE", "belongs to another owner")
    refused(b.ask("forget", "done", ref=ra), "INVALID", "belongs to another owner")
    same(a.ask("kept", "done")["rows"], [ra])
    same(b.ask("kept", "done")["rows"], [rb])
    shared_a, shared_b = w.provider("alice", container_name="shared"), w.provider("bob", container_name="shared")
    opened(shared_a.open(0))
    refused(shared_b.open(0), "GONE", "belongs to another owner")
    # A daemon's sweep ends what is its own and nobody has open; nothing of another's.
    sa, sb = w.provider("alice", sessions=True), w.provider("bob", sessions=True)
    opened(sa.open(0, id="s1"))
    opened(sb.open(0, id="s2"))
    refused(sb.open(1, id="s1"), "GONE", "belongs to another owner")
    w.engine.make("sandboxd-stranger")
    sa.kill()
    again = w.provider("alice", sessions=True)
    again.ask("settle", "done")
    until(lambda: w.engine.inspect("sandboxd-s1")["State"]["Status"] == "exited", 30, "the sweep")
    for name in ("sandboxd-s2", "sandboxd-stranger", rb):
        same(w.engine.inspect(name)["State"]["Status"], "running")


@test
def labels_that_only_resemble_ours_are_nobodys(w):
    w.engine.make("x1", {"io.garret.owner": "tests2", "io.garret.workspace": "x1"})
    w.engine.make("x2", {"io.garret.owner": "Tests", "io.garret.workspace": "x2"})
    w.engine.make("x3", {"io.garret.owner": "tests"})
    w.engine.make("x4", {"io.garret.owners": "tests", "io.garret.workspace": "x4"})
    p = w.provider(sessions=True)
    same(p.ask("kept", "done")["rows"], [])
    p.ask("settle", "done")
    time.sleep(0.5)
    for name in ("x1", "x2", "x3", "x4"):
        same(w.engine.inspect(name)["State"]["Status"], "running")


@test
def sessions_have_their_names_and_an_unlabelled_one_is_taken_by_its_exact_name(w):
    p = w.provider(sessions=True, remove_closed=True)
    same(opened(p.open(0, id="s-1"))["ref"], "sandboxd-s-1")
    same(p.ask("kept", "done")["rows"], ["s-1"])
    refused(p.ask("forget", "done", ref="s-1"), "CONFLICT", "in use")
    # One that sleeps is stopped and stays, whatever closing does; it is removed by its session's id.
    opened(p.open(3, id="s-3"))
    same(p.run("echo kept > f", 3)["code"], 0)
    same(p.close("keep", 3).get("error"), None)
    until(lambda: w.engine.inspect("sandboxd-s-3")["State"]["Status"] == "exited", 10, "the stop")
    opened(p.open(3, id="s-3"))
    same(p.run("cat f", 3)["out"], b"kept\n")
    same(p.close("keep", 3).get("error"), None)
    same(p.ask("forget", "done", ref="s-3").get("error"), None)
    assert "sandboxd-s-3" not in w.engine.containers()
    refused(p.ask("forget", "done", ref="s-3"), "NOT_FOUND")
    w.engine.make("sandboxd-s-2")
    same(opened(p.open(1, id="s-2"))["ref"], "sandboxd-s-2")
    refused(p.open(2, ref="sandboxd-"), "GONE", "was not created")
    same(p.close("plain").get("error"), None)
    until(lambda: "sandboxd-s-1" not in w.engine.containers(), 10, "the removal")


@test
def a_network_that_is_not_there_is_named(w):
    p = w.provider(network="no-such-network")
    refused(p.open(0, id="n"), "INVALID", "no-such-network")
    until(lambda: not w.engine.containers(), 10, "the removal")


@test
def two_that_open_at_once_share_one_container(w):
    ps = [w.provider() for _ in range(3)]
    for n in range(3):
        tags = [p.send("open", box=n, id=f"race{n}") for p in ps]
        es = [opened(p.wait(t, "opened")) for p, t in zip(ps, tags)]
        same(len({e["ref"] for e in es}), 1)
        for p in ps:
            same(p.run("echo here", n)["out"], b"here\n")
    same(len(w.engine.containers()), 3)


@test
def killed_while_it_opens_it_leaves_nothing_unlabelled_and_no_second(w):
    rng = random.Random(7)
    for n in range(100):
        p = w.provider()
        p.send("open", box=0, id="killed")
        time.sleep(rng.random() * 0.6)
        p.kill()
        for name, c in w.engine.containers().items():
            same(c["Labels"].get("io.garret.owner"), "tests")
            same(c["Labels"].get("io.garret.workspace"), name)
        assert len(w.engine.containers()) <= 1
    p = w.provider()
    e = opened(p.open(0, id="killed"))
    same(e["reach"], "init")
    same(p.run("echo fine")["out"], b"fine\n")
    same(list(w.engine.containers()), [e["ref"]])


@test
def a_dead_named_container_of_ours_is_replaced_and_another_is_not(w):
    """An engine calls one dead when removing it failed half way; being removed reads the same here."""
    for labels, status, name, expect in [
            ({"io.garret.owner": "tests"}, "dead", "mine", None), ({}, "dead", "mine", "GONE"), ({"io.garret.owner": "tests"}, "removing", "mine", None),
            ({"io.garret.owner": "tests"}, "dead", None, "GONE"), ({"io.garret.owner": "tests"}, "restarting", None, "GONE")]:
        state = {"status": status, "looks": 0}
        ref = name or "pydantic-ai-workspace-" + "0" * 16

        def look(h):
            state["looks"] += 1
            if state["status"] == "removing" and state["looks"] > 3:
                state["status"] = None
            if state["status"] is None:
                h.answer(404, {"message": "No such container"})
            else:
                h.answer(200, {"Id": "cd" * 32, "Name": "/" + ref, "Config": {"Labels": labels},
                               "State": {"Status": state["status"], "Running": state["status"] == "running"}})

        def remove(h):
            state["status"] = None
            h.answer(204)

        def create(h):
            state["status"] = "running"
            h.answer(201, {"Id": "cd" * 32})

        fake = FakeEngine([("GET /containers/[^/]+/json", look), ("DELETE /containers/[^/]+", remove), ("POST /containers/create", create)])
        try:
            p = w.provider(host="unix://" + fake.socket, container_name=name, way=EXEC)
            e = p.open(0, **({} if name else {"ref": ref}))
            if expect:
                refused(e, expect, status)
                assert not [r for r in fake.requests if r[0] == "DELETE"], fake.requests
            else:
                opened(e)
                same(len([r for r in fake.requests if "create" in r[1]]), 1)
            p.end()
            w.providers.remove(p)
        finally:
            fake.stop()


# ---- what a container is made of ----


@test
def settings_are_those_of_the_contract(w):
    os.makedirs(w.engine.dir + "/vol", exist_ok=True)
    os.makedirs(w.engine.dir + "/ws/one/workspace", exist_ok=True)
    with open(w.engine.dir + "/vol/f", "w") as f:
        f.write("from the host")
    for way in (INIT, EXEC):
        p = w.provider(way=way, volumes=[w.engine.dir + "/vol:/data"], env=["MINE=1", "LANG=de_DE.UTF-8"], labels=["tenant=t1", "io.garret.owner=evil"],
                       memory=64 << 20, cpu_millis=500, tmpfs=8 << 20, network="none", workspace_root=w.engine.dir + "/ws")
        e = opened(p.open(0, id="one"))
        c = w.engine.inspect(e["ref"])
        host, env, labels = c["HostConfig"], c["Config"]["Env"], c["Config"]["Labels"]
        same(host["Init"], way == EXEC)
        same(host["SecurityOpt"], ["no-new-privileges:true"])
        same((host["PidsLimit"], host["Memory"], host["MemorySwap"], host["NanoCpus"]), (512, 64 << 20, 64 << 20, 500000000))
        same(host["NetworkMode"], "none")
        same(host["AutoRemove"], False)
        same(host["Privileged"], False)
        same(host["Tmpfs"]["/tmp"], f"size={8 << 20},exec")
        same((labels["tenant"], labels["io.garret.owner"]), ("t1", "tests"))
        same(c["Config"]["WorkingDir"], "/workspace")
        for want in ("GIT_CONFIG_COUNT=5", "GIT_CONFIG_VALUE_1=Agent", "PYTHONUNBUFFERED=1", "MINE=1", "LANG=de_DE.UTF-8", "UV_SYSTEM_PYTHON=1"):
            assert want in env, (want, env)
        assert "LANG=C.UTF-8" not in env
        same(p.run("cat /data/f; echo >/workspace/made; cp /bin/busybox /tmp/echo; /tmp/echo; pwd")["out"][:13], b"from the host")
        assert os.path.exists(w.engine.dir + "/ws/one/workspace/made")
        u = p.ask("usage", "usage", box=0)
        assert 0 < u["memory"] < 64 << 20 and u["limit"] == 64 << 20 and u["pids"] >= 1, u
        same(p.ask("limits", "done", box=0, memory=96 << 20, pids=100).get("error"), None)
        host = w.engine.inspect(e["ref"])["HostConfig"]
        same((host["Memory"], host["MemorySwap"], host["PidsLimit"]), (96 << 20, 96 << 20, 100))
        p.close("purge")
        same(w.engine.containers(), {})


@both
def it_runs_as_the_user_that_was_asked_for(w, way):
    p = w.provider(way=way, user="1000:1000", work_dir="/tmp/w")
    e = opened(p.open(0, id="u"))
    r = p.run("id -u; id -g; umask; echo $UV_SYSTEM_PYTHON.")
    same(r["out"].split()[:2], [b"1000", b"1000"])
    assert r["out"].endswith(b"\n.\n"), r
    if way == INIT:
        same(e["reach"], "init")
        same(p.run("ls -ld /run/garret/init")["out"][:10], b"drwx------")


@test
def an_image_without_a_shell_works_through_init_and_says_so_without(w):
    p = w.provider(image=NO_SHELL)
    same(opened(p.open(0, id="bare"))["reach"], "init")
    same(p.run(["/app/true", "true"])["code"], 0)
    same(p.file("write", "/app/new", data="content").get("error"), None)
    same(p.file("read", "/app/new")["data"], b"content")
    q = w.provider(image=NO_SHELL, way=EXEC, owner="second")
    e = q.open(0, id="bare2")
    assert "error" in e, e
    assert all(c["Labels"]["io.garret.owner"] != "second" for c in w.engine.containers().values())


@test
def where_init_cannot_run_each_command_is_an_exec_and_that_is_said(w):
    """A program for another machine: its container is made again, without it."""
    fake = w.engine.dir + "/foreign-init"
    with open(w.init, "rb") as f:
        data = bytearray(f.read())
    data[18:20] = b"\xb7\x00"  # EM_AARCH64
    with open(fake, "wb") as f:
        f.write(data)
    p = w.provider(init=fake)
    e = opened(p.open(0, id="x", timeout=90))
    assert e["reach"].startswith("exec: "), e
    same(len([o for o in p.odd if o["event"] == "named" and o["ref"] != e["ref"]]), 0)
    same(p.run("echo works; exit 4")["code"], 4)
    same(list(w.engine.containers()), [e["ref"]])
    c = w.engine.inspect(e["ref"])
    same(c["Config"]["Labels"]["io.garret.reach"], "exec")
    p.close("leave")
    assert opened(p.open(0, ref=e["ref"]))["reach"].startswith("exec: ")
    q = w.provider(init=fake, way=INIT, owner="strict")
    assert "error" in q.open(0, id="y", timeout=90)
    assert all(c["Labels"]["io.garret.owner"] != "strict" for c in w.engine.containers().values())


@test
def another_ones_container_gets_an_init_beside_it_or_says_why_not(w):
    w.engine.make("theirs")
    w.engine.make("readonly", HostConfig={"ReadonlyRootfs": True})
    p = w.provider(container_name="theirs")
    same(opened(p.open(0))["reach"], "init")
    same(p.run("echo x >/tmp/x; ps | grep -c '[s]leep 1000000'")["out"], b"2\n")  # below its init
    p.close("leave")
    same(opened(p.open(0))["reach"], "init")
    same(p.run("cat /tmp/x >/dev/null; echo again")["out"], b"again\n")
    p.close("leave")
    same(w.engine.inspect("theirs")["State"]["Status"], "running")
    r = w.provider(container_name="readonly", work_dir="/")
    e = opened(r.open(0))
    assert e["reach"].startswith("exec: ") and "read-only" in e["reach"], e
    same(r.run("echo by exec")["out"], b"by exec\n")


sys.exit(main(__doc__))
