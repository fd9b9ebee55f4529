"""The persistent queue."""

from pathlib import Path

import pytest

from posd.simulator import SettingsError
from posd.simulator.delivery import Item, Queue, QueueBusy


def item(transaction: str, number: int) -> Item:
    return Item(f"{transaction}-{number}", transaction, "CARD_PRESENTED", "https://x/y", '{"iva":10.10}')


def drain(queue: Queue, transaction: str) -> list[str]:
    ids = []
    while (first := queue.first(transaction)) is not None:
        ids.append(first.event_id)
        queue.done(first)
    return ids


def reopened(queue: Queue, path: Path) -> Queue:
    queue.close()
    return Queue(path)


def test_items_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    for number in range(3):
        queue.put(item("a", number))
        queue.put(item("b", number))
    first = queue.first("a")
    assert first is not None
    queue.done(first)
    queue = reopened(queue, path)
    assert sorted(queue.transactions()) == ["a", "b"]
    assert drain(queue, "a") == ["a-1", "a-2"]
    assert drain(queue, "b") == ["b-0", "b-1", "b-2"]
    queue.close()
    assert path.read_bytes() == b""


def test_attempts_are_counted_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    queue.put(item("a", 0))
    first = queue.first("a")
    assert first is not None
    queue.attempted(first, at=1000.5)
    queue.attempted(first, at=1003.5)
    queue = reopened(queue, path)
    again = queue.first("a")
    assert again is not None
    assert (again.attempts, again.first_attempt_at, again.body) == (2, 1000.5, '{"iva":10.10}')
    queue.close()


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_cut_short_by_a_kill_is_dropped_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    queue.put(item("a", 0))
    queue.put(item("a", 1))
    queue.close()
    path.write_bytes(path.read_bytes()[:-cut])
    queue = Queue(path)
    queue.put(item("a", 2))
    queue = reopened(queue, path)
    assert drain(queue, "a") == ["a-0", "a-2"]
    queue.close()


def test_a_damaged_queue_is_named(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    path.write_text('{"op":"done","client_transaction_id":"a","number":0}\n')
    with pytest.raises(SettingsError, match=r"line 1 of .*queue.*--state"):
        Queue(path)


def test_two_simulators_cannot_share_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    with pytest.raises(QueueBusy, match="--state"):
        Queue(path)
    queue.close()
    Queue(path).close()


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    Queue(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_items_can_be_taken_out_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    waiting = [queue.put(item("a", number)) for number in range(4)]
    queue.done(waiting[2])
    queue.attempted(waiting[3], at=7.5)
    queue.done(waiting[0])
    queue = reopened(queue, path)
    left = list(queue.items())
    assert [(one.event_id, one.attempts, one.first_attempt_at) for one in left] == [("a-1", 0, None), ("a-3", 1, 7.5)]
    numbers = [queue.put(item(transaction, 4)).number for transaction in ("a", "b", "c")]
    assert len({one.number for one in left} | set(numbers)) == 5
    queue.close()


def test_items_with_the_same_event_id_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    first, second = queue.put(item("a", 0)), queue.put(item("a", 0))
    queue.attempted(second, at=1.0)
    queue.done(first)
    assert [one.attempts for one in queue.items()] == [1]
    queue.close()


def test_an_item_that_waits_once_more_does_so_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    queue.attempted(queue.put(item("a", 0)), at=1000.5)
    (waiting,) = queue.items()
    queue.again(waiting)
    assert waiting.again
    queue = reopened(queue, path)
    (waiting,) = queue.items()
    assert (waiting.again, waiting.attempts, waiting.first_attempt_at) == (True, 0, None)
    queue.done(waiting)
    queue.close()
    assert path.read_bytes() == b""


def test_what_goes_alone_is_in_no_order_and_how_it_goes_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    queue = Queue(path)
    late = item("a", 0)
    late.alone, late.due, late.distrusted, late.again = True, 1000.25, True, True
    queue.put(late)
    queue.put(item("a", 1))
    queue = reopened(queue, path)
    first = queue.first("a")
    assert first is not None
    assert first.event_id == "a-1"
    queue.done(first)
    assert queue.first("a") is None
    (waiting,) = queue.items()
    assert (waiting.alone, waiting.due, waiting.distrusted, waiting.again) == (True, 1000.25, True, True)
    assert isinstance(waiting.due, float)
    assert queue.first("b") is None
    queue.close()


def test_a_journal_of_an_earlier_version_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "queue.jsonl"
    path.write_text(
        '{"op":"put","event_id":"e","client_transaction_id":"a","status":"APPROVAL","url":"https://x/y","body":"{}",'
        '"attempts":0,"first_attempt_at":null,"again":false,"number":3}\n'
    )
    queue = Queue(path)
    (waiting,) = queue.items()
    assert (waiting.number, waiting.alone, waiting.due, waiting.distrusted) == (3, False, None, False)
    queue.close()
