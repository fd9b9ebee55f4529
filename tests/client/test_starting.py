"""Starts. The client repeats the same call with the same id until posd responds. Only a Problem means that nothing was
sent.
"""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from posd.client import ForeignAnswer, Posd, Problem, StoredPayment, Unreachable
from tests.rig.documents import ID, answer, print_job, transaction
from tests.rig.stub import Answer, Stub, problem

RUNS = answer(transaction(phase="active", status="TERMINAL_ACKNOWLEDGED"), 201)
LOST = Answer(cut=True)
STOPPING = problem(503, "draining", "stopping")
FULL = problem(503, "storage_unavailable", "the disk is full")
FAULT = problem(500, "internal_error", "a fault")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "before",
    [[], [LOST], [STOPPING], [LOST, STOPPING, LOST], [STOPPING, STOPPING], [LOST, FULL], [FAULT], [FAULT, FULL, LOST]],
    ids=lambda script: f"{len(script)}",
)
def test_a_call_without_a_response_is_repeated_unchanged(tmp_path: Path, before: list[Answer]) -> None:
    told: list[Exception] = []
    with Stub(tmp_path / "s", [*before, RUNS]) as stub, Posd(stub.socket, on_away=told.append) as client:
        payment = client.charge(UUID(ID), Decimal("10.10"), sale="s", terminal="SN-1")
    assert payment.id == ID
    assert len(stub.calls) == len(before) + 1 == len(told) + 1
    assert {(call.method, call.path, call.body) for call in stub.calls} == {
        (
            "PUT",
            f"/v1/transactions/{ID}",
            b'{"type":"charge","amount":{"subtotal_iva0":10.10},"terminal":"SN-1","sale":"s"}',
        )
    }


@pytest.mark.parametrize(
    ("script", "sent", "cause"),
    [
        ([LOST], True, Unreachable),
        ([FAULT], True, Problem),
        ([problem(502, "later", "odd")], True, Problem),
        ([STOPPING], False, Problem),
    ],
    ids=["lost", "fault", "unknown 5xx", "draining"],
)
def test_after_the_time_limit_the_error_says_what_is_known_and_what_to_do(
    tmp_path: Path, script: list[Answer], sent: bool, cause: type[Exception]
) -> None:
    with (
        Stub(tmp_path / "s", script) as stub,
        Posd(stub.socket, patience=0) as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.charge(ID, 5)
    assert (caught.value.sent, caught.value.next_step, caught.value.never_started) == (sent, "same_call", False)
    assert isinstance(caught.value.__cause__, cause)


def test_a_full_disk_proves_nothing_about_an_earlier_lost_call(tmp_path: Path) -> None:
    """A full disk at the first call means that nothing was sent. If a call is lost, posd may have sent the payment."""
    with (
        Stub(tmp_path / "s", [LOST, *[FULL] * 20]) as stub,
        Posd(stub.socket, patience=0.6) as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.charge(ID, 5)
    assert caught.value.sent
    assert isinstance(caught.value.__cause__, Problem)


def test_without_a_listening_posd_nothing_is_sent(tmp_path: Path) -> None:
    with Posd(tmp_path / "none", patience=0.5) as client, pytest.raises(Unreachable, match="is posd running") as caught:
        client.charge(ID, 5)
    assert not caught.value.sent


def test_a_response_of_another_program_is_not_repeated_and_proves_nothing(tmp_path: Path) -> None:
    html = Answer(502, b"<html>bad gateway</html>", "text/html")
    with Stub(tmp_path / "s", [html]) as stub, Posd(stub.socket) as client, pytest.raises(ForeignAnswer) as caught:
        client.charge(ID, 5)
    assert caught.value.sent
    assert "not posd's: '<html>bad gateway" in str(caught.value)


@pytest.mark.parametrize("body", [b"[]", b"17", b'{"phase":"active"}', b'{"client_transaction_id":7}'])
def test_a_response_that_is_not_a_transaction_is_reported(tmp_path: Path, body: bytes) -> None:
    with (
        Stub(tmp_path / "s", [Answer(201, body)]) as stub,
        Posd(stub.socket) as client,
        pytest.raises(ForeignAnswer, match="not as this client knows it"),
    ):
        client.charge(ID, 5)


LAST = datetime(2026, 11, 20, 9, 2, 11, 123999, timezone(timedelta(hours=-5)))
DETAILS = {
    "terminal": "SN-1",
    "sale": "s",
    "metadata": {"m": 1},
    "options": {"o": True},
    "additional": True,
    "not_after": LAST,
}
OTHER = "7f3c0000-0000-4000-8000-0000000000BB"


@pytest.mark.parametrize("call", ["charge", "pre_auth", "re_auth", "capture", "post_tip", "void", "refund"])
def test_each_operation_is_sent_with_its_members(tmp_path: Path, call: str) -> None:
    original = {} if call in ("charge", "pre_auth") else {"original": UUID(OTHER)}
    named = f'"original":"{OTHER.lower()}",' if original else ""
    assert sent(
        tmp_path, lambda client: getattr(client, call)(ID, {"iva": 1, "tip": "0.50"}, **original, **DETAILS)
    ) == (
        f'{{"type":"{call.replace("_", "-")}","amount":{{"iva":1,"tip":"0.50"}},{named}"terminal":"SN-1","sale":"s",'
        '"metadata":{"m":1},"options":{"o":true},"additional":true,"not_after":"2026-11-20T14:02:11.123Z"}'
    )


def test_the_old_name_of_the_member_additional_is_accepted(tmp_path: Path) -> None:
    body = sent(tmp_path, lambda client: client.charge(ID, 2, repeat=True))
    assert body == '{"type":"charge","amount":{"subtotal_iva0":2},"repeat":true}'


def test_a_void_needs_no_amount_and_accepts_a_reference(tmp_path: Path) -> None:
    body = sent(tmp_path, lambda client: client.void(ID, transaction_reference="ref"))
    assert body == '{"type":"void","transaction_reference":"ref"}'


def test_a_print_job_without_a_response_is_repeated_too(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [LOST, answer(print_job(), 201)]) as stub, Posd(stub.socket) as client:
        client.print_job("job-1", {"text": "ñ", "size": Decimal("1.50")}, external_reference="t")
    assert {(call.path, call.body) for call in stub.calls} == {
        ("/v1/print-jobs/job-1", '{"document":{"text":"ñ","size":1.50},"external_reference":"t"}'.encode())
    }
    assert len(stub.calls) == 2


@pytest.mark.parametrize("amount", [1.5, None, {"total": "5.00"}, 0], ids=repr)
def test_an_invalid_amount_is_refused_and_nothing_is_sent(tmp_path: Path, amount: Any) -> None:
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket) as client, pytest.raises((TypeError, ValueError)):
        client.charge(ID, amount)
    assert stub.calls == []


def test_a_member_added_by_the_configuration_is_sent(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [RUNS]) as stub, Posd(stub.socket, amount_members=["service"]) as client:
        client.charge(ID, {"subtotal_iva0": 5, "service": "0.50"})
    assert b'"amount":{"subtotal_iva0":5,"service":"0.50"}' in stub.calls[0].body


@pytest.mark.parametrize(
    ("last", "error"),
    [(LAST.replace(tzinfo=None), ValueError), ("2026-11-20T14:02:11Z", TypeError), (timedelta(minutes=2), TypeError)],
    ids=repr,
)
def test_the_argument_not_after_must_have_a_time_zone(tmp_path: Path, last: Any, error: type[Exception]) -> None:
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket) as client, pytest.raises(error, match=r"datetime\.now"):
        client.charge(ID, 5, not_after=last)
    assert stub.calls == []


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00.000+14:00", "9999-12-31T23:59:59.999-05:00"])
def test_the_argument_not_after_may_be_at_the_end_of_the_calendar(tmp_path: Path, text: str) -> None:
    body = sent(tmp_path, lambda client: client.charge(ID, 5, not_after=datetime.fromisoformat(text)))
    assert f'"not_after":"{text}"' in body


