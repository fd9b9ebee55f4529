"""Waiting survives a daemon that goes away, and starts nothing twice."""

import time
from decimal import Decimal
from pathlib import Path

import pytest

from posd.cli.app.connection import Api, Problem
from posd.cli.app.outcome import TimedOut, start
from tests.cli.stub import Answer, Stub, problem

REQUEST = {"amount": {"subtotal_iva0": Decimal("10.10")}}


def test_a_start_whose_answer_is_lost_is_repeated_word_for_word(tmp_path: Path) -> None:
    script = [Answer(cut=True), problem(503, "draining", "stopping"), Answer(201, b'{"phase":"active"}')]
    away: list[str] = []
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        reply = start(api, "/transactions/x", REQUEST, deadline=None, away=away.append)
    assert reply.status == 201
    assert len(stub.calls) == 3
    assert len({(call.method, call.path, call.body) for call in stub.calls}) == 1
    assert away[1] == "stopping"


@pytest.mark.parametrize("refusal", [problem(409, "terminal_busy", "busy"), problem(503, "draining", "stopping")])
def test_a_start_that_is_refused_is_not_repeated(tmp_path: Path, refusal: Answer) -> None:
    with Stub(tmp_path / "s", [refusal]) as stub, Api(stub.socket) as api, pytest.raises(Problem):
        start(api, "/transactions/x", REQUEST, deadline=None, away=lambda _: None)
    assert len(stub.calls) == 1


def test_a_start_without_an_answer_stops_at_the_deadline(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [Answer(cut=True)]) as stub, Api(stub.socket) as api, pytest.raises(TimedOut):
        start(api, "/transactions/x", REQUEST, deadline=time.monotonic(), away=lambda _: None)


def test_a_failing_health_is_an_answer_and_a_draining_daemon_is_a_problem(tmp_path: Path) -> None:
    script = [Answer(503, b'{"status":"failing"}'), problem(503, "draining", "stopping")]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        assert api.get("/health", also={503}).body == {"status": "failing"}
        with pytest.raises(Problem, match="stopping"):
            api.get("/health", also={503})
