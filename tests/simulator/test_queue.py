"""The persistent queue. Events, order and delivery are the same after a restart."""

from pathlib import Path

import pytest

from posd.simulator import SettingsError
from posd.simulator.delivery import Queue, QueuedEvent


def item(transaction: str, number: int) -> QueuedEvent:
    return QueuedEvent(f"{transaction}-{number}", transaction, "CARD_PRESENTED", "https://x/y", '{"iva":10.10}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.jsonl"


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_cut_short_by_a_kill_is_dropped_and_the_next_line_is_complete(path: Path, cut: int) -> None:
    queue = Queue(path)
    queue.put(item("a", 0))
    queue.put(item("a", 1))
    queue.close()
    path.write_bytes(path.read_bytes()[:-cut])
    queue = Queue(path)
    queue.put(item("a", 2))
    queue.close()
    queue = Queue(path)
    assert [waiting.event_id for waiting in queue.items.values()] == ["a-0", "a-2"]
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
