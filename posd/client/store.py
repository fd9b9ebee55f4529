"""Store on disk for a till's payments that may be open.

A payment is stored before its start, and removed after the till has booked it.
"""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from posd.client import documents
from posd.client.documents import Document, Problem


@dataclass(frozen=True, slots=True)
class StoredPayment:
    """Payment as stored before its start.

    `body`: body of the call, with the whole request, or None if the file is damaged. Then the call cannot be repeated,
    but the id gives the outcome. `stored_at`: time when the till first stored the payment, or None. After a restore of
    posd's database, this time can prove that the payment was never started. Raise ValueError for a time without a zone.
    """

    id: str
    body: bytes | None = field(repr=False)
    stored_at: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.stored_at is not None and self.stored_at.tzinfo is None:
            raise ValueError(f"stored_at {self.stored_at!r} has no time zone: store datetime.now(UTC)")

    def readable_body(self) -> bytes:
        """Return the body. Raise Problem if the file is damaged, because then the call cannot be repeated."""
        if self.body is None:
            detail = f"payment {self.id} is damaged where it is stored: it cannot be repeated, only awaited by its id"
            raise Problem("id_reused", 409, detail, {})
        return self.body

    @property
    def request(self) -> Document:
        """The fields of the request: `type`, `amount`, `sale` and others.

        They are empty if the file is damaged.
        """
        return {} if self.body is None else documents.document(documents.decode(self.body))


#: Member of the JSON in the second line of a file.
STORED_AT = "stored_at"
#: Errors of file systems that cannot sync a folder: some network shares, and some user-space file systems.
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
#: Pattern of the file names, which are UUIDs.
_NAMES = "????????-????-????-????-????????????.json"

#: Function that stores a payment, and returns when the payment is on disk. If it raises, the payment is not started.
#: The function may return the payment as first stored, with its time in `stored_at`.
Store: TypeAlias = Callable[[StoredPayment], object]


class PaymentStore:
    """Folder with one file (`ID.json`) for each payment that may be open. A missing folder is created.

    The first line of a file is the request. The second line has the time when the payment was first stored.

    `Posd(store=store.save)` stores each payment before it calls posd. At the start of the till, `open_payments` returns
    the payments that are still stored. `remove` a payment after its result is booked.

    Threads and processes of one till may share a folder. Each till has its own folder. The methods raise OSError if the
    disk fails. Then nothing was started.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(PermissionError):  # no access to the parent: the folder existed before, and needs no sync
            _sync(self.folder.parent)

    def save(self, payment: StoredPayment) -> StoredPayment:
        """Store a payment so that it survives a crash and a power cut. Return the payment as first stored.

        Raise Problem (`id_reused`) if this id is already stored with another request.
        """
        path, body = self._path(payment.id), payment.readable_body()
        there = _read(path)
        if there is not None and there.body != body:
            detail = (
                f"payment {payment.id} is stored with another request: this call was not made. A new payment has an id "
                "of its own; start() repeats a stored one as it is stored"
            )
            raise Problem("id_reused", 409, detail, {})
        first = there or payment
        # If a crash left a draft, its payment was never started. Each call has its own draft, because another call may
        # store the same payment at the same time.
        draft = path.with_name(f".{path.stem}.{secrets.token_hex(8)}")
        try:
            with open(draft, "xb", opener=_private) as file:
                file.write(body)
                if first.stored_at is not None:
                    file.write(b"\n" + documents.encode({STORED_AT: first.stored_at.isoformat()}))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync(self.folder)
        return first

    def open_payments(self) -> list[StoredPayment]:
        """Return the stored payments, oldest first."""
        found = map(_read, sorted(self.folder.glob(_NAMES), key=_age))
        return [payment for payment in found if payment is not None]

    def remove(self, id: UUID | str) -> None:  # noqa: A002 - the field's name
        """Remove a payment that the till has booked, if it is stored.

        After a crash before the removal, `open_payments` returns the payment again. So the till must not book the same
        id twice.
        """
        path = self._path(str(id))
        path.unlink(missing_ok=True)
        for draft in self.folder.glob(f".{path.stem}.*"):  # left by a crash
            draft.unlink(missing_ok=True)
        with suppress(OSError):
            _sync(self.folder)

    def _path(self, identity: str) -> Path:
        return self.folder / f"{UUID(identity)}.json"


def _read(path: Path) -> StoredPayment | None:
    """Return the payment in a file, or None if the file is missing."""
    try:
        content = path.read_bytes()
        body, separator, last = content.rpartition(b"\n")
        stored = documents.document(documents.decode(last)).get(STORED_AT) if separator else None
        if stored is None:  # an older client stored only the request, without a second line
            payment = StoredPayment(path.stem, content)
        else:
            payment = StoredPayment(path.stem, body, datetime.fromisoformat(stored))
        _ = payment.request
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return StoredPayment(path.stem, None)
    return payment


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(folder: Path) -> None:
    """Sync the names in a folder, if the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
