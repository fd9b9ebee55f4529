"""Problems of a key that may hold a secret never show its value."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from posd.cli.operate.support import SECRET_KEY
from posd.config import examine
from posd.config.schema import PROFILE_KEYS, SECTIONS, TerminalConfig, keys
from posd.daemon.reload import InForce
from tests.rig.commands import posd
from tests.rig.tables import every

SECRET = "hunter2-hunter2"
#: Wrong values that a person may write. Each value contains the secret.
WRONG = (
    f'"{SECRET}"',
    f'["{SECRET}", "{SECRET}"]',
    f'["tls://user:{SECRET}", "http://user:{SECRET}@host", "tls://host/?{SECRET}"]',
    f'"https://user:{SECRET}"',
    f'"ftp://user:{SECRET}@host"',
    f'"https://user:{SECRET}@host"',
    f'"https://host/?token={SECRET}"',
    f'{{file = "{SECRET}"}}',
    f'{{credential = "{SECRET} "}}',
    f'{{value = "{SECRET}"}}',
    f'{{X-Api-Key = "{SECRET}\\n"}}',
    f'{{X-Api-Key = {{file = "{SECRET}"}}}}',
    f'{{"Bearer {SECRET}" = "x"}}',
    f'"{SECRET}\\n"',
)
TABLES = {name: keys(section) for name, section in SECTIONS.items()} | {
    "[terminals]": keys(TerminalConfig),
    "profile": PROFILE_KEYS,
    "profile.cloud": PROFILE_KEYS,
}
MARKED = [(table, name) for table, known in TABLES.items() for name, key in known.items() if key.secret]


@every(("table", "name"), MARKED)
def test_a_wrong_value_of_a_key_that_may_hold_a_secret_is_not_quoted(tmp_path: Path, table: str, name: str) -> None:
    file = tmp_path / "config.toml"
    refused = 0
    for value in WRONG:
        serial = '\nserial = "SN-0001"' if table == "[terminals]" else ""
        file.write_text(f"[{table}]{serial}\n{name} = {value}\n")
        config, problems = examine(file)
        assert config is not None
        refused += bool(problems)
        state = InForce(config, lambda: datetime(2026, 11, 20, tzinfo=UTC), lambda: 0.0)
        state.refuse(problems)
        shown = (*map(str, problems), msgspec.json.encode([state.check(), state.state()]).decode())
        assert [text for text in shown if SECRET in text] == [], value
    assert refused


@every("command", ["config check", "config check --json", "doctor"])
def test_no_command_quotes_a_secret_value(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.toml").write_text(
        f'[database]\npath = "{tmp_path}/posd.db"\n[webhooks]\ncertificate = "c"\nprivate_key = "{SECRET}"\n'
        f'[terminal_defaults]\nbusiness_code = {{file = "{SECRET}"}}\nauth = "{SECRET}"\n'
        f'headers = {{X-Api-Key = {{file = "{SECRET}.txt"}}}}\n'
    )
    done = posd(*command.split(), config=tmp_path / "config.toml", socket=tmp_path / "none")
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr


def test_every_key_that_is_named_like_a_secret_is_marked() -> None:
    named = [(table, name) for table, known in TABLES.items() for name in known if SECRET_KEY.search(name)]
    assert named
    assert set(named) | {("terminal_defaults", "auth"), ("[terminals]", "auth")} <= set(MARKED)


@pytest.mark.parametrize("value", ['"de"', '"fr"'])
def test_a_wrong_value_of_another_key_is_quoted(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.toml").write_text(f"[local_api]\nlanguage = {value}\n")
    _, (problem,) = examine(tmp_path / "config.toml")
    assert value.strip('"') in problem.reason
