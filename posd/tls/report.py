"""What there is to say of the certificates of this machine: for `posd tls status`.

Imported by that command alone. It reads files and writes nothing. What the listener shows: `tls.served`.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from posd.tls import issue, served
from posd.tls.files import TlsError, TlsFiles, there
from posd.tls.required_names import RENEWAL_DAYS, CertificateInfo, Subjects, missing

#: A new CA has to be carried to every terminal by hand: people need time for that, in days.
CA_WARNING_DAYS = 180

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what it is, how it stands, what that means and what to do ("" where nothing)."""

    level: Level
    what: str
    words: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The certificate on the disk, the CA (None for the shop's own PKI), and what was found."""

    certificate: CertificateInfo | None
    ca: CertificateInfo | None
    findings: tuple[Finding, ...] = field(default=())

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return all(finding.level == "ok" for finding in self.findings)


def report(certificate: Path, private_key: Path, own: TlsFiles | None, wanted: Subjects, now: datetime) -> Report:
    """Look at the pair that the daemon is configured with, and at the CA and key of `own` (None: the shop's own PKI).

    `wanted` is by what terminals call this machine (`posd.tls.called_as`). Blocking. Raises TlsError where
    this user may not look at all.
    """
    if own is not None and not (there(certificate) or there(own.ca_certificate)):
        nothing = Finding("failure", "certificate", f"there is none yet in {certificate.parent}", "posd tls init")
        return Report(None, None, (nothing,))
    findings: list[Finding] = []
    found, ca = _described(certificate), _described(own.ca_certificate) if own else None
    try:
        served.load(certificate, private_key)
    except TlsError as error:
        words, _, cure = str(error).partition("; ")
        findings.append(Finding("failure", "certificate", words, cure))
    else:
        findings.append(Finding("ok", "certificate", "can be served"))
    if found is not None:
        findings += _certificate(found, own, wanted, now)
    findings += _keys(private_key, own)
    if own is not None:
        findings += _authority(certificate, ca, own, now)
    return Report(found, ca, tuple(findings))


def _described(path: Path) -> CertificateInfo | None:
    try:
        return issue.describe(path)
    except TlsError:
        return None


def _certificate(info: CertificateInfo, own: TlsFiles | None, wanted: Subjects, now: datetime) -> Iterator[Finding]:
    renew = "posd tls renew" if own else "put a new pair of the shop's own PKI there; posd takes it up by itself"
    days = info.days_left(now)
    if days < 0:
        yield Finding("failure", "expiry", f"has ended on {info.not_after:%Y-%m-%d}", renew)
    elif days < RENEWAL_DAYS:
        yield Finding("warning", "expiry", f"ends in {days} days", renew)
    else:
        yield Finding("ok", "expiry", f"ends in {days} days")
    lacking = missing(info, wanted)
    if lacking:
        words = f"terminals call this machine {lacking}, which the certificate does not carry: they would refuse it"
        yield Finding("warning", "names", words, renew)
    else:
        yield Finding("ok", "names", f"covers {wanted}" if wanted else "no address of the LAN has to be covered now")


def _keys(private_key: Path, own: TlsFiles | None) -> Iterator[Finding]:
    # The shop's own PKI may hand its key to a group; nobody but the owner has to read those made here.
    paths, forbidden = ((private_key, own.ca_key), 0o077) if own else ((private_key,), 0o007)
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            yield _without(path, own)
            continue
        except OSError as error:
            yield Finding("warning", "private key", f"{path}: cannot be looked at ({error.strerror})", "look as root")
            continue
        if mode & forbidden:
            yield Finding(
                "warning", "private key", f"{path}: others may read it (mode {mode:04o})", f"chmod 600 {path}"
            )
        else:
            yield Finding("ok", "private key", f"{path}: mode {mode:04o}")


def _without(path: Path, own: TlsFiles | None) -> Finding:
    if own is not None and path == own.ca_key:
        words = f"{path}: does not exist: the certificate cannot be renewed before its end"
        cure = f"put it back from a backup, or: posd tls init --force, then put {own.ca_certificate} on every terminal"
        return Finding("warning", "private key", words, cure)
    cure = "posd tls init" if own else "put the pair of the shop's own PKI there"
    return Finding("failure", "private key", f"{path}: does not exist", cure)


def _authority(certificate: Path, ca: CertificateInfo | None, own: TlsFiles, now: datetime) -> Iterator[Finding]:
    anew = f"posd tls init --force, then put {own.ca_certificate} on every terminal"
    if ca is None:
        yield Finding(
            "failure", "CA", f"{own.ca_certificate}: cannot be read", f"put it back from a backup, or: {anew}"
        )
        return
    days = ca.days_left(now)
    if days < 0:
        yield Finding("failure", "CA", f"has ended on {ca.not_after:%Y-%m-%d}", anew)
    elif days < CA_WARNING_DAYS:
        yield Finding("warning", "CA", f"ends in {days} days", anew)
    else:
        yield Finding("ok", "CA", f"ends in {days} days")
    try:
        fits = issue.issued_by(certificate, own.ca_certificate)
    except TlsError:
        return  # said above
    if not fits:
        words = f"{certificate} was not signed by {own.ca_certificate}: terminals that trust that CA refuse it"
        yield Finding("failure", "CA", words, "posd tls renew")
