"""Clients that generators make of the description: each charges on a running daemon, and reads two refusals.

The programs are in tests/openapi/clients; docs/guides/generated-clients.md says how each of them was made.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from tests.openapi.gateway import SERIAL, Gateway, opened
from tests.recipes.csharp import DOTNET, needs_csharp
from tests.support.needs import PHP_CURL, needs, needs_paths

pytestmark = pytest.mark.slow

CLIENTS = Path(__file__).with_name("clients")
ROOT = Path(__file__).parents[2]
NODE_MODULES = CLIENTS / "node_modules"
#: Longest that a generator, a compiler or a client may take, in seconds: then it is stuck.
STUCK_SECONDS = 250.0

_generator = find_spec("openapi_generator_cli")
GENERATOR = (
    Path(_generator.origin or "").with_name("openapi-generator.jar") if _generator else Path("openapi-generator")
)
#: The classes of annotations that the generated Java names; all else that it needs is in the generator itself.
ANNOTATIONS = Path("/usr/share/java/geronimo-annotation-1.3-spec.jar")
GUZZLE = Path("/usr/share/php/GuzzleHttp/autoload.php")

#: What is generated: neither tests nor documents.
PARTS = "models,apis,supportingFiles,modelTests=false,apiTests=false,modelDocs=false,apiDocs=false"
#: For a program of Java that runs for seconds.
BRIEF = "-XX:TieredStopAtLevel=1"

needs_generator = needs_paths({GENERATOR: "pip install -e '.[generators]'"})


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with TemporaryDirectory(prefix="posd-") as directory, opened(Path(directory)) as gateway:
        yield gateway


@pytest.fixture
def description(gateway: Gateway, tmp_path: Path) -> Path:
    """The description as the daemon serves it."""
    file = tmp_path / "posd.json"
    file.write_bytes(httpx2.get(f"{gateway.till}/v1/openapi.json", timeout=STUCK_SECONDS).raise_for_status().content)
    return file


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a program; return what it says."""
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


def generated(language: str, description: Path, directory: Path, *more: str) -> Path:
    """Let openapi-generator make a client; return its folder."""
    found = directory / language
    options = ("-i", description, "-g", language, "-o", found, "--global-property", PARTS, *more)
    said = run("java", BRIEF, "-jar", GENERATOR, "generate", *options, cwd=directory)
    assert "ERROR" not in said, said
    return found


def check(said: str, **other: Any) -> None:
    """Hold what a client says of its charge against what was charged."""
    found = json.loads(said)
    assert found.pop("next_step") in ("wait", "done")
    assert Decimal(found.pop("authorized_amount")) == Decimal("11.20")
    expected = {
        "result": "approved",
        "first_line": "intent",
        "listed": [True],
        "refused": ["already_final", "unknown_terminal"],
        "fleet": [SERIAL],
    }
    assert found == {name: value for name, value in (expected | other).items() if value is not None}


def test_openapi_python_client(gateway: Gateway, description: Path, tmp_path: Path) -> None:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it formats with ruff
    made = ("--path", description, "--output-path", tmp_path / "posd_api", "--meta", "none", "--fail-on-warning")
    run(sys.executable, "-m", "openapi_python_client", "generate", *made, cwd=tmp_path, PATH=tools)
    check(run(sys.executable, CLIENTS / "charge.py", gateway.till_socket, cwd=tmp_path, PYTHONPATH=str(tmp_path)))


@needs("node")
@needs_paths({NODE_MODULES: "npm ci --prefix tests/openapi/clients"})
def test_openapi_typescript(gateway: Gateway, description: Path, tmp_path: Path) -> None:
    for name in ("charge.ts", "tsconfig.json", "package.json"):
        shutil.copy(CLIENTS / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    run("node", NODE_MODULES / "openapi-typescript/bin/cli.js", description, "-o", "posd.d.ts", cwd=tmp_path)
    run("node", NODE_MODULES / "typescript/bin/tsc", "-p", ".", cwd=tmp_path)
    check(run("node", "charge.js", gateway.till_socket, cwd=tmp_path))


@needs("java")
@needs_generator
@needs_paths({ANNOTATIONS: "Debian: libgeronimo-annotation-1.3-spec-java"})
def test_openapi_generator_java(gateway: Gateway, description: Path, tmp_path: Path) -> None:
    made = generated("java", description, tmp_path, "--library", "native", "-p", "openApiNullable=false")
    sources = [*(made / "src/main").rglob("*.java"), CLIENTS / "Charge.java"]
    path = f"{GENERATOR}:{ANNOTATIONS}"
    (tmp_path / "sources").write_text("".join(f'"{file}"\n' for file in sources))
    run(
        "javac",
        f"-J{BRIEF}",
        "-nowarn",
        "-proc:none",
        "-cp",
        path,
        "-d",
        tmp_path / "classes",
        f"@{tmp_path}/sources",
        cwd=tmp_path,
    )
    # Java's HTTP client knows no Unix sockets.
    check(run("java", "-cp", f"{path}:{tmp_path}/classes", "Charge", gateway.till, cwd=tmp_path), listed=None)


@needs("java", "php")
@needs_generator
@needs_paths({GUZZLE: "Debian: php-guzzlehttp-guzzle", PHP_CURL: "Debian: php-curl"})
def test_openapi_generator_php(gateway: Gateway, description: Path, tmp_path: Path) -> None:
    made = generated("php", description, tmp_path)
    check(run("php", CLIENTS / "charge.php", gateway.till_socket, made / "lib", cwd=tmp_path))


#: A member of an amount is written with a line too many; of what is generated nothing else is wrong.
MISSPELT = 'class Misspelt { object it = new Org.OpenAPITools.Model.AskedAmount { SubtotalIva_0 = "10.00" }; }'


@needs("java")
@needs_generator
@needs_csharp
def test_openapi_generator_csharp(gateway: Gateway, description: Path, tmp_path: Path) -> None:
    """Its types alone: its calls need packages of NuGet. For this framework it needs no source generators."""
    made = generated("csharp", description, tmp_path, "-p", "targetFramework=netstandard2.0")
    sources = [CLIENTS / "Charge.cs", *(made / "src/Org.OpenAPITools/Model").glob("*.cs")]
    for file in (made / "src/Org.OpenAPITools/Client").glob("*.cs"):
        sources += [file] * (file.name not in ("ApiFactory.cs", "HostConfiguration.cs"))
    wrong, program = tmp_path / "Misspelt.cs", tmp_path / "Charge.dll"
    wrong.write_text(MISSPELT)
    [error] = compiled(*sources, wrong, program)
    assert "SubtotalIva_0" in error
    assert compiled(*sources, program) == []
    assert json.loads(run(DOTNET, program, gateway.till_socket, cwd=tmp_path)) == {
        "result": "approved",
        "authorized_amount": "11.20",
        "same": True,
        "never_started": True,
        "fleet": [SERIAL],
    }


def compiled(*files: Path) -> list[str]:
    """Compile a program of C#, the last file; return the errors. A process can load the compiler's runtime once."""
    command = [sys.executable, "-m", "tests.recipes.csharp", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=STUCK_SECONDS)
    return [line for line in done.stderr.splitlines() if "warning" not in line]
