#!/usr/bin/env python3
"""The Docker provider against engines that are slow, old, broken or lie.  usage: docker_hostile.py --build DIR [NAME...]"""
import argparse
import json
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dockerbox import Ended, Provider  # noqa: E402
from fakeengine import FakeEngine, frame  # noqa: E402

TESTS = []
EXEC = 2


def test(fn):
    TESTS.append(fn)
    return fn


def same(a, b):
    assert a == b, f"{a!r} is not {b!r}"


class World:
    def __init__(self, build, init=None):
        self.init = init or build + "/garret-init"
        self.build, self.providers, self.engines = build, [], []

    def engine(self, rules=(), **more):
        e = FakeEngine(rules, **more)
        self.engines.append(e)
        return e

    def provider(self, engine, **config):
        p = Provider(self.build + "/tests/provider/test-docker", "unix://" + engine.socket, way=config.pop("way", EXEC),
                     init=config.pop("init", self.init), **config)
        self.providers.append(p)
        return p

    def opened(self, **more):
        f = self.engine()
        p = self.provider(f, **more)
        e = p.open(0, id="x")
        assert "error" not in e, e
        p.opened_tag = e["opened_tag"]
        return f, p

    def end(self):
        bad = []
        for p in self.providers:
            code, text = p.end()
            if code not in (0, 1, -9) or "ERROR:" in text:
                bad.append(f"the driver ended with {code}: {text[-3000:]}")
        for e in self.engines:
            e.stop()
        return bad


def later(engine, seconds, **fields):
    import threading

    def change():
        time.sleep(seconds)
        for k, v in fields.items():
            setattr(engine, k, v)
    threading.Thread(target=change, daemon=True).start()


@test
def streams_are_told_apart_wherever_they_are_cut(w):
    f, p = w.opened()
    data = frame(1, b"out1\n") + frame(2, b"err1\n") + frame(1, b"") + frame(1, b"out2\n") + frame(0, b"out3\n")

    def start(h):
        h.hijack(b"")
        for i in range(len(data)):
            h.wfile.write(data[i:i + 1])
            h.wfile.flush()

    f.rules.append(("POST /exec/[^/]+/start", start))
    r = p.run(["x"])
    same((r["out"], r["err"], r["code"]), (b"out1\nout2\nout3\n", b"err1\n", 0))


@test
def an_old_engine_that_answers_200_is_understood(w):
    f, p = w.opened()
    f.rules.append(("POST /exec/[^/]+/start", lambda h: h.hijack(frame(1, b"old"), status=b"200 OK")))
    same(p.run(["x"])["out"], b"old")


@test
def half_a_frame_is_never_a_whole_answer(w):
    for cut in (frame(1, b"whole") + frame(1, b"only half", 100), frame(1, b"whole") + frame(1, b"")[:5], frame(1, b"whole") + frame(2, b"", 0xffffffff)):
        f, p = w.opened()
        f.rules.append(("POST /exec/[^/]+/start", lambda h: h.hijack(cut)))
        r = p.run(["x"])
        same(r.get("error"), "PROTOCOL")
        assert "inside a frame" in r["text"] and not r["gone"], r
        # The same, when the container was killed: that is why.
        f.running = False
        r = p.run(["x"])
        assert r["gone"] and "error" not in r, r


@test
def what_is_no_frame_is_an_error(w):
    for bad in (b"HTTP/1.1 200 OK\r\n\r\n", frame(9, b"x"), b"\1\1\0\0\0\0\0\1x"):
        f, p = w.opened()
        f.rules.append(("POST /exec/[^/]+/start", lambda h: h.hijack(bad, 0.2)))
        r = p.run(["x"])
        same(r.get("error"), "PROTOCOL")


