"""Certificates that no client may trust. Each certificate fails under the simulator's CA for a reason of its own."""

import asyncio
import ssl
from pathlib import Path

import pytest

from posd.base import tls_contexts
from posd.simulator.network import Certificates
from posd.simulator.scenario import Certificate
from posd.tls import issue


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        (Certificate.OWN, None),
        (Certificate.CHANGED, None),
        (Certificate.EXPIRED, "certificate has expired"),
        (Certificate.WRONG_NAME, "IP address mismatch"),
        (Certificate.SELF_SIGNED, "self-signed certificate"),
    ],
)
async def test_a_client_with_the_ca_refuses_each_certificate_for_its_reason(
    tmp_path: Path, which: Certificate, reason: str | None
) -> None:
    made = issue.init(tmp_path, names=["localhost"], addresses=["127.0.0.1"])
    served = Certificates(made.certificate, made.private_key, (made.ca_certificate, made.ca_key)).context(which)
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
