"""Clients that two generators make from the description.

Each client charges on a running daemon and reads two refusals.

The programs are in tests/openapi/clients. docs/guides/generated-clients.md describes how to make each client.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.openapi.simulated import SERIAL, calling, opened
from tests.rig.daemon import Daemon
from tests.rig.needs import needs, needs_paths

pytestmark = pytest.mark.slow

CLIENTS = Path(__file__).with_name("clients")
NODE_MODULES = CLIENTS / "node_modules"
#: Maximum duration of a generator, a compiler or a client, in seconds.
STUCK_SECONDS = 250.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with opened() as daemon:
        yield daemon


@pytest.fixture
def description(daemon: Daemon, tmp_path: Path) -> Path:
    """Return the description from the daemon."""
    file = tmp_path / "posd.json"
    with calling(daemon) as client:
        file.write_bytes(client.get("/v1/openapi.json").raise_for_status().content)
    return file


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a program. Return its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=STUCK_SECONDS,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def check(said: str) -> None:
    """Compare a client's output about its charge with posd's payment."""
    found = json.loads(said)
    assert found.pop("next_step") in ("wait", "done")
    assert Decimal(found.pop("authorized_amount")) == Decimal("11.20")
    assert found == {
        "result": "approved",
        "first_line": "intent",
        "listed": [True],
        "refused": ["already_final", "unknown_terminal"],
        "fleet": [SERIAL],
    }


def test_openapi_python_client_makes_a_working_client(daemon: Daemon, description: Path, tmp_path: Path) -> None:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the generator formats with ruff
    made = ("--path", description, "--output-path", tmp_path / "posd_api", "--meta", "none", "--fail-on-warning")
    run(sys.executable, "-m", "openapi_python_client", "generate", *made, cwd=tmp_path, PATH=tools)
    check(run(sys.executable, CLIENTS / "charge.py", daemon.till_socket, cwd=tmp_path, PYTHONPATH=str(tmp_path)))


@needs("node")
@needs_paths({NODE_MODULES: "npm ci --prefix tests/openapi/clients"})
def test_openapi_typescript_makes_a_working_client(daemon: Daemon, description: Path, tmp_path: Path) -> None:
    for name in ("charge.ts", "tsconfig.json", "package.json"):
        shutil.copy(CLIENTS / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    run("node", NODE_MODULES / "openapi-typescript/bin/cli.js", description, "-o", "posd.d.ts", cwd=tmp_path)
    run("node", NODE_MODULES / "typescript/bin/tsc", "-p", ".", cwd=tmp_path)
    check(run("node", "charge.js", daemon.till_socket, cwd=tmp_path))
