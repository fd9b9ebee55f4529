"""The writer of the log. The reader of the log may stop, read slowly, or disappear.

Another process may make the pipe non-blocking.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posd.logs.output import LogWriter

LINE = b"x" * 99 + b"\n"


class Told:
    """Recorder of the reported numbers of dropped lines. The reports use the same writer."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.writer: LogWriter

    def __call__(self, count: int) -> None:
        self.counts.append(count)
        self.writer.put([b"dropped %d\n" % count])


@contextmanager
def small_pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe of one page."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


def writer_to(descriptor: int, max_bytes: int = 1_000_000) -> tuple[LogWriter, Told]:
    told = Told()
    told.writer = LogWriter(lambda: descriptor, told, max_bytes)
    told.writer.start()
    return told.writer, told


def read_all(descriptor: int, count: int) -> bytes:
    """Read this many bytes."""
    found = b""
    while len(found) < count:
        found += os.read(descriptor, count - len(found))
    return found


def test_lines_arrive_in_order_and_a_line_larger_than_the_pipe_arrives_completely() -> None:
    lines = [b"%d\n" % number for number in range(1000)] + [b"y" * 100_000 + b"\n", b"last\n"]
    with small_pipe() as (read, write):
        writer, _ = writer_to(write)
        for line in lines:
            writer.put([line])
        assert read_all(read, len(b"".join(lines))) == b"".join(lines)
        assert writer.drain(60)
    assert writer.dropped == 0


def test_a_suspended_reader_blocks_nothing_and_later_gets_the_number_of_dropped_lines() -> None:
    with small_pipe() as (read, write):
        writer, told = writer_to(write, 10 * len(LINE))
        os.write(write, b"-" * 4096)  # the pipe is full
        writer.put([b"first\n"])
        while writer._lines:  # the thread has not written the line yet
            time.sleep(0)
        writer.put([LINE] * 25)
        assert not writer.drain(0)
        assert writer.dropped == 15
        expected = b"-" * 4096 + b"first\n" + LINE * 10 + b"dropped 15\n"
        assert read_all(read, len(expected)) == expected
        writer.put([b"last\n"])
        assert read_all(read, 5) == b"last\n"
        assert told.counts == [15]


def test_a_pipe_that_another_process_made_non_blocking_loses_nothing() -> None:
    data = [b"%05d\n" % number for number in range(5000)]
    with small_pipe() as (read, write):
        os.set_blocking(write, False)
        writer, _ = writer_to(write)
        writer.put(data)
        assert read_all(read, 30_000) == b"".join(data)
        assert not os.get_blocking(write), "posd does not change the setting of the other process"
        assert writer.drain(60)


def test_lines_for_a_closed_reader_are_counted_and_cause_no_fault() -> None:
    read, write = os.pipe()
    os.close(read)
    writer, told = writer_to(write)
    writer.put([LINE, LINE])
    assert writer.drain(60)
    assert (writer.dropped, told.counts) == (2, [])
    os.close(write)


def test_without_an_output_all_lines_are_counted() -> None:
    def nowhere() -> int:
        raise ValueError

    writer = LogWriter(nowhere, lambda _count: None)
    writer.start()
    writer.put([LINE])
    assert writer.drain(60)
    assert writer.dropped == 1


def test_a_line_cut_off_by_a_full_disk_does_not_damage_the_next_line(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    script = """
import resource, signal, structlog
from posd.logs import output as logs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
logs.configure("info")
log = structlog.get_logger("posd.test")
log.info("cut off")
logs.writer.drain()
log.info("not written")
logs.writer.drain()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.info("after")
logs.writer.drain()
"""
    with (tmp_path / "log").open("wb") as file:
        subprocess.run([sys.executable, "-c", script], stdout=file, check=True)
    cut, *lines = (tmp_path / "log").read_bytes().splitlines()
    assert len(cut) == 20
    assert [(line["event"], line.get("count")) for line in map(json.loads, lines)] == [
        ("after", None),
        ("log.dropped", 2),
    ]
