"""Strict clients of other makers accept posd's certificates. These clients refuse wrong certificates and send
nothing.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from tests.clients.cases import ACCEPTED, ADDRESS, NAME, REFUSED
from tests.clients.run import Client, build_go, go, java, judge, openssl
from tests.rig.needs import needs

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]  # the first use builds Go's library

#: Clients that need no compiler.
CLIENTS = {"openssl": openssl, "java": java}
#: Name of a client -> the command that it needs. Java takes seconds to start.
TOOLS = [pytest.param(tool, marks=needs(tool)) for tool in ("openssl", "go")]
TOOLS.append(pytest.param("java", marks=[needs("java"), pytest.mark.slow]))
CALLED = pytest.mark.parametrize("called", [NAME, ADDRESS])


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=TOOLS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Return a client as a command line."""
    if request.param in CLIENTS:
        yield CLIENTS[request.param]
        return
    with TemporaryDirectory() as directory:
        yield go(await build_go(Path(directory)))


@pytest.mark.quick(16)
@CALLED
@pytest.mark.parametrize("name", ACCEPTED)
async def test_strict_clients_accept_posds_certificates(client: Client, tmp_path: Path, name: str, called: str) -> None:
    judgement = await judge(client, ACCEPTED[name](tmp_path), called)
    assert judgement.accepted, judgement.said
    assert judgement.received == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.quick(14)
@CALLED
@pytest.mark.parametrize("name", REFUSED)
async def test_strict_clients_refuse_wrong_certificates_and_send_nothing(
    client: Client, tmp_path: Path, name: str, called: str
) -> None:
    judgement = await judge(client, REFUSED[name](tmp_path), called)
    assert (judgement.accepted, judgement.received) == (False, b""), judgement.said
