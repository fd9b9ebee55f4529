"""The commands where there is no daemon, or no configuration."""

from pathlib import Path

import pytest

from tests.cli.processes import posd

ID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "arguments",
    [("charge", "1"), ("await", ID), ("abort", ID), ("show", ID), ("list",), ("terminals",), ("status",)],
    ids=lambda arguments: arguments[0],
)
def test_a_daemon_that_is_not_there_exits_3(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = posd(*arguments, socket=tmp_path / "till.sock")
    assert done.returncode == 3
    assert str(tmp_path / "till.sock") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_charge_that_reached_nobody_says_that_nothing_was_started(tmp_path: Path) -> None:
    assert "Nothing was started" in posd("charge", "1", socket=tmp_path / "till.sock").stderr


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_configuration_that_is_not_there_exits_2(tmp_path: Path, command: str) -> None:
    done = posd(command, config=tmp_path / "none.toml")
    assert done.returncode == 2
    assert str(tmp_path / "none.toml") in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_of_a_configuration_is_told_at_once(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[webhooks]\nlisten = 7\nadvertize_host = "x"\n')
    for command in ("status", "run"):
        done = posd(command, config=config)
        assert done.returncode == 2
        assert "webhooks.listen" in done.stderr
        assert "advertise_host" in done.stderr
