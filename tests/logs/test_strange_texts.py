"""Texts from outside in the daemon's log, its metrics and its notifications to the service manager."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from posd.base.clocks import wall
from posd.base.exposition import render
from posd.daemon import systemd
from posd.daemon.metrics import FAMILIES
from posd.logs.output import MAX_TEXT, floods, renderer
from tests.rig.exposition import read
from tests.rig.manager import manager
from tests.rig.strange import ALL, STRANGE
from tests.rig.tables import every

LOGGER = SimpleNamespace(name="posd.test")
#: A text that UTF-8 cannot encode, from the name of a file or a JSON string.
HALF = "x\ud800y\udcff"


@every("text", [*STRANGE.values(), ALL[:MAX_TEXT], HALF], [*STRANGE, "all", "half a character"])
def test_a_log_entry_is_one_line_with_the_text(text: str) -> None:
    floods.forget()
    for prefixes in ({}, {"info": b"<6>"}):
        fields = {"event": "test.event", "level": "info", "detail": text, "code": text, "fleet": [text, {text: text}]}
        ((made,), _) = renderer(prefixes, wall)(LOGGER, "info", fields)
        line = made(0.0).decode()
        assert line.isprintable()
        assert line.startswith("<6>{" if prefixes else "{")
        said = json.loads(line.removeprefix("<6>"))
        assert (said["event"], said["detail"], said["fleet"]) == ("test.event", text, [text, {text: text}])


@pytest.mark.parametrize("detail", ["plain", HALF])
@pytest.mark.parametrize("microsecond", [0, 5, 120_000, 999_999])
def test_the_time_of_a_line_always_has_six_digits(detail: str, microsecond: int) -> None:
    moment = datetime(2026, 11, 20, 10, 42, 3, microsecond, UTC)
    ((made,), _) = renderer({}, lambda: moment)(LOGGER, "info", {"event": "test.event", "detail": detail})
    assert json.loads(made(0.0))["timestamp"] == f"2026-11-20T10:42:03.{microsecond:06}Z"


async def test_a_strange_text_adds_no_line_for_the_service_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager(tmp_path) as heard:
        monkeypatch.setenv("NOTIFY_SOCKET", heard.environment["NOTIFY_SOCKET"])
        for text in STRANGE.values():
            systemd.notify(STATUS=text, WATCHDOG="1")
            (said,) = heard.waiting()
            assert [line.partition("=")[0] for line in said.splitlines()] == ["STATUS", "WATCHDOG"]
            assert said.replace("\n", "").isprintable()


@every("text", STRANGE.values(), STRANGE)
def test_a_label_of_a_metric_is_one_label(text: str) -> None:
    written = render(FAMILIES, iter([("posd_terminal_reachable", {text: 1.0, "plain": 0.0})]))
    assert written.replace("\n", "").isprintable()
    assert len(written.splitlines()) == 4
    (family,) = read(written).values()
    assert len(family.samples) == 2
