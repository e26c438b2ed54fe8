#!/usr/bin/env python3
"""The Docker provider, against a real engine: images, registries, recipes, and how an engine is found.  usage: docker_images.py --build DIR [NAME...]"""
import base64
import hashlib
import json
import os
import subprocess
import sys
import time

from dockerbox import IMAGE, Provider
from fakeengine import FakeEngine, Registry
from dockersuite import EXEC, both, main, opened, refused, same, test, until

# ---- images and registries ----


@test
def an_image_that_is_not_there_is_named(w):
    p = w.provider(image="garret-test/nothing:1")
    refused(p.open(0, id="n"), "NOT_FOUND", "garret-test/nothing:1")
    same(w.engine.containers(), {})


@test
def what_a_registry_says_is_told_without_credentials(w):
    secret = "s3cr3t-pass-word"
    cases = [(401, {"errors": [{"code": "UNAUTHORIZED", "message": f"authentication required for {secret}"}]}, "DENIED"),
             (404, {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, "NOT_FOUND"),
             (429, {"errors": [{"code": "TOOMANYREQUESTS", "message": "You have reached your pull rate limit"}]}, "EXHAUSTED"),
             (403, {"errors": [{"code": "DENIED", "message": "requested access to the resource is denied"}]}, "DENIED")]
    for status, body, code in cases:
        registry = Registry(status, body, [("WWW-Authenticate", 'Basic realm="x"')] if status == 401 else [])
        conf = w.engine.dir + f"/conf{status}"
        os.makedirs(conf, exist_ok=True)
        with open(conf + "/config.json", "w") as f:
            json.dump({"auths": {registry.host: {"auth": base64.b64encode(f"user:{secret}".encode()).decode()}}}, f)
        p = Provider(w.build + "/tests/provider/test-docker", "unix://" + w.engine.socket, f"r{status}", w.init, {"DOCKER_CONFIG": conf},
                     image=f"{registry.host}/team/image:1", no_pull=False)
        w.providers.append(p)
        e = p.open(0, id="r")
        registry.stop()
        refused(e, code, f"{registry.host}/team/image:1")
        assert secret not in json.dumps(e), e
        if status == 401:
            basic = base64.b64encode(f"user:{secret}".encode()).decode()
            assert any(basic in h.get("Authorization", "") for _, h in registry.seen), registry.seen
    closed = w.provider(image="127.0.0.1:1/x:1", no_pull=False)
    refused(closed.open(0, id="r"), "UNAVAILABLE", "127.0.0.1:1/x:1")


def script(path, text):
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


@test
def credentials_come_from_a_helper_that_sees_nothing_else(w):
    registry = Registry(401, {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}, [("WWW-Authenticate", 'Basic realm="x"')])
    conf = w.engine.dir + "/helpers"
    os.makedirs(conf, exist_ok=True)
    script(conf + "/docker-credential-fake", f"env >{conf}/env; cat >{conf}/in; echo '{{\"Username\":\"u\",\"Secret\":\"helper-secret\"}}'\n")
    script(conf + "/docker-credential-broken", "echo 'the secret is hidden-thing' >&2; echo hidden-thing; exit 1\n")
    script(conf + "/docker-credential-none", "echo 'credentials not found in native keychain'; exit 1\n")
    for name, part in [("fake", "pull"), ("broken", "docker-credential-broken failed"), ("missing", "docker-credential-missing"), ("none", "pull")]:
        with open(conf + "/config.json", "w") as f:
            json.dump({"credHelpers": {registry.host: name}, "credsStore": "broken"}, f)
        registry.seen.clear()
        p = Provider(w.build + "/tests/provider/test-docker", "unix://" + w.engine.socket, "h" + name, w.init,
                     {"DOCKER_CONFIG": conf, "PATH": conf + ":" + os.environ["PATH"], "OUR_SECRET": "ours"}, image=f"{registry.host}/team/image:1", no_pull=False)
        w.providers.append(p)
        e = p.open(0, id="r")
        assert "error" in e and part in e["text"] and "hidden-thing" not in e["text"] and "helper-secret" not in e["text"], e
        basic = base64.b64encode(b"u:helper-secret").decode()
        same(any(basic in h.get("Authorization", "") for _, h in registry.seen), name == "fake")
    registry.stop()
    same(open(conf + "/in").read().strip(), registry.host)
    assert "OUR_SECRET" not in open(conf + "/env").read()
    assert not subprocess.run(["pgrep", "-f", "docker-credential-fake"], capture_output=True, check=False).stdout


def recipe(**more):
    return json.dumps({"name": "garret-test", "base_image": IMAGE, "setup_commands": ["echo made >/made"], "env_vars": {"FROM_RECIPE": "a b $c"}, **more})


def tags(w):
    return sorted(t for i in w.engine.ask("GET", "/images/json")[1] for t in i["RepoTags"] or [] if "runtime:garret-test" in t)


@test
def a_recipe_is_built_once_and_older_builds_of_ours_go(w):
    ps = [w.provider(image=recipe()) for _ in range(2)]
    asked = [(p, p.send("open", box=b, id=f"r{n}{b}")) for n, p in enumerate(ps) for b in range(2)]
    for p, t in asked:
        opened(p.wait(t, "opened", 120))
    same(ps[0].run("cat /made; echo $FROM_RECIPE")["out"], b"made\na b $c\n")
    first = tags(w)
    same(len(first), 1)
    # Another owner's and the published service's images of that runtime stay; ours goes.
    w.engine.ask("POST", f"/images/{first[0]}/tag?repo=pydantic-ai-backend-runtime&tag=garret-test-x-0123456789ab")
    other = w.provider("other", image=recipe(setup_commands=["echo other >/made"]))
    opened(other.open(0, id="o", timeout=120))
    same(len(tags(w)), 3)
    for p in ps:
        for b in range(2):
            p.close("purge", b)
    new = w.provider(image=recipe(setup_commands=["echo new >/made"]))
    opened(new.open(0, id="n", timeout=120))
    same(new.run("cat /made")["out"], b"new\n")
    until(lambda: first[0] not in tags(w), 10, "the removal of the older one")
    assert "pydantic-ai-backend-runtime:garret-test-x-0123456789ab" in tags(w)
    same(len(tags(w)), 3)
    for t in tags(w):
        w.engine.ask("DELETE", f"/images/{t}?force=1")


@test
def a_build_that_fails_says_how_and_leaves_nothing(w):
    p = w.provider(image=recipe(setup_commands=["echo this is why >&2; exit 3"]))
    e = p.open(0, id="f", timeout=120)
    refused(e, "INTERNAL", "this is why")
    same(w.engine.containers(), {})
    refused(w.provider(image="{}").open(0, id="f"), "INVALID")
    refused(w.provider(image=recipe(packages=["a;b"])).open(0, id="f"), "INVALID", "a;b")


@test
def the_docker_command_builds_when_it_has_buildx(w):
    bin_dir = w.engine.dir + "/bin"
    os.makedirs(bin_dir, exist_ok=True)
    log = bin_dir + "/log"
    built = []

    def create(h):
        built.append(os.path.exists(log))
        h.answer(*((201, {"Id": "ab" * 32}) if built[-1] else (404, {"message": "No such image: x"})))

    for body, mode in [(f'[ "$2" = version ] && exit 0\nfor d; do :; done\necho "$@" "$DOCKER_HOST" >{log}; cat "$d/Dockerfile" >>{log}; exit 0\n', "good"),
                       ('[ "$2" = version ] && exit 0\necho building; echo "no such base" >&2; exit 1\n', "bad"), ("exit 1\n", "classic"), ("sleep 60\n", "classic")]:
        if os.path.exists(log):
            os.unlink(log)
        script(bin_dir + "/docker", body)
        posts = []

        def classic(h):
            posts.append(h.path)
            open(log, "w").close()
            h.answer(200, {"stream": "ok"})

        fake = FakeEngine([("GET /images/pydantic.*", lambda h: h.answer(404, {"message": "no such image"})), ("GET /images/json", lambda h: h.answer(200, [])),
                           ("POST /containers/create", create), ("POST /build", classic)])
        try:
            p = Provider(w.build + "/tests/provider/test-docker", "unix://" + fake.socket, "tests", w.init, {"PATH": bin_dir + ":" + os.environ["PATH"]},
                         image=recipe(packages=["duckdb"]), way=EXEC)
            start = time.time()
            e = p.open(0, id="b")
            if mode == "bad":
                refused(e, "INTERNAL", "no such base")
            else:
                opened(e)
                same(len(posts), int(mode == "classic"))
                assert time.time() - start < 14
            if mode == "good":
                text = open(log).read()
                assert "buildx build --load" in text and "unix://" + fake.socket in text and "--mount=type=cache" in text and "io.garret.owner=tests" in text, text
                assert "--tag pydantic-ai-backend-runtime:garret-test-" in text, text
            if mode == "classic":
                assert "rm=1" in posts[0] and "io.garret.owner" in posts[0], posts
            p.end()
        finally:
            fake.stop()
        assert not [d for d in os.listdir("/tmp") if d.startswith("garret-build-")]


# ---- how the engine is found ----


@both
def it_works_over_tcp_with_tls(w, way):
    env = {"DOCKER_HOST": f"tcp://127.0.0.1:{w.engine.port}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": w.engine.dir}
    p = Provider(w.build + "/tests/provider/test-docker", None, "tests", w.init, env, way=way)
    w.providers.append(p)
    opened(p.open(0, id="tls"))
    r = p.run("echo over tls; exit 2")
    same((r["out"], r["code"]), (b"over tls\n", 2))
    tag = p.send("run", box=0, run=1, argv=["cat"], input=True)
    p.send("input", run=1, data="x" * 100000, end=True)
    r = p.wait(tag, "ended")
    same((len(r["out"]), r["code"]), (100000, 0))
    bad = Provider(w.build + "/tests/provider/test-docker", None, "tests", w.init,
                   {"DOCKER_HOST": f"tcp://127.0.0.1:{w.engine.port}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/nonexistent"})
    assert "ca.pem" in bad.begun["text"], bad.begun
    bad.end()


@test
def contexts_and_addresses_are_chosen_as_docker_does(w):
    conf = w.engine.dir + "/contexts"
    name = "there"
    digest = hashlib.sha256(name.encode()).hexdigest()
    os.makedirs(f"{conf}/contexts/meta/{digest}", exist_ok=True)
    with open(f"{conf}/contexts/meta/{digest}/meta.json", "w") as f:
        json.dump({"Name": name, "Endpoints": {"docker": {"Host": "unix://" + w.engine.socket, "SkipTLSVerify": False}}}, f)
    program = w.build + "/tests/provider/test-docker"

    def begin(host=None, **env):
        p = Provider(program, host, "tests", w.init, {"DOCKER_CONFIG": conf, "DOCKER_HOST": "", "DOCKER_CONTEXT": "", **env})
        w.providers.append(p)
        return p

    opened(begin(DOCKER_CONTEXT=name).open(0, id="c"))
    with open(conf + "/config.json", "w") as f:
        json.dump({"currentContext": name}, f)
    opened(begin().open(0, id="c"))
    assert "no docker context" in begin(DOCKER_CONTEXT="other").begun["text"]
    # The environment's address counts for more than a context.
    refused(begin(DOCKER_HOST="unix:///nonexistent/s").open(0, id="c"), "UNAVAILABLE", "/nonexistent/s")
    for host, part in [("npipe:////./pipe/docker_engine", "npipe"), ("ssh://host", "ssh"), ("unix://relative", "absolute"), ("fd://", "unix:// or tcp://"),
                       ("tcp://user:secret@host", "credentials")]:
        text = begin(host).begun["text"]
        assert part in text and "secret" not in text, text


sys.exit(main(__doc__))
