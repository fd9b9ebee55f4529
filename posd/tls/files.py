"""The files of a TLS directory: where they lie, how they are read and written, and the lock for writing."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from posd.base import locks
from posd.tls.required_names import Subjects

#: What a file or pair that cannot be used leaves to do.
CURE = "give the matching pair in [webhooks] certificate and private_key, or make one with: posd tls init"


class TlsError(Exception):
    """A certificate or key cannot be made or used; the message names the file, the reason and the cure."""


class SubjectError(TlsError):
    """A name or address cannot stand in a certificate."""


class TlsFiles(msgspec.Struct, frozen=True):
    """Where the files of one TLS directory lie. `certificate` holds the server certificate, then the CA's.

    `given` holds the names and addresses that a person named at `init`, as JSON.
    """

    ca_certificate: Path
    ca_key: Path
    certificate: Path
    private_key: Path
    given: Path


def files(directory: Path) -> TlsFiles:
    """Name the files of `directory`, whether they exist or not."""
    return TlsFiles(
        directory / "ca.crt",
        directory / "ca.key",
        directory / "server.crt",
        directory / "server.key",
        directory / "given.json",
    )


def given(made: TlsFiles) -> Subjects | None:
    """Return what was named at `init`; None where that cannot be read: an earlier version did not write it down."""
    try:
        document = json.loads(made.given.read_bytes())
        names, addresses = (tuple(map(str, document[key])) for key in ("names", "addresses"))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Subjects(names, addresses)


def write_given(made: TlsFiles, subjects: Subjects) -> None:
    """Write down what was named at `init`. Raises OSError."""
    document = {"names": list(subjects.names), "addresses": list(subjects.addresses)}
    write(made.given, json.dumps(document).encode(), mode=0o644)


def there(path: Path) -> bool:
    """Whether a file of ours exists. Raises TlsError where this user may not even see that: the directory is 0700."""
    try:
        return path.exists()
    except OSError as error:
        raise _unusable(path.parent, error) from error


def read(path: Path, what: str) -> bytes:
    """Return the bytes of a file. Raises TlsError, which says what it should be."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TlsError(f"{what} {path}: does not exist; {CURE}") from error
    except OSError as error:
        raise TlsError(
            f"{what} {path}: cannot be read ({error.strerror}); make it readable for the user of the daemon"
        ) from error


def write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file so that it is there whole, with its mode, or as it was before; also after a power loss."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Hold the lock for writing into the directory during the block. Raises TlsError, also in place of OSError.

    The timer, the daemon and a person may all renew at one moment, and a renewal between the files of an `init`
    would belong to neither.
    """
    try:
        lock = locks.take(directory / ".lock")
    except locks.Held:
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
    """Make the directory, for its owner alone. Raises TlsError."""
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
