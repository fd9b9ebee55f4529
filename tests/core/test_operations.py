"""The table of operation types, and the request of each type."""

import json
import tomllib
from pathlib import Path

import pytest

from posd.base.operations import OPERATIONS, WIRE_TYPES, OperationType
from posd.base.text import Language
from posd.cli.explain import catalogue
from posd.client import AsyncPosd, Posd
from posd.config.profile import ACCESS_MODES, EDITIONS
from posd.payments.request import start_body
from posd.simulator.wire import BY_NAME
from tests.core.scenarios import IDENTITY, starting

CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP = OperationType.CAPTURE, OperationType.POST_TIP
VOID, REFUND = OperationType.VOID, OperationType.REFUND
REFERENCE = "0b7d2a8e-1111-4d7c-9d55-0f6b1c2a9e11"


def test_every_type_has_a_row_and_a_path_in_the_profile() -> None:
    assert set(OPERATIONS) == set(OperationType)
    for mode in ACCESS_MODES:
        paths = {kind: EDITIONS["classic"][mode][kind].path for kind in OPERATIONS}
        assert all(path.endswith(f"/async/{OPERATIONS[kind].path}") for kind, path in paths.items())


@pytest.mark.parametrize("kind", OperationType)
def test_every_type_of_operation_is_known_in_every_place(kind: OperationType) -> None:
    """The vectors test posd and head office's SQL, which would omit an unknown type without an error."""
    method = kind.replace("-", "_")
    assert hasattr(Posd, method)
    assert hasattr(AsyncPosd, method)
    assert kind in BY_NAME
    for language in Language:
        file = Path(str(catalogue.__file__)).with_name(f"{language}.toml")
        assert kind in tomllib.loads(file.read_text("utf-8"))["operation"]
    counted = json.loads((Path(__file__).parents[1] / "vectors" / "counting.json").read_text("utf-8"))
    assert any(row["type"] == kind and row["result"] == "approved" for vector in counted for row in vector["rows"])
    assert f"`{kind}`" in (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("kind", "wire", "originals", "takes_newest"),
    [
        (CHARGE, "CHARGE", set(), False),
        (PRE_AUTH, "PREAUTH", set(), False),
        (RE_AUTH, "REAUTHORIZATION", {PRE_AUTH}, False),
        (CAPTURE, "CAPTURE", {PRE_AUTH}, True),
        (POST_TIP, None, {CHARGE, CAPTURE}, False),
        (VOID, None, {CHARGE, PRE_AUTH, CAPTURE}, True),
        (REFUND, None, {CHARGE, CAPTURE}, False),
    ],
)
def test_the_table_has_the_rules_of_the_terminal_api_and_of_the_local_api(
    kind: OperationType, wire: str | None, originals: set[OperationType], takes_newest: bool
) -> None:
    row = OPERATIONS[kind]
    assert (row.wire, row.originals, row.takes_newest) == (wire, originals, takes_newest)
    assert WIRE_TYPES.get(wire) is (kind if wire else None)
    assert row.needs_amount is (kind not in (VOID, REFUND))
    assert row.compares is (kind not in (POST_TIP, VOID, REFUND))
    assert all(EDITIONS["classic"][mode][kind].abortable for mode in ACCESS_MODES)


@pytest.mark.parametrize("kind", OperationType)
@pytest.mark.parametrize("amount", [b"{}", b'{"iva":1.20,"subtotal_iva":10.00,"subtotal_iva0":0}'])
def test_the_body_has_the_tills_data_and_the_reference(kind: OperationType, amount: bytes) -> None:
    reference = REFERENCE if OPERATIONS[kind].originals else None
    transaction = starting(type=kind, amount=amount, transaction_reference=reference, options=b'{"omit_card":true}')
    body = start_body(transaction, "https://posd/callback")
    fields = {"client_transaction_id", "events_webhook_url", "omit_card"}
    fields |= {"transaction_reference"} if reference else set()
    fields |= {"amount"} if amount != b"{}" else set()
    document = json.loads(body)
    assert set(document) == fields
    assert document["client_transaction_id"] == IDENTITY
    assert document.get("transaction_reference") == reference
    assert amount == b"{}" or amount in body, "the request has the digits of the till"
