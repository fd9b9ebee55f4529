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
from tests.cli.processes import PATIENCE, Shop, posd
from tests.support.needs import needs
from tests.support.slow import first_quick

in_zsh = needs("zsh")
in_fish = needs("fish")

#: bash has no function for the completions of a line. This script calls the completion in the same way as readline.
BASH = """
. "$SCRIPT"
COMP_LINE="$LINE"; COMP_POINT=${#LINE}
read -r -a COMP_WORDS <<< "$LINE"
[[ "$LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { echo OPTION "$@"; }
[[ "$(complete -p posd)" == "complete -o nosort -F _posd_completion posd" ]] || exit 9
_posd_completion posd "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

#: zsh completes only on a terminal. Functions that write their arguments therefore replace zsh's completion system.
ZSH = """
compdef() { :; }
_describe() { print -l -- "${(@P)3}"; }
_path_files() { print FILES; }
compadd() { print -l -- "${(@P)@[-1]}"; }
words=("${(@Q)${(z)LINE}}")
[[ "$LINE" == *" " ]] && words+=("")
CURRENT=${#words}
source "$SCRIPT"
_posd_completion
"""


@pytest.fixture
def payment(shop: Shop) -> Iterator[str]:
    """Yield an open payment. The payment ends with the test."""
    identity = str(uuid.uuid4())
    started = shop.run("charge", "5", "--id", identity, "--metadata", "scenario=wait-for-abort", "--no-wait")
    assert started.returncode == 0, started.stderr
    yield identity
    # The test aborts at the terminal itself, because posd sends no abort for a released payment.
    trust = ssl.create_default_context(cafile=shop.directory / "terminal" / "tls" / "ca.crt")
    with urllib.request.urlopen(
        f"{shop.terminal.base_url}/terminal/v1/abort", context=trust, timeout=PATIENCE
    ) as answer:
        assert answer.status == 200
    ended = shop.run("await", identity, "--timeout", str(PATIENCE))
    assert "canceled" in ended.stdout, ended


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the scripts, installed as by a package, and a `posd` in the path of shells."""
    directory = tmp_path_factory.mktemp("completion")
    program = directory / "bin" / "posd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m posd "$@"\n')
    program.chmod(0o755)
    found = {}
    for shell in ("bash", "zsh", "fish"):
        made = posd("completion", shell)
        assert (made.returncode, made.stderr) == (0, "")
        found[shell] = directory / shell
        found[shell].write_text(made.stdout)
    return found


def complete(scripts: dict[str, Path], shell: str, line: str, config: Path | str = "/nonexistent") -> list[str]:
    """Return the words that a shell offers at the end of the line."""
    script = scripts[shell]
    path = f"{script.parent / 'bin'}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSD_")}
    environment |= {"LINE": line, "SCRIPT": str(script), "PATH": path, "POSD_CONFIG": str(config)}
    run = {
        "bash": ["bash", "--norc", "-c", BASH],
        "zsh": ["zsh", "-f", "-c", ZSH],
        "fish": ["fish", "--no-config", "-c", 'source "$SCRIPT"; complete -C "$LINE"'],
    }[shell]
    done = subprocess.run(
        run, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE, cwd=script.parent
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return [word for word in done.stdout.splitlines() if word]


@pytest.mark.slow
def test_bash_completes_commands_options_and_values(scripts: dict[str, Path]) -> None:
    assert complete(scripts, "bash", "posd ") == list(COMMANDS)
    assert complete(scripts, "bash", "posd re") == [name for name in COMMANDS if name.startswith("re")]
    assert complete(scripts, "bash", "posd tls ") == ["init", "status", "renew", "ca"]
    assert complete(scripts, "bash", "posd show --h") == ["--history", "--help"]
    assert complete(scripts, "bash", "posd list --phase a") == ["active"]
    assert complete(scripts, "bash", "posd restore ") == ["OPTION -o default"]
    assert complete(scripts, "bash", "posd --config x") == ["OPTION -o default"]


OPEN_PAYMENTS = first_quick([(("show",),), (("await", "abort", "reconcile", "release", "resolve"),)], 1)


@pytest.mark.slow
@pytest.mark.parametrize("commands", OPEN_PAYMENTS)
def test_bash_completes_the_open_payments(
    scripts: dict[str, Path], shop: Shop, payment: str, commands: tuple[str, ...]
) -> None:
    for command in commands:
        offered = complete(scripts, "bash", f"posd {command} ", shop.config_path)
        assert offered[:1] == [payment]
        assert command == "show" or len(offered) == 1  # the other payments have ended


@pytest.mark.slow  # each line runs a shell and a command
def test_bash_completes_data_of_the_daemon(scripts: dict[str, Path], shop: Shop, payment: str) -> None:
    assert complete(scripts, "bash", f"posd abort {payment[:3]}", shop.config_path) == [payment]
    other = "0" if payment[0] != "0" else "1"
    assert complete(scripts, "bash", f"posd abort {other}", shop.config_path) == []
    assert complete(scripts, "bash", "posd charge 1 --terminal ", shop.config_path) == [shop.serial]
    assert complete(scripts, "bash", f"posd --socket {shop.till_socket} terminals pin ") == [shop.serial]
    assert complete(scripts, "bash", "posd acknowledge ", shop.config_path) == []
    released = shop.run("release", payment, "--note", "it hangs")
    assert released.returncode == 0, released.stderr
    assert complete(scripts, "bash", "posd acknowledge ", shop.config_path) == [payment]
    assert "released" in complete(scripts, "bash", f"posd acknowledge {payment} ", shop.config_path)


WITHOUT_DAEMON = [
    (line, configured)
    for configured in (True, False)
    for line in ("posd show ", "posd terminals pin ", "posd acknowledge ", "posd print-jobs ")
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "configured"), first_quick(WITHOUT_DAEMON, 1))
def test_without_a_daemon_nothing_is_offered_or_printed(
    scripts: dict[str, Path], tmp_path: Path, line: str, configured: bool
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n')
    assert complete(scripts, "bash", line, config if configured else "/nonexistent") == []


@pytest.mark.slow
@in_zsh
def test_zsh_completes_commands(scripts: dict[str, Path], shop: Shop, payment: str) -> None:
    assert complete(scripts, "zsh", "posd tls ") == ["init", "status", "renew", "ca"]
    assert complete(scripts, "zsh", "posd restore ") == ["FILES"]
    offered = complete(scripts, "zsh", f"posd show {payment[:8]}", shop.config_path)
    assert offered == [f"{payment}:{shop.serial} charge TERMINAL_ACKNOWLEDGED"]


@pytest.mark.slow
@in_zsh
def test_zsh_itself_accepts_the_script(scripts: dict[str, Path], tmp_path: Path) -> None:
    functions = tmp_path / "functions"
    functions.mkdir()
    shutil.copy(scripts["zsh"], functions / "_posd")
    done = subprocess.run(
        ["zsh", "-f", "-c", f"fpath=({functions} $fpath); autoload -U compinit; compinit -D; print $_comps[posd]"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "_posd\n", "")


@pytest.mark.slow
@in_fish
def test_fish_completes_commands(scripts: dict[str, Path], shop: Shop, payment: str) -> None:
    assert set(COMMANDS) <= set(complete(scripts, "fish", "posd "))
    assert complete(scripts, "fish", f"posd show {payment[:8]}", shop.config_path) == [
        f"{payment}\t{shop.serial} charge TERMINAL_ACKNOWLEDGED"
    ]


#: Program that runs `posd`, and prints the loaded modules of posd and slow imports.
NEEDED = {
    "posd.cli",
    "posd.cli.app",
    "posd.cli.app.completion_words",
    "posd.cli.app.context",
    "posd.cli.entry",
    "posd.cli.app.lazy",
    "posd.cli.main",
}


def imports_of(*words: str, **environment: str) -> tuple[str, set[str]]:
    """Return the output of `posd` and the imported modules."""
    code = f"""
import sys
from posd.cli.entry import main
sys.argv = ["posd", *{words!r}]
try:
    main()
except SystemExit:
    pass
import json
loaded = [name for name in sys.modules if name.startswith("posd.") or name in ("httpx2", "rich", "msgspec")]
print(json.dumps(loaded), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env=os.environ | environment,
    )
    return done.stdout, set(json.loads(done.stderr))


def test_completing_a_name_imports_no_command() -> None:
    offered, imported = imports_of(COMP_WORDS="posd sh", COMP_CWORD="1", _POSD_COMPLETE="bash_complete")
    assert offered == "plain,show\n"
    assert imported == NEEDED


def test_the_help_imports_no_command_and_lists_all_in_groups() -> None:
    written, imported = imports_of("--help")
    assert imported == NEEDED
    heads = [line for line in written.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Options:", "Pay:", "Look:", "Repair:", "Data:", "Set up:", "Develop:", "Examples:"]
    listed = [line.split()[0] for line in written.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    assert set(COMMANDS) <= set(listed)
    assert max(map(len, written.splitlines())) <= 80
