"""Attacks on posd. An attack has an action, which one worker repeats on one connection, and the number of workers."""

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText
from zeroconf.const import _FLAGS_QR_RESPONSE, _TYPE_A, _TYPE_PTR, _TYPE_SRV, _TYPE_TXT

from posd.base import limits
from posd.config.schema import LEAST_BODY_BYTES
from tests.hostile.shop import LONG_CHAIN, TYPE
from tests.hostile.wire import AGAIN_SECONDS, CUT_OFF, HOST, PATIENCE, Attacker, client_hello, forged, head, whole

#: Seconds between two bytes of slow senders.
DRIP_SECONDS = 0.5
#: Size of a useless body in a complete request, in bytes.
SMALL = b'{"event_id": "x"}'
#: One piece of endless data, in bytes.
PIECE = b" " * 65_536
CHUNK = b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
#: Requests that are written at once without waiting for responses.
PIPELINED = 500
#: Seconds after which a refused till tries again, as in the response.
RETRY_AFTER_SECONDS = 1.0
#: Number of replays on one connection.
REPLAYS = 20

HELLO = client_hello()
#: First bytes of other protocols. The port of posd accepts only TLS.
GARBAGE = (
    b"GET / HTTP/1.1\r\nhost: posd\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x00\x00\x00\x85\xffSMBr\x00\x00\x00\x00\x18S\xc8",
    b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00",  # remote desktop
    b"\x80\x2e\x01\x00\x02" + bytes(50),  # SSL 2
    b"\x16\x03\x01\xff\xff" + bytes(20_000),  # a record that is too large
    HELLO[:60] + b"\xff" * 400,
    b"\xff" * 100_000,
)
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
#: Endless SETTINGS and PING frames.
HTTP2_FRAMES = (bytes.fromhex("000000040000000000") + bytes.fromhex("000008060000000000") + bytes(8)) * 2000


#: Announced instance names: names that the mDNS library refuses, names in upper or lower case, and wrong types.
ANNOUNCED = (f"a\r\n.{TYPE}", f"a.{TYPE}\r\n.", f"B.{TYPE.upper()}", "c._other._tcp.local.", "local.", f"d\x00.{TYPE}")
#: Seconds between two packets of one worker. A LAN carries some hundred packets a second.
ANNOUNCED_SECONDS = 0.02


