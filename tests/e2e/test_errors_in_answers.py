"""Errors in the terminal's answers, as integrators have met them (terminal API, Refusals): to a start, a search, an
abort and a print job. The profile says that a pre-auth with an error under 2xx was not started, and that searches are
pages of a list.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio

from tests.support.shop import Shop, answering, open_shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]

PROFILE = """
[profile.pre-auth]
errors_in_2xx = true
[profile.search]
paged = true
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """A shop with that profile."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_shop(Path(directory), PROFILE) as shop:
            yield shop


def error(type_: str, code: str, **more: object) -> dict[str, Any]:
    return {"type": type_, "code": code, "message": "as the terminal says it"} | more


async def test_a_busy_terminal_is_named_and_asked_once(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409, error("TERMINAL", "TER-003"))
    document = (await payment.put()).json
    outcome = document["outcome"]
    assert (outcome["result"], document["next_step"]) == ("not_started", "new_id_ok")
    assert outcome["failure_reason"]["message"].startswith(
        "the terminal refused the request (HTTP 409, TERMINAL TER-003): it is busy"
    )
    own = {"type": "TERMINAL", "code": "TER-003", "message": "as the terminal says it"}
    assert outcome["failure_reason"]["terminal"] == own
    line = await shop.daemon.log_line("payment.answered", transaction=payment.identity)
    assert (line["judgement"], line["reason"]) == ("refused", "TERMINAL TER-003")
    assert len(payment.requests) == 1


async def test_an_abort_is_taken_by_an_empty_object_and_not_by_an_error(shop: Shop) -> None:
    for status, content, answer, http in (
        (200, {}, "taken", 202),
        (200, error("TERMINAL", "TER-004"), "unknown", 202),
        (409, error("TERMINAL", "TER-002"), "nothing_running", 409),
        (409, error("TERMINAL", "TER-003"), "unknown", 202),
    ):
        payment = await shop.started()
        shop.terminal.abort = answering(status, content)
        assert (await payment.post("abort")).status == http
        assert [line["answer"] for line in await payment.history() if "answer" in line] == [answer]
        await payment.end()
