"""libgarret-app from Python, for tests: what they need of it, by ctypes."""

from __future__ import annotations

import ctypes as c
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from garret import CODES, Bytes, Error, Failure, Library, Ref, Workspace  # noqa: E402,F401

ID, KEY, NAME, SESSION = 33, 65, 65, 200
BACKENDS = ("state", "service")
SCOPES = ("conversation", "run", "channel", "user", "agent")
KINDS = ("sandboxd", "native", "docker", "daytona")
EVENT = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("database", c.c_char_p), ("state_dir", c.c_char_p), ("state_max_bytes", c.c_uint64),
                ("inline_image_max_bytes", c.c_uint64), ("event", EVENT), ("event_data", c.c_void_p), ("lease", c.c_double), ("opening_timeout", c.c_double)]


class Sandbox(c.Structure):
    _fields_ = [("backend", c.c_int), ("connection_id", c.c_char * ID), ("session_scope", c.c_int),
                ("runtime", c.c_char * NAME), ("include_execute", c.c_bool)]


class Facts(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [(n, c.c_char_p) for n in ("organisation", "agent", "run", "conversation", "channel", "user")]


class Connection(c.Structure):
    _fields_ = [("size", c.c_size_t), ("id", c.c_char * ID), ("kind", c.c_int), ("name", c.c_char * NAME), ("address", c.c_char * 512),
                ("account", c.c_char * 128), ("runtime", c.c_char * NAME), ("is_default", c.c_bool), ("has_token", c.c_bool),
                ("changes", c.c_uint64)]


class RunInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), ("run", c.c_char * ID), ("key", c.c_char * KEY), ("backend", c.c_int), ("scope", c.c_int), ("ref", Ref),
                ("attached", c.c_bool), ("connection_id", c.c_char * ID), ("runtime", c.c_char * NAME), ("tenant", c.c_char * ID),
                ("include_execute", c.c_bool), ("lost", c.c_bool)]


class Row(c.Structure):
    _fields_ = [("key", c.c_char * KEY), ("scope", c.c_int), ("backend", c.c_int), ("agent", c.c_char * ID), ("conversation", c.c_char * ID),
                ("owner", c.c_char * KEY), ("connection_id", c.c_char * ID), ("session_id", c.c_char * SESSION), ("bytes", c.c_uint64),
                ("version", c.c_uint64), ("created_at", c.c_double), ("last_used_at", c.c_double)]


class Purge(c.Structure):
    _fields_ = [("connection_id", c.c_char * ID), ("session_id", c.c_char * SESSION), ("tries", c.c_uint), ("code", c.c_int),
                ("created_at", c.c_double), ("next_at", c.c_double)]


