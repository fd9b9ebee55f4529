"""A recipe as a process, with its output to the cashier and its exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.recipes.csharp import DOTNET, needs_csharp
from tests.support import forks
from tests.support.needs import PHP_CURL, needs, needs_paths

RECIPES = Path(__file__).parents[2] / "docs" / "guides" / "recipes"

#: Maximum time until a recipe prints a line or ends, in seconds. The start takes time on a busy machine.
PATIENCE_SECONDS = 60.0
#: Maximum duration of a compilation, in seconds. Go compiles its library once on each machine.
COMPILING_SECONDS = 280.0

#: File extension -> required commands, and the command line before the file's name.
TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ".sh": (("bash", "curl", "jq"), ("bash",)),
    ".py": ((), ()),  # tests.support.forks starts Python
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


@dataclass
class Recipe:
    """A running recipe. `said`: lines of the output up to this moment."""

    name: str
    process: forks.Process | asyncio.subprocess.Process
    said: list[str] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    def read(self) -> None:
        """Read the lines of the output until its end."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(line.decode().rstrip())
            self._news.set()
        self._news.set()

    async def says(self, text: str) -> str:
        """Wait for a line with this text. Return the line."""
        assert self._reading is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self._news.clear()
                for line in self.said:
                    if text in line:
                        return line
                assert not self._reading.done(), f"{self.name} ended without printing {text!r}: {self.said}"
                await self._news.wait()

    async def ends(self) -> int:
        """Wait for the end of the recipe. Return the exit code."""
        assert self._reading is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._reading
            return await self.process.wait()

    def type(self, text: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())

    async def kill(self) -> None:
        """Kill the recipe and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.ends()


async def command(name: str, programs: Path) -> Sequence[str]:
    """Return the command line of a recipe. Compile the recipe once if its language needs it."""
    recipe = RECIPES / name
    match recipe.suffix:
        case ".go":  # `go run` would hide the exit code
            program = programs / recipe.stem
            if not program.exists():
                await _compile("go", "build", "-o", str(program), str(recipe), environment=_for_go(programs))
            return (str(program),)
        case ".java":  # `java Charge.java` compiles the source at every start, which takes two seconds
            if not (programs / f"{recipe.stem}.class").exists():
                await _compile("javac", "-d", str(programs), str(recipe))
            return ("java", "-XX:TieredStopAtLevel=1", "-cp", str(programs), recipe.stem)
        case ".cs":
            program = programs / f"{recipe.stem}.dll"
            if not program.exists():
                await _compile(sys.executable, "-m", "tests.recipes.csharp", str(recipe), str(program))
            return (str(DOTNET), str(program))
        case ending:
            _, before = TOOLS[ending]
            return (*before, str(recipe))


def _for_go(programs: Path) -> Mapping[str, str]:
    environment = os.environ | {"GO111MODULE": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}
    if not {"HOME", "XDG_CACHE_HOME", "GOCACHE"} & environment.keys():
        # without this directory Go uses its own cache, and compiles its library once on each machine
        environment["GOCACHE"] = str(programs / "cache")
    return environment


async def _compile(*command: str, environment: Mapping[str, str] | None = None) -> None:
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(COMPILING_SECONDS):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
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
    recipe = Recipe(name, process)
    recipe.read()
    try:
        yield recipe
    finally:
        if process.returncode is None:
            await recipe.kill()
