"""A terminal that does not trust posd's certificate sends a TLS alert. posd reports the alert to operators."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from posd.tls.files import describe
from tests.clients.run import build_go
from tests.rig.daemon import Daemon
from tests.rig.https import connect
from tests.rig.needs import find
from tests.rig.tables import there

UNKNOWN_CA = 48


def other_ca(home: Path) -> Path:
    path = home / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


def python(version: ssl.TLSVersion) -> Callable[[Daemon], Awaitable[None]]:
    """Return a client that trusts only other CAs."""

    async def client(posd: Daemon) -> None:
        context = ssl.create_default_context(cafile=str(other_ca(posd.directory)))
        context.minimum_version = context.maximum_version = version
        await asyncio.to_thread(refuse, context, posd.port, "127.0.0.1")

    return client


def refuse(context: ssl.SSLContext, port: int, name: str, source: str = "127.0.0.1") -> None:
    """Connect from an address, and refuse the certificate with an alert. asyncio would disconnect without an alert."""
    with (
        socket.create_connection(("127.0.0.1", port), 60, (source, 0)) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
        context.wrap_socket(raw, server_hostname=name),
    ):
        pass


async def wrong_name(posd: Daemon) -> None:
    """Connect with the right CA and a wrong host name."""
    context = ssl.create_default_context(cafile=str(posd.ca))
    await asyncio.to_thread(refuse, context, posd.port, "other.example")


async def go(posd: Daemon) -> None:
    """Connect with a client in Go."""
    if not find("go"):
        pytest.skip("go IS NOT INSTALLED: a refusal by a client in Go was not tested")
    program = await build_go(posd.directory)
    other = str(other_ca(posd.directory))
    process = await asyncio.create_subprocess_exec(program, other, f"127.0.0.1:{posd.port}", "localhost")
    assert await process.wait() == 1


async def late(posd: Daemon) -> None:
    """Complete the handshake, then refuse the certificate with an encrypted alert."""
    await asyncio.to_thread(alert_after_the_handshake, posd.port, posd.directory / "keys")


def alert_after_the_handshake(port: int, keys: Path) -> None:
    """Complete a TLS 1.3 handshake, then write an alert record by hand (RFC 8446, 5.2, 6 and 7.3)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(keys)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    with socket.create_connection(("127.0.0.1", port), 60) as raw:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        cipher = there(client.cipher())
        assert cipher[0] in ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
        secret = next(line for line in keys.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
        record = alert_record(bytes.fromhex(secret.split()[2]), cipher[0])
        raw.sendall(outgoing.read() + record)
        while raw.recv(65536):
            pass  # read until posd disconnects


def alert_record(secret: bytes, cipher: str) -> bytes:
    """Return a fatal alert `unknown_ca` as the first record under a client's traffic secret."""
    digest = hashes.SHA384() if cipher.endswith("384") else hashes.SHA256()
    size = 32 if "256_GCM" in cipher else 16

    def expand(label: bytes, length: int) -> bytes:
        info = struct.pack(">HB", length, len(label) + 6) + b"tls13 " + label + b"\0"
        return HKDFExpand(digest, length, info).derive(secret)

    inner = bytes([2, UNKNOWN_CA, 21])  # an alert of level `fatal`, and the type of the record
    header = struct.pack(">BHH", 23, 0x0303, len(inner) + 16)
    return header + AESGCM(expand(b"key", size)).encrypt(expand(b"iv", 12), inner, header)


#: Client -> the alerts that the client may send.
CLIENTS: dict[str, tuple[Callable[[Daemon], Awaitable[None]], set[str]]] = {
    "TLS 1.2": (python(ssl.TLSVersion.TLSv1_2), {"unknown_ca"}),
    "TLS 1.3": (python(ssl.TLSVersion.TLSv1_3), {"unknown_ca"}),
    "after the handshake": (late, {"unknown_ca"}),
    "another name": (wrong_name, {"bad_certificate", "certificate_unknown"}),
    "Go": (go, {"bad_certificate", "unknown_ca"}),
}


@pytest.mark.quick(1)
@pytest.mark.timeout(600)  # the first use builds Go's library
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_refused_certificate_is_counted_and_its_terminal_is_named(posd: Daemon, name: str) -> None:
    client, alerts = CLIENTS[name]
    await client(posd)
    line = await posd.log_line("listener.distrusted", peer="127.0.0.1")
    assert line["kind"] in alerts
    assert "refuses this machine's certificate" in line["detail"]
    assert "posd tls ca" in line["detail"]
    health = (await posd.call("GET", "/health")).json
    found = health["checks"]["certificate"]
    assert (health["status"], found["status"]) == ("degraded", "degraded")
    assert f"terminal SN-TEST (127.0.0.1) refuses it ({line['kind']})" in found["detail"]
    (refused,) = found["refused_by"]
    assert (refused["address"], refused["alert"], refused["count"]) == ("127.0.0.1", line["kind"], 1)


async def test_a_client_that_trusts_the_certificate_or_only_disconnects_is_not_named(posd: Daemon) -> None:
    """The clients are a scanner, a terminal that loses its network, and a healthy terminal."""
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", posd.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        _, writer = await connect(posd.port, posd.ca)
        writer.transport.abort()
    before = len(posd.lines)
    await python(ssl.TLSVersion.TLSv1_3)(posd)  # only this client refuses the certificate
    await posd.log_line("listener.distrusted", after=before, count=1)
    certificate = (await posd.call("GET", "/health")).json["checks"]["certificate"]
    assert [item["count"] for item in certificate["refused_by"]] == [1]
    info = describe(posd.directory / "state" / "tls" / "server.crt")
    assert certificate["served"]["fingerprint_sha256"] == info.fingerprint_sha256
