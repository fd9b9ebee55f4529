"""A minimal HTTP client for shell completion: the standard library only, and a time-out of 0.5 s a step."""

import http.client
import json
import os
import socket
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE

#: seconds for each step of a call: a daemon that is well takes some milliseconds.
PATIENCE = 0.5


class _Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("posd", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self._path))


def ask(options: Mapping[str, Any], path: str) -> Any:
    """Return what the daemon answers; `options` are those of `posd`.

    Raise OSError if it does not, ValueError if it is not JSON.
    """
    for candidate in sockets(options):
        connection = _Connection(candidate)
        try:
            connection.request("GET", path)
        except OSError:  # not there, or not for this user: the other one may be
            connection.close()
            continue
        try:
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()
    raise ConnectionError


def sockets(options: Mapping[str, Any]) -> list[Path]:
    """Return the sockets to try, by the options of `posd`. The configuration is not checked: others do that."""
    # A shell that completes has evaluated no option that was not typed.
    given = options.get("socket_path") or os.environ.get("POSD_SOCKET")
    if given:
        return [Path(given)]
    config = Path(options.get("config_path") or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE)
    directory = Path("/run/posd")
    for file in (config, *sorted((config.parent / "config.d").glob("[!.]*.toml"))):
        with suppress(OSError, ValueError, LookupError, TypeError):  # a file that is broken: as if it were not there
            local = tomllib.loads(file.read_text(encoding="utf-8"))["local_api"]
            directory = config.parent / local["directory"]
    return [directory / "admin.sock", directory / "till.sock"]
