"""Rows that somebody edited: of the wrong kind, no JSON, or too much.  Refused or passed over, and nothing ends of it."""

from __future__ import annotations

import os

from applib import Failure
from log import execute
from scene import NONE, new, refused, test

NO_TEXT = "x'00ff41'"
# Where text is always kept; SQLite takes other things there as well.
TEXTS = {
    "agent_workspaces": ("scope", "backend", "agent"),
    "sandbox_runs": ("agent", "scope_key", "scope", "backend", "runtime", "owner"),
    "sandbox_connections": ("kind", "name", "address", "account", "runtime"),
    "sandbox_operations": ("session_key", "op", "target", "detail"),
    "sandbox_purges": ("code",),
    "sandbox_spools": ("owner",),
}


def whole(s) -> tuple[str, str]:
    """Something of everything; the key of a document and the run that is parked on it."""
    c = s.app.connect(s.org, "native", os.path.join(s.dir, "places"))["id"]
    run = new()
    r = s.app.run(s.org, s.agent, run, {"backend": "state"}, conversation=s.conversation)
    r.write("/f", b"kept")
    key = r.info()["key"]
    r.close(parked=True)
    execute(s, "INSERT INTO sandbox_operations(organisation, agent, run, session_key, op, target, detail, ok, duration_ms, created_at) "
            "VALUES(?, ?, ?, ?, 'read', '/f', '', 1, 1, 1)", s.org, s.agent, run, key)
    execute(s, "INSERT INTO sandbox_purges(organisation, connection, session_id, tries, code, created_at, next_at) "
            "VALUES(?, ?, 'x', 1, 'TIMEOUT', 1, 1e12)", s.org, c)
    execute(s, "INSERT INTO sandbox_spools(owner, drained) VALUES('elsewhere/x', 1) ON CONFLICT DO NOTHING")
    return key, run


def clean(s) -> None:
    """The database may be one that others go on with."""
    for table in ("sandbox_runs", "sandbox_purges", "sandbox_connections", "agent_workspaces"):
        execute(s, f"DELETE FROM {table} WHERE organisation = ?", s.org)
    execute(s, "DELETE FROM sandbox_spools WHERE owner = 'elsewhere/x'")


def everything(s, key: str, run: str) -> None:
    def again():
        s.app.run(s.org, s.agent, run, {"backend": "state"}, conversation=s.conversation).close(parked=True)
    for ask in (lambda: s.app.rows(s.org), lambda: s.app.connections(s.org), lambda: s.app.purges(s.org), lambda: s.app.log(s.org),
                lambda: s.app.log_names(s.org), lambda: s.app.visit(s.org, key).close(), again,
                lambda: s.app.resume(s.org, run).close(parked=True), s.app.sweep):
        try:
            ask()
        except (Failure, UnicodeDecodeError):
            pass


@test(NONE)
def damage_what_is_no_text_ends_nothing(s):
    if s.database:
        return  # PostgreSQL takes no such thing
    for table, columns in TEXTS.items():
        for column in columns:
            key, run = whole(s)
            execute(s, f"UPDATE {table} SET {column} = {NO_TEXT}" + (" WHERE drained = 1" if column == "owner" and table == "sandbox_spools" else ""))
            everything(s, key, run)
            for t in TEXTS:
                execute(s, f"DELETE FROM {t}")


@test(NONE)
def damage_a_document_is_refused_not_emptied(s):
    key, run = whole(s)
    for damage in ((NO_TEXT, "5") if not s.database else ()) + ("'5'", "'[]'", "'{\"/f\":5}'"):
        execute(s, f"UPDATE agent_workspaces SET files = {damage} WHERE organisation = '{s.org}'")
        r = s.app.run(s.org, s.agent, new(), {"backend": "state"}, conversation=s.conversation)
        for fn in (lambda: r.read("/f"), lambda: r.write("/g", b"x"), lambda: r.list("/")):
            refused("INVALID", fn)
        r.close()
        version = s.app.row(s.org, key)["version"]
        r = s.app.visit(s.org, key)
        refused("INVALID", r.list, "/")
        r.close()
        assert s.app.row(s.org, key)["version"] == version
    clean(s)


@test(NONE)
def damage_a_list_of_spills_is_read_as_far_as_it_is_one(s):
    key, run = whole(s)
    for damage in ('[1, null, {}, "/tool_output/x/y"]', '{"a": 1}', "5", "[]"):
        execute(s, "UPDATE sandbox_runs SET spills = ? WHERE run = ?", damage, run)
        s.app.resume(s.org, run).close(parked=True)
    clean(s)
