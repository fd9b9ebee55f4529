"""`posd config check` and `posd config show`."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner

from posd.cli.main import main
from tests.rig.commands import Done, posd_process

SECRET = "hunter2-hunter2"
VOID_STANDING = "assumption, from the configuration"


def posd(file: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Done:
    """Run the command in this process. A start of Python would take most of a test's time."""
    changed = dict.fromkeys(name for name in os.environ if name.startswith("POSD_")) | dict(environment or {})
    result = CliRunner(env=changed).invoke(main, ["--config", str(file), "config", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Done(result.exit_code, result.stdout, result.stderr)


def write(directory: Path, text: str) -> Path:
    file = directory / "config.toml"
    file.write_text(text)
    return file


RIGHT = f'[terminal_defaults]\nheaders = {{A = "{SECRET}"}}\n[[terminals]]\nserial = "SN-0001"\n'
WRONG = '[merchant]\ntimezone = "x"\n[logging]\nlevl = "info"\n'


def test_check_accepts_a_valid_file(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT)
    done = posd_process("config", "check", "--file-only", config=file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file}: the configuration is right.\n")
    assert "SN-0001" in done.stdout
    document = json.loads(posd(file, "check", "--file-only", "--json").stdout)
    assert document == {"file": str(file), "ok": True, "problems": [], "notes": []}


def test_check_reports_what_prevents_a_start_on_this_machine(tmp_path: Path) -> None:
    own = f'[database]\npath = "posd.db"\n[local_api]\ndirectory = "run"\nadmin_group = ""\ntill_group = ""\n{RIGHT}'
    file = write(tmp_path, f'[webhooks]\nlisten = "127.0.0.1:0"\n{own}')
    done = posd(file, "check")
    assert (done.returncode, done.stdout) == (2, "")
    missing = f"{tmp_path}/tls/server.crt"
    assert f"{file}:1: webhooks.certificate {missing}: there is no certificate: posd will not start" in done.stderr
    assert f"    posd --config {file} tls init\n" in done.stderr
    assert "1 problem: posd cannot use the configuration until this is corrected.\n" in done.stderr
    document = json.loads(posd(file, "check", "--json").stdout)
    (problem,) = document["problems"]
    assert (document["ok"], problem["file"], problem["key"]) == (False, str(file), "webhooks.certificate")
    assert problem["cure"].endswith(f"\nposd --config {file} tls init")
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"], "the check makes no file"


def test_check_reports_every_problem(tmp_path: Path) -> None:
    file = write(tmp_path, WRONG)
    done = posd_process("config", "check", config=file)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file}:2: merchant.timezone 'x' is not a known time zone\n" in done.stderr
    assert f"{file}:4: logging.levl is not a known key\n    did you mean level?" in done.stderr
    assert "2 problems" in done.stderr
    assert done.stderr.endswith(f"editor +2 {file}\n")
    done = posd(file, "check", "--json")
    assert done.returncode == 2
    assert [problem["key"] for problem in json.loads(done.stdout)["problems"]] == ["merchant.timezone", "logging.levl"]


def test_show_prints_every_key(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT)
    done = posd(file, "show")
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET not in done.stdout
    assert 'serial = "SN-0001"\n' in done.stdout
    assert 'level = "info"  # default\n' in done.stdout
    assert tomllib.loads(done.stdout)["terminals"][0]["headers"] == {"A": {"hidden": True}}
    document = json.loads(posd(file, "show", "--json").stdout)
    assert document["values"]["terminals"][0]["serial"] == "SN-0001"
    assert document["sources"]["terminals[0].serial"] == "file"
    assert document["sources"]["logging.level"] == "default"


def test_show_names_the_file_of_each_value(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT)
    (tmp_path / "config.d").mkdir()
    second = tmp_path / "config.d" / "shop.toml"
    second.write_text('[merchant]\nid = "M-1"\n[[terminals]]\nserial = "SN-0002"\n')
    lines = posd(file, "show").stdout.splitlines()
    assert {'id = "M-1"  # config.d/shop.toml', 'serial = "SN-0001"', 'serial = "SN-0002"  # config.d/shop.toml'} <= {
        *lines
    }
    files = json.loads(posd(file, "show", "--json").stdout)["files"]
    assert (files["merchant.id"], files["terminals[0].serial"]) == (str(second), str(file))
    assert "logging.level" not in files


def test_check_names_the_default_time_zone_and_the_listeners(tmp_path: Path) -> None:
    def summary(text: str) -> str:
        return posd(write(tmp_path, text), "check", "--file-only").stdout

    assert "midnight of America/Guayaquil (the default" in summary("")
    assert "midnight of UTC\n" in summary('[merchant]\ntimezone = "UTC"')
    assert "0.0.0.0:8443 (IPv4 alone" in summary("")
    assert "IPv4 alone" not in summary('[webhooks]\nlisten = "[::]:8443"')
    assert "http on 192.0.2.1:9464" in summary('[metrics]\nlisten = "192.0.2.1:9464"')


def test_show_profile_prints_every_row(tmp_path: Path) -> None:
    file = write(tmp_path, "[profile.abort]\nconfirmed = true\n[profile.cloud.void]\nabortable = false\n")
    lines = [line.split("\t") for line in posd(file, "show", "--profile").stdout.splitlines()]
    assert lines[0] == ["Local network, classic", "method", "path", "abortable", "standing"]
    rows = {line[0]: line for line in lines[1:12]}
    assert rows["charge"] == ["charge", "POST", "/terminal/v1/async/charge", "yes", "confirmed"]
    assert rows["abort"] == ["abort", "GET", "/terminal/v1/abort", "-", "confirmed, from the configuration"]
    assert rows["void"][3:] == ["yes", "assumption"]
    assert lines[12] == ["Cloud, classic", "method", "path", "abortable", "standing"]
    rows = {line[0]: line for line in lines[13:24]}
    assert rows["void"] == ["void", "POST", "/terminal/v1/{terminal_serial}/async/void", "no", VOID_STANDING]
    shown = {
        (row["access_mode"], row["operation"]): row
        for row in json.loads(posd(file, "show", "--profile", "--json").stdout)["profile"]
    }
    assert len(shown) == 22
    assert shown["cloud", "void"] == {
        "edition": "classic",
        "access_mode": "cloud",
        "operation": "void",
        "method": "POST",
        "path": "/terminal/v1/{terminal_serial}/async/void",
        "pointer": "",
        "paged": False,
        "abortable": False,
        "errors_in_2xx": False,
        "document_member": "",
        "confirmed": False,
        "replaced": True,
    }
    assert (shown["local", "void"]["abortable"], shown["local", "search"]["abortable"]) == (True, None)


def test_show_needs_a_valid_configuration(tmp_path: Path) -> None:
    assert posd(write(tmp_path, WRONG), "show").returncode == 2
