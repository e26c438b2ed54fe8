"""The published conformance suite, through the published client, on the native engine.

Run by pytest in a virtual environment that holds pydantic-ai-backend (0.2.37 or 0.2.32).
"""

from __future__ import annotations

import os
import sys

import httpx
import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_backends.workspaces import SandboxdWorkspace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon  # noqa: E402


@pytest.fixture(scope="session")
def daemon():
    with Daemon() as d:
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
        async with httpx.AsyncClient() as client:
            ws = SandboxdWorkspace(service_url=daemon.url, token=daemon.token, client=client)
            yield ws
            for b in made:
                if b.ref is not None:
                    await ws.destroy(b.ref)

    @pytest.fixture
    async def backend(self, workspace, made):
        b = workspace.backend()
        made.append(b)
        return b

    @pytest.fixture
    def fresh_backend(self, workspace, made):
        def make():
            b = workspace.backend()
            made.append(b)
            return b

        return make

    @pytest.fixture
    def attach_backend(self, workspace):
        return workspace.backend

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
        return True
