#!/usr/bin/env python3
"""Real agents in the workspaces that this layer opens: D10.2, D10.3, D10.4, and a loss that an agent meets.

usage: build/venv/bin/python -B tests/app/agents.py BUILD [NAME...]

The agents are Pydantic AI's, the workspace is the published client's, delegation is that of
subagents-pydantic-ai; the model is a list of tool calls.  A runner does what an application does: it opens
the run here, opens its session by name or by ref as it is told, gives the workspace to the agent's
run, and reports what the client noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.pop("LOGFIRE_TOKEN", None)
from pydantic_ai import Agent, models  # noqa: E402
from pydantic_ai.agent import WrapperAgent  # noqa: E402
from pydantic_ai.exceptions import UserError  # noqa: E402
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart  # noqa: E402
from pydantic_ai.models.function import FunctionModel  # noqa: E402
from pydantic_ai.workspaces import UnavailableWorkspace, WorkspaceRef, WorkspaceUnavailableError  # noqa: E402
from pydantic_ai_backends import ConsoleCapability  # noqa: E402
from pydantic_ai_backends.workspaces import SandboxdWorkspace  # noqa: E402
from subagents_pydantic_ai import SubAgentCapability, SubAgentConfig  # noqa: E402

from applib import AppLibrary  # noqa: E402
from scene import Scene, new  # noqa: E402
from worlds import Garretd, World  # noqa: E402

models.ALLOW_MODEL_REQUESTS = False  # nothing of this asks anybody
FILES = ("read_bytes", "write_bytes", "stat", "list_dir", "make_dir", "remove", "realpath", "exists", "run")
tests = []


def test(fn):
    tests.append(fn)
    return fn


# ---- the application ----

class Scripted(FunctionModel):
    """A model that calls these tools, one after another, and then says that it is done."""

    def __init__(self, *calls: tuple[str, dict]) -> None:
        left = list(calls)

        def answer(messages, info) -> ModelResponse:
            if not left:
                return ModelResponse(parts=[TextPart("done")])
            name, args = left.pop(0)
            return ModelResponse(parts=[ToolCallPart(name, args)])
        super().__init__(answer)


def write(path: str, content: str) -> tuple[str, dict]:
    return "write_file", {"path": path, "content": content}


def read(path: str) -> tuple[str, dict]:
    return "read_file", {"path": path}


def named(ref: tuple[str, str]) -> WorkspaceRef:
    return WorkspaceRef(provider=ref[0], id=ref[1])


def agent(*calls, capabilities=()) -> Agent:
    return Agent(Scripted(*calls), capabilities=[ConsoleCapability(), *capabilities])


def answers(result) -> list[str]:
    return [str(p.content) for m in result.new_messages() for p in m.parts if isinstance(p, ToolReturnPart)]


@dataclasses.dataclass
class Deps:
    subagents: dict = dataclasses.field(default_factory=dict)

    def clone_for_subagent(self, max_depth: int = 0) -> Deps:
        return Deps()


class Opened:
    """A run of the application with the published client beside it."""

    def __init__(self, w: Garretd, run) -> None:
        self.run, self.info, self.lost = run, run.info(), False
        i = self.info
        self.capability = SandboxdWorkspace(service_url=w.daemon.url, token=w.daemon.token, provider=i["ref"][0], tenant=i["tenant"],
                                            runtime=i["runtime"] or None, session_name=i["ref"][1])
        # By ref where the row holds it: one that is gone is gone then, and never an empty one of its name.
        self.backend = self.capability.backend(named(i["ref"]) if i["attached"] else None)
        for name in FILES:
            setattr(self.backend, name, self.noticing(getattr(self.backend, name)))

    def noticing(self, method):
        @functools.wraps(method)
        async def call(*args, **kwargs):
            try:
                return await method(*args, **kwargs)
            except WorkspaceUnavailableError:
                self.lost = True
                raise
        return call

    def report(self) -> None:
        ref = self.backend.ref
        self.run.report((ref.provider, ref.id) if ref else None, self.lost)


class Runner:
    def __init__(self, s: Scene) -> None:
        self.s = s

    @contextlib.contextmanager
    def opened(self, **more):
        """Opened, reported and closed around an agent's run."""
        o = Opened(self.s.w, self.s.run(**more))
        try:
            yield o
        finally:
            o.report()
            o.run.close()

    def files(self, key: str, org: str | None = None) -> list[str]:
        v = self.s.app.visit(org or self.s.org, key)
        try:
            return v.list()
        finally:
            v.close()

    async def turn(self, *calls, history=None, **more):
        with self.opened(**more) as o:
            result = await agent(*calls).run("go", workspace=o.backend, message_history=history)
            return o, result


