"""The client chooses its error by the members of a problem. The problem's code does not matter."""

from pathlib import Path

import pytest

from posd.base.problems import PROBLEMS
from posd.client import Posd, Problem, Unreachable
from tests.rig.stub import Stub, problem
from tests.rig.tables import every

ID = "7f3c0000-0000-4000-8000-0000000000aa"


@every("code", [*PROBLEMS, "of_a_newer_posd"])
def test_a_refusal_is_raised_with_its_members(tmp_path: Path, code: str) -> None:
    said = ',"blocking_transaction":"7f3c","n":1.10,"never_started":true'
    refusal = problem(409, code, "what to do", said)
    with (
        Stub(tmp_path / "s", [refusal]) as stub,
        Posd(stub.socket, patience=0) as client,
        pytest.raises(Problem) as caught,
    ):
        client.transaction(ID).abort()
    error = caught.value
    assert (error.code, error.status, str(error), error.never_started) == (code, 409, "what to do", True)
    assert {name: str(value) for name, value in error.extra.items()} == {"blocking_transaction": "7f3c", "n": "1.10"}


@every("code", ["terminal_busy", "id_reused", "of_a_newer_posd"])
def test_a_refused_start_without_a_retry_time_is_not_repeated(tmp_path: Path, code: str) -> None:
    refusal = problem(503, code, "what to do", ',"next_step":"same_call","never_started":false')
    with Stub(tmp_path / "s", [refusal]) as stub, Posd(stub.socket) as client, pytest.raises(Problem):
        client.charge(ID, "5.00")
    assert len(stub.calls) == 1


#: Members of a problem -> the client's error.
SAID = [
    ("", "ask_person", False),
    (',"next_step":"fix_call","never_started":true', "fix_call", True),
    (',"next_step":"same_call","never_started":false', "same_call", False),
    (',"next_step":"new_id_ok","never_started":true', "new_id_ok", True),
    (',"next_step":"of a newer posd"', "ask_person", False),
    (',"next_step":null,"never_started":null', "ask_person", False),
    (',"next_step":["fix_call"],"never_started":"true"', "ask_person", False),
]


@every(("said", "next_step", "never_started"), SAID)
def test_a_problem_has_the_next_step_of_the_response_or_else_asks_a_person(
    tmp_path: Path, said: str, next_step: str, never_started: bool
) -> None:
    refusal = problem(409, "terminal_busy", "wait", f',"blocking_transaction":"7f3c"{said}')
    with Stub(tmp_path / "s", [refusal]) as stub, Posd(stub.socket) as client, pytest.raises(Problem) as caught:
        client.charge(ID, "5.00")
    assert (caught.value.next_step, caught.value.never_started) == (next_step, never_started)
    assert caught.value.extra == {"blocking_transaction": "7f3c"}


def test_a_missing_response_proves_nothing_about_an_earlier_call(tmp_path: Path) -> None:
    with Posd(tmp_path / "none", patience=0) as client, pytest.raises(Unreachable) as caught:
        client.charge(ID, "5.00")
    assert (caught.value.next_step, caught.value.never_started) == ("same_call", False)