@test
def sizes_of_a_terminal_are_told_one_after_the_other_until_they_are_taken(w):
    f, p = w.opened()
    sizes, under_way, most, refused = [], 0, 0, 2

    def resize(h):
        nonlocal under_way, most, refused
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.5 if not sizes else 0)
        if refused:
            refused -= 1
            h.answer(500, {"message": "it is not running yet"})
        else:
            sizes.append(h.path.split("?")[1])
            h.answer(200)
        under_way -= 1

    f.rules.append(("POST /exec/[^/]+/resize", resize))
    f.rules.append(("POST /exec/[^/]+/start", lambda h: h.hijack(b"begun", 4)))
    tag = p.send("stream", box=0, run=1, argv=["x"], tty=True, rows=1, columns=2)
    same(p.wait(tag, "output")["data"], b"begun")
    for rows in range(10, 20):
        p.send("stop", run=1, rows=rows, columns=80)
    until = time.time() + 3
    while time.time() < until and sizes[-1:] != ["h=19&w=80"]:
        time.sleep(0.05)
    time.sleep(0.3)
    assert sizes[-1:] == ["h=19&w=80"] and most == 1 and not refused, (sizes, most, refused)
    p.wait(tag, "ended")


@test
def a_slow_create_counts_against_the_time_limit(w):
    f, p = w.opened()

    def slow(h):
        time.sleep(3)
        f.exec(h)

    f.rules.append(("POST /containers/[^/]+/exec", slow))
    start = time.time()
    r = p.run(["x"], timeout_ms=300)
    assert r["timed_out"] and not r["gone"], r
    assert time.time() - start < 7
    # The command that came too late is asked to stop.
    until = time.time() + 8
    while time.time() < until and not any(b"kill" in q[2] for q in f.requests):
        time.sleep(0.1)
    assert any(b"kill" in q[2] for q in f.requests), [q[:2] for q in f.requests]


@test
def a_command_that_never_ends_is_answered_when_it_is_stopped(w):
    f, p = w.opened()

    def start(h):
        h.hijack(frame(1, b"begun"), 30 if b'"Detach":true' not in h.body else 0)

    f.rules.append(("POST /exec/[^/]+/start", start))
    start_at = time.time()
    r = p.run(["x"], timeout_ms=300)
    assert r["timed_out"] and r["out"] == b"begun" and 5 < time.time() - start_at < 8, r


@test
def other_errors_of_the_engine_are_passed_on(w):
    f, p = w.opened()
    f.rules.append(("POST /containers/[^/]+/exec", lambda h: h.answer(500, {"message": "disk\nquota \x1b[31mexceeded"})))
    r = p.run(["x"])
    same((r.get("error"), r["gone"]), ("INTERNAL", False))
    assert "quota" in r["text"] and "\x1b" not in r["text"] and "\n" not in r["text"], r
    f.rules.insert(0, ("POST /containers/[^/]+/exec", lambda h: h.answer(404, {"message": "No such container"})))
    assert p.run(["x"])["gone"]
    f.rules.insert(0, ("POST /containers/[^/]+/exec", lambda h: h.answer(409, {"message": "Container x is not running"})))
    assert p.run(["x"])["gone"]
    f.rules.insert(0, ("POST /containers/[^/]+/exec", lambda h: h.answer(201, {"Id": "../../evil"})))
    same(p.run(["x"]).get("error"), "PROTOCOL")
    f.rules.insert(0, ("POST /containers/[^/]+/exec", lambda h: h.answer(201, b"<html>")))
    same(p.run(["x"]).get("error"), "PROTOCOL")


@test
def a_refused_start_is_told(w):
    f, p = w.opened()
    f.rules.append(("POST /exec/[^/]+/start", lambda h: h.answer(500, {"message": "cannot exec"})))
    r = p.run(["x"])
    same((r.get("error"), r["gone"]), ("INTERNAL", False))
    assert "cannot exec" in r["text"], r


@test
def no_exit_code_means_gone_when_the_container_is(w):
    f, p = w.opened()
    f.rules.append(("GET /exec/[^/]+/json", lambda h: h.answer(200, {"Running": False, "ExitCode": None})))
    r = p.run(["x"])
    same((r.get("error"), r["gone"]), ("PROTOCOL", False))
    f.running = False
    r = p.run(["x"])
    assert r["gone"], r


