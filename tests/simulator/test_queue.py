"""The persistent queue. Events, order and delivery are the same after a restart."""

from pathlib import Path

import pytest

from posd.simulator import SettingsError
from posd.simulator.delivery import Queue, QueuedEvent


def item(transaction: str, number: int) -> QueuedEvent:
    return QueuedEvent(f"{transaction}-{number}", transaction, "CARD_PRESENTED", "https://x/y", '{"iva":10.10}')


def drain(queue: Queue, transaction: str) -> list[str]:
    ids = []
    while (first := queue.first(transaction)) is not None:
        ids.append(first.event_id)
        queue.done(first)
    return ids


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.jsonl"


def reopened(queue: Queue, path: Path) -> Queue:
    queue.close()
    return Queue(path)


def test_the_state_of_an_item_is_known_after_a_restart(path: Path) -> None:
    queue = Queue(path)
    late = item("a", 0)
    late.alone, late.due, late.distrusted, late.again = True, 1000.25, True, True
    queue.put(late)
    tried = queue.put(item("a", 1))
    for at in (1000.5, 1003.5):
        queue.attempted(tried, at=at)
    queue = reopened(queue, path)
    (alone, tried) = queue.items.values()
    assert (alone.alone, alone.due, alone.distrusted, alone.again) == (True, 1000.25, True, True)
    assert (tried.attempts, tried.first_attempt_at, tried.body) == (2, 1000.5, '{"iva":10.10}')
    assert drain(queue, "a") == ["a-1"]  # an event that is sent alone has no order
    queue.close()


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_cut_short_by_a_kill_is_dropped_and_the_next_line_is_complete(path: Path, cut: int) -> None:
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


def test_a_damaged_queue_is_reported_by_name(path: Path) -> None:
    path.write_text('{"op":"done","client_transaction_id":"a","number":0}\n')
    with pytest.raises(SettingsError, match=r"line 1 of .*queue.*--state"):
        Queue(path)


def test_two_simulators_cannot_share_a_queue(path: Path) -> None:
    queue = Queue(path)
    with pytest.raises(SettingsError, match="--state"):
        Queue(path)
    queue.close()
    Queue(path).close()
