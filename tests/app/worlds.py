"""Where workspaces of the application layer are: documents, this machine, services.

Each world gives an organisation a connection, and can take a session away behind the application's back.
"""

from __future__ import annotations

import ctypes as c
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "wire"), os.path.join(HERE, "..", "provider"), os.path.join(HERE, "..", "lib")]
from applib import App, AppLibrary, Ref  # noqa: E402


class World:
    """Documents: there is no session."""

    name = "state"
    fits = ("any", "document")
    service = False

    def __init__(self, library: AppLibrary) -> None:
        self.l = library

    def options(self, app: App, org: str, **more) -> dict:
        return {"backend": "state", **more}

    def close(self) -> None:
        pass


class Service(World):
    """A connection of each organisation, made when it is first needed."""

    fits = ("any", "service", "live", "ends")
    service = True
    kind = ""

    def __init__(self, library: AppLibrary) -> None:
        super().__init__(library)
        self.connections: dict[str, str] = {}

    def options(self, app: App, org: str, **more) -> dict:
        return {"backend": "service", "connection_id": self.connection(app, org), **more}

    def connection(self, app: App, org: str) -> str:
        if org not in self.connections:
            self.connections[org] = app.connect(org, self.kind, self.address(), self.token(), name=f"c{len(self.connections)}",
                                               **self.fields())["id"]
        return self.connections[org]

    def fields(self) -> dict:
        return {}

    def token(self) -> str | None:
        return None

    def address(self) -> str:
        raise NotImplementedError

    def settings(self, key: str) -> dict:
        """Of a provider of its own, for what is done behind the application's back."""
        raise NotImplementedError

    def open_settings(self) -> dict:
        """Of one that opens sessions of its own."""
        return self.settings("")

    def session_settings(self, org: str, key: str) -> dict:
        """Of one that opens the session that the application would."""
        return {**self.open_settings(), "session_name": key}

    def purge(self, key: str) -> None:
        context, provider = c.c_void_p(), c.c_void_p()
        given = [f"{k}={v}".encode() for k, v in self.settings(key).items()]
        self.l.call("garret_context_new", None, c.byref(context))
        self.l.call("garret_provider_open_settings", context, self.kind.encode(), (c.c_char_p * (len(given) + 1))(*given, None), c.byref(provider))
        try:
            self.l.call("garret_provider_destroy", provider, c.byref(Ref(self.kind.encode(), key.encode())))
        finally:
            self.l.lib.garret_provider_free(provider)
            assert not self.l.lib.garret_context_free(context)


class Native(Service):
    """Nobody but this process can reach its sessions while it has them."""

    fits = ("any", "service")
    name = kind = "native"

    def __init__(self, library: AppLibrary) -> None:
        super().__init__(library)
        self.dir = tempfile.mkdtemp(prefix="garret-app-native-")

    def address(self) -> str:
        return self.dir

    def settings(self, key: str) -> dict:
        return {"state_dir": os.path.join(self.dir, key), "name": key}

    def open_settings(self) -> dict:
        return {"state_dir": os.path.join(self.dir, "around")}

    def purge(self, key: str) -> None:
        super().purge(key)
        shutil.rmtree(os.path.join(self.dir, key))

    def close(self) -> None:
        left = set(os.listdir(self.dir)) - {"around"}
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not left, left


class Garretd(Service):
    name = "garretd"
    kind = "sandboxd"

    def __init__(self, library: AppLibrary, build: str) -> None:
        super().__init__(library)
        from daemon import Daemon
        self.daemon = Daemon(build=build).start()

    def address(self) -> str:
        return self.daemon.url

    def token(self) -> str | None:
        return self.daemon.token

    def settings(self, key: str) -> dict:
        return {"service_url": self.daemon.url, "token": self.daemon.token}

    def close(self) -> None:
        self.daemon.stop()
        self.daemon.clean()


class Published(Service):
    fits = ("any", "service", "live")
    name = "published"
    kind = "sandboxd"

    def __init__(self, library: AppLibrary, native: bool = True) -> None:
        super().__init__(library)
        from fake_sandboxd import TOKEN
        from sandboxd import published
        self.secret = TOKEN
        self.published = published() if native else published(native=False)
        self.url, _ = self.published.__enter__()

    def address(self) -> str:
        return self.url

    def token(self) -> str | None:
        return self.secret

    def settings(self, key: str) -> dict:
        return {"service_url": self.url, "token": self.secret}

    def close(self) -> None:
        self.published.__exit__(None, None, None)


class Docker(Service):
    name = kind = "docker"

    def __init__(self, library: AppLibrary) -> None:
        super().__init__(library)
        from dockerbox import IMAGE, Engine
        self.engine, self.image = Engine(), IMAGE

    def address(self) -> str:
        return f"unix://{self.engine.socket}"

    def fields(self) -> dict:
        return {"runtime": self.image}

    def settings(self, key: str) -> dict:
        raise NotImplementedError  # only its owner may do it through the library

    def open_settings(self) -> dict:
        return {"host": self.address(), "image": self.image}

    def session_settings(self, org: str, key: str) -> dict:
        return {**self.open_settings(), "owner": org, "container_name": key}

    def purge(self, key: str) -> None:
        self.engine.remove(key)

    def close(self) -> None:
        self.engine.stop()


def world(name: str, library: AppLibrary, build: str) -> World:
    if name == "garretd":
        return Garretd(library, build)
    if name == "published":
        return Published(library)
    if name == "commands":
        return Published(library, native=False)
    return {"state": World, "native": Native, "docker": Docker}[name](library)
