"""Run one client against one server. Record the client's message and every byte that the server received."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.cases import ADDRESS, Case
from tests.recipes.running import compile_go
from tests.rig.certificates import recording
from tests.rig.program import program

HERE = Path(__file__).parent
#: Time limit of a client, in seconds. Java starts slowly on a busy machine.
PATIENCE = 120.0

#: Function that returns a command line for a CA file, a port and a called name.
Client = Callable[[Path, int, str], Sequence[str]]


@dataclass(frozen=True)
class Judgement:
    """Whether the client accepted the certificate, its message, and the received bytes."""

    accepted: bool
    said: str
    received: bytes


def openssl(ca: Path, port: int, name: str) -> Sequence[str]:
    """Return the command line of OpenSSL with its strictest options."""
    called = ["-verify_ip", name] if name == ADDRESS else ["-verify_hostname", name, "-servername", name]
    strict = ["-verify_return_error", "-x509_strict", "-verify", "3"]
    return ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}", "-CAfile", str(ca), *strict, *called]


def java(ca: Path, port: int, name: str) -> Sequence[str]:
    """Return the command line of the client in Java. Java compiles the client at its start."""
    return ["java", "-Xshare:auto", str(HERE / "Check.java"), str(ca), str(port), name]


def go(compiled: Path) -> Client:
    """Return the command line of the client in Go."""
    return lambda ca, port, name: [str(compiled), str(ca), f"127.0.0.1:{port}", name]


async def build_go(directory: Path) -> Path:
    """Compile the client in Go."""
    await compile_go(HERE / "check.go", directory / "check")
    return directory / "check"


async def judge(client: Client, case: Case, name: str) -> Judgement:
    """Run a client against a server with the certificate of the case. The client calls the server by the name
    `name`.
    """
    async with recording(case.leaf.context()) as server:
        command = client(case.ca, server.port, name)
        async with program(*command, stderr=asyncio.subprocess.STDOUT) as process, asyncio.timeout(PATIENCE):
            said, _ = await process.communicate(b"GET / HTTP/1.1\r\n\r\n")
        await server.quiet()
        return Judgement(process.returncode == 0, said.decode("utf-8", "replace"), b"".join(server.received))
