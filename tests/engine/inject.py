"""Make another process carry out system calls (x86_64, as root), to see what its filter says.

    with inject.Process(pid) as p:
        p.call("openat", -100, b"/etc\\0", os.O_RDONLY, 0)   # a number, or the name of an error
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import struct

ATTACH, DETACH, STEP, GETREGS, SETREGS = 16, 17, 9, 12, 13
R11, R10, R9, R8, RAX, RDX, RSI, RDI, ORIG_RAX, RIP, RSP = 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 19
ARGUMENTS = (RDI, RSI, RDX, R10, R8, R9)
SCRATCH = 16384  # below the stack and its red zone

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p]


def numbers() -> dict[str, int]:
    found = {}
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if os.path.exists(path):
            with open(path) as f:
                found = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR_(\w+) (\d+)", f.read())}
            break
    return found


class Process:
    def __init__(self, pid: int) -> None:
        self.pid, self.numbers = pid, numbers()

    def _ptrace(self, request: int, data: object = None) -> None:
        if _libc.ptrace(request, self.pid, None, ctypes.cast(data, ctypes.c_void_p) if data is not None else None) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request}")

    def __enter__(self) -> Process:
        self._ptrace(ATTACH)
        os.waitpid(self.pid, 0x40000000)
        self.before = (ctypes.c_ulonglong * 27)()
        self._ptrace(GETREGS, self.before)
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        # It waits in a call: the instruction that made it lies just behind it.
        assert os.pread(self.memory, 2, self.before[RIP] - 2) == b"\x0f\x05", "not in a system call"
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.memory)
        self._ptrace(SETREGS, self.before)
        self._ptrace(DETACH)

    def call(self, name: str, *arguments: int | bytes) -> int | str:
        """Bytes are put into its memory and their address is given."""
        regs = (ctypes.c_ulonglong * 27)(*self.before)
        at = regs[RSP] - SCRATCH
        for register, value in zip(ARGUMENTS, arguments):
            if isinstance(value, bytes):
                os.pwrite(self.memory, value, at)
                regs[register], at = at, at + ((len(value) + 15) & ~15)
            else:
                regs[register] = value & (1 << 64) - 1
        regs[RIP], regs[RAX], regs[ORIG_RAX] = regs[RIP] - 2, self.numbers[name], (1 << 64) - 1
        self._ptrace(SETREGS, regs)
        self._ptrace(STEP)
        _, status = os.waitpid(self.pid, 0x40000000)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, hex(status)
        self._ptrace(GETREGS, regs)
        result = ctypes.c_longlong(regs[RAX]).value
        return errno.errorcode[-result] if -4096 < result < 0 else result

    def read(self, fd: int, n: int = 4096) -> bytes:
        got = self.call("read", fd, bytes(n), n)
        assert isinstance(got, int), got
        return os.pread(self.memory, got, self.before[RSP] - SCRATCH)

    def names(self, fd: int) -> set[str]:
        """What getdents64 finds in a directory."""
        got = self.call("getdents64", fd, bytes(4096), 4096)
        assert isinstance(got, int), got
        data, found = os.pread(self.memory, got, self.before[RSP] - SCRATCH), set()
        while data:
            n = struct.unpack("<H", data[16:18])[0]
            found.add(data[19:n].split(b"\0")[0].decode())
            data = data[n:]
        return found
