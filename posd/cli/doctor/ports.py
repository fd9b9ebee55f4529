"""The port of the webhook listener: is it free, or held by our daemon."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from posd.cli.app.users import user_name
from posd.cli.doctor.context import Shop, me
from posd.cli.doctor.findings import Findings, failure, ok, warning

#: State of a listening socket in /proc/net/tcp (net/tcp_states.h).
_LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who listens: the user, and the process where this user may see it."""

    uid: int
    pid: int | None

    def __str__(self) -> str:
        user = user_name(self.uid)
        if self.pid is None:
            return f"a program of {user} ({me()} may not see which)"
        with suppress(OSError):
            return f"{Path(f'/proc/{self.pid}/comm').read_text().strip()} (process {self.pid} of {user})"
        return f"process {self.pid} of {user}"


def check(shop: Shop) -> Findings:
    """Tell who has the port."""
    listen, running = shop.settings.webhooks.listen, shop.running
    subject = str(listen)
    if listen.port == 0:
        yield warning(
            subject,
            "port 0 is any free port, for trials only: after a restart the terminals would call the old one",
            'write a port into webhooks.listen, as in "0.0.0.0:8443"',
        )
        return
    actual = int(shop.served.get("port") or listen.port)
    if actual != listen.port:
        yield failure(
            subject,
            f"posd runs and listens on port {actual}, not on the one that the configuration names",
            "restart posd when no payment is under way; the configuration was changed after it started",
        )
        return
    reason = _taken(listen.host, listen.port)
    if reason == "":
        if running.there:
            yield failure(
                subject,
                "posd runs, and nobody listens on the port that the configuration names: the terminals call in vain",
                "restart posd; the configuration was perhaps changed after it started",
            )
        else:
            yield ok(subject, "the port is free: posd can listen on it")
        return
    holders = list(listeners(listen.port))
    ours = [one for one in holders if running.there and (one.pid or running.pid) == running.pid and _same(one, shop)]
    strangers = [one for one in holders if one not in ours]
    if ours:
        yield ok(subject, f"posd listens on it (process {running.pid})")
    elif strangers:
        yield failure(
            subject,
            f"the port is taken by {strangers[0]}: posd cannot listen on it"
            + (", and the terminals reach that program instead" if running.there else ", and will not start"),
            "stop that program, or choose another port in webhooks.listen, then restart posd",
        )
    else:
        yield failure(
            subject,
            f"posd cannot listen on it ({reason})",
            "is it an address of this machine? Correct webhooks.listen; 0.0.0.0 is every IPv4 address",
        )


def _same(holder: Holder, shop: Shop) -> bool:
    return shop.running.uid is None or holder.uid == shop.running.uid


def _taken(host: str, port: int) -> str:
    """Try to bind as posd does, without listening; return why it cannot, "" where it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:  # a port below 1024: the service manager may let posd have it, and not this user
            return "in use" if any(listeners(port)) else ""
        except OSError as error:
            return error.strerror or str(error)
    return ""


def listeners(port: int) -> Iterator[Holder]:
    """Yield who listens on a TCP port, on whatever address."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    yield Holder(int(fields[7]), _process(fields[9]))


def _process(inode: str) -> int | None:
    """Return a process that has a socket open, None where this user may not see it."""
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        with suppress(OSError):
            for descriptor in (directory / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) == f"socket:[{inode}]":  # noqa: PTH115 - its target is no path
                        return int(directory.name)
    return None
