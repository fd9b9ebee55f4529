"""Certificate of the webhook listener: its files, its display, and the daemon that serves it."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from posd.tls.certificate import CertificateInfo, Subjects, Validity, called_as, digest
from posd.tls.files import TlsError, TlsFiles, describe, files_in, shown_certificate

#: Number of bytes of a fingerprint on one line, so that it can be compared with another screen.
BYTES_A_LINE = 16


def own(config: Config) -> TlsFiles | None:
    """Return the files of `posd tls init`, or None if the configuration names a certificate of the shop's PKI."""
    return None if config.webhooks.certificate else files_in(config.database.tls_directory)


def pair(config: Config) -> tuple[Path, Path]:
    """Return the paths of the certificate and the private key that the daemon uses."""
    made = files_in(config.database.tls_directory)
    return config.webhooks.certificate or made.certificate, config.webhooks.private_key or made.private_key


def expired(config: Config) -> datetime | None:
    """Return when the shop's own certificate expired, or None. posd renews a certificate of its own when it starts."""
    with suppress(OSError, TlsError):
        info = describe(config.webhooks.certificate or Path())
        return info.not_after if info.validity(datetime.now(UTC)) is Validity.EXPIRED else None
    return None


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
    """Return the lines of a fingerprint as other programs show it (AB:CD:…), short enough to compare by eye."""
    pairs = [fingerprint[at : at + 2].upper() for at in range(0, len(fingerprint), 2)]
    return tuple(":".join(pairs[at : at + BYTES_A_LINE]) for at in range(0, len(pairs), BYTES_A_LINE))


def folded(label: str, fingerprint: str) -> list[Pair]:
    """Return a label and a value for each line of a fingerprint. Only the first line has the label."""
    first, *rest = grouped(fingerprint)
    return [(label, first), *(("", line) for line in rest)]


def tell(output: Output, text: str) -> None:
    """Write lines for people. With --json write nothing."""
    output.verbatim(*text.split("\n"))


# The running daemon: notify it of a new certificate, and read the certificate that its listener shows.

#: Longest wait for the listener, which is on this machine, in seconds.
ASK_SECONDS = 5.0
#: Longest wait for the daemon to load a new certificate, in seconds. Without a signal the daemon checks once a minute.
TAKE_UP_SECONDS = 70.0
#: Seconds between two checks whether the daemon has loaded the certificate.
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """The running daemon. `host`, `port`: address of its webhook listener.

    `clock`: check of the clock in its health.
    """

    socket: Path
    host: str
    port: int
    clock: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clock_doubt(self) -> str:
        """If posd does not trust the clock: why no certificate may be made, and what to do.

        Empty if a certificate may be made.
        """
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
            # The socket's listener is certainly the daemon; a pid file could be outdated. 0: the process is in a
            # container.
            if (pid := probe(str(self.socket))) <= 1:
                return False
            os.kill(pid, signal.SIGHUP)
        except (OSError, Unreachable):
            return False
        return True

    def serves(self, fingerprint: str) -> bool:
        """Wait until the listener shows the certificate with this fingerprint. Return False after TAKE_UP_SECONDS."""
        end = time.monotonic() + TAKE_UP_SECONDS
        while True:
            with suppress(ConnectionError):  # the machine may be busy, and the next check may succeed
                shown = shown_certificate(self.host, self.port, seconds=ASK_SECONDS)
                if digest(shown, "certificate") == fingerprint:
                    return True
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_SECONDS)


def find(ctx: click.Context, config: Config) -> RunningDaemon | None:
    """Return the running daemon, or None if none replies to this user."""
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
