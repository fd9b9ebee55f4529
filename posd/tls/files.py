"""Files of a TLS directory: their paths, reading and writing, and the lock for writing."""

import contextlib
import hashlib
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from posd.base.files import LockHeld, replace
from posd.base.files import lock as lock_file
from posd.tls.check import Subjects

#: Cure for an unusable file or pair.
CURE = "give the matching pair in [webhooks] certificate and private_key, or make one with: posd tls init"


class TlsError(Exception):
    """Certificate or key that cannot be made or used; the message has the file, the reason and the cure."""


class SubjectError(TlsError):
    """Name or address that a certificate cannot carry."""


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths in one TLS directory. `certificate` holds the server certificate, then the CA's.

    `given`: names and addresses from `init`, as JSON. `next_ca_certificate` and its key exist while a new CA waits
    until the terminals have it. `new_ca`: fingerprint of a CA that replaced another one by command, until the database
    has it.
    """

    ca_certificate: Path
    ca_key: Path
    certificate: Path
    private_key: Path
    given: Path
    next_ca_certificate: Path
    next_ca_key: Path
    new_ca: Path


def files(directory: Path) -> TlsFiles:
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
    """Return the SHA-256 (hexadecimal) of the certificate in a file, or None if it cannot be read."""
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text("ascii"))).hexdigest()
    except (OSError, ValueError):
        return None


#: Name of the copy of the CA certificate beside the sockets, where every user of this machine may read it.
PUBLIC_CA = "ca.crt"


def ca_for_terminals(made: TlsFiles) -> Path:
    """Return the CA certificate that terminals need: the next CA if there is one, else the present. Raise TlsError."""
    return made.next_ca_certificate if there(made.next_ca_certificate) else made.ca_certificate


def publish_ca(made: TlsFiles, directory: Path) -> None:
    """Copy the CA certificate for terminals to the directory of the sockets. Raise OSError, TlsError."""
    pem, target = ca_for_terminals(made).read_bytes(), directory / PUBLIC_CA
    if not target.exists() or target.read_bytes() != pem:
        replace(target, pem, mode=0o644)


def given(made: TlsFiles) -> Subjects | None:
    """Return the names from `init`; None if unreadable: an earlier version did not store them."""
    try:
        document = json.loads(made.given.read_bytes())
        names, addresses = (tuple(map(str, document[key])) for key in ("names", "addresses"))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Subjects(names, addresses)


def write_given(made: TlsFiles, subjects: Subjects) -> None:
    """Store the names from `init`. Raise OSError."""
    document = {"names": list(subjects.names), "addresses": list(subjects.addresses)}
    replace(made.given, json.dumps(document).encode(), mode=0o644)


def there(path: Path) -> bool:
    """Return whether a file exists. Raise TlsError if this user has no access: the directory is 0700."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # Path.exists() hides it in Python 3.13
        raise _unusable(path.parent, error) from error
    return True


def read(path: Path, what: str) -> bytes:
    """Return the bytes of a file. Raise TlsError, which names its purpose."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TlsError(f"{what} {path}: does not exist; {CURE}") from error
    except OSError as error:
        raise TlsError(
            f"{what} {path}: cannot be read ({error.strerror}); make it readable for the user of the daemon"
        ) from error


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Lock the directory for writing during the block. Raise TlsError, also in place of OSError.

    The timer, the daemon and the operator may renew at the same moment. A renewal between the files of an `init` would
    match neither.
    """
    try:
        lock = lock_file(directory / ".lock")
    except LockHeld:
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
    """Make the directory, for its owner only. Raise TlsError."""
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
