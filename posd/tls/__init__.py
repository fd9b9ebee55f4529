"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

A terminal receives `ca.crt` once and then trusts every server certificate of this machine. So the CA is kept for as
long as possible, and only the server certificate is replaced. The keys of CA and server certificate stay on this
machine.

Importing this package costs only `ssl`. The functions that create certificates (`posd.tls.issue`) need the library
cryptography, which the daemon never loads.
"""

from posd.tls.certificate import (
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
    describe,
    files,
    load,
    new_ca_signs_from,
    publish_ca,
)

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
    "files",
    "load",
    "local_addresses",
    "local_names",
    "missing",
    "new_ca_signs_from",
    "publish_ca",
    "renewal_reasons",
    "server_hostname",
]
