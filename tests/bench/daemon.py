"""A daemon to be measured: a fresh interpreter, whose log nobody reads while it runs."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.program import Program
from tests.support.daemon import ANY_PORT, START_SECONDS, Daemon, living, toml
from tests.support.leftovers import OWNER
from tests.support.ports import reserve

#: How often a starting daemon's log is looked at, in seconds.
LOOK_SECONDS = 0.01


@dataclass
class Measured(Daemon):
    """It is never forked, and logs to a file in memory: whoever reads lines takes a processor from what is measured.

    `lines` has what was said until the daemon started, and all of it after its end.
    """

    program: Program = field(default_factory=Program)
    _log: int = -1
    _taken: int = 0

    async def start(self, *, wait: bool = True) -> None:
        assert self.process is None
        if ANY_PORT in self.config:
            self.config = self.config.replace(ANY_PORT, f"127.0.0.1:{reserve()}")
        self.config_file.write_text(self.config)
        self.lines.clear()
        self._log, self._taken = os.memfd_create("log"), 0
        self.process = await asyncio.create_subprocess_exec(
            *(*self.entering, self.program.python, "-m", "posd", "--config", str(self.config_file), "run"),
            stdout=self._log,
            stderr=asyncio.subprocess.STDOUT,
            env=self.program.environment({OWNER: self._owner} | dict(self.environment)),
            cwd=self.directory,
        )
        if wait:
            self.port = int((await self._started())["listen"].rsplit(":", 1)[1])

    async def _started(self) -> dict[str, Any]:
        """Return the line that says so. Raise AssertionError with the log where it ended instead."""
        assert self.process is not None
        async with asyncio.timeout(START_SECONDS):
            while True:
                ended = self.process.returncode is not None
                for line in self._take():
                    if line["event"] == "posd.started":
                        return line
                if ended:
                    raise AssertionError(f"posd ended without a start: {self.lines}")
                await asyncio.sleep(LOOK_SECONDS)

    def _take(self) -> list[dict[str, Any]]:
        """Return what it has logged since the last look, as far as lines are whole."""
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, size - self._taken, self._taken)
        whole = text[: text.rfind(b"\n") + 1]
        self._taken += len(whole)
        found = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "not json", "text": line.decode("utf-8", "replace")})
        self.lines += found
        return found

    async def ended(self) -> int:
        code = await super().ended()
        self._take()
        os.close(self._log)
        return code


@asynccontextmanager
async def measured(
    directory: Path,
    terminals: str,
    extra: str = "",
    discovery: str = "enabled = false",
    environment: Mapping[str, str] | None = None,
    entering: tuple[str, ...] = (),
    program: Program | None = None,
) -> AsyncIterator[Measured]:
    """Run a daemon for the block; its log must not have internal errors at the end."""
    config = toml(directory, terminals, extra, discovery)
    daemon = Measured(directory, config, environment or {}, entering, program=program or Program())
    async with living(daemon):
        yield daemon
