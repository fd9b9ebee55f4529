"""Each problem code of the contract has its class; what a newer posd has beyond them stays a problem."""

import re
from pathlib import Path

import pytest

import posd.client
from posd.base.problems import PROBLEMS
from posd.client import IdMayBeUsed, Posd, Problem
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


def test_those_after_which_a_person_looks_are_of_one_kind() -> None:
    looked_at = {code for code, kind in Problem.BY_CODE.items() if issubclass(kind, IdMayBeUsed)}
    assert looked_at == {"id_reused", "pruned", "restore_unseen", "storage_unavailable"}
