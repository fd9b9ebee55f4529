"""The quick run's ratios against the reference: which are worse, and by how much."""

from pathlib import Path

import pytest

from tests.bench.reference import Ratio, complaints, read, write

REFERENCE = {"events": 1.0, "memory": 2.0}


def ratios(events: float, memory: float) -> list[Ratio]:
    return [Ratio("events", [events]), Ratio("memory", [memory])]


@pytest.mark.parametrize(("events", "memory"), [(1.0, 2.0), (1.25, 2.5), (0.1, 0.2)], ids=["same", "quarter", "better"])
def test_up_to_a_quarter_more_is_no_complaint(events: float, memory: float) -> None:
    assert complaints(ratios(events, memory), REFERENCE) == []


def test_what_is_worse_is_named_with_how_much() -> None:
    assert complaints(ratios(1.26, 4.0), REFERENCE) == [
        "events: 1.26, 26% worse than the reference of 1",
        "memory: 4, 100% worse than the reference of 2",
    ]


def test_the_median_of_the_rounds_counts() -> None:
    assert complaints([Ratio("events", [9.0, 1.0, 1.2, 1.1, 8.0])], {"events": 1.0}) == []
    assert complaints([Ratio("events", [9.0, 1.0, 1.3, 1.1, 8.0])], {"events": 1.0}) != []


def test_of_two_measurements_the_better_one_counts() -> None:
    disturbed, calm = Ratio("events", [9.0, 9.0, 1.0]), Ratio("events", [1.2, 1.1, 9.0])
    assert disturbed.better(calm) == calm.better(disturbed) == calm


def test_what_is_only_shown_is_not_compared() -> None:
    assert complaints([Ratio("rate", [9.0], judged=False)], {}) == []


def test_what_stands_on_one_side_alone_is_a_complaint() -> None:
    assert complaints([Ratio("new", [1.0])], {"old": 1.0}) == [
        "new: the reference does not have it",
        "old: it was not measured",
    ]


def test_what_is_stored_is_what_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "reference.json"
    assert read(file) == {}
    write([*ratios(1.23456, 2.0), Ratio("rate", [9.0], judged=False)], {"python": "3"}, file)
    assert read(file) == {"events": 1.235, "memory": 2.0}