# ---- D10 ----

@test
async def D04_an_agent_comes_back_to_its_files(s):
    app = Runner(s)
    o, _ = await app.turn(write("notes.txt", "of the first turn"))
    assert not o.info["attached"] and s.app.row(s.org, o.info["key"])["session_id"] == o.info["key"]
    o, result = await app.turn(read("notes.txt"))
    assert o.info["attached"] and "of the first turn" in answers(result)[0]


@test
async def D04_an_agent_whose_session_was_purged_is_told(s):
    """It is told, goes on in no empty one, and the next turn begins anew."""
    app = Runner(s)
    o, _ = await app.turn(write("notes.txt", "1"))
    key = o.info["key"]
    s.w.purge(key)
    with app.opened() as o:
        try:
            result = await agent(read("notes.txt"), write("notes.txt", "2")).run("go", workspace=o.backend)
            told = "\n".join(answers(result))
            assert "gone" in told.lower() or "no longer" in told.lower() or "unavailable" in told.lower(), told
        except WorkspaceUnavailableError:
            pass  # an older console lets it through to the application
        assert o.lost
    assert s.app.row(s.org, key)["session_id"] == "" and len(s.app.told("workspace_session_forgotten")) == 1
    o, result = await app.turn(write("notes.txt", "3"))
    assert not o.info["attached"] and app.files(key) == ["notes.txt"]


@test
async def D10_2_a_history_that_names_another_organisations_workspace(s):
    app = Runner(s)
    theirs, result = await app.turn(write("secret.txt", "of the first organisation"))
    history, key = result.all_messages(), theirs.info["key"]
    refs = [m.workspace_ref for m in history if isinstance(m, ModelResponse)]
    assert named(theirs.info["ref"]) in refs, "the history names it"
    other = new()
    ours, result = await app.turn(write("mine.txt", "1"), read("secret.txt"), history=history, org=other)
    assert ours.info["key"] != key and "of the first organisation" not in "\n".join(answers(result))
    assert app.files(ours.info["key"], other) == ["mine.txt"] and app.files(key) == ["secret.txt"]
    # That is the runner's doing: without what it opened the history would have led there.
    astray = agent(write("astray.txt", "1"), capabilities=[theirs.capability])
    await astray.run("go", message_history=history)
    assert app.files(key) == ["astray.txt", "secret.txt"], "the history leads nowhere, so this test shows nothing"
    s.app.remove(other, ours.info["key"])


@test
async def D10_2_a_history_that_names_another_organisations_document(s):
    app = Runner(s)
    r = s.app.run(s.org, s.agent, new(), {}, conversation=s.conversation)
    r.write("secret.txt", b"of the first organisation")
    provider, key = r.info()["ref"]
    r.close()
    before, other = s.app.document(s.org, key), new()
    _, result = await app.turn(write("warm.txt", "1"), org=other)
    history = [dataclasses.replace(m, workspace_ref=WorkspaceRef(provider=provider, id=key)) if isinstance(m, ModelResponse) else m
               for m in result.all_messages()]
    ours, result = await app.turn(write("mine.txt", "1"), read("secret.txt"), history=history, org=other)
    assert "of the first organisation" not in "\n".join(answers(result))
    assert s.app.document(s.org, key) == before and app.files(ours.info["key"], other) == ["mine.txt", "warm.txt"]
    s.app.remove(other, ours.info["key"])


