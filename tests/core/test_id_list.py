"""The list of `posd restore --ids`: the meaning of its lines, and the message for a wrong line."""

from io import BytesIO

import pytest

from posd.records.witness import StartedPayment
from posd.upkeep import takeover
from posd.upkeep.takeover import MOST_LINE_BYTES, MOST_LINES, InvalidIdList
from tests.rig.tables import every

ONE = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
TWO = "7f9619ff-8b86-4d01-b42d-00cf4fc964ff"
AT = "2026-11-20T10:00:00.000Z"


def read(content: bytes) -> list[StartedPayment]:
    return list(takeover.read_id_list(BytesIO(content)).values())


def refusal(content: bytes) -> list[str]:
    with pytest.raises(InvalidIdList) as refused:
        read(content)
    return str(refused.value).split("\n")


@every(
    ("line", "started"),
    [
        (f"{ONE}", StartedPayment(ONE, "", "")),
        (f"{ONE}\t{AT}", StartedPayment(ONE, "", AT)),
        (f"{ONE}\t{AT}\tSN 1", StartedPayment(ONE, "SN 1", AT)),
        (f"{ONE}\t\tSN-1", StartedPayment(ONE, "SN-1", "")),
        (f"{ONE}\t\t", StartedPayment(ONE, "", "")),
        (f"{ONE}\t{AT}\tSN-1\ttable 7, \u00e1", StartedPayment(ONE, "SN-1", AT, sale="table 7, \u00e1")),
        (f"{ONE}\t\t\t", StartedPayment(ONE, "", "")),
        (f"{ONE.upper()}\t2026-11-20T10:00:00Z", StartedPayment(ONE, "", AT)),
        (f"{ONE}\t2026-11-20T10:00:00.0004Z", StartedPayment(ONE, "", AT)),
    ],
)
def test_a_line_names_a_payment(line: str, started: StartedPayment) -> None:
    for end in ("\n", "", "\r\n"):
        assert read(f"# lane-1\n\n{line}{end}".encode()) == [started]


def test_a_repeated_id_counts_once_at_its_first_place() -> None:
    assert read(f"{TWO}\n{ONE}\t{AT}\n{ONE.upper()}\n".encode()) == [
        StartedPayment(TWO, "", ""),
        StartedPayment(ONE, "", AT),
    ]


@every(
    ("line", "words"),
    [
        (b"SN-1", "'SN-1' is not the id of a payment: write a UUID"),
        (f"{ONE} {AT}".encode(), "is not the id of a payment: write a UUID"),
        (f" {ONE}".encode(), "is not the id of a payment"),
        (b"\x1b[2J", r"'\u001b[2J' is not the id"),
        (f"\ufeff{ONE}".encode(), r"\ufeff"),
        (f"{ONE}\tyesterday".encode(), "'yesterday' is not a time: write it as 2026-11-20T10:42:03.120Z"),
        (f"{ONE}\t2026-11-20".encode(), "is not a time"),
        (f"{ONE}\t2026-13-20T10:00:00Z".encode(), "is not a time"),
        (f"{ONE}\t2026-11-20T10:00:00+01:00".encode(), "is not a time"),
        (f"{ONE}\t{AT}\tSN\u00e91".encode(), "is not a serial number: write it as printed on the terminal"),
        (f"{ONE}\t{AT}\t{'1' * 65}".encode(), "is not a serial number"),
        (f"{ONE}\t{AT}\tSN-1\tsale\tmore".encode(), "5 parts, but at most 4 are possible"),
        (f"{ONE}\t{AT}\tSN-1\t{'1' * 129}".encode(), "is not a sale: it has more than 128 characters"),
        (b"\xff\xfe", "not UTF-8 text: save the file as UTF-8"),
        (b"#" * MOST_LINE_BYTES, f"longer than {MOST_LINE_BYTES} bytes"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, words: str) -> None:
    first, *faults, last = refusal(f"{ONE}\n\n".encode() + line + b"\n")
    assert "1 line" in first
    assert len(faults) == 1
    assert faults[0].strip().startswith("line 3")
    assert words in faults[0]
    assert len(faults[0]) < 200
    assert "posd collect ids" in last


def test_of_many_wrong_lines_the_first_are_named_and_all_are_counted() -> None:
    first, *faults, rest, _ = refusal(b"wrong\n" * 30 + f"{ONE}\n".encode())
    assert "30 lines" in first
    assert [fault.split(":")[0].strip() for fault in faults] == [f"line {number}" for number in range(1, 6)]
    assert rest.strip() == "and 25 more"


@every("content", [b"", b"\n\n", b"# posd collect ids: lane quito-01-3\n"])
def test_a_list_without_a_payment_is_refused(content: bytes) -> None:
    """A failed shell command leaves an empty list. A restore with this list would miss payments."""
    said = " ".join(refusal(content))
    assert "names no payment" in said
    assert "without --ids" in said


def test_a_list_of_ids_with_too_many_lines_is_refused() -> None:
    content = b"\n" * (MOST_LINES - 1) + f"{ONE}\n".encode()
    assert len(read(content)) == 1
    (said,) = refusal(content + b"\n")
    assert f"more than {MOST_LINES} lines" in said
    assert "--since" in said


def test_an_endless_file_is_read_only_up_to_the_limit() -> None:
    class Endless(BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert size > 0
            return b"\0" * size

    with pytest.raises(InvalidIdList, match="longer"):
        takeover.read_id_list(Endless())
