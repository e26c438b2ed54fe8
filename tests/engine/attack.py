#!/usr/bin/env python3
"""Attempts to get out of a session, row by row.  usage: attack.py BUILD [ROW...]

Four times: as it is installed; on a volume of root's in a root of the session's own (the stricter
filter); with a root-owned volume missing nothing but the filter; and without the system call filter
(test build), where every row must be held by a second mechanism.  What has none is listed below with
what remains; the list is printed, and a row that turns out to be held after all is a failure too.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

import adversarial_base as base
from adversarial_base import BUILD, D, OWNER, TEST_BUILD, Bench, g


class Setting:
    """Without the filter it depends on the host: a sysctl or what its kernel was built with."""

    def __init__(self, errors: str, what: str) -> None:
        self.errors, self.what = errors.split(), what


class Remains:
    """Without the filter nothing holds it; what a session gains then."""

    def __init__(self, what: str) -> None:
        self.what = what


# The keyring is the session's own (init joined a fresh one), its keys count against the slot's id.
OWN_KEYS = "a keyring of the session's own, empty; its quota is that of the slot's id"
OWN_FILE = "a set-id file of an id that no account has, on a mount without set-id"
NOT_BUILT = "the kernel was built without it"

# Row: what is allowed as errno with the filter, and without it (a text: as well held; by what).
ROWS: dict[int, tuple[str, object, str]] = {
    1: ("EBADF", "EBADF", "exec closes all but 0 to 2"),
    2: ("EPERM", "ENOSPC", "max_user_namespaces is 0 in the session"),
    3: ("EPERM", "EPERM", "no capability"),
    4: ("ENOSYS", "ENOSPC", "max_user_namespaces is 0 in the session"),
    5: ("EPERM", "EPERM", "no capability"),
    6: ("EPERM", "EPERM", "the mount namespace is the host's"),
    7: ("EPERM", "EPERM", "the mount namespace is the host's"),
    8: ("EPERM", "EPERM", "the mount namespace is the host's"),
    9: ("EPERM", "EPERM", "the mount namespace is the host's"),
    10: ("EPERM", "EPERM", "the mount namespace is the host's"),
    11: ("EPERM", "EPERM", "the mount namespace is the host's"),
    12: ("EPERM", "EPERM", "the mount namespace is the host's"),
    13: ("EPERM", "EPERM", "the mount namespace is the host's"),
    14: ("EPERM", "EPERM", "no capability"),
    15: ("EPERM", "EPERM", "no capability"),
    16: ("EACCES", "EACCES", "init has another uid and isn't dumpable"),
    17: ("EACCES", "EACCES", "init has another uid and isn't dumpable"),
    18: ("EACCES", "EACCES", "init has another uid and isn't dumpable"),
    19: ("EACCES", "EACCES", "init has another uid and isn't dumpable"),
    20: ("EACCES", "EACCES", "init has another uid and isn't dumpable"),
    21: ("EPERM", "EPERM", "init has another uid and isn't dumpable"),
    22: ("EPERM", "EPERM", "init has another uid and isn't dumpable"),
    23: ("EPERM", "EPERM", "init has another uid and isn't dumpable"),
    24: ("EPERM", "EPERM", "init has another uid"),
    25: ("EPERM", "EPERM", "init has another uid"),
    26: ("EPERM", "EPERM", "no capability, RLIMIT_RTPRIO 0"),
    27: ("EPERM", "EPERM", "no capability"),
    28: ("EPERM", "EPERM", "no capability"),
    29: ("ENOENT", "ENOENT", "the session's /dev has no such node"),
    30: ("EROFS", "EROFS", "read-only, and root's"),
    31: ("EROFS", "EROFS", "read-only, and root's"),
    32: ("EACCES EROFS", "EACCES EROFS", "root's, and read-only"),
    33: ("ENOENT ENODATA", "ENOENT ENODATA EACCES", "masked, and root's"),
    34: ("EACCES", "EACCES", "no capability, and init raised the lowest value"),
    35: ("ENOENT ENODATA", "ENOENT ENODATA", "masked, and root's"),
    36: ("ENOENT ENODATA", "ENOENT ENODATA", "masked"),
    37: ("ENOENT ENODATA", "ENOENT ENODATA", "masked, and needs a capability"),
    38: ("EPERM", "EPERM", "no capability: the addresses are zeroes"),
    39: ("EPERM", Setting("EPERM", "kernel.dmesg_restrict"), "READ needs a capability, READ_ALL a sysctl"),
    40: ("EPERM", Setting("EPERM", "kernel.unprivileged_bpf_disabled"), ""),
    41: ("EPERM", Setting("EACCES EPERM", "kernel.perf_event_paranoid"), ""),
    42: ("EPERM", Setting("EPERM", "vm.unprivileged_userfaultfd"), ""),
    43: ("EPERM", Remains("kernel surface; kernel.io_uring_disabled = 2 closes it for the whole host"), ""),
    44: ("EPERM", Remains(OWN_KEYS), ""),
    45: ("EPERM", Remains(OWN_KEYS), ""),
    46: ("EPERM", "EPERM", "no capability"),
    47: ("EPERM", Remains("the name of a file it sees anyway; row 46 is what could use it"), ""),
    48: ("EPERM", Setting("EAFNOSUPPORT", NOT_BUILT), ""),
    49: ("EPERM", Remains("on a virtual machine: the hypervisor's services; not namespaced"), ""),
    50: ("EPERM", "EPERM", "no capability"),
    51: ("EPERM", "EPERM", "no capability"),
    52: ("EPERM", "EPERM", "no capability over its network namespace"),
    53: ("EPERM", "ENOTTY", "no terminal is shared"),
    54: ("EPERM", "ENOTTY", "no terminal is shared"),
    55: ("EPERM", "ENOTTY", "no terminal is shared"),
    56: ("SIGSYS", Setting("ENOSYS", NOT_BUILT), ""),
    57: ("SIGSYS", Remains("the 32-bit call table: kernel surface; ia32_emulation=0 closes it for the host"), ""),
    58: ("EPERM", Remains("its own processes without address randomisation"), ""),
    59: ("EPERM", "EPERM ENOSYS", "no capability"),
    60: ("EPERM", "EPERM ENOSYS", "no capability"),
    61: ("EPERM", "EPERM", "no capability"),
    62: ("EPERM", "EPERM", "no capability"),
    63: ("EPERM", "EPERM", "no capability"),
    64: ("EPERM", "EPERM", "the UTS namespace is the host's"),
    65: ("EPERM", "EPERM ENOSYS", "no capability"),
    66: ("EPERM", "ENOENT EPERM", "no device node, no capability"),
    67: ("EINVAL", "EINVAL", "the id isn't mapped; no capability"),
    68: ("EPERM", "EPERM", "no capability"),
    69: ("EPERM", Remains(OWN_FILE), ""),
    70: ("EPERM", "EPERM", "no capability"),
    71: ("EPERM", "EPERM", "no capability"),
    72: ("EPERM", "EPERM", "an empty bounding set"),
    73: ("EINVAL", "EINVAL", "it can't be taken back"),
    74: ("ENOENT", "ENOENT", "not mounted"),
    75: ("-", "-", "allowed: a lock on a file that all sessions see is a known covert channel"),
    76: ("ESRCH", "ESRCH", "pid namespace"),
    77: ("ENETUNREACH", "ENETUNREACH", "network namespace"),
    78: ("EPERM", "EPERM", "init has another uid"),
    79: ("EPERM EACCES", "EPERM EACCES", "it is written"),
    80: ("EPERM", "EPERM", "the parents are out of sight"),
    81: ("ENOENT", "ENOENT", "the root is the session's"),
    82: ("ENOENT", "ENOENT", "the root is the session's"),
    83: ("EPERM", "EPERM", "no capability"),
    84: ("ENOENT", "ENOENT", "IPC namespace"),
    85: ("EPERM", Setting("EPERM", "vm.mmap_min_addr"), "the filter doesn't look at it either"),
    86: ("EACCES EPERM", "EACCES EPERM", "init has another uid and isn't dumpable"),
    87: ("EAGAIN", "EAGAIN", "pids.max"),
    88: ("EPERM", Remains("a node that opens nothing, of an id that no account has"), ""),
    89: ("EPERM", Remains(OWN_FILE), ""),
    90: ("ENOSYS", Remains(OWN_FILE), ""),
    91: ("EPERM", "ENOTTY", "no terminal is shared"),
    92: ("EPERM", Remains("questions about its own network namespace"), ""),
    93: ("EPERM", Setting("EAFNOSUPPORT EPERM ESOCKTNOSUPPORT EPROTONOSUPPORT", "what the kernel was built with"), ""),
    94: ("EPERM", Remains("kernel surface: protocols that no command needs"), ""),
    95: ("EPERM", Remains("kernel surface: pages given to a pipe"), ""),
    96: ("EROFS EACCES", "EROFS EACCES", "read-only, and root's"),
    97: ("EPERM", "EPERM", "no capability"),
    98: ("EPERM", Remains("kernel surface: segments of its own processes"), ""),
    99: ("EPERM", Setting("EACCES EPERM", "kernel.perf_event_paranoid (3 where a distribution has it)"), ""),
    100: ("EPERM", Remains("kernel surface: page faults of its own processes"), ""),
    101: ("EPERM", "EPERM", "nosuid and nodev everywhere"),
    102: ("EPERM", "EPERM", "no capability, RLIMIT_CORE 0"),
    103: ("EPERM", "ENOKEY EACCES", "init joined a fresh keyring"),
}
BY_DESIGN = {75}


class Score:
    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, ok: bool, what: str) -> None:
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {what}", flush=True)


def key_of_host() -> tuple[ctypes.CDLL, int, int]:
    """A SysV segment of the host that everybody could open: library, key, id."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x6A570000 + os.getpid() % 65536
    shm = libc.shmget(key, 4096, 0o1666)
    assert shm >= 0, os.strerror(ctypes.get_errno())
    return libc, key, shm


