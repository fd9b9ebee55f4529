"""Limits on stored callbacks: by terminal, by process and user, and by the free space of the disk."""

from pathlib import Path

import pytest

from posd.base import limits
from posd.base.problems import Problem
from posd.httpd.admission import SocketPeer
from posd.records.quotas import Quotas
from posd.records.quotas import sender as budget_of
from posd.storage.database_files import disk_space, mount_point
from tests.rig.tables import there

MIB = limits.MIB
TILL, OTHER, ANOTHER_USER = SocketPeer(10, 1000), SocketPeer(11, 1000), SocketPeer(12, 1001)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def use_up(quotas: Quotas, sender: SocketPeer) -> None:
    starts = quotas.print_jobs
    for _ in range(limits.PRINT_JOBS_OF_PROCESS.value // (200_000 + limits.START_BYTES)):
        starts.require(sender, 200_000 + limits.START_BYTES, "cannot print")
        starts.take(sender, 200_000 + limits.START_BYTES)
    with pytest.raises(Problem):
        starts.require(sender, 200_000 + limits.START_BYTES, "cannot print")


def test_only_the_process_that_started_too_much_is_refused() -> None:
    clock = Clock()
    quotas = Quotas(clock=clock)
    use_up(quotas, TILL)
    with pytest.raises(Problem) as refused:
        quotas.print_jobs.require(TILL, 200_000 + limits.START_BYTES, "cannot print")
    problem = refused.value
    assert (problem.code, problem.status) == ("limit_reached", 429)
    assert problem.extra["limit"] == "print_jobs_of_process"
    assert "nothing recorded" in problem.detail.lower()
    quotas.print_jobs.require(OTHER, 200_000, "cannot print")
    quotas.payments.require(TILL, 200_000, "cannot start")  # endless print callbacks block no payment
    clock.now += problem.extra["retry_after_seconds"]
    quotas.print_jobs.require(TILL, 200_000 + limits.START_BYTES, "cannot print")
    assert quotas.reached.counts["print_jobs_of_process"] == 2


def test_a_terminal_has_its_own_quotas_for_events_and_for_the_quarantine() -> None:
    clock = Clock()
    quotas = Quotas(clock=clock)
    for budget in ("SN-1", budget_of("SN-1", updates_terminal=False)):
        for _ in range(255):
            assert quotas.limit_of_event(budget, MIB) is None
            quotas.keep_event(budget, MIB)
        quotas.keep_event(budget, MIB)
        assert quotas.limit_of_event(budget, 100) is limits.EVENTS_OF_TERMINAL
    assert quotas.limit_of_event("SN-2", MIB) is None
    assert quotas.limit_of_body("SN-1", MIB) is None
    for _ in range(64):
        quotas.keep_body("SN-1", MIB)
    assert quotas.limit_of_body("SN-1", 100) is limits.QUARANTINE_OF_TERMINAL
    clock.now += 3600.0
    assert quotas.limit_of_event("SN-1", MIB) is None
    assert quotas.limit_of_body("SN-1", MIB) is None


@pytest.mark.parametrize(
    ("free", "size", "extras", "payments"),
    [
        (65 * MIB, 20_000 * MIB, True, True),
        (63 * MIB, 20_000 * MIB, False, True),
        (15 * MIB, 20_000 * MIB, False, False),
        (11 * MIB, 1000 * MIB, True, True),  # on a small disk the reserve is a share of the disk
        (6 * MIB, 1000 * MIB, False, True),
        (4 * MIB, 1000 * MIB, False, False),
    ],
)
def test_a_nearly_full_disk_is_reserved_for_payments_and_then_for_their_events(
    free: int, size: int, extras: bool, payments: bool
) -> None:
    quotas = Quotas(lambda: (free, size), Clock())
    assert (quotas.limit_of_body("SN-1", 100) is None) is extras
    assert quotas.limit_of_event("SN-1", 100) is None
    for limit, allowed in ((limits.FREE_FOR_EXTRAS, extras), (limits.FREE_FOR_PAYMENTS, payments)):
        if allowed:
            quotas.require_free(limit, "cannot")
            continue
        with pytest.raises(Problem) as refused:
            quotas.require_free(limit, "cannot")
        assert (refused.value.code, refused.value.status) == ("storage_unavailable", 503)


def test_the_free_space_is_read_from_the_disk(tmp_path: Path) -> None:
    first = there(disk_space(tmp_path))
    assert 0 < first[0] <= first[1]
    assert disk_space(tmp_path / "not there") is None
    mounted = mount_point(tmp_path / "not there")
    assert mounted.is_mount()
    assert tmp_path.is_relative_to(mounted)
