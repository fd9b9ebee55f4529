"""Certificate of the webhook listener for commands: its files, its display, and the daemon that shows it."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from posd.base.problems import remedy
from posd.cli.app.connection import Problem, Unreachable, connect
from posd.cli.app.output import Output, Pair
from posd.cli.explain.catalogue import say
from posd.cli.payments.words import check_words
from posd.client.connection import probe
from posd.config import Config
from posd.tls.certificate import CertificateInfo, Subjects, called_as, digest
from posd.tls.files import TlsFiles, files_in, shown_certificate

#: Bytes of a fingerprint on one line, for comparison with another screen.
BYTES_A_LINE = 16


def own(config: Config) -> TlsFiles | None:
    """Return the files that `posd tls init` makes; None if the pair of the shop's own PKI is configured."""
    return None if config.webhooks.certificate else files_in(config.database.tls_directory)


def pair(config: Config) -> tuple[Path, Path]:
    """Return the certificate and the private key that the daemon serves."""
    made = files_in(config.database.tls_directory)
    return config.webhooks.certificate or made.certificate, config.webhooks.private_key or made.private_key


def wanted(config: Config) -> Subjects:
    """Return the names by which terminals call this machine now."""
    return called_as(config.webhooks.listen.host, config.webhooks.advertise_host)


def document(info: CertificateInfo, path: Path, now: datetime) -> dict[str, Any]:
    """Return a certificate as --json shows it."""
    days, fingerprint = info.days_left(now), info.fingerprint_sha256
    return {"path": str(path), **fields(info), "days_left": days, "fingerprint_sha256": fingerprint}


def fields(info: CertificateInfo) -> dict[str, Any]:
    """Return the subject, the issuer and the validity of a certificate as JSON."""
    return {
        "subject": info.subject,
        "issuer": info.issuer,
        "names": list(info.names),
        "addresses": list(info.addresses),
        "not_before": info.not_before.isoformat(),
        "not_after": info.not_after.isoformat(),
    }


def grouped(fingerprint: str) -> tuple[str, ...]:
    """Write a fingerprint as other programs show it, in lines that can be compared by eye."""
    pairs = [fingerprint[at : at + 2].upper() for at in range(0, len(fingerprint), 2)]
    return tuple(":".join(pairs[at : at + BYTES_A_LINE]) for at in range(0, len(pairs), BYTES_A_LINE))


def folded(label: str, fingerprint: str) -> list[Pair]:
    """Return the rows of a fingerprint, with its label before the first line."""
    first, *rest = grouped(fingerprint)
    return [(label, first), *(("", line) for line in rest)]


def tell(output: Output, text: str) -> None:
    """Write lines for people; nothing with --json."""
    output.verbatim(*text.split("\n"))


# The running daemon with this configuration: notify it of a new certificate, and read what its listener shows.

#: Longest wait for the listener's response, in seconds; it is on this machine.
ASK_SECONDS = 5.0
#: Longest wait for the daemon to load a new certificate, in seconds. Without a signal the daemon checks once a minute.
TAKE_UP_SECONDS = 70.0
#: Seconds between two checks.
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A running daemon. `clock`: the clock's check in the health report. `port`: the port of the webhook listener."""

    socket: Path
    host: str
    port: int
    clock: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clock_doubt(self) -> str:
        """Why no certificate may be made (posd does not trust the clock), and what to do. Empty if one is allowed."""
        if self.clock.get("status", "ok") == "ok":
            return ""
        detail, steps = check_words("clock", self.clock)
        return say("tls", "clock", detail=detail, todo=remedy(steps))

    @property
    def address(self) -> str:
        """Address of the listener for display."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def reload(self) -> bool:
        """Send SIGHUP to the daemon, so that it loads the files now.

        Return whether this user may send the signal. Otherwise the daemon checks the files by itself.
        """
        try:
            # Process that listens on the socket; a pid file could be outdated. 0: the process is in a container.
            if (pid := probe(str(self.socket))) <= 1:
                return False
            os.kill(pid, signal.SIGHUP)
        except (OSError, Unreachable):
            return False
        return True

    def serves(self, fingerprint: str) -> bool:
        """Wait until the listener shows that certificate. Return False after a reasonable time."""
        end = time.monotonic() + TAKE_UP_SECONDS
        while True:
            with suppress(ConnectionError):  # a busy machine; the next check may succeed
                shown = shown_certificate(self.host, self.port, seconds=ASK_SECONDS)
                if digest(shown, "certificate") == fingerprint:
                    return True
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_SECONDS)


def find(ctx: click.Context, config: Config) -> RunningDaemon | None:
    """Return the running daemon; None if none replies to this user."""
    try:
        with connect(ctx) as api:
            checks = api.get("/health", also={503}).body["checks"]
            host = ip_address(config.webhooks.listen.host)
            loopback = "127.0.0.1" if host.version == 4 else "::1"
            return RunningDaemon(
                Path(api.socket),
                loopback if host.is_unspecified else str(host),
                checks["certificate"]["served"]["port"],
                checks.get("clock", {}),
            )
    except (Unreachable, Problem, LookupError, TypeError):
        return None
