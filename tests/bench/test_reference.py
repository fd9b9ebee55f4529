"""The quick run's ratios against the reference: which are worse, and by how much."""

from pathlib import Path

from tests.bench.reference import better, complaints, read, write
from tests.support.tables import every

REFERENCE = {"events": 1.0, "memory": 2.0}


@every(
    ("events", "memory", "worse"),
    [
        ([1.0], [2.0], []),
        ([1.25], [2.5], []),  # a quarter more
        ([0.1], [0.2], []),
        ([1.26], [4.0], ["events", "memory"]),
        ([9.0, 1.0, 1.2, 1.1, 8.0], [2.0], []),  # the median counts
        ([9.0, 1.0, 1.3, 1.1, 8.0], [2.0], ["events"]),
    ],
)
def test_what_is_worse_by_more_than_a_quarter_is_a_complaint(
    events: list[float], memory: list[float], worse: list[str]
) -> None:
    found = complaints({"events": events, "memory": memory}, REFERENCE)
    assert [line.partition(":")[0] for line in found] == worse


def test_what_stands_on_one_side_alone_is_a_complaint() -> None:
    assert [line.partition(":")[0] for line in complaints({"new": [1.0]}, {"old": 1.0})] == ["new", "old"]


def test_of_two_measurements_the_better_one_of_each_counts() -> None:
    disturbed, calm = {"a": [9.0, 9.0, 1.0], "b": [1.0]}, {"a": [1.2, 1.1, 9.0], "b": [2.0]}
    assert better(disturbed, calm) == better(calm, disturbed) == {"a": calm["a"], "b": disturbed["b"]}


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "reference.json"
    write({"events": [1.23456], "memory": [2.0]}, {"python": "3"}, file)
    assert read(file) == {"events": 1.235, "memory": 2.0}
