"""`posd metrics` prints the socket's response byte for byte."""

from pathlib import Path

import pytest

from tests.cli.processes import posd
from tests.cli.stub import Answer, Stub, problem

TEXT = "# HELP posd_x X.\n# TYPE posd_x gauge\nposd_x 1\n"


def test_it_prints_what_the_socket_says(tmp_path: Path) -> None:
    answer = Answer(200, TEXT.encode(), "text/plain; version=0.0.4; charset=utf-8")
    with Stub(tmp_path / "s", [answer]) as stub:
        done = posd("metrics", socket=stub.socket)
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT, "")
    assert stub.calls[0].path == "/metrics"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(200, b"<html>hello</html>", "text/html"), "not posd's"),
        (problem(500, "internal_error", "posd failed"), "posd failed"),
    ],
)
def test_what_is_no_text_of_metrics_is_told_as_such(tmp_path: Path, answer: Answer, words: str) -> None:
    with Stub(tmp_path / "s", [answer]) as stub:
        done = posd("metrics", socket=stub.socket)
    assert done.returncode != 0
    assert done.stdout == ""
    assert words in done.stderr
