"""A recipe as a process, with its output to the cashier and its exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.recipes.csharp import DOTNET, needs_csharp
from tests.rig import forks
from tests.rig.needs import PHP_CURL, needs, needs_paths
from tests.rig.program import Command, program

RECIPES = Path(__file__).parents[2] / "docs" / "guides" / "recipes"

#: Maximum duration of a compilation, in seconds. Go compiles its library once on each machine.
COMPILING_SECONDS = 280.0

#: File extension -> required commands, and the command line before the file's name.
TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ".sh": (("bash", "curl", "jq"), ("bash",)),
    ".py": ((), ()),  # tests.rig.forks starts Python
    ".mjs": (("node",), ("node",)),
    ".go": (("go",), ()),
    ".php": (("php",), ("php",)),
    ".java": (("java", "javac"), ()),
    ".cs": ((), ()),  # tests.recipes.csharp compiles C#
}


def tried(names: Iterable[str], quick: Container[str], *further: object) -> list[ParameterSet]:
    """Return the recipes as cases of a test, with `further` arguments. A case is skipped before any setup if a tool of
    the recipe is missing. A case of a recipe that is not quick is marked slow.
    """
    return [pytest.param(name, *further, marks=_marks(name, quick)) for name in names]


def _marks(name: str, quick: Container[str]) -> list[pytest.MarkDecorator]:
    needed, _ = TOOLS[Path(name).suffix]
    marks = [needs(*needed)]
    if name.endswith(".php"):
        marks.append(needs_paths({PHP_CURL: "Debian: php-curl"}))
    if name.endswith(".cs"):
        marks.append(needs_csharp)
    return marks if name in quick else [*marks, pytest.mark.slow]


@dataclass(eq=False)
class Recipe(Command):
    """A running recipe. `said`: lines of the output up to this moment."""

    @property
    def said(self) -> list[str]:
        return self.text.splitlines()

    async def says(self, text: str) -> str:
        """Wait for a line with this text. Return the line."""
        return str((await self.line(lambda line: text in line.get("text", "")))["text"])

    def type(self, text: str) -> None:
        """Type a line."""
        self.process.stdin.write(f"{text}\n".encode())

    async def kill(self) -> None:
        """Kill the recipe and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.ended()


async def command(name: str, programs: Path) -> Sequence[str]:
    """Return the command line of a recipe. Compile the recipe once if its language needs it."""
    recipe = RECIPES / name
    match recipe.suffix:
        case ".go":  # `go run` would hide the exit code
            made = programs / recipe.stem
            if not made.exists():
                await compile_go(recipe, made)
            return (str(made),)
        case ".java":  # `java Charge.java` compiles the source at every start, which takes two seconds
            if not (programs / f"{recipe.stem}.class").exists():
                await _compile("javac", "-d", str(programs), str(recipe))
            return ("java", "-XX:TieredStopAtLevel=1", "-cp", str(programs), recipe.stem)
        case ".cs":
            made = programs / f"{recipe.stem}.dll"
            if not made.exists():
                await _compile(sys.executable, "-m", "tests.recipes.csharp", str(recipe), str(made))
            return (str(DOTNET), str(made))
        case ending:
            _, before = TOOLS[ending]
            return (*before, str(recipe))


async def compile_go(source: Path, target: Path) -> None:
    """Compile a program of Go, which needs no library but Go's own."""
    environment = {"GO111MODULE": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}
    if not {"HOME", "XDG_CACHE_HOME", "GOCACHE"} & os.environ.keys():
        # without this directory Go uses its own cache, and compiles its library once on each machine
        environment["GOCACHE"] = str(target.parent / "cache")
    await _compile("go", "build", "-o", str(target), str(source), **environment)


async def _compile(*command: str, **environment: str) -> None:
    options = {"env": os.environ | environment, "stderr": asyncio.subprocess.STDOUT}
    async with program(*command, **options) as process, asyncio.timeout(COMPILING_SECONDS):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@asynccontextmanager
async def run(
    name: str, *arguments: str, socket: Path, till: Path, programs: Path, **environment: str
) -> AsyncIterator[Recipe]:
    """Run a recipe for the block. `till`: directory of stored files. `programs`: directory of compiled programs."""
    settings = {"POSD_SOCKET": str(socket), "TILL_DIR": str(till), "PYTHONUNBUFFERED": "1", **environment}
    settings |= {"DOTNET_EnableDiagnostics": "0"}  # with diagnostics a killed program leaves debugger sockets
    settings = {key: value for key, value in os.environ.items() if not key.startswith("POSD_")} | settings
    process: forks.Process | asyncio.subprocess.Process
    if name.endswith(".py"):
        process = await forks.start(
            *arguments,
            program=str(RECIPES / name),
            env=settings,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            session=True,
        )
    else:
        process = await asyncio.create_subprocess_exec(
            *await command(name, programs),
            *arguments,
            env=settings,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    recipe = Recipe(process)
    try:
        yield recipe
    finally:
        if process.returncode is None:
            await recipe.kill()
