"""Entries that the journals of payments and print jobs share."""

import msgspec


class DecisionEntry(msgspec.Struct, frozen=True, tag_field="kind"):
    """A person's decision begins with who and why; `uid` is the socket peer's user id, None if not known."""

    operator: str
    note: str
    uid: int | None


class Quarantined(msgspec.Struct, frozen=True, tag="quarantined", tag_field="kind", omit_defaults=True):
    """An authentic callback was refused; `serial_number`: of the terminal that sent it, if that was the reason."""

    reason: str
    serial_number: str | None = None


class Reapplied(msgspec.Struct, frozen=True, tag="reapplied", tag_field="kind"):
    """Callbacks of the quarantine were applied after all; none of this payment or print job is left there."""


class TakenOver(msgspec.Struct, frozen=True, tag="taken_over", tag_field="kind"):
    """It was taken over in doubt (from a replaced database, the witness, a list of ids): no more than this is known."""

    reason: str


def tag(entry: msgspec.Struct) -> str:
    """Return the kind of an entry, as in the journal and in the feed."""
    return str(entry.__struct_config__.tag)
