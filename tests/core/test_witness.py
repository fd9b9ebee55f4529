"""The lines of the witness, and the comparison that detects a database that has gone back in time."""

import zlib
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.records import witness
from posd.records.witness import StartedPayment, WitnessContents, why_gone_back
from posd.storage.changes import DatabaseIdentity, IdentityCause
from tests.rig.tables import every, there

A = StartedPayment("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "SN-1", "2026-11-20T10:00:00.000Z")
B = StartedPayment(
    "7f9619ff-8b86-4d01-b42d-00cf4fc964ff", "SN-2\n=1", "2026-11-20T10:01:00.000Z", "approved", "till-3/1042"
)

MADE = DatabaseIdentity("first", 1, IdentityCause.MADE)
RESTORED = DatabaseIdentity("second", 20, IdentityCause.RESTORED)
BACK = DatabaseIdentity("third", 40, IdentityCause.GONE_BACK)


def whole(database_id: str, seq: int, started: Iterable[StartedPayment]) -> bytes:
    return b"".join(witness.whole(database_id, seq, started))


def checked(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


def test_written_lines_are_read_back() -> None:
    content = (
        whole("first", 7, [A]) + witness.start_line(9, B) + witness.end_line(12, B.client_transaction_id, "approved")
    )
    found = witness.read(content + witness.seq_line(15))
    assert found == WitnessContents("first", 15, {A.client_transaction_id: A, B.client_transaction_id: B})
    assert witness.read(whole("first", 15, found.started.values())) == found
    assert witness.read(whole("first", 0, [A, B])).seq == 0, "a start has no number of its own in a new witness"
    assert len(list(witness.whole("first", 7, [A, B]))) == 4, "only an ended payment has a line for its end"


def test_an_empty_file_has_no_lines() -> None:
    assert witness.read(b"") == WitnessContents()


@every(
    ("line", "unreadable"),
    [
        (b"\n", 0),
        (b"garbage\n", 1),
        (b'00000000 ["seq",99]\n', 1),
        (checked(b"no json"), 1),
        (checked(b'["of a later version",1]'), 0),
        (checked(b'["seq","99"]'), 0),
        (checked(b'["end",3,"unknown","approved"]'), 0),
    ],
)
def test_an_unreadable_line_does_not_affect_other_lines(line: bytes, unreadable: int) -> None:
    found = witness.read(whole("first", 7, [A]) + line + witness.start_line(9, B))
    assert (found.seq, len(found.started), found.unreadable, found.torn) == (9, 2, unreadable, False)


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_lines_before_any_cut_are_read(seed: int, back: int) -> None:
    lines = [
        witness.start_line(number, StartedPayment(f"id-{Random(seed).random()}-{number}", "SN", "at"))
        for number in range(20)
    ]
    content = b"".join(lines)
    cut = content[: max(0, len(content) - back)]
    found = witness.read(cut)
    assert len(found.started) == cut.count(b"\n")
    assert (found.unreadable, found.torn) == (0, bool(cut) and not cut.endswith(b"\n"))


@given(st.data())
def test_no_changed_byte_invents_a_payment(data: st.DataObject) -> None:
    content = bytearray(whole("first", 7, [A, B]))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    found = witness.read(bytes(content))
    assert set(found.started) <= {A.client_transaction_id, B.client_transaction_id}
    assert found.database_id in (None, "first")


@pytest.mark.parametrize("unknown", [1, 2])
def test_missing_lines_are_counted(unknown: int) -> None:
    why = there(why_gone_back(WitnessContents("first", 7), [MADE], 7, unknown))
    assert why.startswith("it lacks 1 payment that" if unknown == 1 else "it lacks 2 payments that")


@every(
    ("database_id", "seq", "identities", "last", "unknown", "words"),
    [
        (None, 0, [MADE], 0, 0, None),  # the witness has no data
        ("first", 7, [MADE], 7, 0, None),
        ("first", 7, [MADE], 9, 0, None),  # posd was killed before it wrote the lines of the newest changes
        ("first", 7, [MADE], 6, 0, "number 6, and 7"),
        ("first", 7, [MADE], 9, 1, "it lacks"),
        ("first", 7, [MADE, RESTORED], 30, 0, None),
        ("first", 7, [MADE, RESTORED], 30, 1, "it lacks"),
        ("another", 7, [RESTORED], 30, 0, None),  # the restore could not read the replaced file
        ("another", 7, [MADE], 30, 0, "not the database"),
        ("another", 7, [RESTORED, BACK], 50, 0, "not the database"),
        ("second", 30, [MADE, RESTORED, BACK], 50, 0, None),  # posd was killed before it rewrote the file
        (None, 7, [MADE], 6, 0, "number 6, and 7"),  # the first line is damaged
    ],
)
def test_a_database_that_went_back_to_an_older_state_is_detected(
    database_id: str | None, seq: int, identities: list[DatabaseIdentity], last: int, unknown: int, words: str | None
) -> None:
    why = why_gone_back(WitnessContents(database_id, seq), identities, last, unknown)
    assert (why is None) is (words is None)
    assert why is None or words in why
