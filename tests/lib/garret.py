"""libgarret from Python, for tests: what they need of it, by ctypes."""

from __future__ import annotations

import ctypes as c
import os

CODES = ("OK INVALID UNAUTHORIZED NOT_FOUND CONFLICT GONE TOO_LARGE EXHAUSTED UNAVAILABLE UNSUPPORTED DENIED TIMEOUT"
         " OUTPUT_LIMIT NOT_DIRECTORY IS_DIRECTORY EXISTS NOT_REGULAR NO_SPACE MISUSE PROTOCOL CHANGED INTERNAL"
         " READ_ONLY OUTSIDE TYPE ENCODING FAILED CANCELLED").split()


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("sys", c.c_int), ("msg", c.c_char * 504)]


class Bytes(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_uint8)), ("n", c.c_size_t)]


class Ref(c.Structure):
    _fields_ = [("provider", c.c_char * 80), ("id", c.c_char * 200)]


class RunOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("argv", c.POINTER(c.c_char_p)), ("shell", c.c_char_p),
                ("env", c.POINTER(c.c_char_p)), ("cwd", c.c_char_p), ("timeout", c.c_double),
                ("output_limit", c.c_uint64), ("input", c.c_char_p), ("input_bytes", c.c_size_t), ("feed", c.c_bool)]


class Result(c.Structure):
    _fields_ = [("exit_code", c.c_int), ("out", c.POINTER(c.c_uint8)), ("err", c.POINTER(c.c_uint8)),
                ("out_bytes", c.c_size_t), ("err_bytes", c.c_size_t), ("limit", c.c_uint64), ("background", c.c_uint)]


class Failure(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class Library:
    def __init__(self, build: str) -> None:
        os.environ.setdefault("GARRET_PROGRAM_DIR", os.path.abspath(build))
        self.lib = c.CDLL(os.path.join(build, "libgarret.so"), use_errno=True)
        for name in ("garret_context_free", "garret_provider_free", "garret_workspace_free"):
            getattr(self.lib, name).restype = c.c_void_p
            getattr(self.lib, name).argtypes = [c.c_void_p]

    def call(self, name: str, *args) -> int:
        error = Error()
        rc = getattr(self.lib, name)(*args, c.byref(error))
        if rc < 0:
            raise Failure(CODES[-rc], error.msg.decode(errors="replace"))
        return rc


class Workspace:
    """A context, a provider and a workspace of it, all its own."""

    def __init__(self, library: Library, provider: str, ref: tuple[str, str] | None = None, **settings) -> None:
        self.l = library
        self.context = c.c_void_p()
        self.provider = c.c_void_p()
        self.w = c.c_void_p()
        given = [f"{k}={v}".encode() for k, v in settings.items()]
        self.l.call("garret_context_new", None, c.byref(self.context))
        self.l.call("garret_provider_open_settings", self.context, provider.encode(),
                    (c.c_char_p * (len(given) + 1))(*given, None), c.byref(self.provider))
        at = Ref(ref[0].encode(), ref[1].encode()) if ref else None
        self.l.call("garret_provider_attach", self.provider, c.byref(at) if at else None, c.byref(self.w))

    def close(self) -> None:
        self.l.lib.garret_workspace_free(self.w)
        self.l.lib.garret_provider_free(self.provider)
        assert not self.l.lib.garret_context_free(self.context)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def ref(self) -> tuple[str, str]:
        r = Ref()
        assert self.l.lib.garret_workspace_ref(self.w, c.byref(r)) == 0
        return r.provider.decode(), r.id.decode()

    def destroy(self) -> None:
        provider, name = self.ref()
        self.l.call("garret_provider_destroy", self.provider, c.byref(Ref(provider.encode(), name.encode())))

    def read(self, path: str) -> bytes:
        b = Bytes()
        self.l.call("garret_read", self.w, path.encode(), c.byref(b))
        data = c.string_at(b.data, b.n)
        self.l.lib.garret_bytes_release(c.byref(b))
        return data

    def write(self, path: str, data: bytes) -> None:
        self.l.call("garret_write", self.w, path.encode(), data, c.c_size_t(len(data)), 0)

    def make_dir(self, path: str) -> None:
        self.l.call("garret_make_dir", self.w, path.encode())

    def remove(self, path: str) -> None:
        self.l.call("garret_remove", self.w, path.encode())

    def rename(self, a: str, b: str) -> None:
        self.l.call("garret_rename", self.w, a.encode(), b.encode())

    def copy(self, a: str, b: str) -> None:
        self.l.call("garret_copy", self.w, a.encode(), b.encode())

    def sh(self, script: str, timeout: float = 60.0) -> tuple[int, bytes, bytes]:
        o = RunOptions(size=c.sizeof(RunOptions), shell=script.encode(), timeout=timeout)
        r = Result()
        try:
            self.l.call("garret_run", self.w, c.byref(o), c.byref(r))
            return r.exit_code, c.string_at(r.out, r.out_bytes), c.string_at(r.err, r.err_bytes)
        finally:
            self.l.lib.garret_result_release(c.byref(r))
