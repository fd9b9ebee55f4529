"""Rules by which posd refuses a webhook with a valid token: each result, and the precedence of two rules."""

import pytest

from posd.records.replies import CallbackResult, refusal

UNSIGNED = {"signature_fault": "it has no signature"}
OTHER_ID = {"another": "print job"}
OTHER_MERCHANT = {"merchant": "M-2", "own_merchant": "M-1"}
NO_TERMINAL = {"serial": "", "is_known": False}
OTHER_TERMINAL = {"serial": "SN-9", "in_fleet": False}
#: Reasons of a refusal, in order of precedence.
FAULTS = {
    CallbackResult.UNSIGNED: UNSIGNED,
    CallbackResult.OTHER_ID: OTHER_ID,
    CallbackResult.OTHER_MERCHANT: OTHER_MERCHANT,
    CallbackResult.NO_TERMINAL: NO_TERMINAL,
    CallbackResult.OTHER_TERMINAL: OTHER_TERMINAL,
}


@pytest.mark.parametrize("result", FAULTS, ids=str)
def test_a_webhook_is_refused_by_each_rule_and_the_first_counts(result: CallbackResult) -> None:
    place = list(FAULTS).index(result)
    for claims in (
        FAULTS[result],
        {name: value for of in list(FAULTS.values())[place:][::-1] for name, value in of.items()},
    ):
        refused = refusal(**claims)
        assert refused is not None
        assert refused.result is result
        assert refused.serial == ("SN-9" if result is CallbackResult.OTHER_TERMINAL else None)
        assert "{" not in refused.reason


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"merchant": "M-1", "own_merchant": "M-1"},
        {"merchant": "", "own_merchant": "M-1"},
        {"merchant": "M-2", "own_merchant": ""},
        {"serial": "", "is_known": True},
        {"serial": "", "in_fleet": False},
        {"serial": "SN-1", "is_known": False},
    ],
)
def test_an_unreadable_or_unconfigured_value_is_no_reason(claims: dict[str, str | bool]) -> None:
    assert refusal(**claims) is None
