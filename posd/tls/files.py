"""Files of a TLS directory: paths, reading and writing, the lock for writing, and the served pair.

Before a certificate is served, it is loaded with its key into a new context and tested. The test is a handshake in
memory with a client that trusts exactly this certificate. The test needs only `ssl`, and detects the same faults as a
terminal: a mismatched key, an expired certificate, a certificate that is not for servers.
"""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from posd.base import tls_contexts
from posd.base.files import lock as lock_file
from posd.base.files import replace
from posd.tls.certificate import CertificateInfo, Subjects, Validity, read_certificate

#: Advice if a file or a pair of certificate and key cannot be used.
CURE = "give the matching pair in [webhooks] certificate and private_key, or make one with: posd tls init"


class TlsError(Exception):
    """Error for a certificate or key that cannot be created or used. The message has file, reason and advice."""


class SubjectError(TlsError):
    """Error for a name or address that a certificate cannot have."""


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths in one TLS directory. `certificate`: server certificate, followed by its CAs.

    `given`: names and addresses from `init`, as JSON. `next_ca_certificate` and its key exist while a new CA waits to
    be installed on the terminals. `new_ca`: fingerprint of a CA that replaced another CA by an operator's command. This
    file exists until the database has the fingerprint.
    """

    ca_certificate: Path
    ca_key: Path
    certificate: Path
    private_key: Path
    given: Path
    next_ca_certificate: Path
    next_ca_key: Path
    new_ca: Path


def files_in(directory: Path) -> TlsFiles:
    """Return the paths in `directory`, whether the files exist or not."""
    return TlsFiles(
        directory / "ca.crt",
        directory / "ca.key",
        directory / "server.crt",
        directory / "server.key",
        directory / "given.json",
        directory / "next-ca.crt",
        directory / "next-ca.key",
        directory / "new-ca",
    )


def fingerprint(certificate: Path) -> str | None:
    """Return the SHA-256 (hexadecimal) of the certificate in a file, or None if the file cannot be read."""
    with suppress(TlsError):
        return describe(certificate).fingerprint_sha256
    return None


#: Name of the copy of the CA certificate beside the sockets. Every user of this machine may read the copy.
PUBLIC_CA = "ca.crt"


def ca_for_terminals(made: TlsFiles) -> Path:
    """Return the CA certificate that terminals need: that of the next CA if there is one, else of the present CA.

    Raise TlsError.
    """
    return made.next_ca_certificate if there(made.next_ca_certificate) else made.ca_certificate


def publish_ca(made: TlsFiles, directory: Path) -> None:
    """Copy the CA certificate for terminals to the directory of the sockets. Raise OSError, TlsError."""
    pem, target = ca_for_terminals(made).read_bytes(), directory / PUBLIC_CA
    if not target.exists() or target.read_bytes() != pem:
        replace(target, pem, mode=0o644)


def given(made: TlsFiles) -> Subjects | None:
    """Return the names from `init`, or None if they are unreadable. An earlier version did not store the names."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(made.given.read_bytes(), type=Subjects)
    return None


def write_given(made: TlsFiles, subjects: Subjects) -> None:
    """Store the names from `init`. Raise OSError."""
    replace(made.given, msgspec.json.encode(subjects), mode=0o644)


def there(path: Path) -> bool:
    """Return whether a file exists. Raise TlsError if this user has no access, because the directory has mode 0700."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # Path.exists() of Python 3.13 hides this error
        raise _unusable(path.parent, error) from error
    return True


def read(path: Path, what: str) -> bytes:
    """Return the bytes of a file. Raise TlsError. `what`: purpose of the file, for the message of the error."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TlsError(f"{what} {path}: does not exist; {CURE}") from error
    except OSError as error:
        raise TlsError(
            f"{what} {path}: cannot be read ({error.strerror}); make it readable for the user of the daemon"
        ) from error


#: Pattern of a certificate in a PEM file. Only the first certificate of a file is used.
_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


def describe(path: Path) -> CertificateInfo:
    """Return the description of the first certificate in a PEM file. Raise TlsError."""
    first = _FIRST.search(read(path, "certificate"))
    try:
        return read_certificate(ssl.PEM_cert_to_DER_cert(first[0].decode("ascii") if first is not None else ""))
    except ValueError as error:
        raise TlsError(f"certificate {path}: is not a PEM certificate ({error}); {CURE}") from error


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Lock the directory for writing during the block. Raise TlsError, also in place of OSError.

    The timer, the daemon and the operator may renew at the same moment. Without the lock, a renewal could run while
    `init` has written only some of its files. Its certificate would then match neither the old nor the new files.
    """
    try:
        lock = lock_file(directory / ".lock")
    except BlockingIOError:
        raise TlsError(
            f"another command is making certificates in {directory} at this moment; try again when it has ended"
        ) from None
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        yield
    except OSError as error:
        raise _unusable(directory, error) from error
    finally:
        os.close(lock)


def make_directory(directory: Path) -> None:
    """Create the directory with access for its owner only. Raise TlsError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise _unusable(directory, error) from error