def run_rows(bench: Bench, session: g.Session, only: list[str], cwd: str = "") -> dict[int, list[str]]:
    """Row -> [outcome, errno, text]"""
    libc, key, shm = key_of_host()
    try:
        result = session.run(["/tmp/bin/attack", "-p", str(os.getpid()), "-s", bench.dir, "-k", str(key), *only],
                             cwd=cwd, timeout=120)
    finally:
        libc.shmctl(shm, 0, None)
    assert result.code == 0, result
    return {int(line.split(" ", 1)[0]): line.split(" ", 3)[1:] for line in result.stdout.decode().splitlines()}


def judge(score: Score, name: str, seen: dict[int, list[str]], only: list[str], filtered: bool) -> None:
    for row in [int(o) for o in only] or ROWS:
        with_filter, without, _ = ROWS[row]
        outcome, error, text = seen.get(row, ["BROKEN", "-", "no such line"])
        what = f"{name} row {row}: {outcome} {error} {text}"
        if row in BY_DESIGN:
            score.check(outcome == "NOT_HELD" and error == "-", what)
        elif filtered:
            score.check(outcome == "HELD" and error in with_filter.split(), what)
        elif isinstance(without, Remains):
            # Held after all: then the table should say so, and name what holds it.
            score.check(outcome == "NOT_HELD", what)
            print(f"    without the filter {row} {text}: remains {without.what}")
        elif isinstance(without, Setting):
            score.check(outcome == "NOT_HELD" or error in without.errors, what)
            print(f"    without the filter {row} {text}: {'held' if outcome == 'HELD' else 'not held'}, "
                  f"by a setting of the host only: {without.what}")
        else:
            score.check(outcome == "HELD" and error in str(without).split(), what)


