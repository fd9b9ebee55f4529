"""The client of the local API: exact numbers, problems and broken connections told apart."""

from decimal import Decimal
from pathlib import Path

import pytest

from posd.cli.app.connection import Api, ForeignAnswer, Problem, StreamItem, Unreachable
from tests.cli.stub import Answer, Stub, problem


def test_numbers_stay_exact_in_both_directions(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [Answer(201, b'{"amount":10.10,"n":1}')]) as stub, Api(stub.socket) as api:
        reply = api.put("/transactions/x", {"iva": Decimal("0.1"), "subtotal_iva": Decimal("19999999.99")})
    assert stub.calls[0].body == b'{"iva":0.1,"subtotal_iva":19999999.99}'
    assert stub.calls[0].path == "/v1/transactions/x"
    assert (reply.status, str(reply.body["amount"]), reply.body["n"]) == (201, "10.10", 1)
    assert reply.raw == b'{"amount":10.10,"n":1}'


def test_a_number_that_nothing_can_hold_hides_no_answer(tmp_path: Path) -> None:
    """A terminal's event stands verbatim in an outcome."""
    answer = Answer(200, b'{"final_event":{"x":1e99999999999999999999}}')
    with Stub(tmp_path / "s", [answer]) as stub, Api(stub.socket) as api:
        reply = api.get("/transactions/x/outcome")
    assert reply.body == {"final_event": {"x": "1e99999999999999999999"}}


def test_a_problem_carries_code_detail_and_its_own_fields(tmp_path: Path) -> None:
    busy = problem(409, "terminal_busy", "SN-0001 is busy", ',"blocking_transaction":"7f3c"')
    with Stub(tmp_path / "s", [busy]) as stub, Api(stub.socket) as api, pytest.raises(Problem) as caught:
        api.put("/transactions/x", {})
    assert (caught.value.status, caught.value.code, caught.value.detail) == (409, "terminal_busy", "SN-0001 is busy")
    assert caught.value.extra == {"blocking_transaction": "7f3c"}


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_is_not_posds_is_told_as_such(tmp_path: Path, status: int) -> None:
    html = Answer(status, b"<html>hello</html>", "text/html")
    with Stub(tmp_path / "s", [html]) as stub, Api(stub.socket) as api, pytest.raises(ForeignAnswer) as caught:
        api.get("/health")
    assert "not posd's" in caught.value.reason


def test_a_failing_health_is_an_answer_and_a_draining_daemon_is_a_problem(tmp_path: Path) -> None:
    script = [Answer(503, b'{"status":"failing"}'), problem(503, "draining", "stopping")]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        assert api.get("/health", also={503}).body == {"status": "failing"}
        with pytest.raises(Problem, match="stopping"):
            api.get("/health", also={503})


def test_no_socket_means_nothing_was_sent(tmp_path: Path) -> None:
    with Api(tmp_path / "none") as api, pytest.raises(Unreachable, match="is posd running") as caught:
        api.get("/version")
    assert not caught.value.sent


def test_a_dead_socket_means_nothing_was_sent(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", []):
        pass
    with Api(tmp_path / "s") as api, pytest.raises(Unreachable, match="nobody listens") as caught:
        api.put("/transactions/x", {})
    assert not caught.value.sent


def test_a_connection_lost_after_the_call_may_have_been_read(tmp_path: Path) -> None:
    with (
        Stub(tmp_path / "s", [Answer(cut=True)]) as stub,
        Api(stub.socket) as api,
        pytest.raises(Unreachable) as caught,
    ):
        api.put("/transactions/x", {})
    assert caught.value.sent


def test_a_stream_yields_its_items_and_resumes_after_an_id(tmp_path: Path) -> None:
    text = b': keep-alive\n\nid: 3\nevent: CARD_PRESENTED\ndata: {"a":1}\n\nid: 4\nevent: outcome\ndata: {}\n\n'
    with Stub(tmp_path / "s", [Answer(200, text, "text/event-stream")]) as stub, Api(stub.socket) as api:
        items = list(api.stream("/transactions/x/events", after=2))
    assert items == [StreamItem("3", "CARD_PRESENTED", '{"a":1}'), StreamItem("4", "outcome", "{}")]
    assert stub.calls[0].headers["last-event-id"] == "2"
    assert stub.calls[0].headers["accept"] == "text/event-stream"


def test_a_stream_that_is_refused_raises_the_problem(tmp_path: Path) -> None:
    script = [problem(404, "not_found", "no such transaction")]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api, pytest.raises(Problem, match="no such"):
        list(api.stream("/transactions/x/events"))