def _unusable(directory: Path, error: OSError) -> TlsError:
    return TlsError(
        f"cannot read or write the certificates in {directory}: {error.strerror or error}; "
        "run the command as the user of the daemon (sudo -u posd), or give the directory to that user"
    )


class ServingContext(msgspec.Struct, frozen=True):
    """TLS context that has loaded a certificate, and the fields of that certificate."""

    context: ssl.SSLContext
    info: CertificateInfo


def load_pair(certificate: Path, private_key: Path, at: datetime | None) -> ServingContext:
    """Load a certificate with its key into a new server context (TLS 1.2 or newer, HTTP/1.1 by ALPN), and test it.

    Raise TlsError if a file is missing or unreadable, certificate and key do not match, the certificate is not for
    servers, or the certificate is not valid at `at` (None: dates are not checked).
    """
    leaf = read(certificate, "certificate")
    read(private_key, "private key")

    def passphrase() -> str:
        raise TlsError(f"private key {private_key}: is encrypted; store it without a passphrase, with mode 0600")

    context = tls_contexts.server()
    try:
        context.load_cert_chain(certificate, private_key, password=passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"private key {private_key}: does not belong to the certificate {certificate}; {CURE}"
            ) from error
        raise TlsError(
            f"certificate {certificate} and private key {private_key}: cannot be read as PEM ({error}); {CURE}"
        ) from error
    except OSError as error:  # the file is being replaced at this moment
        raise TlsError(f"certificate {certificate} and private key {private_key}: {error.strerror}; {CURE}") from error
    info = _try(context, certificate, leaf)
    if at is not None and (words := outside_dates(info, certificate, at)) is not None:
        raise TlsError(words)
    return ServingContext(context, info)


def outside_dates(info: CertificateInfo, certificate: Path, at: datetime) -> str | None:
    """Return why a certificate is not valid at that moment, and what to do. Return None if it is valid."""
    day, validity = at.date().isoformat(), info.validity(at)
    words = {
        Validity.EXPIRED: f"has expired (today is {day}); put a valid pair of the shop's own PKI there, or, if posd "
        "made it, renew it (posd tls renew)",
        Validity.FUTURE: f"is not valid yet (today is {day}; is the clock of this machine right?); {CURE}",
    }
    return f"certificate {certificate}: {words[validity]}" if validity in words else None


def _try(context: ssl.SSLContext, certificate: Path, leaf: bytes) -> CertificateInfo:
    """Make a handshake in memory with a client that trusts exactly this certificate, without a check of dates.

    Return the fields of the certificate. Raise TlsError if the handshake fails.
    """
    client = tls_contexts.client()
    client.check_hostname = False  # the name that a terminal calls is unknown here
    client.verify_flags |= tls_contexts.NO_CHECK_TIME
    if (first := _FIRST.search(leaf)) is None:
        raise TlsError(f"certificate {certificate}: has no block BEGIN CERTIFICATE; {CURE}")
    client.load_verify_locations(cadata=first[0].decode("ascii"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    judge = client.wrap_bio(to_client, to_server, server_side=False)
    ends = (judge, context.wrap_bio(to_server, to_client, server_side=True))
    try:
        for _ in range(3):  # a TLS handshake needs two flights from each side; allow one more
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        reason = f"would be refused by the terminals ({error.verify_message})"
        raise TlsError(f"certificate {certificate}: {reason}; {CURE}") from error
    except ssl.SSLError as error:
        raise TlsError(f"certificate {certificate}: cannot be served over TLS ({error}); {CURE}") from error
    try:
        return read_certificate(judge.getpeercert(binary_form=True) or b"")
    except ValueError as error:
        raise TlsError(f"certificate {certificate}: has a form that cannot be read ({error}); {CURE}") from error


def new_ca_signs_from(made: TlsFiles) -> datetime | None:
    """Return the time from which the next CA signs, or None if no next CA waits.

    Raise TlsError if the CA cannot be read.
    """
    return describe(made.ca_certificate).next_ca_from if there(made.next_ca_certificate) else None


# One handshake reads the certificate that a listener shows. posd verifies nothing in it, and sends no request.


def shown_certificate(host: str, port: int, *, seconds: float, server_name: str = "") -> bytes:
    """Return the certificate (DER) that a listener shows for `server_name` (default: the host).

    The call blocks, for at most `seconds` for the connection and for each step of the handshake. Raise ConnectionError.
    Its message is the reason, without the address.
    """
    context = tls_contexts.unverified_client()  # the certificate is only read; no request follows
    try:
        with (
            closing(socket.create_connection((host, port), seconds)) as raw,
            context.wrap_socket(raw, server_hostname=server_name or host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise ConnectionError(f"does not speak TLS 1.2 or newer there ({error.reason or error})") from error
    except TimeoutError as error:
        raise ConnectionError(f"does not answer within {seconds:g} s") from error
    except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name (UnicodeError too)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConnectionError(f"cannot be reached ({reason})") from error
    if not certificate:
        raise ConnectionError("shows no certificate")
    return certificate
