"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

Terminals are given `ca.crt` once and then trust every server certificate that this machine makes; so the CA is kept
for as long as it can be, and only the server certificate is made anew. Both keys stay on this machine.

Importing this package costs only `ssl`: what makes or describes certificates needs cryptography, and is imported when
it is first used. The daemon never uses it.
"""

from typing import TYPE_CHECKING, Any

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
    server_hostname,
)
from posd.tls.served import Expired, NotYetValid, Served, load, server_context

if TYPE_CHECKING:
    from posd.tls.issue import describe, describe_der, init, renew

__all__ = [
    "HOST_NAME",
    "RENEWAL_DAYS",
    "CertificateInfo",
    "Expired",
    "NotYetValid",
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
    "server_hostname",
]


def __getattr__(name: str) -> Any:
    """Return a function of `posd.tls.issue`, which is loaded when one is first used."""
    if name in {"describe", "describe_der", "init", "renew"}:
        from posd.tls import issue

        return getattr(issue, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