def bad_files(top: str, owners: set[int]) -> list[str]:
    """Files below top that a session must not be able to leave on the host's disk."""
    found = []
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            st = os.lstat(os.path.join(where, name))
            if (stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode) or st.st_mode & 0o6000
                    or st.st_uid not in owners or st.st_gid not in owners):
                found.append(f"{os.path.join(where, name)} {stat.filemode(st.st_mode)} {st.st_uid}:{st.st_gid}")
    return found


def as_installed(score: Score, only: list[str]) -> None:
    with Bench() as b:
        s = b.engine().open("a", volumes=[b.tools()], pids=200)
        judge(score, "installed", run_rows(b, s, only), only, True)
        bad = bad_files(os.path.join(b.dir, "state/workspaces/a/workspace"), {OWNER})
        score.check(not bad, f"left on disk: {bad}")
        s.close()


def on_a_volume_of_root(score: Score, only: list[str]) -> None:
    """The stricter filter, and a root of the session's own."""
    with Bench() as b:
        volume = os.path.join(b.dir, "volume")
        os.mkdir(volume, 0o755)
        s = b.engine().open("a", volumes=[b.tools(), (volume, "/data", False)], pids=200)
        judge(score, "root's volume", run_rows(b, s, only, cwd="/data"), only, True)
        bad = bad_files(volume, {0})
        score.check(not bad, f"left on disk: {bad}")
        score.check(b"no" in s.sh("touch g && chmod 2755 g || echo no", cwd="/data").stdout, "setgid on root's volume")
        s.close()


def without_filter(score: Score, only: list[str]) -> None:
    with Bench() as b:
        engine = b.engine(build=TEST_BUILD, env={"GARRET_TEST_NO_SECCOMP": "1"})
        score.check(engine.seccomp == 0, "the engine says that there is no filter")
        s = engine.open("a", volumes=[b.tools()], pids=200)
        judge(score, "no filter", run_rows(b, s, only), only, False)
        workspace = os.path.join(b.dir, "state/workspaces/a/workspace")
        # What remains of rows 69 and 88 to 90: none of it belongs to root or to any account.
        st = [os.lstat(os.path.join(workspace, f)) for f in os.listdir(workspace)]
        score.check(all(D <= x.st_uid <= OWNER and D <= x.st_gid <= OWNER for x in st), f"owners on disk {st}")
        score.check(s.sh("cp /usr/bin/id . && chmod 4755 id && ./id -u; grep Seccomp: /proc/self/status").stdout
                    == b"1000\nSeccomp:\t0\n", "a set-id program gives nothing")
        s.close()


def main() -> int:
    if os.geteuid() != 0:
        print("needs root")
        return 77
    score, only = Score(), sys.argv[2:]
    libc = ctypes.CDLL(None)
    libc.syscall(250, 1, b"garret-test")  # keyctl: a session keyring of our own
    if libc.syscall(248, b"user", b"garret-canary", b"secret", 6, -3) < 0:  # add_key: into it
        print("skip: no keyrings here, row 103 proves nothing")
    before = base.mounts()
    as_installed(score, only)
    on_a_volume_of_root(score, only)
    without_filter(score, only)
    score.check(base.mounts() == before, "the host's mounts are the same")
    print(f"{score.passed} passed, {score.failed} failed")
    return 1 if score.failed or not score.passed else 0


if __name__ == "__main__":
    assert os.path.exists(os.path.join(BUILD, "tests/engine/attack")), f"{BUILD} isn't built"
    sys.exit(main())
