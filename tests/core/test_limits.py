"""The table of limits, and the shares of connections."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from posd.base import limits
from posd.base.limits import ALL, DESCRIPTORS, Limit, places
from posd.base.text import Language
from posd.cli.explain.catalogue import read
from posd.records import quotas
from posd.records.quotas import LimitCounters


def test_each_limit_is_completely_described() -> None:
    assert len({limit.name for limit in ALL}) == len(ALL)
    told = read(Language.EN)["limit"]
    assert all(limit.value > 0 and limit.unit and limit.of for limit in ALL)
    assert all(told[limit.name]["answer"] and told[limit.name]["reason"] for limit in ALL)
    named = {item for item in vars(limits).values() if isinstance(item, Limit)}
    assert named == set(ALL)


def table() -> str:
    """Return the table of docs/reference/resource-limits.md, as the code generates it."""
    rows = ["| limit | how much | of whom | past it | why |", "| --- | --- | --- | --- | --- |"]
    for limit in ALL:
        told = read(Language.EN)["limit"][limit.name]
        much = f"{limit.value:,} {limit.unit}"
        if limit.unit.startswith("bytes"):
            much = f"{limit.value // limits.MIB} MiB{limit.unit.removeprefix('bytes')}"
        rows.append(f"| `{limit.name}` | {much} | {limit.of} | {told['answer']} | {told['reason']} |")
    return "\n".join(rows)


def test_the_page_of_limits_has_every_limit() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "resource-limits.md"
    assert f"\n\n{table()}\n\n" in page.read_text(), table()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_reached_limit_is_counted_each_time_and_logged_once_an_hour_for_each_user() -> None:
    told, clock = [], Clock()
    reached = LimitCounters(lambda limit, **about: told.append((limit.name, about)), clock)
    for _ in range(2):
        reached.note(limits.PAYMENTS_OF_USER, uid=7)
    assert told == [("payments_of_user", {"uid": 7})]
    reached.note(limits.PAYMENTS_OF_USER, uid=8)
    assert len(told) == 2
    clock.now += quotas.TELL_SECONDS
    reached.note(limits.PAYMENTS_OF_USER, uid=7)
    assert len(told) == 3
    reached.count(limits.EVENTS_OF_TERMINAL)
    assert (reached.counts["payments_of_user"], reached.counts["events_of_terminal"]) == (4, 1)
    LimitCounters().note(limits.EVENTS_OF_TERMINAL)


def test_the_memory_for_reached_limits_is_bounded() -> None:
    told = []
    reached = LimitCounters(lambda _limit, **about: told.append(about["uid"]))
    for uid in range(quotas.MAX_TOLD + 10):
        reached.note(limits.PAYMENTS_OF_USER, uid=uid)
    assert len(told) == quotas.MAX_TOLD + 10
    assert len(reached._lines) == quotas.MAX_TOLD


def test_with_enough_descriptors_no_limit_is_reduced() -> None:
    assert astuple(places(DESCRIPTORS)) == (3000, 2500, 256, 500, 16)
    assert places(1_000_000) == places(DESCRIPTORS)


@given(st.integers(min_value=800, max_value=20_000))
def test_the_sum_of_all_connections_fits_the_descriptors(descriptors: int) -> None:
    found = places(descriptors)
    used = found.tills + found.operators + found.feed + limits.LAN_DESCRIPTORS + limits.OWN_DESCRIPTORS
    assert used <= descriptors
    assert min(astuple(found)) >= 1
    assert found.process <= found.user < found.tills


def test_a_machine_with_very_few_descriptors_still_serves() -> None:
    assert astuple(places(64)) == (5, 4, 1, 2, 1)
    assert astuple(places(limits.LAN_DESCRIPTORS + limits.OWN_DESCRIPTORS + 80)) == (50, 41, 12, 20, 10)


@pytest.mark.parametrize(("size", "extras", "payments"), [(100, 1, 0.5), (1000, 10, 5), (20_000, 64, 16)])
def test_the_reserved_space_is_a_share_of_a_small_disk(size: int, extras: float, payments: float) -> None:
    assert limits.floor(limits.FREE_FOR_EXTRAS, size * limits.MIB) == extras * limits.MIB
    assert limits.floor(limits.FREE_FOR_PAYMENTS, size * limits.MIB) == payments * limits.MIB
