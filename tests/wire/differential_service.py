"""The published service with a stand-in sandbox: commands run here, in a directory.

Run with the Python of build/venv.  Prints the port it listens on, then serves
until it is ended.
"""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time

import uvicorn
from pydantic_ai_backends.remote.server import SandboxdConfig, SandboxRuntime, create_app
from pydantic_ai_backends.types import CommandOutcome, SandboxUsage

OUTPUT_MAX = 10 * 1024 * 1024
SHOWN_MAX = 64 * 1024


class LocalSandbox:
    """What the service asks of a sandbox, without isolation."""

    def __init__(self, directory):
        self.directory = directory
        self.last_activity = time.time()
        self.alive = False
        self.running = {}
        self.left = []

    def start(self):
        self.alive = True

    def stop(self):
        self.alive = False
        for process in self.left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)

    def is_alive(self):
        return self.alive

    def resource_usage(self):
        return SandboxUsage(memory_bytes=1, memory_limit_bytes=2, cpu_percent=0.5, pids=1)

    def touch(self):
        self.last_activity = time.time()

    async def _collect(self, process):
        """Both streams until their end, or until they are too long together."""
        out, total = {1: bytearray(), 2: bytearray()}, 0

        async def read(number, stream):
            nonlocal total
            while piece := await stream.read(65536):
                out[number] += piece
                total += len(piece)
                if total > OUTPUT_MAX:
                    raise OverflowError

        reading = asyncio.gather(read(1, process.stdout), read(2, process.stderr))
        return out, reading

    async def run_command(self, argv, *, run_id, env=None, timeout=None, output_limit=None):
        argv = [a.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for a in argv]
        failed = refused_by_kernel(argv, env or {})
        if failed:
            return failed
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": self.directory}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, cwd=self.directory, env={**base, **(env or {})}, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, limit=1 << 20)
        except FileNotFoundError:
            return CommandOutcome("", f"sh: 1: {argv[0]}: not found\n", 127)
        except (PermissionError, IsADirectoryError):
            return CommandOutcome("", f"sh: 1: {argv[0]}: Permission denied\n", 126)
        self.running[run_id] = process
        out, reading = await self._collect(process)
        timed_out = limited = False
        try:
            async with asyncio.timeout(timeout):
                # Not wait(): that comes back when the last one who holds a pipe has gone.
                while process.returncode is None and not (reading.done() and reading.exception()):
                    await asyncio.sleep(0.002)
                code = process.returncode
            await asyncio.wait([reading], timeout=2)  # a child in the background may hold the pipes
        except TimeoutError:
            timed_out = True
        except OverflowError:
            limited = True
        if not timed_out and not limited and reading.done() and reading.exception():
            limited = True
        if timed_out or limited:
            self._kill(process)
        else:
            self.left.append(process)  # something in the background may go on
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, OverflowError):
            await reading
        self.running.pop(run_id, None)
        text = [bytes(out[n]) for n in (1, 2)]
        if timed_out or limited:
            text = [t[:SHOWN_MAX] for t in text]
            code = None
        text = [t.decode("utf-8", "replace") for t in text]
        if code is not None and code < 0:
            code = 128 - code
        return CommandOutcome(text[0], text[1], code, timed_out, limited)

    def _kill(self, process):
        try:
            if process.returncode is None:
                os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass

    async def stop_command(self, run_id):
        process = self.running.get(run_id)
        if process:
            os.killpg(process.pid, 15)


def refused_by_kernel(argv, env):
    """What the published service makes of arguments that no program can be given."""
    if any("\0" in a for a in argv):
        return CommandOutcome("", "exec /bin/sh: invalid argument", 1)
    if any(len(a.encode("utf-8", "replace")) > 131071 for a in argv):
        return CommandOutcome("", "exec /bin/sh: argument list too long", 1)
    if any(not k or "=" in k or "\0" in k + v for k, v in env.items()):
        return CommandOutcome("OCI runtime exec failed", "", 126)
    return None


def main():
    root = tempfile.mkdtemp(prefix="differential-")
    config = SandboxdConfig(
        token=sys.argv[1], runtimes={"host": SandboxRuntime(image="host")},
        workspace_root=root, native_files=True, max_sessions=int(sys.argv[2]),
        execute_timeout=60, prewarm=False)

    def build(session_id, runtime):
        directory = os.path.join(root, session_id, "workspace")
        os.makedirs(directory, exist_ok=True)
        return LocalSandbox(directory)

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)  # requests wait there until the service has started
    print(sock.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(create_app(config, sandbox_builder=build),
                                           log_level="critical"))
    asyncio.run(server.serve(sockets=[sock]))


if __name__ == "__main__":
    main()
