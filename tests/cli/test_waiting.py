"""Waiting survives a daemon that goes away, and starts nothing twice."""

import time
from decimal import Decimal
from pathlib import Path
from threading import Event

import pytest

from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.app.outcome import Arrived, CurrentState, Disconnected, TimedOut, follow, start
from tests.cli.stub import Answer, Stub, problem

OPEN = Answer(200, b'{"phase":"active"}')
FINAL = Answer(200, b'{"phase":"final"}')
REQUEST = {"amount": {"subtotal_iva0": Decimal("10.10")}}


def sse(*items: tuple[str, str, str]) -> Answer:
    text = "".join(f"id: {seq}\nevent: {name}\ndata: {data}\n\n" for seq, name, data in items)
    return Answer(200, text.encode(), "text/event-stream")


def test_a_start_whose_answer_is_lost_is_repeated_word_for_word(tmp_path: Path) -> None:
    script = [Answer(cut=True), problem(503, "draining", "stopping"), Answer(201, b'{"phase":"active"}')]
    away: list[str] = []
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        reply = start(api, "/transactions/x", REQUEST, deadline=None, away=away.append)
    assert reply.status == 201
    assert len(stub.calls) == 3
    assert len({(call.method, call.path, call.body) for call in stub.calls}) == 1
    assert away[1] == "stopping"


def test_a_start_that_did_not_reach_posd_is_not_repeated(tmp_path: Path) -> None:
    away: list[str] = []
    with Api(tmp_path / "none") as api, pytest.raises(Unreachable):
        start(api, "/transactions/x", REQUEST, deadline=None, away=away.append)
    assert away == []


@pytest.mark.parametrize("refusal", [problem(409, "terminal_busy", "busy"), problem(503, "draining", "stopping")])
def test_a_start_that_is_refused_is_not_repeated(tmp_path: Path, refusal: Answer) -> None:
    with Stub(tmp_path / "s", [refusal]) as stub, Api(stub.socket) as api, pytest.raises(Problem):
        start(api, "/transactions/x", REQUEST, deadline=None, away=lambda _: None)
    assert len(stub.calls) == 1


def test_a_start_without_an_answer_stops_at_the_deadline(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [Answer(cut=True)]) as stub, Api(stub.socket) as api, pytest.raises(TimedOut):
        start(api, "/transactions/x", REQUEST, deadline=time.monotonic(), away=lambda _: None)


def test_following_yields_the_events_and_ends_with_the_final_transaction(tmp_path: Path) -> None:
    stream = sse(("1", "TERMINAL_ACKNOWLEDGED", '{"seq":1}'), ("2", "APPROVAL", '{"seq":2}'), ("3", "outcome", "{}"))
    with Stub(tmp_path / "s", [OPEN, stream, FINAL]) as stub, Api(stub.socket) as api:
        updates = list(follow(api, "x", deadline=None))
    assert [type(update) for update in updates] == [CurrentState, Arrived, Arrived, CurrentState]
    assert isinstance(updates[-1], CurrentState)
    assert updates[-1].final


def test_a_broken_stream_is_resumed_behind_the_last_event(tmp_path: Path) -> None:
    script = [
        OPEN,
        sse(("1", "TERMINAL_ACKNOWLEDGED", '{"seq":1}')),
        Answer(cut=True),
        problem(503, "draining", "stopping"),
        OPEN,
        sse(("2", "DECLINED", '{"seq":2}'), ("3", "outcome", "{}")),
        FINAL,
    ]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        updates = list(follow(api, "x", deadline=None))
    assert [update.document["seq"] for update in updates if isinstance(update, Arrived)] == [1, 2]
    assert [update.reason for update in updates if isinstance(update, Disconnected)][-1] == "stopping"
    streams = [call for call in stub.calls if call.path.endswith("/events")]
    assert [call.headers.get("last-event-id") for call in streams] == [None, "1"]


def test_following_stops_at_the_deadline_in_the_middle_of_silence(tmp_path: Path) -> None:
    release = Event()
    silence = Answer(200, b"", "text/event-stream", before=release.wait)
    with Stub(tmp_path / "s", [OPEN, silence]) as stub, Api(stub.socket) as api:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            list(follow(api, "x", deadline=began + 0.2))
        assert 0.2 <= time.monotonic() - began < 30
        release.set()


def test_following_an_unknown_transaction_raises_the_problem(tmp_path: Path) -> None:
    script = [problem(404, "not_found", "no such transaction")]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api, pytest.raises(Problem, match="no such"):
        list(follow(api, "x", deadline=None))


def test_a_failing_health_is_an_answer_and_a_draining_daemon_is_a_problem(tmp_path: Path) -> None:
    script = [Answer(503, b'{"status":"failing"}'), problem(503, "draining", "stopping")]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        assert api.get("/health", also={503}).body == {"status": "failing"}
        with pytest.raises(Problem, match="stopping"):
            api.get("/health", also={503})
