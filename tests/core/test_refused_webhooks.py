"""Rules by which posd refuses a webhook with a valid token: each result, and the precedence of two rules."""

import re
from pathlib import Path
from string import Formatter

import pytest

import posd
from posd.base.replies import CallbackResult, UnreadableBody, refusal
from posd.base.text import Language
from posd.cli.explain import catalogue
from posd.payments.wire import read_event
from tests.rig.tables import every

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
def test_each_rule_can_refuse_a_webhook_and_the_first_rule_counts(result: CallbackResult) -> None:
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
def test_a_value_that_is_unreadable_or_not_configured_causes_no_refusal(claims: dict[str, str | bool]) -> None:
    assert refusal(**claims) is None


@every("result", [row for row in CallbackResult if row.reason.en])
def test_a_reason_is_shown_in_both_languages_with_the_same_values(result: CallbackResult) -> None:
    named = [[name for _, name, _, _ in Formatter().parse(text) if name] for text in result.reason]
    assert named[0] == named[1]
    values = dict.fromkeys(named[0], "SN-9")
    try:
        catalogue.use(Language.ES)
        shown = catalogue.translate(result.explain(**values))
    finally:
        catalogue.use(Language.EN)
    assert shown == result.reason.es.format(**values) != result.reason.en.format(**values)


def test_a_body_is_dropped_only_if_the_terminal_sends_it_again_or_nothing_was_read() -> None:
    sent_again = {row for row in CallbackResult if row.status in (408, 429) or row.status >= 500}
    agrees = {CallbackResult.REPEATED, CallbackResult.REMOVED}
    unread = {CallbackResult.TOO_LARGE, CallbackResult.MALFORMED_HTTP, CallbackResult.LARGE_HEAD}
    assert {row for row in CallbackResult if row.keeps == "nothing"} <= sent_again | agrees | unread
    assert all(row.attention for row in CallbackResult if row.reason.en)


def test_the_stored_error_of_an_unreadable_body_has_no_cause_and_no_traceback() -> None:
    with pytest.raises(UnreadableBody) as caught:
        read_event(b"\xff")
    alone = caught.value.alone()
    assert (alone.result, str(alone)) == (CallbackResult.NOT_JSON, str(caught.value))
    assert (alone.__cause__, alone.__traceback__) == (None, None)
    assert "it is not JSON" in str(alone), "the parser provides the reason of this result"


def test_each_kind_of_refusal_is_used_in_the_code() -> None:
    """No other test notices a reply that posd never gives."""
    text = "\n".join(path.read_text("utf-8") for path in Path(posd.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"CallbackResult\.([A-Z_]+)", text)) >= set(CallbackResult.__members__)
