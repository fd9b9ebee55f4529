"""Record of the CA that the terminals trust (the known CA), in the database and so in each backup.

Only a CA that the operator created, or the next CA of the known CA, becomes the known CA. posd reports any other CA as
a loss. The fingerprint covers the whole certificate, because the key of a root signs only once: no later certificate
has the same key.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
import structlog

from posd.base.problems import RemedyStep, remedy
from posd.base.times import iso
from posd.storage import CommitUncertain, StorageUnavailable, marks
from posd.storage.batch import WriteTransaction
from posd.storage.connection import connect_reader
from posd.storage.store import Store
from posd.tls.files import TlsFiles, fingerprint

#: Steps for an operator after the loss of the CA.
STEPS = (
    RemedyStep("restore the folder tls, which is beside the database, from a copy, with its owners (sudo cp -a)"),
    RemedyStep("if there is no copy", "posd tls init --force"),
    RemedyStep("then put the new ca.crt on every terminal"),
)
REMEDY = remedy(STEPS)

log = structlog.get_logger("posd.certificate")


class KnownFingerprints(msgspec.Struct, frozen=True):
    """Fingerprints (SHA-256, hexadecimal) of the CA that the terminals trust, and of the next CA."""

    ca: str
    following: str | None


def known(db: sqlite3.Connection) -> KnownFingerprints | None:
    """Return the fingerprints of the known CA, or None if none is stored."""
    return marks.newest_detail(db, marks.CA, KnownFingerprints)


def lost(found: KnownFingerprints | None, made: TlsFiles) -> str | None:
    """Return the problem with the CA of a folder as text. Return None if it is the known CA, or if no CA is known."""
    present = fingerprint(made.ca_certificate)
    if found is None or (present is not None and present in (found.ca, found.following, _made(made))):
        return None
    what = "is not there, or cannot be read" if present is None else "is not the one that the terminals trust"
    return f"{made.ca_certificate} {what} ({found.ca[:16]}…): terminals refuse certificates of another CA"


def _made(made: TlsFiles) -> str | None:
    """Return the fingerprint of a CA that the operator created and that is not yet in the database, or None."""
    with suppress(OSError):
        return made.new_ca.read_text("ascii")
    return None


def lost_beside(database: Path, made: TlsFiles) -> str | None:
    """Return the result of `lost`, from a database that may be in use or missing. Raise sqlite3.Error."""
    if not database.exists():
        return None
    with closing(connect_reader(database)) as db:
        return lost(known(db), made)


class KnownCa(msgspec.Struct, eq=False):
    """Record of the CA that the terminals trust, and detection of its loss."""

    store: Store
    made: TlsFiles
    now: Callable[[], datetime]
    #: Problem with the CA as text, or None.
    trouble: str | None = None

    async def look(self) -> None:
        """Record the CA if it may become the known CA, or log the loss of the known CA."""
        with suppress(StorageUnavailable, CommitUncertain):  # the storage check reports this error
            before, found = self.trouble, await self.store.read(known)
            self.trouble, new = await asyncio.to_thread(self._look_at_files, found)
            if self.trouble is not None and before is None:
                log.error("certificate.ca_lost", detail=f"{self.trouble}. What to do: {REMEDY}")
            if new is not None and new != found:
                await self.store.write(partial(_record, at=iso(self.now()), new=new))
            if new is not None and await asyncio.to_thread(_made, self.made) == new.ca:
                with suppress(OSError):
                    self.made.new_ca.unlink()

    def _look_at_files(self, found: KnownFingerprints | None) -> tuple[str | None, KnownFingerprints | None]:
        """Return the problem with the CA, and the CA that may become the known CA."""
        present = fingerprint(self.made.ca_certificate)
        if (words := lost(found, self.made)) is not None or present is None:
            return words, None
        return None, KnownFingerprints(present, fingerprint(self.made.next_ca_certificate))


def _record(unit: WriteTransaction, at: str, new: KnownFingerprints) -> None:
    marks.replace(unit.db, at, marks.CA, new)
