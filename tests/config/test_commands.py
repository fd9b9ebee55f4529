"""`posd config check` and `posd config show`, as processes."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

SECRET = "hunter2-hunter2"


def posd(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSD_")}
    command = [sys.executable, "-m", "posd", "--config", str(file), "config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30, check=False)


def write(directory: Path, text: str) -> Path:
    file = directory / "config.toml"
    file.write_text(text)
    return file


RIGHT = f'[terminal_defaults]\nheaders = {{A = "{SECRET}"}}\n[[terminals]]\nserial = "SN-0001"\n'
WRONG = '[merchant]\ntimezone = "x"\n[logging]\nlevl = "info"\n'


def test_check(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT)
    done = posd(file, "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file}: the configuration is right.\n")
    assert "SN-0001" in done.stdout
    document = json.loads(posd(file, "check", "--json").stdout)
    assert (document["file"], document["ok"], document["problems"]) == (str(file), True, [])
    assert "posd tls init" in document["notes"][0]
    assert document["notes"][0] in done.stdout, "what else keeps posd from starting here is said, and is no mistake"


def test_check_tells_every_problem(tmp_path: Path) -> None:
    file = write(tmp_path, WRONG)
    done = posd(file, "check")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file}: merchant.timezone 'x' is no known time zone\n" in done.stderr
    assert f"{file}: logging.levl is not a known key\n    did you mean level?" in done.stderr
    assert "2 problems" in done.stderr
    done = posd(file, "check", "--json")
    assert done.returncode == 2
    assert [problem["key"] for problem in json.loads(done.stdout)["problems"]] == ["merchant.timezone", "logging.levl"]


def test_show(tmp_path: Path) -> None:
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


def test_show_profile(tmp_path: Path) -> None:
    file = write(tmp_path, "[profile.abort]\nconfirmed = true\n")
    lines = posd(file, "show", "--profile").stdout.splitlines()[1:11]
    rows = {line.split()[0]: line.split(maxsplit=3) for line in lines}
    assert rows["charge"] == ["charge", "POST", "/terminal/v1/async/charge", "confirmed"]
    assert rows["abort"] == ["abort", "GET", "/terminal/v1/abort", "confirmed, from the configuration"]
    assert rows["void"][3] == "assumption"
    (row,) = (
        row
        for row in json.loads(posd(file, "show", "--profile", "--json").stdout)["profile"]
        if (row["access_mode"], row["operation"]) == ("cloud", "void")
    )
    assert (row["path"], row["confirmed"]) == ("/terminal/v1/{terminal_serial}/async/void", False)


def test_show_needs_a_right_configuration(tmp_path: Path) -> None:
    assert posd(write(tmp_path, WRONG), "show").returncode == 2
