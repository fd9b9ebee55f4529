"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

Terminals are given `ca.crt` once and then trust every server certificate that this machine makes; so the CA is kept
for as long as it can be, and only the server certificate is made anew. Both keys stay on this machine.

Importing this package costs only `ssl`: what makes or describes certificates needs cryptography, and is imported by
the functions below when they are called. The daemon never calls them.
"""

from collections.abc import Sequence
from pathlib import Path

from posd.tls.files import SubjectError, TlsError, TlsFiles, files, given
from posd.tls.required_names import (
    HOST_NAME,
    RENEWAL_DAYS,
    CertificateInfo,
    Subjects,
    called_as,
    local_addresses,
    local_names,
    missing,
    renewal_reasons,
)
from posd.tls.served import Expired, Served, load, server_context

__all__ = [
    "HOST_NAME",
    "RENEWAL_DAYS",
    "CertificateInfo",
    "Expired",
    "Served",
    "SubjectError",
    "Subjects",
    "TlsError",
    "TlsFiles",
    "called_as",
    "describe",
    "describe_der",
    "files",
    "given",
    "init",
    "load",
    "local_addresses",
    "local_names",
    "missing",
    "renew",
    "renewal_reasons",
    "server_context",
]


def init(
    directory: Path,
    *,
    names: Sequence[str],
    addresses: Sequence[str],
    given: Subjects | None = None,
    overwrite: bool = False,
) -> TlsFiles:
    """Make the server certificate for `names` and `addresses`, and the CA where there is none yet.

    A CA that is there is kept, because the terminals trust it; `overwrite` makes a new one all the same, and every
    terminal then needs the new `ca.crt`. `given` is what a person named (all of it, where left out): renewals keep it.
    The directory gets mode 0700, keys 0600; each file appears whole or not at all. Blocking. Raises TlsError.
    """
    from posd.tls import issue

    subjects = Subjects(tuple(names), tuple(addresses))
    return issue.init(directory, subjects, subjects if given is None else given, overwrite=overwrite)


def renew(directory: Path) -> TlsFiles:
    """Make the server certificate anew with the same key and CA, for what this machine is called now.

    What was named at `init` stays in it. Only one file is replaced, so that no reader ever sees a pair that does not
    fit. Blocking. Raises TlsError.
    """
    from posd.tls import issue

    return issue.renew(directory)


def describe(certificate_path: Path) -> CertificateInfo:
    """Describe the first certificate of a PEM file. Raises TlsError."""
    from posd.tls import issue

    return issue.describe(certificate_path)


def describe_der(certificate: bytes) -> CertificateInfo:
    """Describe a certificate in DER form. Raises TlsError where it is none."""
    from posd.tls import issue

    return issue.describe_der(certificate)