@test
async def D10_3_a_history_that_names_another_connections_session(s):
    """The conversation has moved to another host since."""
    app = Runner(s)
    before, result = await app.turn(write("there.txt", "on the first host"))
    history, key = result.all_messages(), before.info["key"]
    second = Garretd(s.l, s.build)
    try:
        moved = s.app.connect(s.org, "sandboxd", second.address(), second.token(), name="second")["id"]
        with contextlib.ExitStack() as stack:
            o = Opened(second, s.run(connection_id=moved))
            stack.callback(o.run.close)
            stack.callback(o.report)
            result = await agent(write("here.txt", "1"), read("there.txt")).run("go", workspace=o.backend, message_history=history)
            assert "on the first host" not in "\n".join(answers(result))
            # Its capability alone takes no ref of another connection, rather than to read it on its own host.
            try:
                await agent(write("astray.txt", "1"), capabilities=[o.capability]).run("go", message_history=history)
                raise AssertionError("a ref of another connection was taken")
            except UserError as e:
                assert before.info["ref"][0] in str(e), e
        assert o.info["key"] != key and app.files(o.info["key"]) == ["here.txt"] and app.files(key) == ["there.txt"]
        s.app.remove(s.org, o.info["key"])
    finally:
        second.close()
    # And back: it continues where it was.
    o, result = await app.turn(read("there.txt"), history=history)
    assert "on the first host" in answers(result)[0]


class Placed(WrapperAgent):
    """A delegate in the workspace that the table gives it, whatever the library would hand it."""

    def __init__(self, wrapped: Agent, workspace) -> None:
        super().__init__(wrapped)
        self.workspace, self.handed = workspace, []

    @contextlib.asynccontextmanager
    async def iter(self, *args, **kwargs):
        self.handed.append(kwargs.get("workspace"))
        async with super().iter(*args, **{**kwargs, "workspace": self.workspace or kwargs.get("workspace")}) as run:
            yield run


@test
async def D10_4_a_delegates_file_lands_with_the_parent_only_when_shared(s):
    app = Runner(s)
    own = s.w.options(s.app, s.org)
    for shares, binding, want in ((True, None, "parent"), (True, own, "parent"), (False, own, "own"), (False, None, "none")):
        with app.opened(conversation=new()) as parent:
            d = parent.run.delegate(new(), new(), shares, binding)
            theirs = Opened(s.w, d) if want == "own" else None
            given = theirs.backend if theirs else UnavailableWorkspace("this delegate has no workspace") if want == "none" else None
            delegate = Placed(agent(write("of-the-delegate.txt", "1")), given)
            helper = SubAgentConfig(name="helper", description="helps", instructions="help", agent=delegate, max_retries=0)
            main = agent(write("of-the-parent.txt", "1"), ("task", {"description": "write a file", "subagent_type": "helper", "mode": "sync"}),
                         capabilities=[SubAgentCapability(subagents=[helper], include_general_purpose=False)])
            await main.run("go", workspace=parent.backend, deps=Deps())
            # The library hands over what the parent has, always: it is for the application to say no.
            assert len(delegate.handed) == 1 and delegate.handed[0].backend is parent.backend
            parent.report()
            files = parent.run.list()
            assert files == sorted(["of-the-parent.txt"] + ["of-the-delegate.txt"] * (want == "parent")), (shares, binding, files)
            if theirs:
                theirs.report()
                assert d.list() == ["of-the-delegate.txt"] and theirs.info["key"] != parent.info["key"]
            if d:
                d.close()
            else:
                assert want == "none"
            if theirs:  # it was its own: it is gone with its files
                code, _ = s.w.daemon.call("GET", f"/sessions/{theirs.info['key']}")
                assert code == 404, code
            key = parent.info["key"]
        s.app.remove(s.org, key)


def main() -> int:
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    library = AppLibrary(build)
    w: World = Garretd(library, build)
    passed = failed = 0
    try:
        for fn in tests:
            if names and not any(n in fn.__name__ for n in names):
                continue
            began, s = time.time(), Scene(library, w, None)
            s.build = build
            try:
                asyncio.run(fn(s))
                s.close()
                passed += 1
                print(f"ok   {fn.__name__} ({time.time() - began:.1f} s)", flush=True)
            except Exception:  # noqa: BLE001
                failed += 1
                print(f"FAIL {fn.__name__} ({time.time() - began:.1f} s)\n{traceback.format_exc()}", flush=True)
    finally:
        w.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
