"""Completion in real shells. The offered words come from the commands and from a real daemon."""

import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from posd.cli.main import COMMANDS
from tests.cli.conftest import Shop
from tests.support.commands import PATIENCE, posd
from tests.support.needs import needs

#: A script for each of bash and zsh. It prints the offered words.
BASH, ZSH = (Path(__file__).with_name(f"complete.{shell}").read_text() for shell in ("bash", "zsh"))


@pytest.fixture
def payment(shop: Shop) -> Iterator[str]:
    """Yield an open payment. The payment ends with the test."""
    identity = str(uuid.uuid4())
    shop.run("charge", "5", "--id", identity, "--metadata", "scenario=wait-for-abort", "--no-wait").ends(0)
    yield identity
    # The test aborts at the terminal itself, because posd sends no abort for a released payment.
    trust = ssl.create_default_context(cafile=shop.directory / "terminal" / "tls" / "ca.crt")
    abort = f"{shop.terminal.base_url}/terminal/v1/abort"
    with urllib.request.urlopen(abort, context=trust, timeout=PATIENCE) as answer:
        assert answer.status == 200
    ended = shop.run("await", identity, "--timeout", str(PATIENCE))
    assert "canceled" in ended.stdout, ended


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


@pytest.mark.slow
def test_bash_completes_commands_options_and_values(scripts: Path) -> None:
    for line, words in (
        ("", list(COMMANDS)),
        ("tls ", ["init", "status", "renew", "ca"]),
        ("show --h", ["--history", "--help"]),
        ("list --phase a", ["active"]),
        ("restore ", ["OPTION -o default"]),
        ("--config x", ["OPTION -o default"]),
    ):
        assert complete(scripts, "bash", f"posd {line}") == words


@pytest.mark.slow  # each line runs a shell and a command
def test_bash_completes_data_of_the_daemon(scripts: Path, shop: Shop, payment: str) -> None:
    other = "0" if payment[0] != "0" else "1"
    assert complete(scripts, "bash", "posd show ", shop.config_path)[:1] == [payment]
    for line, words in (
        *((f"{command} ", [payment]) for command in ("await", "abort", "reconcile", "release", "resolve")),
        (f"abort {payment[:3]}", [payment]),
        (f"abort {other}", []),
        ("charge 1 --terminal ", [shop.serial]),
        (f"--socket {shop.till_socket} terminals pin ", [shop.serial]),
        ("acknowledge ", []),
    ):
        assert complete(scripts, "bash", f"posd {line}", shop.config_path) == words
    shop.run("release", payment, "--note", "it hangs").ends(0)
    assert complete(scripts, "bash", "posd acknowledge ", shop.config_path) == [payment]
    assert "released" in complete(scripts, "bash", f"posd acknowledge {payment} ", shop.config_path)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["posd show ", "posd terminals pin ", "posd acknowledge "])
def test_without_a_daemon_nothing_is_offered_or_printed(scripts: Path, tmp_path: Path, line: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n')
    for file in (config, "/nonexistent"):
        assert complete(scripts, "bash", line, file) == []


@pytest.mark.slow
@needs("zsh")
def test_zsh_completes_commands(scripts: Path, shop: Shop, payment: str, tmp_path: Path) -> None:
    assert complete(scripts, "zsh", "posd tls ") == ["init", "status", "renew", "ca"]
    assert complete(scripts, "zsh", "posd restore ") == ["FILES"]
    offered = complete(scripts, "zsh", f"posd show {payment[:8]}", shop.config_path)
    assert offered == [f"{payment}:{shop.serial} charge TERMINAL_ACKNOWLEDGED"]
    # zsh itself accepts the script.
    shutil.copy(scripts / "zsh", tmp_path / "_posd")
    script = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -D; print $_comps[posd]"
    assert run(["zsh", "-f", "-c", script]) == "_posd\n"


@pytest.mark.slow
@needs("fish")
def test_fish_completes_commands(scripts: Path, shop: Shop, payment: str) -> None:
    assert set(COMMANDS) <= set(complete(scripts, "fish", "posd "))
    offered = complete(scripts, "fish", f"posd show {payment[:8]}", shop.config_path)
    assert offered == [f"{payment}\t{shop.serial} charge TERMINAL_ACKNOWLEDGED"]


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


def test_help_and_completion_of_a_name_import_no_command_and_the_help_lists_all_in_groups() -> None:
    offered = without_imports(COMP_WORDS="posd sh", COMP_CWORD="1", _POSD_COMPLETE="bash_complete")
    assert offered == ["plain,show"]
    written = without_imports("--help")
    heads = [line for line in written if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Options:", "Pay:", "Look:", "Repair:", "Data:", "Set up:", "Develop:", "Examples:"]
    listed = [line.split()[0] for line in written if line.startswith("  ") and line[2:3].isalpha()]
    assert set(COMMANDS) <= set(listed)
    assert max(map(len, written)) <= 80
