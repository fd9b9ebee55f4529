"""What is described is served, and what is served is described: over one day of a shop, with the real daemon."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from posd.api.openapi import Examples
from tests.openapi import released
from tests.openapi.described import Described
from tests.openapi.playing import Day, gone
from tests.openapi.texts import fits
from tests.support.shop import open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]

#: Codes that are not brought about here, by operation or for all of them, and where they are.
ELSEWHERE: dict[str, str] = {
    "internal_error": "a fault of posd: tests/e2e/test_reply_table.py, tests/e2e/test_start.py",
    "storage_unavailable": "a broken disk: tests/power/test_disk_full.py, tests/services/test_storage_trouble.py",
    "limit_reached": "tests/e2e/test_limits_of_tills.py",
    "queue_full": "too many print jobs: tests/services/test_print_line.py",
    "start_transaction draining": "tests/e2e/test_stop.py",
    "start_print_job draining": "tests/e2e/test_stop.py",
    "reconcile_transaction draining": "tests/e2e/test_stop.py",
    "list_events draining": "tests/web/test_streams.py",
    "read_feed forbidden": "metadata on the feed socket: tests/e2e/test_feed_socket.py",
    "read_feed draining": "tests/web/test_streams.py",
    "back_up draining": "it breaks off (Stopped): tests/store/test_backup.py",
    "prune draining": "it breaks off (Stopped): tests/store/test_retention.py",
    "abort_transaction terminal_offline": "tests/e2e/test_abort.py",
    "resolve_transaction unknown_terminal": "a restore: tests/e2e/test_lost_payments.py",
}
#: Fields that are never seen with a value here: prefix or suffix -> where they are.
UNSEEN: dict[str, str] = {
    "AddressLine.": "tests/openapi/test_lines.py",
    "Applied.": "the configuration has to change: tests/e2e/test_reprocess.py",
    "BrokeOffLine.": "tests/openapi/test_lines.py",
    "Claim.": "announcements: tests/terminals/test_discovery_changes.py, tests/terminals/test_fleet.py",
    "ConfigurationError.": "a reload that is refused: tests/e2e/test_reload.py",
    "ConfigurationState.refused": "a reload that is refused: tests/e2e/test_reload.py",
    "Correction.": "what was counted changes: tests/store/test_shifts.py, tests/store/test_report.py",
    "CutOff.": "a reader that takes nothing: tests/web/test_streams.py",
    "DaemonStatus.relay": "there is none yet",
    "Difference.": "a damaged database: tests/e2e/test_reprocess.py",
    "Ended.": "posd stops: tests/e2e/test_streams.py, tests/web/test_streams.py",
    "EventLimitLine.": "tests/openapi/test_lines.py",
    "Evidence.result": "the full proof takes two rounds: tests/e2e/test_proof.py",
    "InterruptedLine.": "tests/openapi/test_lines.py",
    "NoAnswer.": "tests/openapi/test_lines.py",
    "PollLine.": "tests/openapi/test_lines.py",
    "PrintApplied.": "the configuration has to change: tests/cli/test_print_real.py",
    "PrintDifference.": "a damaged database: tests/store/test_print_jobs.py",
    "PrintInterruptedLine.": "tests/openapi/test_lines.py",
    "Problem.": "codes of later versions",
    "LaterLine.": "lines of later versions",
    "LaterPrintLine.": "lines of later versions",
    ".records_missing_from": "a restore: tests/e2e/test_back_in_time.py",
    ".records_missing_until": "a restore: tests/e2e/test_back_in_time.py",
    "PaymentReport.terminal": "one terminal alone: tests/e2e/test_report.py",
    "ProblemDraining.": "see ELSEWHERE",
    "ProblemForbidden.next_step": "no call for operators starts anything",
    "ProblemNotConfigured.": "the profile has every operation",
    "ProblemNotFound.next_step": "a path that is not here: tests/e2e/test_local_api.py",
    "ProblemInternalError.": "see ELSEWHERE",
    "ProblemLimitReached.": "see ELSEWHERE",
    "ProblemQueueFull.": "see ELSEWHERE",
    "ProblemStorageUnavailable.": "see ELSEWHERE",
    "ProofLine.": "tests/openapi/test_lines.py",
    "PruneProgress.doing": "a run takes a moment here: tests/e2e/test_retention.py",
    "ReadLine.": "it takes ten minutes: tests/e2e/test_unread.py",
    "ReappliedLine.": "tests/openapi/test_lines.py",
    "ReportPayment.": "a longer course: tests/store/test_report.py",
    "ReportSum.starts_at": "an hour of a day: tests/store/test_report.py",
    "ReservedSum.": "what has become of a reservation: tests/store/test_report.py",
    "ShiftCorrection.": "what was counted changes: tests/store/test_shifts.py",
    "ShiftPayment.": "what was counted changes: tests/store/test_shifts.py",
    "RefusedConfiguration.": "a reload that is refused: tests/e2e/test_reload.py",
    "Refusals.": "tests/e2e/test_distrust.py",
    "SilentLine.": "tests/openapi/test_lines.py",
    "StuckLine.": "tests/openapi/test_lines.py",
    "Terminal.in_fleet": "announcements: tests/terminals/test_fleet.py",
    "TerminalStatus.commission_lapsed": "the configuration has to change: tests/e2e/test_commission.py",
    "TerminalStatus.in_fleet": "it lists the fleet alone",
    "Totals.currency": "a terminal that names one: tests/e2e/test_money_adds_up.py",
    "UnansweredPollLine.": "tests/openapi/test_lines.py",
}


def _said(field: str, part: str) -> bool:
    return field.startswith(part) or field.endswith(part)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen() -> AsyncIterator[Described]:
    described = Described(released.today())
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        async with open_shop(home, gone()) as shop:
            await Day(shop, described, home).play()
    yield described


@pytest.mark.slow
async def test_every_answer_was_seen(seen: Described) -> None:
    missing = []
    for operation in seen.operations():
        name = operation["operationId"]
        for status, answer in operation["responses"].items():
            if status < "400" and not seen.statuses[name, status]:
                missing.append(f"{name} {status}")
            if status < "400":
                kinds = [kind.partition(";")[0] for kind in answer["content"]]
                missing += [f"{name} {kind}" for kind in kinds if "json" not in kind and not seen.statuses[name, kind]]
    assert missing == []


@pytest.mark.slow
async def test_every_problem_was_seen(seen: Described) -> None:
    missing = []
    for operation in seen.operations():
        name = operation["operationId"]
        for answer in operation["responses"].values():
            refs = answer["content"].get("application/problem+json", {}).get("schema", {}).get("anyOf", [])
            for ref in refs:
                schema = seen.document["components"]["schemas"][ref["$ref"].rsplit("/", 1)[1]]
                code = schema["properties"]["code"].get("const")
                if code is None:  # those of later versions
                    continue
                told = code in ELSEWHERE or f"{name} {code}" in ELSEWHERE or name == "get_metrics"
                if not seen.codes[name, code] and not told:
                    missing.append(f"{name} {code}")
    assert missing == []


@pytest.mark.slow
async def test_the_examples_of_problems_say_what_the_daemon_said(seen: Described) -> None:
    examples = Examples.read()
    other = []
    for (name, code), details in sorted(seen.details.items()):
        calls = examples.calls(name, code)
        example = "" if calls is None else examples.problems[code][calls]["detail"]
        if not any(fits(example, detail) for detail in details):
            other += [f"{code} of {name} is shown as: {example}", *(f"    it said: {detail}" for detail in details)]
    assert not other, "\n".join(["posd/api/examples.json, problems:", *other])


@pytest.mark.parametrize("row", ELSEWHERE)
async def test_elsewhere_it_is(row: str) -> None:
    for name in re.findall(r"tests/\S+\.py", ELSEWHERE[row]):
        text = (ROOT / name).read_text()
        assert row.rsplit(" ", 1)[-1] in text or "Stopped" in text, name


@pytest.mark.slow
async def test_every_field_was_seen(seen: Described) -> None:
    unseen = sorted(field for field in seen.answered_fields() if not seen.fields[field])
    without_reason = [field for field in unseen if not any(_said(field, part) for part in UNSEEN)]
    assert not without_reason, " ".join(without_reason)


@pytest.mark.slow
async def test_no_reason_is_left_over(seen: Described) -> None:
    unseen = [field for field in seen.answered_fields() if not seen.fields[field]]
    assert [prefix for prefix in UNSEEN if not any(_said(field, prefix) for field in unseen)] == []
    assert [row for row in ELSEWHERE if " " in row and seen.codes[tuple(row.split(" "))]] == []  # type: ignore[index]
