"""Generated input for a real daemon."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import webhooks
from tests.fuzz.shop import Shop, open_shop
from tests.fuzz.target import Case


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("fuzz")) as opened:
        yield opened


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(case=webhooks.CASES)
def test_an_authentic_callback_is_kept_and_a_forged_one_leaves_nothing(shop: Shop, case: Case) -> None:
    webhooks.check(shop, case)


@pytest.mark.parametrize("key", ["a\x00b", 'a"b', "a\\b", "\x00", "", "a=b&c", "n\u00famero", "\U0001f4b3", "k" * 3000])
def test_any_key_can_be_searched(shop: Shop, key: str) -> None:
    identity = shop.fresh()
    request = {"terminal": "SN-GONE", "amount": {"iva": 1}, "metadata": {key: identity}}
    assert shop.local.put(f"/transactions/{identity}", json=request).status_code == 201
    for value, found in ((identity, [identity]), (f"{identity}x", [])):
        answer = shop.local.get("/transactions", params={f"metadata.{key}": value}).json()
        assert [row["client_transaction_id"] for row in answer["transactions"]] == found


def test_more_keys_than_the_database_accepts_are_refused(shop: Shop) -> None:
    for count, status in ((16, 200), (17, 422), (1100, 422)):
        filters = {f"metadata.{number}": "" for number in range(count)}
        assert shop.local.get("/transactions", params=filters).status_code == status


@pytest.mark.parametrize("filters", [{"terminal": "\x00"}, {"sale": "a\x00b"}, {"metadata.reference": "\x00"}])
def test_a_filter_with_a_nul_character_finds_nothing(shop: Shop, filters: dict[str, str]) -> None:
    answer = shop.local.get("/transactions", params=filters)
    assert (answer.status_code, answer.json()["transactions"]) == (200, [])


@pytest.mark.parametrize("channel", ["transactions", "print-jobs"])
@pytest.mark.parametrize("levels", [64, 65, 900, 20_000])
def test_nesting_is_limited(shop: Shop, channel: str, levels: int) -> None:
    """Up to 64 levels are accepted. Beyond them the problem names the place, or the whole body if it cannot be read."""
    member = "metadata" if channel == "transactions" else "document"
    amount = '"amount": {"iva": 1}, ' if channel == "transactions" else ""
    body = f'{{"terminal": "SN-GONE", {amount}"{member}": {nest(levels)}}}'.encode()
    identity = shop.fresh()
    answer = shop.local.put(f"/{channel}/{identity}", content=body)
    assert answer.status_code == (201 if levels <= 64 else 422), answer
    if levels > 64:
        assert [error["path"] for error in answer.json()["errors"]] == [f"/{member}" if levels == 65 else ""]
        assert shop.local.get(f"/{channel}/{identity}").status_code == 404


def nest(levels: int) -> str:
    """Return an object with this many levels."""
    return '{"a":' * levels + "1" + "}" * levels