async def announcements(attacker: Attacker) -> None:
    """Announce wrong names by mDNS, at addresses of the internet."""
    out = DNSOutgoing(_FLAGS_QR_RESPONSE)
    for name in ANNOUNCED:
        name = f"{attacker.random.randrange(50)}{name}"
        out.add_answer_at_time(DNSPointer(attacker.random.choice((TYPE, TYPE.upper())), _TYPE_PTR, 1, 120, name), 0)
        out.add_answer_at_time(DNSService(name, _TYPE_SRV, 1, 120, 0, 0, 6869, "away.local."), 0)
        out.add_answer_at_time(DNSText(name, _TYPE_TXT, 1, 120, b"\x0cserial=SN-99"), 0)
    out.add_answer_at_time(DNSAddress("away.local.", _TYPE_A, 1, 120, bytes((8, 8, 8, 8))), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
        for packet in out.packets():
            sender.sendto(packet, ("224.0.0.251", 5353))
    attacker.connected()
    await asyncio.sleep(ANNOUNCED_SECONDS)


async def slow_headers(attacker: Attacker) -> None:
    """Send headers one byte at a time (slow-loris)."""
    async with attacker.secure() as (reader, writer):
        writer.write(f"POST {forged()} HTTP/1.1\r\nx: ".encode())
        await _drip(reader, writer, b"y")


async def slow_bodies(attacker: Attacker) -> None:
    """Send bodies one byte at a time."""
    async with attacker.secure() as (reader, writer):
        writer.write(head(forged(), "content-length: 100000"))
        await _drip(reader, writer, b" ")


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drop: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reader.at_eof():
            writer.write(drop)
            await writer.drain()
            await asyncio.wait({asyncio.ensure_future(reader.read(1000))}, timeout=DRIP_SECONDS)


async def half_handshakes(attacker: Attacker) -> None:
    """Send half a TLS handshake, and then nothing."""
    async with attacker.tcp() as (reader, writer):
        writer.write(HELLO[: attacker.random.choice((0, 5, len(HELLO) // 2, len(HELLO)))])
        await attacker.until_cut(reader)


async def open_close(attacker: Attacker) -> None:
    """Open connections and close them at once."""
    async with attacker.tcp():
        pass


async def open_hold(attacker: Attacker) -> None:
    """Hold connections without sending a byte."""
    async with attacker.tcp() as (reader, _):
        await attacker.until_cut(reader)


async def handshakes(attacker: Attacker) -> None:
    """Complete TLS handshakes, and then disconnect."""
    async with attacker.secure():
        pass


async def forged_callbacks(attacker: Attacker) -> None:
    """Send callbacks of the right form with a wrong token, each on its own connection."""
    async with attacker.secure() as (reader, writer):
        writer.write(whole(forged(), SMALL))
        await attacker.hear(reader)


async def huge_bodies(attacker: Attacker) -> None:
    """Announce bodies of a gigabyte."""
    async with attacker.secure() as (_, writer):
        writer.write(head(forged(), f"content-length: {2**30}"))
        await attacker.pump(writer, PIECE)


async def endless_bodies(attacker: Attacker) -> None:
    """Send chunked bodies without end."""
    async with attacker.secure() as (_, writer):
        writer.write(head(forged(), "transfer-encoding: chunked"))
        await attacker.pump(writer, CHUNK)


async def header_bombs(attacker: Attacker) -> None:
    """Send headers without end, long headers and many headers."""
    async with attacker.secure() as (_, writer):
        writer.write(f"POST {forged()} HTTP/1.1\r\n".encode())
        await attacker.pump(writer, attacker.random.choice((b"x: y\r\n" * 10_000, b"x" * 65_536, b"a: " + PIECE)))


async def pipelining(attacker: Attacker) -> None:
    """Send hundreds of requests at once on one connection."""
    async with attacker.secure() as (reader, writer):
        writer.write(whole(forged(), SMALL) * PIPELINED)
        await attacker.hear(reader)
        await attacker.until_cut(reader)


async def http2(attacker: Attacker) -> None:
    """Use HTTP/2 by ALPN and by its preface, with endless frames."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"] if attacker.random.random() < 0.5 else ["h2", "http/1.1"])
    async with attacker.secure(context) as (_, writer):
        writer.write(HTTP2)
        await attacker.pump(writer, HTTP2_FRAMES)


async def garbage(attacker: Attacker) -> None:
    """Send other protocols and random bytes, before and after the handshake."""
    noise = attacker.random.choice((*GARBAGE, attacker.random.randbytes(30_000)))
    async with attacker.secure() if attacker.random.random() < 0.3 else attacker.tcp() as (reader, writer):
        writer.write(noise)
        await attacker.until_cut(reader)


async def tls_tricks(attacker: Attacker) -> None:
    """Send alerts, renegotiations and broken records, and disconnect at every point of a handshake."""
    await attacker.random.choice((_alert, _early_close, _broken_record, _renegotiation))(attacker)


async def _alert(attacker: Attacker) -> None:
    """Refuse the certificate, as a terminal without the CA does."""
    async with attacker.secure(ssl.create_default_context()):
        pass


async def _early_close(attacker: Attacker) -> None:
    async with attacker.tcp() as (reader, writer):
        writer.write(HELLO)
        if attacker.random.random() < 0.5:
            await asyncio.wait_for(reader.read(100), PATIENCE)


async def _broken_record(attacker: Attacker) -> None:
    async with attacker.tcp() as (reader, writer):
        writer.write(HELLO)
        await asyncio.wait_for(reader.read(100), PATIENCE)
        writer.write(b"\x17\x03\x03\x40\x00" + attacker.random.randbytes(0x4000))
        await attacker.until_cut(reader)


async def _renegotiation(attacker: Attacker) -> None:
    """Request another handshake in TLS 1.2 repeatedly, by `R` in openssl's own client."""
    source = attacker.random.choice(attacker.sources)
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{attacker.port}", "-bind", f"{source}:0", "-tls1_2"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            await process.communicate(b"R\n" * 50)
        attacker.counts["renegotiations asked for"] += 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def replays(attacker: Attacker) -> None:
    """Repeat a callback of a terminal, byte for byte, from another address."""
    async with attacker.secure() as (reader, writer):
        for _ in range(REPLAYS):
            writer.write(whole(attacker.path, attacker.body))
            await attacker.hear(reader)


async def large_replays(attacker: Attacker) -> None:
    """Use a captured callback URL. The bodies announce the largest accepted size and never end."""
    async with attacker.secure() as (reader, writer):
        writer.write(head(attacker.path, "content-length: 1000000"))
        for _ in range(15):
            writer.write(PIECE)
            await asyncio.wait_for(writer.drain(), PATIENCE)
        await _drip(reader, writer, b" ")


async def deaf(attacker: Attacker) -> None:
    """Send requests, and never read the responses."""
    async with attacker.secure() as (_, writer):
        writer.transport.pause_reading()
        await attacker.pump(writer, whole(forged(), SMALL) * 20)
        await asyncio.sleep(PATIENCE)


async def deaf_replays(attacker: Attacker) -> None:
    """Send replays, and never read the responses."""
    async with attacker.secure() as (_, writer):
        writer.transport.pause_reading()
        await attacker.pump(writer, whole(attacker.path, attacker.body) * 20)


async def till_connections(attacker: Attacker) -> None:
    """Act as a till that opens 2,000 connections. Keep the accepted connections, and repeat refused connections after a
    second.
    """
    await _hold(attacker, head("/v1/health", method="GET"))


async def till_streams(attacker: Attacker) -> None:
    """Act as a till that opens 2,000 streams. Repeat refused streams after a second."""
    await _hold(attacker, head("/v1/feed", "accept: text/event-stream", method="GET"))


async def till_pages(attacker: Attacker) -> None:
    """Act as a till that requests long pages and does not read them."""
    async with attacker.till() as (_, writer):
        writer.transport.pause_reading()
        await attacker.pump(writer, head("/v1/transactions?limit=500", method="GET") * 20)
        await asyncio.sleep(RETRY_AFTER_SECONDS)


async def till_half_bodies(attacker: Attacker) -> None:
    """Act as a till that sends half of each body."""
    with suppress(*CUT_OFF):
        async with attacker.till() as (reader, writer):
            fields = ("content-type: application/json", f"content-length: {4 * len(PIECE)}")
            writer.write(head(f"/v1/transactions/{uuid4()}", *fields, method="PUT") + PIECE * 3)
            await attacker.hear(reader)
            await attacker.until_cut(reader)
    await asyncio.sleep(RETRY_AFTER_SECONDS)


async def till_voids(attacker: Attacker) -> None:
    """Act as a till that repeats a refused void, each time under a new id. The payment has thousands of operations."""
    void = json.dumps({"type": "void", "terminal": "SN-1", "original": LONG_CHAIN}).encode()
    async with attacker.till() as (reader, writer):
        for _ in range(REPLAYS):
            fields = ("content-type: application/json", f"content-length: {len(void)}")
            writer.write(head(f"/v1/transactions/{uuid4()}", *fields, method="PUT") + void)
            await attacker.take(reader)


async def till_searches(attacker: Attacker) -> None:
    """Act as a till that searches for a payment and aborts the payment without end."""
    identity = attacker.path.split("/")[3]
    async with attacker.till() as (reader, writer):
        for _ in range(REPLAYS):
            for call in ("reconcile", "abort"):
                writer.write(whole(f"/v1/transactions/{identity}/{call}", b"{}"))
                await attacker.take(reader)


async def _hold(attacker: Attacker, request: bytes) -> None:
    with suppress(*CUT_OFF):
        async with attacker.till() as (reader, writer):
            writer.write(request)
            await attacker.hear(reader)
            await attacker.until_cut(reader)
    await asyncio.sleep(RETRY_AFTER_SECONDS)


async def unread_log(attacker: Attacker) -> None:
    """Send callbacks with a wrong token while nothing reads posd's log."""
    await forged_callbacks(attacker)


async def endless_events(attacker: Attacker) -> None:
    """Act as a terminal that sends endless different events of one payment."""
    event = json.loads(attacker.body)
    async with attacker.secure() as (reader, writer):
        for _ in range(REPLAYS):
            body = json.dumps(event | {"event_id": str(uuid4())}).encode()
            writer.write(whole(attacker.path, body))
            await attacker.hear(reader)


async def written_anew(attacker: Attacker) -> None:
    """Repeat a callback of a terminal. Each attempt has the members in another order, and has its number."""
    event = json.loads(attacker.body)
    async with attacker.secure() as (reader, writer):
        for number in range(REPLAYS):
            body = json.dumps(event | {"attempt": number}, sort_keys=True).encode()
            writer.write(whole(f"https://stranger.example{attacker.path}", body))
            await attacker.hear(reader)


async def malformed(attacker: Attacker) -> None:
    """Send requests that HTTP does not permit, with a right or a wrong callback URL."""
    broken = (
        b"x y: z\r\n",
        b"x : y\r\n",
        b"host: another\r\n",
        b"x: y\n",
        b"transfer-encoding: gzip\r\n",
        b"\0: y\r\n",
    )
    async with attacker.secure() as (reader, writer):
        request = whole(attacker.random.choice((attacker.path, forged())), SMALL)
        writer.write(request.replace(b"\r\n", b"\r\n" + attacker.random.choice(broken), 1))
        await attacker.hear(reader)


async def heavy_events(attacker: Attacker) -> None:
    """Act as a terminal that repeats events of the largest accepted size. The events have much JSON, partly damaged."""
    filling = attacker.random.choice((b"{},", b'{"a":1,"a":2},', b"1.5,", b'"\\x",', b'"\xff",'))
    event = json.dumps(json.loads(attacker.body) | {"event_id": str(uuid4())}).encode()
    size = (LEAST_BODY_BYTES - len(event) - 20) // len(filling)
    body = event[:-1] + b', "x": [' + filling * size + b"0]}"
    async with attacker.secure() as (reader, writer):
        for number in range(REPLAYS):
            writer.write(whole(attacker.path, body + b" " * (number % 4)))
            await attacker.hear(reader)


@dataclass(frozen=True)
class Attack:
    """An attack: the action, the number of workers, addresses and processes, and the permitted cost for posd. `tills`:
    number of tills that use all their connections. `events`: permitted rows of events. `insider`: whether the attacker
    is an admitted till or terminal. An attack by an insider is not part of the combined attack. `log_stands_still`:
    whether nothing reads posd's log during the attack.
    """

    do: Callable[[Attacker], Awaitable[None]]
    workers: int = 40
    addresses: int = 8
    processes: int = 2
    tills: int = 0
    events: int = 0
    insider: bool = False
    log_stands_still: bool = False


#: Number of addresses of a distributed attack.
EVERYWHERE = 240
#: Maximum number of rows of events of one payment.
EVENTS = limits.EVENTS_OF_TRANSACTION.value + limits.FINALS_OF_TRANSACTION.value

ATTACKS: Mapping[str, Attack] = {
    "slow-headers": Attack(slow_headers, workers=300),
    "slow-bodies": Attack(slow_bodies, workers=300),
    "half-handshakes": Attack(half_handshakes, workers=400),
    "open-close": Attack(open_close),
    "open-hold": Attack(open_hold, workers=600),
    "handshakes": Attack(handshakes),
    "forged": Attack(forged_callbacks),
    "huge-bodies": Attack(huge_bodies),
    "endless-bodies": Attack(endless_bodies),
    "header-bombs": Attack(header_bombs),
    "pipelining": Attack(pipelining),
    "http2": Attack(http2),
    "garbage": Attack(garbage),
    "tls-tricks": Attack(tls_tricks),
    "replays": Attack(replays, workers=8),
    "large-replays": Attack(large_replays, workers=60),
    "written-anew": Attack(written_anew, workers=8),
    "malformed": Attack(malformed),
    "deaf": Attack(deaf),
    "deaf-replays": Attack(deaf_replays, workers=8),
    "announcements": Attack(announcements, workers=4),
    "everywhere-handshakes": Attack(handshakes, addresses=EVERYWHERE),
    "everywhere-half": Attack(half_handshakes, workers=600, addresses=EVERYWHERE),
    "everywhere-forged": Attack(forged_callbacks, addresses=EVERYWHERE),
    "till-connections": Attack(till_connections, workers=2000, processes=1, tills=1, insider=True),
    "till-streams": Attack(till_streams, workers=2000, processes=1, tills=1, insider=True),
    "till-pages": Attack(till_pages, workers=390, processes=1, tills=1, insider=True),
    "till-half-bodies": Attack(till_half_bodies, workers=390, processes=1, tills=1, insider=True),
    "till-voids": Attack(till_voids, processes=1, insider=True),
    "till-searches": Attack(till_searches, processes=1, insider=True),
    "endless-events": Attack(endless_events, workers=8, events=EVENTS, insider=True),
    "heavy-events": Attack(heavy_events, workers=8, events=EVENTS, insider=True),
    "unread-log": Attack(unread_log, insider=True, log_stands_still=True),
    # This attack is last, because it may leave the most memory in use.
    "tills-of-one-user": Attack(till_connections, workers=4000, processes=4, tills=4, insider=True),
}


#: Attacks that run at the same time: all attacks of strangers, and all attacks by which tills and terminals fill
#: memory.
TOGETHER: Mapping[str, Sequence[str]] = {
    "everything": [name for name, attack in ATTACKS.items() if not attack.insider],
    "insiders": ("till-pages", "till-half-bodies", "till-voids", "till-searches", "heavy-events", "unread-log"),
}


async def keep_on(attacker: Attacker, name: str) -> None:
    """Attack with all workers of one process until the input ends. The workers end with the process."""
    attack = ATTACKS[name]

    async def work() -> None:
        while True:
            try:
                await attack.do(attacker)
                attacker.counts["done"] += 1
            except CUT_OFF:
                attacker.counts["cut off"] += 1
                await asyncio.sleep(AGAIN_SECONDS)

    workers = [asyncio.create_task(work()) for _ in range(max(1, attack.workers // attack.processes))]
    told = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _ = await asyncio.wait([told, *workers], return_when=asyncio.FIRST_COMPLETED)
    for ended in done:
        ended.result()