@test
def a_late_exit_code_is_waited_for(w):
    f, p = w.opened()
    looks = []

    def look(h):
        looks.append(1)
        h.answer(200, {"Running": len(looks) < 4, "ExitCode": 7 if len(looks) >= 4 else None})

    f.rules.append(("GET /exec/[^/]+/json", look))
    r = p.run(["x"])
    same((r["code"], r["gone"]), (7, False))


@test
def a_signal_is_a_result_only_in_a_container_that_lives(w):
    f, p = w.opened()
    f.exit = 137
    start = time.time()
    r = p.run(["x"])
    same((r["code"], r["gone"]), (137, False))
    assert 0.45 < time.time() - start < 2
    later(f, 0.3, running=False)  # it reads "running" for a moment more
    r = p.run(["x"])
    assert r["gone"], r


@test
def an_engine_that_is_none_or_too_old_or_too_new_is_named(w):
    for version, code, part in [({"ApiVersion": "1.19", "MinAPIVersion": "1.12", "Os": "linux"}, "UNSUPPORTED", "1.19"),
                                ({"ApiVersion": "1.99", "MinAPIVersion": "1.90", "Os": "linux"}, "UNSUPPORTED", "1.90"),
                                ({"ApiVersion": "1.41", "MinAPIVersion": "1.24", "Os": "windows"}, "UNSUPPORTED", "Linux"),
                                ({"hello": "world"}, "PROTOCOL", "no Docker engine"), ([1], "PROTOCOL", "no Docker engine")]:
        p = w.provider(w.engine(version=version))
        e = p.open(0, id="x")
        same(e.get("error"), code)
        assert part in e["text"], e
    f = w.engine(version={"ApiVersion": "1.52", "MinAPIVersion": "1.44", "Os": "linux"})
    assert "error" not in w.provider(f).open(0, id="x")
    assert all(q[4].startswith("/v1.47/") for q in f.requests if "/version" not in q[4]), [q[4] for q in f.requests]


@test
def the_name_is_told_before_anything_can_fail(w):
    f = w.engine([("POST /containers/[^/]+/start", lambda h: (time.sleep(1.5), h.answer(500, {"message": "no cgroup for you"})))])
    p = w.provider(f)
    tag = p.send("open", box=0, id="x")
    start = time.time()
    e = p.wait(tag, "named")
    assert time.time() - start < 1
    r = p.wait(tag, "opened")
    same(r.get("error"), "INTERNAL")
    assert "no cgroup for you" in r["text"], r
    # What was made here, and nobody could use, is removed; by its id.
    same([q[1].split("?")[0] for q in f.requests if q[0] == "DELETE"], ["/containers/" + f.container])
    assert e["ref"].startswith("pydantic-ai-workspace-")


@test
def a_conflict_means_somebody_made_it_and_whose_it_is_is_looked_at(w):
    for labels, code in [({"io.garret.owner": "tests", "io.garret.reach": "exec"}, None), ({"io.garret.owner": "other"}, "GONE"), ({}, "CONFLICT")]:
        names = []

        def create(h):
            names.append(h.path.split("name=")[1])
            h.answer(409, {"message": "Conflict. The container name is already in use"})

        def inspect(h):
            h.answer(200, {"Id": "ee" * 32, "Name": "/" + names[0], "Config": {"Labels": labels}, "State": {"Status": "running", "Running": True}})

        f = w.engine([("POST /containers/create", create), ("GET /containers/[^/]+/json", inspect)])
        e = w.provider(f).open(0, id="x")
        same(e.get("error"), code)
        assert not [q for q in f.requests if q[0] == "DELETE" or "/start" in q[1] and "exec" not in q[1]], f.requests


