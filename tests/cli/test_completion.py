"""Completion in real shells. The offered words come from the commands and from a real daemon."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from posd.cli.main import COMMANDS, main
from tests.cli.conftest import Shop
from tests.rig.commands import PATIENCE, posd
from tests.rig.needs import needs

#: A script for each of bash and zsh. It prints the offered words.
BASH, ZSH = (Path(__file__).with_name(f"complete.{shell}").read_text() for shell in ("bash", "zsh"))


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the scripts, installed as by a package, and of a `posd` in the path of shells."""
    directory = tmp_path_factory.mktemp("completion")
    program = directory / "bin" / "posd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m posd "$@"\n')
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        (directory / shell).write_text(posd("completion", shell).ends(0).stdout)
    return directory


def run(command: list[str], **environment: str) -> str:
    """Run a program that must succeed without a message. Return its output."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("POSD_")} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=given, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


#: Shell -> command that prints the offered words.
SHELLS = {
    "bash": ["bash", "--norc", "-c", BASH],
    "zsh": ["zsh", "-f", "-c", ZSH],
    "fish": ["fish", "--no-config", "-c", 'source "$SCRIPT"; complete -C "$LINE"'],
}


def complete(scripts: Path, shell: str, line: str, config: Path | str = "/nonexistent") -> list[str]:
    """Return the words that a shell offers at the end of the line."""
    path = f"{scripts / 'bin'}:{os.environ['PATH']}"
    said = run(SHELLS[shell], LINE=line, SCRIPT=str(scripts / shell), PATH=path, POSD_CONFIG=str(config))
    return [word for word in said.splitlines() if word]


@pytest.mark.slow  # each line runs a shell and a command
@pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=needs("zsh")), pytest.param("fish", marks=needs("fish"))]
)
def test_a_shell_completes_every_part_of_a_command_line(scripts: Path, shop: Shop, shell: str) -> None:
    payment = shop.approved("charge", "5")
    described = {"bash": "", "zsh": f":{shop.serial} charge approved", "fish": f"\t{shop.serial} charge approved"}
    files = {"bash": ["OPTION -o default"], "zsh": ["FILES"]}
    found = [word.partition("\t")[0] for word in complete(scripts, shell, "posd tls ")]
    assert found == (sorted if shell == "fish" else list)(["init", "status", "renew", "ca"])
    assert complete(scripts, shell, f"posd show {payment[:8]}", shop.config_path) == [payment + described[shell]]
    if shell in files:
        assert complete(scripts, shell, "posd restore ") == files[shell]


@needs("zsh")
def test_zsh_accepts_the_script(scripts: Path, tmp_path: Path) -> None:
    shutil.copy(scripts / "zsh", tmp_path / "_posd")
    script = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -D; print $_comps[posd]"
    assert run(["zsh", "-f", "-c", script]) == "_posd\n"


def offered(line: str, config: Path | str) -> list[str]:
    """Return the words that `posd` offers to bash at the end of the line."""
    words = {"COMP_WORDS": f"posd {line}", "COMP_CWORD": str(1 + line.count(" ")), "_POSD_COMPLETE": "bash_complete"}
    said = CliRunner().invoke(main, [], prog_name="posd", env=words | {"POSD_CONFIG": str(config)})
    assert said.stderr == ""
    return [word.partition(",")[2] for word in said.stdout.splitlines() if word]


def test_completion_offers_values_from_the_daemon(shop: Shop, tmp_path: Path) -> None:
    payment, other = str(uuid.uuid4()), shop.approved("charge", "5")
    shop.run("charge", "5", "--id", payment, "--metadata", "scenario=by-hand", "--no-wait").ends(0)
    shop.terminal.wait_for("start", client_transaction_id=payment)
    for line, words in (
        ("", list(COMMANDS)),
        ("show --h", ["--history", "--help"]),
        ("list --phase a", ["active"]),
        *((f"{command} ", [payment]) for command in ("await", "abort", "reconcile", "release", "resolve")),
        (f"abort {payment[:3]}", [payment]),
        (f"abort {other}", []),
        ("charge 1 --terminal ", [shop.serial]),
        (f"--socket {shop.till_socket} terminals pin ", [shop.serial]),
        ("acknowledge ", []),
    ):
        assert offered(line, shop.config_path) == words, line
    assert offered("show ", shop.config_path)[0] == payment
    shop.run("release", payment, "--note", "it hangs").ends(0)
    assert offered("acknowledge ", shop.config_path) == [payment]
    assert "released" in offered(f"acknowledge {payment} ", shop.config_path)
    shop.terminal.do("present-card")
    shop.terminal.do("approve")
    assert "approved" in shop.run("await", payment, "--timeout", str(PATIENCE)).stdout


def test_without_a_daemon_completion_offers_and_prints_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n')
    for line in ("show ", "terminals pin ", "acknowledge "):
        assert offered(line, config) == offered(line, "/nonexistent") == []


#: Modules of posd that help and completion of a name need.
NEEDED = {f"posd.cli{name}" for name in ("", ".app", ".app.completion_words", ".app.context", ".app.lazy")}
NEEDED |= {"posd.cli.entry", "posd.cli.main", "posd.base", "posd.base.operations", "posd.base.text"}
#: Program that runs `posd`, and then prints the loaded modules of posd and slow imports.
IMPORTS = """
import contextlib, json, sys
from posd.cli.entry import main
with contextlib.suppress(SystemExit):
    main()
loaded = [name for name in sys.modules if name.startswith("posd.") or name in ("httpx2", "rich", "msgspec")]
print(json.dumps(loaded))
"""


def without_imports(*words: str, **environment: str) -> list[str]:
    """Run `posd`. Check that it imports no command. Return the lines of the output."""
    *lines, loaded = run([sys.executable, "-c", IMPORTS, *words], **environment).splitlines()
    assert set(json.loads(loaded)) == NEEDED
    return lines


def test_help_and_completion_import_no_command_and_help_lists_all_commands() -> None:
    offered = without_imports(COMP_WORDS="posd sh", COMP_CWORD="1", _POSD_COMPLETE="bash_complete")
    assert offered == ["plain,show"]
    written = without_imports("--help")
    heads = [line for line in written if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Options:", "Pay:", "Look:", "Repair:", "Data:", "Set up:", "Develop:", "Examples:"]
    listed = [line.split()[0] for line in written if line.startswith("  ") and line[2:3].isalpha()]
    assert set(COMMANDS) <= set(listed)
    assert max(map(len, written)) <= 80
