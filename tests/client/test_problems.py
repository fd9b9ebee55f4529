"""Each problem code of the contract has its class; what a newer posd has beyond them stays a problem."""

import re
from pathlib import Path

import pytest

import posd.client
from posd.base.problems import PROBLEMS
from posd.client import Posd, Problem, Unreachable
from tests.cli.stub import Stub, problem
from tests.support.tables import every

ID = "7f3c0000-0000-4000-8000-0000000000aa"


def test_every_code_of_the_contract_has_a_class_and_no_class_is_without_a_code() -> None:
    assert set(Problem.BY_CODE) == set(PROBLEMS)


@every(("code", "kind"), Problem.BY_CODE.items())
def test_a_class_is_called_as_its_code_and_can_be_imported(code: str, kind: type[Problem]) -> None:
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() == code
    assert getattr(posd.client, kind.__name__) is kind
    assert kind.__name__ in posd.client.__all__


#: These are repeated: what comes of that is held by test_starting.
WAITED_FOR = {"draining", "internal_error"}


@every("code", sorted(set(PROBLEMS) - WAITED_FOR))
def test_a_refusal_is_raised_as_its_class_at_once(tmp_path: Path, code: str) -> None:
    refusal = problem(PROBLEMS[code][0], code, "what to do", ',"blocking_transaction":"7f3c","n":1.10')
    with Stub(tmp_path / "s", [refusal]) as stub, Posd(stub.socket) as client, pytest.raises(Problem) as caught:
        client.charge(ID, "5.00")
    assert type(caught.value) is Problem.BY_CODE[code]
    assert (caught.value.code, caught.value.status, caught.value.detail) == (code, PROBLEMS[code][0], "what to do")
    assert str(caught.value) == "what to do"
    assert {name: str(value) for name, value in caught.value.extra.items()} == {
        "blocking_transaction": "7f3c",
        "n": "1.10",
    }
    assert len(stub.calls) == 1


def test_a_code_that_this_client_does_not_know_is_a_plain_problem(tmp_path: Path) -> None:
    refusal = problem(409, "moon_phase", "wait for the moon")
    with Stub(tmp_path / "s", [refusal]) as stub, Posd(stub.socket) as client, pytest.raises(Problem) as caught:
        client.charge(ID, "5.00")
    assert (type(caught.value), caught.value.code) == (Problem, "moon_phase")


#: What posd says -> what the client makes of it.
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
def test_two_fields_say_what_a_till_does_and_an_older_posd_means_a_person(
    tmp_path: Path, said: str, next_step: str, never_started: bool
) -> None:
    refusal = problem(409, "terminal_busy", "wait", f',"blocking_transaction":"7f3c"{said}')
    with Stub(tmp_path / "s", [refusal]) as stub, Posd(stub.socket) as client, pytest.raises(Problem) as caught:
        client.charge(ID, "5.00")
    assert (caught.value.next_step, caught.value.never_started) == (next_step, never_started)
    assert caught.value.extra == {"blocking_transaction": "7f3c"}


def test_no_answer_says_nothing_of_an_earlier_call(tmp_path: Path) -> None:
    with Posd(tmp_path / "none", patience=0) as client, pytest.raises(Unreachable) as caught:
        client.charge(ID, "5.00")
    assert (caught.value.next_step, caught.value.never_started) == ("same_call", False)
