#!/usr/bin/env python3
"""Docker, with the published software beside ours: its suite through garretd, and workspaces that change hands.

usage: docker_published.py BUILD     (by the Python of build/venv, as root)
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import traceback

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "tests/provider"), os.path.join(TOP, "tests/lib"), HERE]
from dockerbox import IMAGE, Engine  # noqa: E402
from garret import Library, Workspace  # noqa: E402
from pydantic_ai_backends.workspaces import DockerWorkspace  # noqa: E402

total = [0, 0, 0]


def suite(name: str, python: str, *words: str) -> None:
    p = subprocess.run([python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/wire/conformance.py", *words], cwd=TOP,
                       env={**os.environ, "GARRET_TEST_DOCKER": f"{engine.socket} {IMAGE}", "GARRET_BUILD": BUILD, "PYTHONDONTWRITEBYTECODE": "1"},
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    last = p.stdout.strip().splitlines()[-1]
    counts = [int(m[1]) if (m := re.search(rf"(\d+) {word}", last)) else 0 for word in ("passed", "(?:failed|error)", "skipped")]
    if p.returncode and not counts[1]:
        counts[1] = 1
    print(f"{name}: {last}")
    if counts[1]:
        print(p.stdout[-6000:])
    for i in range(3):
        total[i] += counts[i]


def one(fn) -> None:
    try:
        fn()
        total[0] += 1
        print(f"ok   {fn.__name__}", flush=True)
    except Exception:
        total[1] += 1
        print(f"FAIL {fn.__name__}")
        traceback.print_exc(file=sys.stdout)


def theirs_is_attached_to_by_its_stored_ref():
    async def make():
        ws = DockerWorkspace(image=IMAGE)
        b = ws.backend()
        await b.run(["sh", "-c", "printf 'made by them' > theirs"])
        return b.ref

    ref = asyncio.run(make())
    library = Library(BUILD)
    with Workspace(library, "docker", ref=(ref.provider, ref.id), host=f"unix://{engine.socket}", image=IMAGE) as w:
        assert w.read("theirs") == b"made by them"
        assert w.sh("cat theirs; echo; echo ours > ours")[1] == b"made by them\n"
        assert w.ref() == (ref.provider, ref.id)

    async def read():
        b = DockerWorkspace(image=IMAGE).backend(ref)
        return (await b.run(["cat", "ours"])).stdout

    assert asyncio.run(read()) == "ours\n"
    with Workspace(library, "docker", ref=(ref.provider, ref.id), host=f"unix://{engine.socket}", image=IMAGE) as w:
        w.read("ours")
        w.destroy()
    assert ref.id not in engine.containers()


def ours_is_attached_to_by_theirs():
    from pydantic_ai.workspaces import WorkspaceRef

    library = Library(BUILD)
    with Workspace(library, "docker", host=f"unix://{engine.socket}", image=IMAGE) as w:
        w.write("ours", b"made by us")
        provider, name = w.ref()

    async def work():
        ws = DockerWorkspace(image=IMAGE)
        b = ws.backend(WorkspaceRef(provider=provider, id=name))
        result = await b.run(["sh", "-c", "cat ours; echo more > more"])
        await ws.destroy(b.ref)
        return result.exit_code, result.stdout

    assert asyncio.run(work()) == (0, "made by us")
    assert name not in engine.containers()


engine = Engine()
try:
    os.chmod(engine.dir, 0o755)
    os.chmod(engine.socket, 0o666)
    os.environ["DOCKER_HOST"] = f"unix://{engine.socket}"
    one(theirs_is_attached_to_by_its_stored_ref)
    one(ours_is_attached_to_by_theirs)
    suite("the suite on Docker, client 0.2.37", os.path.join(TOP, "build/venv/bin/python"))
    suite("the suite on Docker, client 0.2.32", os.path.join(TOP, "build/venv-0.2.32/bin/python"), "-k", "not native_realpath and not need_no_shell")
finally:
    engine.stop()
print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
sys.exit(1 if total[1] or not total[0] else 0)
