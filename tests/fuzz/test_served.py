"""Generated input for a real daemon."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import webhooks
from tests.fuzz.seeds import SERIAL
from tests.rig.daemon import Daemon, running
from tests.rig.ports import reserve

#: A terminal of the fleet. Nothing listens at its address.
GONE = "SN-GONE"
POLLS = "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.2\n"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def posd() -> AsyncIterator[Daemon]:
    terminals = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://127.0.0.1:{reserve()}"\n' for serial in (SERIAL, GONE)
    )
    with TemporaryDirectory(prefix="posd-") as home:
        async with running(Path(home), terminals, POLLS) as daemon:
            yield daemon


async def found(posd: Daemon, **filters: str) -> list[str]:
    """Return the ids of a filtered list."""
    reply = await posd.call("GET", f"/transactions?{urlencode(filters, quote_via=quote)}")
    assert reply.status == 200, reply.body
    return [row["client_transaction_id"] for row in reply.json["transactions"]]


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_an_authentic_callback_is_kept_and_a_forged_callback_leaves_nothing(
    posd: Daemon, data: st.DataObject
) -> None:
    await webhooks.check(posd, data.draw(webhooks.CASES))


@pytest.mark.parametrize("key", ["a\x00b", 'a"b', "a\\b", "\x00", "", "a=b&c", "n\u00famero", "\U0001f4b3", "k" * 3000])
async def test_any_key_can_be_searched(posd: Daemon, key: str) -> None:
    identity = str(uuid4())
    request = {"terminal": GONE, "amount": {"iva": 1}, "metadata": {key: identity}}
    assert (await posd.call("PUT", f"/transactions/{identity}", request)).status == 201
    assert await found(posd, **{f"metadata.{key}": identity}) == [identity]
    assert await found(posd, **{f"metadata.{key}": f"{identity}x"}) == []


async def test_more_keys_than_the_database_accepts_are_refused(posd: Daemon) -> None:
    for count, status in ((16, 200), (17, 422), (1100, 422)):
        filters = "&".join(f"metadata.{number}=" for number in range(count))
        assert (await posd.call("GET", f"/transactions?{filters}")).status == status


@pytest.mark.parametrize("filters", [{"terminal": "\x00"}, {"sale": "a\x00b"}, {"metadata.reference": "\x00"}])
async def test_a_filter_with_a_nul_character_finds_nothing(posd: Daemon, filters: dict[str, str]) -> None:
    assert await found(posd, **filters) == []


@pytest.mark.parametrize("channel", ["transactions", "print-jobs"])
@pytest.mark.parametrize("levels", [64, 65, 900, 20_000])
async def test_nesting_is_limited(posd: Daemon, channel: str, levels: int) -> None:
    """posd accepts 64 levels. For more levels the problem names the place. If posd cannot read the body, the problem
    names the whole body.
    """
    member = "metadata" if channel == "transactions" else "document"
    amount = '"amount": {"iva": 1}, ' if channel == "transactions" else ""
    nested = '{"a":' * levels + "1" + "}" * levels
    identity = str(uuid4())
    body = f'{{"terminal": "{GONE}", {amount}"{member}": {nested}}}'.encode()
    reply = await posd.call("PUT", f"/{channel}/{identity}", body)
    assert reply.status == (201 if levels <= 64 else 422), reply
    if levels > 64:
        errors: list[Any] = reply.json["errors"]
        assert [error["path"] for error in errors] == [f"/{member}" if levels == 65 else ""]
        assert (await posd.call("GET", f"/{channel}/{identity}")).status == 404
