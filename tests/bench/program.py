"""What runs a process that is measured: an interpreter, and the checkout whose code it imports."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Program:
    """An interpreter and a checkout. A process must not start in a checkout: `-m` imports from there first."""

    python: str = sys.executable
    tree: Path = ROOT

    def environment(self, others: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of its processes: those of this process, its own and `others`."""
        return os.environ | {"PYTHONPATH": str(self.tree)} | dict(others)

    async def check(self) -> str:
        """Return the version of the interpreter. Raise RuntimeError where it imports another posd, or none."""
        script = "import platform, posd.daemon.main; print(platform.python_version(), posd.__file__)"
        process = await asyncio.create_subprocess_exec(
            *(self.python, "-P", "-c", script), stdout=asyncio.subprocess.PIPE, env=self.environment({})
        )
        output, _ = await process.communicate()
        version, _, file = output.decode().strip().partition(" ")
        if process.returncode != 0 or not Path(file).is_relative_to(self.tree.resolve()):
            raise RuntimeError(f"{self.python} does not import posd from {self.tree}: {file or 'it failed'}")
        return version
