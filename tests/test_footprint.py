"""Modules that the daemon does not load, because it runs on small machines."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE
from posd.cli.entry import daemon_config

#: Modules that only commands, the relay, the simulator or tests need, and large parts of Python that posd never needs.
NEVER = {
    *("click", "cryptography", "jinja2", "markupsafe", "rich", "pygments", "hypothesis", "pytest", "trustme"),
    *("httpx2", "httpcore2", "truststore", "idna"),
    *("unicodedata", "stringprep", "bz2", "lzma", "zipfile"),
}
#: Single modules that the daemon never needs, although it needs their packages.
NEVER_MODULES = {"encodings.idna", "importlib.resources"}

#: Code that begins like `posd run`.
UNUSED = "from posd.cli.run import UNUSED\nsys.modules.update(dict.fromkeys(UNUSED))\n"


def modules(script: str) -> set[str]:
    """Run a script. Return the names of the modules that are loaded at the script's end."""
    ending = "print(*{name for name in sys.modules if sys.modules[name] is not None})"
    run = subprocess.run([sys.executable, "-c", f"import sys\n{script}\n{ending}"], capture_output=True, check=True)
    return set(run.stdout.decode().split())


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compile the bytecode, as in an installed posd, because a compilation also loads modules."""
    modules("import posd.cli.run, posd.daemon.main")


def packages(loaded: set[str]) -> set[str]:
    """Return the packages of these modules."""
    return {name.partition(".")[0] for name in loaded}


def needless(loaded: set[str]) -> set[str]:
    """Return the modules that the daemon does not need."""
    return {name for name in loaded if name in NEVER_MODULES or name.partition(".")[0] in NEVER}


def test_the_daemon_loads_nothing_that_only_commands_or_tests_need() -> None:
    loaded = modules(f"{UNUSED}import posd.daemon.main")
    assert {"hypercorn", "zeroconf"} <= packages(loaded)
    assert not needless(loaded)
    listener = modules(
        "import hypercorn.asyncio.tcp_server, starlette.requests, starlette.responses, starlette.routing"
    )
    assert {"anyio", "h11"} <= packages(listener)
    assert not {"anyio", "h11"} & packages(loaded - listener)


def test_a_plain_run_loads_nothing_that_only_other_commands_need(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[webhooks]\nlisten = 7\n")
    words = ["posd", "--config", str(config), "run"]
    loaded = modules(
        f"from posd.cli.entry import main\nsys.argv = {words!r}\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    assert end.code == 2, end.code"
    )
    assert "posd" in loaded
    assert not needless(loaded)


def test_all_threads_use_one_heap() -> None:
    script = (
        "import ctypes, threading\nfrom posd.httpd.server import use_one_heap\nuse_one_heap()\n"
        "libc = ctypes.CDLL(None)\nthread = threading.Thread(target=libc.malloc, args=(1000,))\n"
        "thread.start()\nthread.join()\nlibc.malloc_stats()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert b"Arena 0:" in run.stderr
    assert b"Arena 1:" not in run.stderr


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["run"], CONFIG_FILE),
        (["--config", "/x/y.toml", "run"], "/x/y.toml"),
        ([], None),
        (["status"], None),
        (["run", "--help"], None),
        (["--help", "run"], None),
        (["--config", "run"], None),
        (["--config", "--help", "run"], None),
        (["--config", "/x/y.toml", "run", "now"], None),
        (["--socket", "/x/y.sock", "run"], None),
    ],
    ids=str,
)
def test_only_posd_run_without_other_options_counts_as_a_plain_run(
    words: Sequence[str], config: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert daemon_config(words) == config


@pytest.mark.parametrize(("value", "config"), [("/z.toml", "/z.toml"), ("", CONFIG_FILE)])
def test_the_environment_names_the_configuration(value: str, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, value)
    assert daemon_config(["run"]) == config
    assert daemon_config(["--config", "/x.toml", "run"]) == "/x.toml"
