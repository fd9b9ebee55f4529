"""The files that outlive the process: the record of finals and the ledger, cut short, emptied, damaged, mistaken."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posd.simulator import Ledger, SettingsError
from posd.simulator.record import Final, Record
from tests.support.tables import every


def final(transaction: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    body = {"event_id": f"{transaction}-{number}", "client_transaction_id": transaction, "status": "DECLINED"}
    return body | fields


def approval(transaction: str, number: int = 0) -> dict[str, Any]:
    answer = {"authorized_amount": 5, "transaction_reference": "r", "ticket_number": "t"}
    return final(
        transaction, number, status="APPROVAL", operation={"amount": {"subtotal_iva0": 5}}, raw_response=answer
    )


def line_of(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def add(record: Record, event: dict[str, Any]) -> None:
    record.add(Final("charge", None, msgspec.Raw(line_of(event))), event)


def made(path: Path, *events: dict[str, Any]) -> Path:
    record = Record(path)
    for event in events:
        add(record, event)
    record.close()
    return path


def finals_in(path: Path) -> list[str]:
    return [line["event_id"] for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "final"]


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_final_cut_short_by_a_kill_never_was_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    path = made(tmp_path / "record", final("a"), final("b"))
    path.write_bytes(path.read_bytes()[:-cut])
    record = Record(path)
    assert (record.newest("a"), record.newest("b")) == (line_of(final("a")), None)
    add(record, final("c"))
    assert [event["client_transaction_id"] for _, event in record.finals()] == ["a", "c"]
    record.close()


@pytest.mark.parametrize("damage", [b'{{"event_id": "b', b'"event_id": "b', b'["event_id"], "b'])
def test_a_damaged_record_is_named(tmp_path: Path, damage: bytes) -> None:
    path = made(tmp_path / "record", final("a"), final("b"))
    path.write_bytes(path.read_bytes().replace(b'{"event_id": "b', damage))
    with pytest.raises(SettingsError, match=r"line 2 of .*record.*--state"):
        Record(path)


def test_the_ledger_gets_the_finals_that_it_lacks_once(tmp_path: Path) -> None:
    record = Record(made(tmp_path / "record", approval("a"), final("b")))
    path = tmp_path / "ledger"
    for _ in range(3):
        ledger = Ledger(path)
        ledger.add_missing(record.finals())
        ledger.close()
    record.close()
    assert path.stat().st_mode & 0o777 == 0o600
    first, second = map(json.loads, path.read_text().splitlines())
    money = {"charged": True, "amount": 5, "transaction_reference": "r", "ticket_number": "t"}
    assert money.items() <= first.items()
    assert (first["operation"], first["status"], first["event_id"]) == ("charge", "APPROVAL", "a-0")
    assert dict.fromkeys(money) | {"charged": False} == {name: second[name] for name in money}


def test_a_ledger_line_cut_short_by_a_kill_is_taken_off_and_a_final_is_added_anew(tmp_path: Path) -> None:
    record = Record(made(tmp_path / "record", approval("a")))
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.add("start", client_transaction_id="a")
    ledger.add_final("charge", approval("a"))
    ledger.close()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        ledger = Ledger(path)
        ledger.add_missing(record.finals())
        ledger.close()
        assert finals_in(path) == ["a-0"], size
    record.close()


@every(
    ("content", "said"),
    [
        ("first\nlast line without an end", r"notes is no ledger.*--ledger"),
        ('{"at":"2026-11-01T00:00:00.000Z","kind":"final"\n', r"notes is damaged.*--ledger"),
    ],
)
def test_what_is_no_ledger_is_refused_and_left_as_it_is(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "notes"
    path.write_text(content)
    with pytest.raises(SettingsError, match=said):
        Ledger(path)
    assert path.read_text() == content
