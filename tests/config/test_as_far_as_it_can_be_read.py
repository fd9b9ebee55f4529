"""Partial reading of a configuration, for reports of its faults."""

from pathlib import Path

import pytest

from posd.config import ConfigError, examine, load


def test_an_invalid_key_is_reported_and_gets_its_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[webhooks]\nlisten = "0.0.0.0:9443"\nmax_body_bytes = 1\n[nothing]\n[[terminals]]\nserial = "S"\n')
    config, problems = examine(file)
    assert config is not None
    assert (config.webhooks.listen.port, config.webhooks.max_body_bytes) == (9443, 65_536)
    assert [terminal.serial for terminal in config.terminals] == ["S"]
    assert {problem.key for problem in problems} == {"nothing", "webhooks.max_body_bytes"}
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert raised.value.problems == problems


@pytest.mark.parametrize("text", ["[webhooks", None], ids=["invalid TOML", "missing file"])
def test_an_unreadable_file_gives_no_configuration(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_text(text)
    config, problems = examine(file)
    assert config is None
    assert len(problems) == 1
