"""State of a handle: the requested state, the last received state, and a state that posd cannot read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posd.client import Notice, Posd, Problem, StillOpen, StillPrinting, Unreachable
from tests.client.conftest import refused
from tests.client.test_away import FAULT, FULL, OPEN, STOPPING, sse, sync
from tests.rig.documents import ID, JOB, answer, print_job, transaction
from tests.rig.stub import Answer, Stub, problem

STATES: list[tuple[Callable[[Posd], object], Answer]] = [
    (lambda client: client.transaction(ID).state(), OPEN),
    (lambda client: client.printed(JOB).state(), answer(print_job())),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("look", "found"), STATES, ids=["payment", "print job"])
@pytest.mark.parametrize("trouble", [FULL, FAULT], ids=["full", "fault"])
def test_a_state_that_posd_cannot_read_is_requested_again(
    tmp_path: Path, look: Callable[[Posd], object], found: Answer, trouble: Answer
) -> None:
    assert sync([trouble, trouble, found], tmp_path / "s", look)


@pytest.mark.parametrize(("look", "found"), STATES, ids=["payment", "print job"])
@pytest.mark.parametrize(
    "trouble", [STOPPING, FULL, FAULT, problem(503, "of_a_newer_posd", "odd")], ids=["draining", "full", "fault", "new"]
)
def test_an_unreadable_state_is_not_a_refusal(
    tmp_path: Path, look: Callable[[Posd], object], found: Answer, trouble: Answer
) -> None:
    """If this read raised a Problem, a till would treat a running payment as never started."""
    del found
    with (
        Stub(tmp_path / "s", [trouble]) as stub,
        Posd(stub.socket, patience=0) as client,
        pytest.raises(Unreachable, match="its state is not known") as told,
    ):
        look(client)
    assert isinstance(told.value.__cause__, Problem)


@pytest.mark.slow
def test_a_permanent_fault_is_not_the_end_of_a_print_job(tmp_path: Path) -> None:
    """If a till treated the fault as a refusal, the till would print again."""
    with pytest.raises(Unreachable, match="its state is not known") as told:
        sync([FAULT] * 50, tmp_path / "s", lambda client: client.printed(JOB).outcome())
    assert isinstance(told.value.__cause__, Problem)
    with refused("not_found"):
        sync([problem(404, "not_found", "no")], tmp_path / "s2", lambda client: client.printed(JOB).outcome())


# Tests of the last received response.


FURTHER = answer(transaction(phase="active", status="CARD_PRESENTED"), 202)


def test_the_last_received_state_is_reported(tmp_path: Path) -> None:
    """The state stays the same after a later wait without an update."""
    with Stub(tmp_path / "s", [OPEN, FURTHER]) as stub, Posd(stub.socket) as client:
        payment = client.transaction(ID)
        assert payment.state().status is None
        with pytest.raises(StillOpen):
            payment.outcome(timeout=0)
    with pytest.raises(StillOpen, match="not known to have ended") as caught:
        payment.outcome(timeout=0)
    assert caught.value.state is not None
    assert caught.value.state.status == "CARD_PRESENTED"


def test_the_last_received_state_of_a_print_job_is_reported(tmp_path: Path) -> None:
    script = [answer(print_job()), answer(print_job(status="IN_PROGRESS"), 202)]
    with Stub(tmp_path / "s", script) as stub, Posd(stub.socket) as client:
        job = client.printed(JOB)
        assert job.state().status == "PENDING"
        with pytest.raises(StillPrinting):
            job.outcome(timeout=0)
    with pytest.raises(StillPrinting) as caught:
        job.outcome(timeout=0)
    assert caught.value.state is not None
    assert caught.value.state.status == "IN_PROGRESS"


# Mistakes in the till's own code.


def test_an_exception_of_the_function_on_notice_is_raised_to_the_till(tmp_path: Path) -> None:
    def mistaken(notice: Notice) -> None:
        raise ValueError(notice.code)

    script = [sse((None, "notice", '{"code":"changes_removed","detail":"d","seq":100}'))]
    with (
        Stub(tmp_path / "s", script) as stub,
        Posd(stub.socket) as client,
        pytest.raises(ValueError, match=r"^changes_removed$"),
    ):
        next(client.feed(on_notice=mistaken))


def test_an_exception_of_the_function_on_away_is_raised_to_the_till(tmp_path: Path) -> None:
    """The exception is an error of the till, not of posd."""

    def mistaken(error: Exception) -> None:
        raise ValueError(str(error))

    with (
        Stub(tmp_path / "s", [OPEN, STOPPING]) as stub,
        Posd(stub.socket, on_away=mistaken) as client,
        pytest.raises(ValueError, match=r"^stopping$"),
    ):
        client.transaction(ID).outcome()
