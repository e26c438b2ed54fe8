"""What the tests of the application layer share: a scene, and tests that are named after what they show."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from applib import App, AppLibrary, Failure  # noqa: E402
from worlds import World  # noqa: E402

# LIVE: a service, where somebody else may remove a session that we work in.
# ENDS: one whose commands end with their session; those of the published service's stand-in for a container don't.
ANY, SERVICE, LIVE, ENDS, DOCUMENT, NONE = "any", "service", "live", "ends", "document", "none"
tests = []


def test(where=NONE):
    def add(fn):
        tests.append((fn, where))
        return fn
    return add


def new() -> str:
    return uuid.uuid4().hex


class Scene:
    """An application with its state directory and database, and one organisation that nobody else has."""

    def __init__(self, library: AppLibrary, w: World | None, database: str | None) -> None:
        self.l, self.w, self.database = library, w, database
        self.dir = tempfile.mkdtemp(prefix="garret-app-")
        self.org, self.agent, self.conversation = new(), new(), new()
        self.apps: list[App] = []
        self.app = self.another()

    def another(self, state_dir: str | None = None, **options) -> App:
        """The application in another process, or what passes for one."""
        app = App(self.l, state_dir or os.path.join(self.dir, "app"), self.database, **options)
        self.apps.append(app)
        return app

    def end(self, app: App) -> None:
        self.apps.remove(app)
        app.close()

    def run(self, app: App | None = None, org: str | None = None, run: str | None = None, **more):
        app, org = app or self.app, org or self.org
        options = {k: more.pop(k) for k in ("session_scope", "runtime", "include_execute", "connection_id") if k in more}
        facts = {"conversation": self.conversation, **more}
        return app.run(org, facts.pop("agent", self.agent), run or new(), self.w.options(app, org, **options),
                       **{k: v for k, v in facts.items() if v is not None})

    def once(self, **more) -> str:
        """A run that writes a file; the key of its workspace."""
        r = self.run(**more)
        r.write("seed", b"planted")
        key = r.info()["key"]
        r.close()
        return key

    def close(self) -> None:
        for app in self.apps:
            for row in app.rows(self.org)[0]:
                app.remove(self.org, row["key"])
            app.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def refused(code: str, fn, *args, names: str = "", **more) -> str:
    try:
        fn(*args, **more)
    except Failure as e:
        assert e.code == code and names in e.text, f"{e} instead of {code} that names {names!r}"
        return e.text
    raise AssertionError(f"not refused: {code} was due")
