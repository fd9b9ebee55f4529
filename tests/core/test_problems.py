"""Problems, times and UUIDs in the form of the local API."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from posd.api import routes
from posd.base.ids import canonical_uuid, chosen_uuid
from posd.base.problems import PROBLEMS, Problem
from posd.base.times import FIRST, LAST, iso, parse_iso, read_moment
from posd.calls.app import STARTS
from tests.rig.tables import every


@every("code", PROBLEMS)
def test_every_problem_has_its_document(code: str) -> None:
    document = Problem(code, "what to do", extra=1).document()
    assert document["type"] == f"urn:posd:problem:{code}"
    assert (document["code"], document["detail"], document["extra"]) == (code, "what to do", 1)
    assert document["status"] == Problem(code, "").status
    assert 400 <= document["status"] < 600


#: Code -> next step of a till after the problem of a call that starts a transaction (local API, Problems).
STEPS = {
    "fix_call": "malformed_json invalid_request unknown_terminal unknown_original amount_exceeds not_configured "
    "not_found method_not_allowed request_timeout payload_too_large unsupported_media_type forbidden",
    "same_call": "terminal_busy terminal_offline identity_conflict limit_reached storage_unavailable draining "
    "clock_unsure internal_error queue_full",
    "ask_person": "id_reused pruned restore_unseen sale_conflict already_derived chain_conflict",
    "new_id_ok": "expired",
}


def test_each_code_of_a_starting_call_has_the_next_step() -> None:
    said = {code: row.next_step for code, row in PROBLEMS.items() if row.next_step is not None}
    assert said == {code: step for step, codes in STEPS.items() for code in codes.split()}
    starting = [route for route in routes.ALL if route.method == STARTS]
    assert [route.name for route in starting] == [route.name for route in routes.ALL if route.starts]
    answered = {code for route in starting for code in route.problems} | {"not_found", "method_not_allowed"}
    assert answered - said.keys() == set()


def test_only_starting_calls_have_a_next_step() -> None:
    problem = Problem("terminal_busy", "words", blocking_transaction="7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")
    assert problem.document(starts=True) == problem.document() | {"next_step": "same_call"}
    assert "next_step" not in problem.document()
    assert Problem("already_final", "words").document(starts=True)["next_step"] == "ask_person", (
        "the table has no next step"
    )


@pytest.mark.parametrize(
    ("known", "step"), [({"never_started": True}, "new_id_ok"), ({"never_started": False}, "ask_person")]
)
def test_no_new_id_is_offered_if_an_earlier_call_may_have_been_sent(known: dict[str, bool], step: str) -> None:
    assert Problem("expired", "words", **known).document(starts=True)["next_step"] == step
    assert Problem("draining", "words", **known).document(starts=True)["next_step"] == "same_call"


def test_times_are_utc_with_milliseconds() -> None:
    moment = datetime(2026, 11, 20, 5, 42, 3, 120_900, tzinfo=timezone(timedelta(hours=-5)))
    assert iso(moment) == "2026-11-20T10:42:03.120Z"
    assert (
        parse_iso("2026-11-20T10:42:03.120Z")
        == parse_iso("2026-11-20T10:42:03.120")
        == parse_iso("2026-11-20T05:42:03.120-05:00")
        == moment.replace(microsecond=120_000)
    )
    assert parse_iso("2026-11-20").tzinfo is UTC


@every(
    ("text", "read"),
    [
        ("2026-11-20T05:42:03-05:00", datetime(2026, 11, 20, 10, 42, 3, tzinfo=UTC)),
        ("0001-01-01T00:00:00+05:00", FIRST),
        ("9999-12-31T23:59:59-05:00", LAST),
    ],
)
def test_a_time_of_a_caller_is_read_in_utc(text: str, read: datetime) -> None:
    assert read_moment(text) == read


@every("text", [None, 7, "yesterday", "2026-11-20T10:42:03"])
def test_a_time_without_an_offset_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="with its offset"):
        read_moment(text)


@pytest.mark.parametrize(
    "text", ["", "x", "{7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11}", "7f3c1f0e3b0a4d7c9d550f6b1c2a9e11"]
)
def test_an_invalid_uuid_is_refused(text: str) -> None:
    assert canonical_uuid(text) is None


@every("text", [None, "x", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"])
def test_an_id_of_only_zeros_or_ones_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        chosen_uuid(text)


def test_uuids_are_lower_case() -> None:
    assert chosen_uuid("7F3C1F0E-3B0A-4D7C-9D55-0F6B1C2A9E11") == "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
    assert canonical_uuid("7F3C1F0E-3B0A-4D7C-9D55-0F6B1C2A9E11") == "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"


def test_no_field_of_a_code_replaces_a_common_field() -> None:
    document = Problem("not_found", "words", type="charge", title="x", status=200, more=1).document()
    assert document == Problem("not_found", "words").document() | {"more": 1}
