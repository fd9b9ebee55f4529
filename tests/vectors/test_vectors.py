"""Comparison of posd's codecs and decisions with every vector. The tests call public functions of posd's pure rules."""

from decimal import Decimal
from typing import Any

import pytest

from tests.rig.tables import try_each
from tests.vectors.case import HERE, Case, load
from tests.vectors.posd_says import KINDS, says

FILES = sorted(path for path in HERE.glob("*/*.json"))
#: Statuses that the codec cannot give. Only the listener knows the terminals, the merchant, and the largest size of a
#: body.
LISTENER_ALONE = frozenset({403, 413})


def folder_of(case: Case) -> str:
    return case.path.split("/")[0]


CASES = [load(path) for path in FILES if path.parent.name != "found"]
FOUND = [load(path) for path in FILES if path.parent.name == "found"]
HELD = [case for case in (*CASES, *FOUND) if case.kind in KINDS and case.expect.get("reply") not in LISTENER_ALONE]


@pytest.mark.parametrize("folder", sorted({folder_of(case) for case in HELD}))
def test_posd_does_what_every_vector_of_a_folder_expects(folder: str) -> None:
    try_each([(case.path, {"case": case}) for case in HELD if folder_of(case) == folder], does_what_it_expects)


def does_what_it_expects(case: Case) -> None:
    expected, said = dict(case.expect), says(case)
    if case.kind == "transaction-event" and expected["reply"] == 400:
        field, why = expected.pop("field"), said.pop("why")
        assert field is None or field in why
    assert same(said, expected), f"{case.path}: {case.about}\nexpected {expected}\nposd     {said}"


def same(said: Any, expected: Any, name: str = "") -> bool:
    """Return whether two results are the same. Amounts are compared by value and by their digits after the point."""
    if isinstance(said, dict) and isinstance(expected, dict):
        return said.keys() == expected.keys() and all(same(said[key], expected[key], key) for key in expected)
    if name in ("authorized_amount", "tip") and said is not None and expected is not None:
        one, other = Decimal(said), Decimal(expected)
        return (one, one.as_tuple().exponent) == (other, other.as_tuple().exponent)
    return bool(said == expected)


def test_every_kind_has_files_of_one_form() -> None:
    assert KINDS.keys() <= {case.kind for case in CASES}
    assert [case.path for case in CASES if (HERE / case.path).read_text("ascii") != case.dump()] == []
