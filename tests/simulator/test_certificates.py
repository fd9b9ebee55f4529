"""Certificates that no client may trust. Each certificate fails under the simulator's CA for a reason of its own."""

import asyncio
import ssl
from pathlib import Path

import pytest

from posd.base import tls_contexts
from posd.simulator import Settings
from posd.simulator.network import certificate_context
from posd.simulator.scenario import Certificate
from posd.tls import issue


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        ("own", None),
        ("changed", None),
        ("expired", "certificate has expired"),
        ("wrong-name", "IP address mismatch"),
        ("self-signed", "self-signed certificate"),
    ],
)
async def test_a_client_that_trusts_the_ca_refuses_each_wrong_certificate(
    tmp_path: Path, which: Certificate, reason: str | None
) -> None:
    made = issue.init(tmp_path, names=["localhost"], addresses=["127.0.0.1"])
    files = {"certificate": made.certificate, "private_key": made.private_key}
    authority = {"ca_certificate": made.ca_certificate, "ca_private_key": made.ca_key}
    served = certificate_context(Settings(state=tmp_path, **files, **authority), which)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=served)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await _refusal(port, made.ca_certificate) == reason


async def _refusal(port: int, ca: Path) -> str | None:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls_contexts.client(ca))
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.split(", certificate is not valid")[0]
    writer.close()
    return None
