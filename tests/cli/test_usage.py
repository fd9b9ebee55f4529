"""Each command reports wrong usage with exit code 2 and sends nothing. Values are read exactly."""

import re
import shlex
import tomllib
from datetime import date, datetime, time, timedelta
from pathlib import Path

import click
import pytest

from posd.base.operations import OPERATIONS
from posd.base.times import iso
from posd.cli.app import parameters
from tests.rig.commands import FILE_TO_PRINT, asked
from tests.rig.documents import ID, JOB, OTHER_ID
from tests.rig.tables import every

NAMES = {
    "id": ID,
    "other": OTHER_ID,
    "job": JOB,
    "reference": "0c0ffee0-0000-4000-8000-00000000000a",
    "file": FILE_TO_PRINT,
    "by_ana": "--operator Ana --note x --yes",
}
TABLES = tomllib.loads(Path(__file__).with_name("usage.toml").read_text())
INVALID = ("", "+1", "1.", ".5", "1e3", "NaN", "Infinity", "1_000", " 1", "1.23456", "1234567890123", "٣", "1\n")
#: Command line -> words of the message.
WRONG: dict[str, str] = {
    **TABLES["wrong"],
    **{
        f"{command} {rest}": words
        for command in ("reauth", "capture", "tip", "void")
        for rest, words in TABLES["of_derived"].items()
    },
    **{f"charge '{amount}'": "not an amount" for amount in INVALID},
    **{
        f"{row.command} {'{id}' if row.originals else ''}": "no amount: give AMOUNT"
        for row in OPERATIONS.values()
        if row.needs_amount
    },
}


@every(("line", "words"), WRONG.items())
def test_wrong_usage_is_reported_and_nothing_is_sent(line: str, words: str) -> None:
    done = asked([], *shlex.split(line.format(**NAMES)))
    assert (done.returncode, done.calls, "Traceback" in done.stderr) == (2, [], False), done
    assert words.format(**NAMES) in " ".join(done.stderr.split())


@every(("line", "words"), (TABLES["refused"] | dict.fromkeys(WRONG, "")).items())
def test_wrong_usage_is_reported_in_the_language_of_the_person(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    done = asked([], *shlex.split(line.format(**NAMES)))
    shown = " ".join(done.stderr.split())
    assert (done.returncode, words.format(**NAMES) in shown) == (2, True), shown
    if not line.startswith("demo"):  # for developers of tills, in English
        assert re.findall(r"(?<!\S)(?:the|of|is|are|and|not|it|give|for|must|or|with|without)(?!\S)", shown) == [], (
            shown
        )


def test_a_group_without_a_command_shows_its_help() -> None:
    assert "\nCommands:\n" in asked([], "tls").stderr


# Values on the command line are read exactly, or refused with a clear message.


@every(
    ("text", "utc"),
    [
        ("2026-11-20T14:30:00Z", "2026-11-20T14:30:00.000Z"),
        ("2026-11-20T14:30:00.5+02:00", "2026-11-20T12:30:00.500Z"),
        ("2026-11-20T14:30-05:00", "2026-11-20T19:30:00.000Z"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_becomes_utc_with_milliseconds(text: str, utc: str) -> None:
    assert parameters.moment(text) == utc


def test_a_time_can_be_written_as_journalctl_accepts_times() -> None:
    now = datetime.now().astimezone().replace(microsecond=0)
    today, ago = parameters.moment("today"), parameters.moment("-90min")
    assert today == now.date() or datetime.now().astimezone().date() != now.date()
    assert isinstance(ago, str)
    assert timedelta(0) <= datetime.fromisoformat(ago) - (now - timedelta(minutes=90)) < timedelta(minutes=1)
    assert parameters.moment(f"{now.date()} 10:42") == iso(datetime.fromisoformat(f"{now.date()} 10:42"))
    clock = parameters.moment("10:42")
    assert clock == iso(datetime.combine(datetime.now().astimezone().date(), time(10, 42)))
    yesterday = parameters.moment("yesterday")
    assert isinstance(yesterday, date)
    assert yesterday < datetime.now().astimezone().date()
    with pytest.raises(click.BadParameter, match="not a time"):
        parameters.moment("tomorrow")
