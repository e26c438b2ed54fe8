"""The published service for one session name whose work directory is a real one here.

Run with the Python of the venv: published_service.py TOKEN ROOT NAME PORT [native].  Prints its port (0: any).
"""

import asyncio
import os
import socket
import sys

import uvicorn
from pydantic_ai_backends.remote.server import SandboxdConfig, SandboxRuntime, create_app

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "wire"))
from differential_service import LocalSandbox  # noqa: E402


def main():
    token, root, name, port = sys.argv[1:5]
    more = {} if len(sys.argv) < 6 else {"native_files": sys.argv[5] == "native"}
    config = SandboxdConfig(token=token, runtimes={"host": SandboxRuntime(image="host"), "other": SandboxRuntime(image="other")},
                            workspace_root=root, work_dir=os.path.join(root, name, "workspace"), max_sessions=20,
                            execute_timeout=60, prewarm=False, **more)

    def build(session_id, runtime):
        directory = os.path.join(root, session_id, "workspace")
        os.makedirs(directory, exist_ok=True)
        return LocalSandbox(directory)

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(port)))
    sock.listen(128)
    print(sock.getsockname()[1], flush=True)
    asyncio.run(uvicorn.Server(uvicorn.Config(create_app(config, sandbox_builder=build), log_level="critical")).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