@test
def answers_of_the_engine_that_make_no_sense_are_errors(w):
    for rule in [("POST /containers/create", lambda h: h.answer(201, {})), ("POST /containers/create", lambda h: h.answer(201, b"not json")),
                 ("POST /containers/create", lambda h: h.answer(201, b"[" * 100000)),
                 ("POST /containers/create", lambda h: h.answer(200, b'{"Id":"' + b"a" * (17 << 20) + b'"}'))]:
        e = w.provider(w.engine([rule])).open(0, id="x")
        assert e.get("error") in ("PROTOCOL", "TOO_LARGE"), e
    f = w.engine([("GET /containers/[^/]+/json", lambda h: h.answer(200, {"Id": "ab" * 32, "Name": "/x"}))])
    same(w.provider(f, container_name="x1").open(0).get("error"), None)  # another one's description: nothing by that name
    f = w.engine([("GET /containers/[^/]+/json", lambda h: h.answer(200, {"Name": "/x1"}))])
    same(w.provider(f, container_name="x1").open(0).get("error"), "PROTOCOL")


@test
def a_pull_that_fails_or_is_cut_off_is_told_and_the_environment_is_not(w):
    def stream(text, cut):
        def answer(h):
            h.send_response(200)
            h.send_header("Content-Type", "application/json")
            h.send_header("Transfer-Encoding", "chunked")
            h.end_headers()
            for part in text:
                h.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                h.wfile.flush()
                time.sleep(0.02)
            if not cut:
                h.wfile.write(b"0\r\n\r\n")
            h.close_connection = True
        return answer

    progress = [b'{"status":"Pulling"}\r\n', b'{"status":"Down', b'loading"}{"status":"x"}\r\n']
    for parts, cut, code, part in [(progress + [b'{"errorDetail":{"message":"toomanyrequests: slow down"},"error":"toomanyrequests: slow down"}\r\n'], False, "EXHAUSTED", "slow down"),
                                   (progress + [b'{"errorDetail":{"message":"manifest unknown"}}'], False, "NOT_FOUND", "manifest unknown"),
                                   (progress, True, "UNAVAILABLE", ""), (progress + [b'{"status":'], False, "UNAVAILABLE", "cut off")]:
        f = w.engine([("POST /containers/create", lambda h: h.answer(404, {"message": "No such image: python:3.12-slim"})), ("POST /images/create", stream(parts, cut))])
        p = w.provider(f, no_pull=False, image=None, env=["TOKEN=very-secret"])
        e = p.open(0, id="x")
        same(e.get("error"), code)
        assert part in e["text"] and "very-secret" not in e["text"], e
        q = [q for q in f.requests if q[1].startswith("/images/create")]
        assert "image" in q[0][1] or "fromImage=python&tag=3.12-slim" in q[0][1], q
    # Pulled, and still not there: said, not tried for ever.
    f = w.engine([("POST /containers/create", lambda h: h.answer(404, {"message": "No such image: x"})), ("POST /images/create", stream(progress, False))])
    e = w.provider(f, no_pull=False).open(0, id="x")
    same(e.get("error"), "NOT_FOUND")
    same(len([q for q in f.requests if q[1].startswith("/images/create")]), 1)


@test
def an_init_that_cannot_be_put_there_or_says_nonsense_is_done_without_or_refused(w):
    for way in (0, 1):
        f = w.engine([("PUT /containers/[^/]+/archive", lambda h: h.answer(400, {"message": "container rootfs is marked read-only"}))])
        e = w.provider(f, way=way).open(0, id="x")
        if way == 0:
            assert e["reach"].startswith("exec: ") and "read-only" in e["reach"], e
            creates = [json.loads(q[2]) for q in f.requests if "create?" in q[1]]
            same([c["Labels"]["io.garret.reach"] for c in creates], ["init", "exec"])
        else:
            assert "error" in e and "read-only" in e["text"], e
    # An exec that answers, but isn't init.
    ours = {"io.garret.owner": "tests", "io.garret.reach": "init"}
    f = w.engine([("PUT /containers/[^/]+/archive", lambda h: h.answer(200)),
                  ("GET /containers/[^/]+/json", lambda h: h.answer(200, {"Id": f.container, "Name": "/" + h.path.split("/")[-2], "Config": {"Labels": ours},
                                                                          "State": {"Status": "running", "Running": True}}))])
    f.output = frame(1, b"/workspace\nthis is no init at all, whatever you say\n")
    f.rules.append(("POST /exec/[^/]+/start", lambda h: h.hijack(f.output, 0.5)))
    e = w.provider(f, way=1).open(0, id="x", timeout=60)
    same(e.get("error"), "PROTOCOL")


