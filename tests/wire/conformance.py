"""The published conformance suite, through the published client, on the native engine.

Run by pytest in a virtual environment that holds pydantic-ai-backend (0.2.37 or 0.2.32).
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys

import httpx
import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_backends.workspaces import SandboxdWorkspace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon  # noqa: E402


FILE_METHODS = ("read_bytes", "write_bytes", "stat", "list_dir", "make_dir", "remove", "realpath", "exists")
THE_FIVE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError, ValueError)
inside = contextvars.ContextVar("inside", default=None)  # the file operation a request belongs to
operations = []  # [name, commands that it ran, how it ended]


def counted(method, name):
    """The method, with its requests to /run counted."""
    @functools.wraps(method)
    async def call(*args, **kwargs):
        if inside.get() is not None:
            return await method(*args, **kwargs)
        record = [name, 0, None]
        operations.append(record)
        token = inside.set(record)
        try:
            return await method(*args, **kwargs)
        except Exception as e:
            record[2] = e
            raise
        finally:
            inside.reset(token)

    return call


async def on_request(request):
    record = inside.get()
    if record is not None and request.url.path.endswith("/run"):
        record[1] += 1


def watched(backend):
    for name in FILE_METHODS:
        if hasattr(backend, name):
            setattr(backend, name, counted(getattr(backend, name), name))
    return backend


# "SOCKET IMAGE" of a Docker engine that the sessions are to be in (tests/wire/docker_published.py).
DOCKER = os.environ.get("GARRET_TEST_DOCKER", "").split()


@pytest.fixture(scope="session")
def daemon():
    where = {"GARRET_ENGINE": "docker", "DOCKER_HOST": f"unix://{DOCKER[0]}", "SANDBOXD_RUNTIMES": f"image={DOCKER[1]}"} if DOCKER else {}
    with Daemon(**where) as d:
        yield d


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TestNative(WorkspaceBackendSuite):
    @pytest.fixture
    def made(self):
        return []

    @pytest.fixture
    async def workspace(self, daemon, made):
        async with httpx.AsyncClient(event_hooks={"request": [on_request]}) as client:
            ws = SandboxdWorkspace(service_url=daemon.url, token=daemon.token, client=client)
            yield ws
            for b in made:
                if b.ref is not None:
                    await ws.destroy(b.ref)

    @pytest.fixture
    async def backend(self, workspace, made):
        b = watched(workspace.backend())
        made.append(b)
        return b

    @pytest.fixture
    def fresh_backend(self, workspace, made):
        def make():
            b = watched(workspace.backend())
            made.append(b)
            return b

        return make

    @pytest.fixture
    def attach_backend(self, workspace):
        return lambda *a, **k: watched(workspace.backend(*a, **k))

    @pytest.fixture
    def destroy_environment(self, workspace):
        async def destroy(backend):
            await workspace.destroy(backend.ref)

        return destroy

    @pytest.fixture
    def has_real_posix_shell(self):
        return True

    @pytest.fixture
    def enforces_parent_file_errors(self):
        return True

    @pytest.fixture
    def filesystem_honors_shell_permissions(self):
        return not DOCKER  # commands are root's there


def test_native_files_need_no_shell():
    """After the suite: what succeeded, or failed with one of the five names, ran no command."""
    assert len(operations) > 20, "the suite's file operations were not seen"
    wrong = [o for o in operations if o[1] and (o[2] is None or isinstance(o[2], THE_FIVE))]
    assert not wrong, wrong