class Swept(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [(n, c.c_uint64) for n in ("runs", "purged", "waiting", "operations")]


class Filter(c.Structure):
    _fields_ = [("size", c.c_size_t), ("key", c.c_char_p), ("agent", c.c_char_p), ("run", c.c_char_p), ("op", c.c_char_p), ("ok", c.c_int),
                ("since", c.c_double), ("until", c.c_double), ("offset", c.c_uint64), ("max", c.c_size_t)]


class LogRow(c.Structure):
    _fields_ = [("id", c.c_uint64), ("agent", c.c_char * ID), ("run", c.c_char * ID), ("key", c.c_char * 129), ("op", c.c_char * 33),
                ("target", c.c_char_p), ("detail", c.c_char * 65), ("ok", c.c_bool), ("duration_ms", c.c_uint), ("created_at", c.c_double)]


class Log(c.Structure):
    _fields_ = [("row", c.POINTER(LogRow)), ("n", c.c_size_t), ("total", c.c_uint64)]


class Delegate(c.Structure):
    _fields_ = [("size", c.c_size_t), ("shares_sandbox", c.c_bool), ("binding", c.POINTER(Sandbox))]


class Entry(c.Structure):
    _fields_ = [("name", c.c_char_p), ("path", c.c_char_p), ("type", c.c_int), ("is_dir", c.c_bool), ("is_link", c.c_bool),
                ("bytes", c.c_uint64), ("mode", c.c_uint32), ("uid", c.c_uint32), ("gid", c.c_uint32), ("modified_ns", c.c_int64),
                ("inode", c.c_uint64), ("target", c.c_char_p)]


class List(c.Structure):
    _fields_ = [("entry", c.POINTER(Entry)), ("n", c.c_size_t), ("truncated", c.c_bool)]


class Matches(c.Structure):
    _fields_ = [("match", c.c_void_p), ("n", c.c_size_t), ("truncated", c.c_bool), ("skipped", c.c_uint64)]


def plain(struct) -> dict:
    """Its fields as Python values."""
    return {name: v.decode() if isinstance(v := getattr(struct, name), bytes) else v for name, *_ in struct._fields_ if name != "size"}


def text(s: str | None) -> bytes | None:
    return None if s is None else s.encode()


class AppLibrary(Library):
    def __init__(self, build: str) -> None:
        super().__init__(build)
        self.app = c.CDLL(os.path.join(build, "libgarret-app.so"), use_errno=True)
        for name in ("garret_app_run_workspace", "garret_app_free", "garret_app_run_close", "garret_app_sandbox_format"):
            getattr(self.app, name).restype = c.c_void_p
        self.app.garret_app_free.argtypes = [c.c_void_p]
        self.app.garret_app_run_close.argtypes = [c.c_void_p, c.c_uint]
        self.app.garret_app_run_workspace.argtypes = [c.c_void_p]
        self.app.garret_app_catalogue.restype = c.c_char_p
        self.libc = c.CDLL(None)
        self.libc.free.argtypes = [c.c_void_p]

    def ask(self, name: str, *args) -> int:
        """As call(), of the application layer."""
        error = Error()
        rc = getattr(self.app, name)(*args, c.byref(error))
        if rc < 0:
            raise Failure(CODES[-rc], error.msg.decode(errors="replace"))
        return rc

    def text(self, name: str, *args) -> str:
        """The text that a call gives in its last result."""
        p = c.c_void_p()
        self.ask(name, *args, c.byref(p))
        return self.take(p.value)

    def take(self, p: int) -> str:
        s = c.string_at(p).decode()
        self.libc.free(p)
        return s

    def migrate(self, database: str, target: str | None = None) -> str:
        p = c.c_void_p()
        self.ask("garret_app_migrate", database.encode(), text(target), c.byref(p))
        return self.take(p.value)

    def schema(self, database: str) -> str:
        return self.text("garret_app_schema", database.encode())

    def parse(self, options: dict) -> Sandbox:
        s = Sandbox()
        self.ask("garret_app_sandbox_parse", json.dumps(options).encode(), c.byref(s))
        return s


class Files(Workspace):
    """The operations on a handle that is somebody else's."""

    def __init__(self, library: AppLibrary, w) -> None:  # noqa: not a workspace of its own
        self.l, self.w = library, c.c_void_p(w)

    def close(self) -> None:
        pass

    def working_dir(self) -> str:
        p = c.c_void_p()
        self.l.call("garret_working_dir", self.w, c.byref(p))
        return self.l.take(p.value)

    def resolve(self, path: str) -> str:
        p = c.c_void_p()
        self.l.call("garret_resolve", self.w, path.encode(), None, c.byref(p))
        return self.l.take(p.value)

    def realpath(self, path: str) -> str:
        p = c.c_void_p()
        self.l.call("garret_realpath", self.w, path.encode(), c.byref(p))
        return self.l.take(p.value)

    def exists(self, path: str) -> bool:
        b = c.c_bool()
        self.l.call("garret_exists", self.w, path.encode(), c.byref(b))
        return b.value

    def size(self, path: str) -> int:
        e = Entry()
        self.l.call("garret_stat", self.w, path.encode(), c.byref(e))
        n = e.bytes
        self.l.lib.garret_entry_release(c.byref(e))
        return n

    def _names(self, function: str, *args) -> list[str]:
        found = List()
        self.l.call(function, self.w, *args, c.byref(found))
        names = [found.entry[i].name.decode() for i in range(found.n)]
        self.l.lib.garret_list_release(c.byref(found))
        return names

    def list(self, path: str = ".") -> list[str]:
        return self._names("garret_list_dir", path.encode())

    def walk(self, path: str = ".") -> list[str]:
        return self._names("garret_walk", path.encode(), 0, c.c_size_t(0))

    def glob(self, path: str, pattern: str) -> list[str]:
        return self._names("garret_glob", path.encode(), pattern.encode(), 0, c.c_size_t(0))

    def grep(self, path: str, pattern: str, include: str | None = None) -> int:
        m = Matches()
        self.l.call("garret_grep", self.w, path.encode(), pattern.encode(), text(include), 0, c.c_size_t(0), c.byref(m))
        n = m.n
        self.l.lib.garret_matches_release(c.byref(m))
        return n

    def edit(self, path: str, old: str, new: str) -> None:
        self.l.call("garret_edit", self.w, path.encode(), old.encode(), new.encode(), False, None)

    def append(self, path: str, data: bytes) -> None:
        self.l.call("garret_append", self.w, path.encode(), data, c.c_size_t(len(data)), 0)

    def chmod(self, path: str, mode: int) -> None:
        self.l.call("garret_chmod", self.w, path.encode(), mode)

    def read_at(self, path: str, offset: int, n: int) -> bytes:
        b = Bytes()
        self.l.call("garret_read_at", self.w, path.encode(), c.c_uint64(offset), c.c_size_t(n), c.byref(b))
        data = c.string_at(b.data, b.n)
        self.l.lib.garret_bytes_release(c.byref(b))
        return data


class Run(Files):
    def __init__(self, app: App, p) -> None:
        super().__init__(app.l, app.l.app.garret_app_run_workspace(p))
        self.app, self.p = app, p

    def info(self) -> dict:
        i = RunInfo(size=c.sizeof(RunInfo))
        self.l.app.garret_app_run_info(self.p, c.byref(i))
        d = plain(i)
        d["ref"] = (i.ref.provider.decode(), i.ref.id.decode())
        d["backend"], d["scope"] = BACKENDS[i.backend], SCOPES[i.scope]
        return d

    @property
    def lost(self) -> bool:
        return self.info()["lost"]

    def report(self, ref: tuple[str, str] | None, lost: bool = False) -> None:
        at = Ref(ref[0].encode(), ref[1].encode()) if ref else None
        self.l.ask("garret_app_run_report", self.p, c.byref(at) if at else None, lost)

    def delegate(self, agent: str, run: str, shares: bool, binding: dict | None = None) -> Run | None:
        own = self.l.parse(binding) if binding is not None else None
        d = Delegate(size=c.sizeof(Delegate), shares_sandbox=shares, binding=c.pointer(own) if own else None)
        p = c.c_void_p()
        self.l.ask("garret_app_delegate_open", self.p, c.byref(d), agent.encode(), run.encode(), c.byref(p))
        return Run(self.app, p) if p else None

    def close(self, parked: bool = False, detached: bool = False) -> None:
        if self.p:
            self.l.app.garret_app_run_close(self.p, parked | detached << 1)
            self.p = None


class App:
    def __init__(self, library: AppLibrary, state_dir: str, database: str | None = None, **options) -> None:
        self.l = library
        self.events: list[tuple[str, dict]] = []
        self._event = EVENT(lambda _, name, fields: self.events.append((name.decode(), json.loads(fields))))
        self.context, self.p = c.c_void_p(), c.c_void_p()
        library.call("garret_context_new", None, c.byref(self.context))
        o = Options(size=c.sizeof(Options), database=text(database), state_dir=state_dir.encode(), event=self._event, **options)
        try:
            library.ask("garret_app_open", self.context, c.byref(o), c.byref(self.p))
        except Failure:
            library.lib.garret_context_free(self.context)
            raise

    def close(self) -> None:
        self.l.app.garret_app_free(self.p)
        assert not self.l.lib.garret_context_free(self.context)

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def told(self, name: str) -> list[dict]:
        return [fields for event, fields in self.events if event == name]

    def run(self, org: str, agent: str, run: str, sandbox: dict | None = None, **facts) -> Run:
        f = Facts(size=c.sizeof(Facts), organisation=text(org), agent=text(agent), run=text(run), **{k: text(v) for k, v in facts.items()})
        s = self.l.parse(sandbox) if sandbox is not None else None
        p = c.c_void_p()
        self.l.ask("garret_app_run_open", self.p, c.byref(f), c.byref(s) if s else None, c.byref(p))
        return Run(self, p)

    def resume(self, org: str, run: str) -> Run:
        p = c.c_void_p()
        self.l.ask("garret_app_run_resume", self.p, org.encode(), run.encode(), c.byref(p))
        return Run(self, p)

    def visit(self, org: str, key: str) -> Run:
        p = c.c_void_p()
        self.l.ask("garret_app_visit", self.p, org.encode(), key.encode(), c.byref(p))
        return Run(self, p)

    def connect(self, org: str, kind: str, address: str = "", token: str | None = None, **fields) -> dict:
        given = {k: v.encode() if isinstance(v, str) else v for k, v in {"name": kind, **fields}.items()}
        conn = Connection(size=c.sizeof(Connection), kind=KINDS.index(kind), address=address.encode(), **given)
        self.l.ask("garret_app_connection_put", self.p, org.encode(), c.byref(conn), text(token))
        return {**plain(conn), "kind": KINDS[conn.kind]}

    def connection(self, org: str, id: str | None = None) -> dict:
        conn = Connection(size=c.sizeof(Connection))
        self.l.ask("garret_app_connection_get", self.p, org.encode(), text(id), c.byref(conn))
        return {**plain(conn), "kind": KINDS[conn.kind]}

    def _all(self, function: str, struct, *args) -> list[dict]:
        p, n = c.c_void_p(), c.c_size_t()
        self.l.ask(function, self.p, *args[:1], *args[1:], c.byref(p), c.byref(n))
        found = [plain(x) for x in c.cast(p, c.POINTER(struct))[:n.value]]
        self.l.libc.free(p)
        return found

    def connections(self, org: str) -> list[dict]:
        return self._all("garret_app_connection_list", Connection, org.encode())

    def disconnect(self, org: str, id: str) -> None:
        self.l.ask("garret_app_connection_remove", self.p, org.encode(), id.encode())

    def purges(self, org: str) -> list[dict]:
        return [{**p, "code": CODES[p["code"]]} for p in self._all("garret_app_purge_list", Purge, org.encode())]

    def rows(self, org: str, offset: int = 0, max: int = 1000) -> tuple[list[dict], int]:
        p, n, total = c.c_void_p(), c.c_size_t(), c.c_uint64()
        self.l.ask("garret_app_row_list", self.p, org.encode(), c.c_uint64(offset), c.c_size_t(max), c.byref(p), c.byref(n), c.byref(total))
        found = [plain(x) for x in c.cast(p, c.POINTER(Row))[:n.value]]
        self.l.libc.free(p)
        return found, total.value

    def row(self, org: str, key: str) -> dict:
        r = Row()
        self.l.ask("garret_app_row_get", self.p, org.encode(), key.encode(), c.byref(r))
        return plain(r)

    def remove(self, org: str, key: str) -> None:
        self.l.ask("garret_app_row_remove", self.p, org.encode(), key.encode())

    def remove_conversation(self, org: str, conversation: str) -> int:
        n = c.c_size_t()
        self.l.ask("garret_app_conversation_remove", self.p, org.encode(), conversation.encode(), c.byref(n))
        return n.value

    def document(self, org: str, key: str) -> dict:
        return json.loads(self.l.text("garret_app_document_get", self.p, org.encode(), key.encode()))

    def put_document(self, org: str, key: str, document) -> None:
        s = document if isinstance(document, str) else json.dumps(document)
        self.l.ask("garret_app_document_put", self.p, org.encode(), key.encode(), s.encode())

    def sweep(self) -> dict:
        s = Swept(size=c.sizeof(Swept))
        self.l.ask("garret_app_sweep", self.p, c.byref(s))
        return plain(s)

    def log(self, org: str, **filter) -> tuple[list[dict], int]:
        f = Filter(size=c.sizeof(Filter), **{k: text(v) if isinstance(v, str) else v for k, v in filter.items()})
        found = Log()
        self.l.ask("garret_app_log_query", self.p, org.encode(), c.byref(f), c.byref(found))
        rows = [plain(found.row[i]) for i in range(found.n)]
        total = found.total
        self.l.app.garret_app_log_release(c.byref(found))
        return rows, total

    def log_names(self, org: str) -> list[str]:
        return json.loads(self.l.text("garret_app_log_names", self.p, org.encode()))
