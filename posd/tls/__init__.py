"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

Terminals get `ca.crt` once and then trust every server certificate of this machine. So the CA is kept for as long as
possible, and only the server certificate is replaced. Both keys stay on this machine.

Importing this package costs only `ssl`. The functions that make or describe certificates need cryptography, which is
imported at first use. The daemon never uses it.
"""

from typing import TYPE_CHECKING, Any

from posd.tls.check import (
    RENEWAL_DAYS,
    CertificateInfo,
    Subjects,
    Validity,
    called_as,
    local_addresses,
    local_names,
    missing,
    renewal_reasons,
    server_hostname,
)
from posd.tls.files import (
    PUBLIC_CA,
    OutsideDates,
    ServingContext,
    SubjectError,
    TlsError,
    TlsFiles,
    ca_for_terminals,
    files,
    load,
    new_ca_signs_from,
    publish_ca,
)

if TYPE_CHECKING:
    from posd.tls.issue import describe, describe_der, init, renew

__all__ = [
    "PUBLIC_CA",
    "RENEWAL_DAYS",
    "CertificateInfo",
    "OutsideDates",
    "ServingContext",
    "SubjectError",
    "Subjects",
    "TlsError",
    "TlsFiles",
    "Validity",
    "ca_for_terminals",
    "called_as",
    "describe",
    "describe_der",
    "files",
    "init",
    "load",
    "local_addresses",
    "local_names",
    "missing",
    "new_ca_signs_from",
    "publish_ca",
    "renew",
    "renewal_reasons",
    "server_hostname",
]


def __getattr__(name: str) -> Any:
    """Return a function of `posd.tls.issue`, which is loaded at first use."""
    if name in {"describe", "describe_der", "init", "renew"}:
        from posd.tls import issue

        return getattr(issue, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