@pytest.mark.parametrize("keyword", ["sales", "original", "amount_of"])
def test_an_unknown_keyword_is_refused_and_nothing_is_sent(tmp_path: Path, keyword: str) -> None:
    words = f"unexpected keyword argument '{keyword}'"
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket) as client, pytest.raises(TypeError, match=words):
        client.charge(ID, 5, **{keyword: OTHER})  # type: ignore[arg-type]  # the test passes a wrong type
    assert stub.calls == []


@pytest.mark.parametrize("identity", ["", "17", f"{{{ID}}}", ID.replace("-", ""), f"urn:uuid:{ID}", f"{ID}/x"])
def test_an_invalid_id_is_refused(tmp_path: Path, identity: str) -> None:
    with Posd(tmp_path / "none") as client, pytest.raises(ValueError, match="UUID that the till makes"):
        client.charge(identity, 5)


@pytest.mark.parametrize("identity", [UUID(int=0), str(UUID(int=2**128 - 1)).upper()], ids=["nil", "max"])
def test_an_id_of_only_zeros_or_ones_is_refused_before_a_call_is_stored_or_sent(
    tmp_path: Path, identity: UUID | str
) -> None:
    kept: list[object] = []
    calls: list[Callable[[Posd], object]] = [
        lambda client: client.charge(identity, 5),
        lambda client: client.refund(ID, original=identity),
        lambda client: client.transaction(identity),
        lambda client: client.start(StoredPayment(str(identity), b"{}")),
    ]
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket, store=kept.append) as client:
        for call in calls:
            with pytest.raises(ValueError, match="never set"):
                call(client)
    assert (kept, stub.calls) == ([], [])


@pytest.mark.parametrize("identity", ["", "..", "a/b", "x" * 65, "ñ"])
def test_an_invalid_id_of_a_print_job_is_refused(tmp_path: Path, identity: str) -> None:
    with Posd(tmp_path / "none") as client, pytest.raises(ValueError, match="not the id of a print job"):
        client.print_job(identity, {})


def sent(tmp_path: Path, call: Callable[[Posd], object]) -> str:
    with Stub(tmp_path / "s", [RUNS]) as stub, Posd(stub.socket) as client:
        call(client)
    return stub.calls[0].body.decode()