@test
def a_list_is_not_believed_about_whose_things_are(w):
    """An engine that doesn't filter: another's containers and images are left alone all the same."""
    def row(name, owner, **more):
        return {"Id": name * 16, "Names": ["/" + name], "State": "running", "Created": 1, "Labels": {"io.garret.owner": owner, "io.garret.workspace": name, **more}}

    rows = [{**row("aaaa", "tests"), "Labels": {"io.garret.owner": "tests", "io.garret.workspace": "sandboxd-aaaa"}}, row("bbbb", "other"), {**row("cccc", "tests"), "Labels": {}}, {**row("dddd", "tests"), "Labels": {"io.garret.owner": "tests"}}, 7]
    f = w.engine([("GET /containers/json", lambda h: h.answer(200, rows))])
    p = w.provider(f, sessions=True)
    same(p.ask("kept", "done")["rows"], ["aaaa"])
    p.ask("settle", "done")
    time.sleep(0.5)
    same([q[1] for q in f.requests if "/stop" in q[1]], ["/containers/" + "aaaa" * 16 + "/stop"])


@test
def a_recipe_is_built_once_for_all_that_wait_and_only_ours_are_tidied(w):
    built = []

    def build(h):
        time.sleep(1)
        built.append(h.path)
        h.answer(200, {"stream": "ok"})

    runtime = "pydantic-ai-backend-runtime:x-"
    images = [{"RepoTags": [runtime + "0" * 12, "unrelated:1", "pydantic-ai-backend-runtime:x-y-" + "0" * 12], "Labels": {"io.garret.owner": "tests"}},
              {"RepoTags": [runtime + "1" * 12], "Labels": {"io.garret.owner": "other"}}, {"RepoTags": [runtime + "2" * 12], "Labels": None}]
    f = w.engine([("POST /build", build), ("GET /images/json", lambda h: h.answer(200, images)), ("DELETE /images/.*", lambda h: h.answer(200, [])),
                  ("GET /images/.*", lambda h: h.answer(*((200, {}) if built else (404, {"message": "none"})))),
                  ("POST /containers/create", lambda h: h.answer(*((201, {"Id": f.container}) if built else (404, {"message": "No such image: x"}))))])
    p = w.provider(f, image=json.dumps({"name": "x", "base_image": "b"}), environ={"PATH": "/nonexistent"})
    tags = [p.send("open", box=n, id=f"x{n}") for n in range(3)]
    for t in tags:
        e = p.wait(t, "opened")
        assert "error" not in e, e
    same(len(built), 1)
    time.sleep(0.3)
    same([q[1] for q in f.requests if q[0] == "DELETE"], ["/images/pydantic-ai-backend-runtime%3Ax-" + "0" * 12])


@test
def an_engine_that_hangs_up_is_unavailable(w):
    def drop(h):
        h.close_connection = True
        h.connection.shutdown(2)

    f = w.engine([("POST /containers/create", drop)])
    e = w.provider(f).open(0, id="x")
    same(e.get("error"), "UNAVAILABLE")
    p = w.provider(f, container_name=None)
    p.kill()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--init", help="the static garret-init, when that of the build isn't")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    passed = failed = 0
    for fn in TESTS:
        if a.names and not any(n in fn.__name__ for n in a.names):
            continue
        start = time.time()
        w = World(os.path.abspath(a.build), a.init)
        try:
            fn(w)
            bad = []
        except Ended as e:
            bad = [str(e)]
        except Exception:  # pylint: disable=broad-except
            bad = [traceback.format_exc(limit=-3)]
        bad += w.end()
        print(f"{'FAIL' if bad else 'ok'} {fn.__name__} ({time.time() - start:.1f} s)", flush=True)
        for b in bad:
            print("     " + b.replace("\n", "\n     "), flush=True)
        failed += bool(bad)
        passed += not bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
