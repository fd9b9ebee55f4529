"""Missing proofs of `not_started`. One rule concludes `not_started` and names the missing proofs for an operator."""

from datetime import UTC, datetime
from itertools import product

import msgspec
import pytest

from posd.payments.missing_proof import DoubtFacts, ProofCode, ProofContext, concluded, evidence, explained, missing
from posd.payments.schedule import NotStartedProof

NAMES = DoubtFacts.__struct_fields__
EVERY = [DoubtFacts(**dict(zip(NAMES, values, strict=True))) for values in product((False, True), repeat=len(NAMES))]
ALL_THERE = DoubtFacts(
    heard=False,
    search_confirmed=True,
    abort_confirmed=True,
    search_proven=True,
    conflict=False,
    reachable=True,
    idle=True,
)
COMPLETE = NotStartedProof(60, first_abort=0, first_none=1, second_abort=62, second_none=63)
ROUNDS = [NotStartedProof(60), msgspec.structs.replace(COMPLETE, second_none=None), COMPLETE]
TOLD = ProofContext("7f3c", "SN-1", 60.0, probes=False, abortable=True)

#: Unmet condition -> missing proof.
LACKS = {
    "heard": ProofCode.WAS_ACKNOWLEDGED,
    "search_confirmed": ProofCode.SEARCH_NOT_CONFIRMED,
    "abort_confirmed": ProofCode.ABORT_NOT_CONFIRMED,
    "search_proven": ProofCode.SEARCH_NEVER_FOUND_ANY,
    "conflict": ProofCode.IDENTITY_CONFLICT,
    "reachable": ProofCode.TERMINAL_UNREACHABLE,
    "idle": ProofCode.ABORT_NOT_ASKED,
}


def test_each_unmet_condition_is_named_and_alone_keeps_the_payment_in_doubt() -> None:
    assert set(LACKS) == set(NAMES)
    assert set(LACKS.values()) == set(ProofCode)
    for name, code in LACKS.items():
        facts = msgspec.structs.replace(ALL_THERE, **{name: not getattr(ALL_THERE, name)})
        assert missing(facts) == (code,)
        assert not concluded(facts, COMPLETE)


def test_not_started_is_concluded_exactly_if_every_condition_holds() -> None:
    for facts, rounds in product(EVERY, ROUNDS):
        assert concluded(facts, rounds) == (missing(facts) == () and rounds.complete)
        assert [item.code for item in explained(facts, TOLD)] == list(missing(facts))
    assert [facts for facts in EVERY if not missing(facts)] == [ALL_THERE]


def test_the_evidence_has_both_rounds_in_order_by_the_wall_clock() -> None:
    pieces = evidence(COMPLETE, 100.0, datetime(2026, 1, 1, 12, 0, 40, tzinfo=UTC))
    assert [(item.kind, item.at[14:19], item.status, item.result) for item in pieces] == [
        ("abort", "59:00", 409, None),
        ("search", "59:01", None, "none"),
        ("abort", "00:02", 409, None),
        ("search", "00:03", None, "none"),
    ]
    begun = msgspec.structs.replace(COMPLETE, second_abort=None, second_none=None)
    assert evidence(begun, 100.0, datetime(2026, 1, 1, 12, 0, 40, tzinfo=UTC)) == pieces[:2]


def test_after_a_report_of_the_terminal_only_that_report_is_named_as_reason() -> None:
    for facts in EVERY:
        if facts.heard:
            assert missing(facts) == (ProofCode.WAS_ACKNOWLEDGED,)


@pytest.mark.parametrize("probes", [False, True])
@pytest.mark.parametrize("abortable", [False, True])
@pytest.mark.parametrize("control", [None, "0b6e"])
def test_each_missing_proof_names_the_remedy(probes: bool, abortable: bool, control: str | None) -> None:
    told = ProofContext("7f3c", "SN-1", 60.0, probes, abortable, control)
    for facts in EVERY:
        for item in explained(facts, told):
            assert "SN-1" in item.detail
            assert "posd" in item.detail
            assert item.detail[0].islower()
            assert item.detail.isprintable()
            for code, row in ((ProofCode.SEARCH_NOT_CONFIRMED, "search"), (ProofCode.ABORT_NOT_CONFIRMED, "abort")):
                assert (f"[profile.{row}]" in item.detail) == (item.code is code)


def test_an_operator_is_asked_to_act_only_if_posd_cannot_complete_the_proof() -> None:
    facts = msgspec.structs.replace(ALL_THERE, idle=False)
    (item,) = explained(facts, msgspec.structs.replace(TOLD, probes=True))
    assert "by itself" in item.detail
    (item,) = explained(facts, TOLD)
    assert "posd abort 7f3c" in item.detail
    assert "probe_with_abort" in item.detail
    (item,) = explained(facts, msgspec.structs.replace(TOLD, abortable=False, probes=True))
    assert "posd may send no abort" in item.detail
    facts = msgspec.structs.replace(ALL_THERE, search_proven=False)
    (item,) = explained(facts, msgspec.structs.replace(TOLD, control="0b6e"))
    assert "0b6e" in item.detail
    (item,) = explained(facts, TOLD)
    assert "posd resolve 7f3c" in item.detail
