"""Attacks on posd, in one table. Each worker repeats its attack on one connection after the other."""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText
from zeroconf.const import _FLAGS_QR_RESPONSE, _TYPE_A, _TYPE_PTR, _TYPE_SRV, _TYPE_TXT

from posd.base import limits
from posd.config.schema import LEAST_BODY_BYTES
from tests.hostile.shop import LONG_CHAIN, TYPE
from tests.hostile.wire import HOST, PATIENCE, Attacker, Streams, client_hello, forged, head, trusting, whole
from tests.rig.program import program

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
#: Header lines that HTTP does not permit.
MALFORMED = (b"x y: z", b"x : y", b"host: another", b"x: y\n", b"transfer-encoding: gzip", b"\0: y")

#: Announced instance names: names that the mDNS library refuses, names in upper or lower case, and wrong types.
ANNOUNCED = (f"a\r\n.{TYPE}", f"a.{TYPE}\r\n.", f"B.{TYPE.upper()}", "c._other._tcp.local.", "local.", f"d\x00.{TYPE}")
#: Seconds between two packets of one worker. A LAN carries some hundred packets a second.
ANNOUNCED_SECONDS = 0.02

#: Reaction of an attacker after each piece that it has sent on a connection.
Then = Callable[[Attacker, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


def drip(drop: bytes) -> Then:
    """Return a reaction that sends single bytes slowly (slow-loris)."""

    async def then(_attacker: Attacker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                await asyncio.wait({asyncio.ensure_future(reader.read(1000))}, timeout=DRIP_SECONDS)

    return then


def pump(piece: Callable[[Attacker], bytes], *, deaf: float | None = None) -> Then:
    """Return a reaction that sends a piece without end. With `deaf` the attacker never reads, and keeps the connection
    for this many seconds afterwards.
    """

    async def then(attacker: Attacker, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if deaf is not None:
            writer.transport.pause_reading()
        await attacker.pump(writer, piece(attacker))
        await asyncio.sleep(deaf or 0)

    return then


def _small(path: str) -> bytes:
    return whole(path, SMALL)


def _get(path: str, *fields: str) -> bytes:
    return head(path, *fields, method="GET")


def _put(length: int) -> bytes:
    """Return the head of a start under a new id."""
    fields = ("content-type: application/json", f"content-length: {length}")
    return head(f"/v1/transactions/{uuid4()}", *fields, method="PUT")


def _voids(_attacker: Attacker) -> Iterable[bytes]:
    """Yield a refused void, each time under a new id. The payment has thousands of operations."""
    void = json.dumps({"type": "void", "terminal": "SN-1", "original": LONG_CHAIN}).encode()
    return (_put(len(void)) + void for _ in range(REPLAYS))


def _searches(attacker: Attacker) -> Iterable[bytes]:
    """Yield searches and aborts of one payment."""
    identity = attacker.path.split("/")[3]
    return [whole(f"/v1/transactions/{identity}/{call}", b"{}") for call in ("reconcile", "abort")] * REPLAYS


def _new_events(attacker: Attacker) -> Iterable[bytes]:
    """Yield different events of one payment."""
    event = json.loads(attacker.body)
    bodies = (json.dumps(event | {"event_id": str(uuid4())}).encode() for _ in range(REPLAYS))
    return (whole(attacker.path, body) for body in bodies)


def _written_anew(attacker: Attacker) -> Iterable[bytes]:
    """Yield a callback of a terminal. Each attempt has the members in another order, and has its number."""
    event = json.loads(attacker.body)
    bodies = (json.dumps(event | {"attempt": number}, sort_keys=True).encode() for number in range(REPLAYS))
    return (whole(f"https://stranger.example{attacker.path}", body) for body in bodies)


def _heavy_events(attacker: Attacker) -> Iterable[bytes]:
    """Yield an event of the largest accepted size repeatedly. The event has much JSON, partly damaged."""
    filling = attacker.random.choice((b"{},", b'{"a":1,"a":2},', b"1.5,", b'"\\x",', b'"\xff",'))
    event = json.dumps(json.loads(attacker.body) | {"event_id": str(uuid4())}).encode()
    size = (LEAST_BODY_BYTES - len(event) - 20) // len(filling)
    body = event[:-1] + b', "x": [' + filling * size + b"0]}"
    return (whole(attacker.path, body + b" " * (number % 4)) for number in range(REPLAYS))


def _malformed(attacker: Attacker) -> Iterable[bytes]:
    """Return a request that HTTP does not permit, with a right or a wrong callback URL."""
    request = _small(attacker.random.choice((attacker.path, forged())))
    line = attacker.random.choice(MALFORMED)
    return [request.replace(b"\r\n", b"\r\n" + line + (b"" if line.endswith(b"\n") else b"\r\n"), 1)]


def _http2(attacker: Attacker) -> AbstractAsyncContextManager[Streams]:
    """Open a connection with HTTP/2 in its ALPN."""
    context = trusting()
    context.set_alpn_protocols(["h2"] if attacker.random.random() < 0.5 else ["h2", "http/1.1"])
    return attacker.secure(context)


async def announce(attacker: Attacker) -> None:
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


async def trick(attacker: Attacker) -> None:
    """Send alerts, renegotiations and broken records, and disconnect at every point of a handshake."""
    match attacker.random.choice(("alert", "early close", "broken record", "renegotiation")):
        case "alert":  # refuse the certificate, as a terminal without the CA does
            async with attacker.secure(ssl.create_default_context()):
                pass
        case "renegotiation":
            await _renegotiate(attacker)
        case what:
            async with attacker.tcp() as (reader, writer):
                writer.write(HELLO)
                if what == "broken record" or attacker.random.random() < 0.5:
                    await asyncio.wait_for(reader.read(100), PATIENCE)
                if what == "broken record":
                    writer.write(b"\x17\x03\x03\x40\x00" + attacker.random.randbytes(0x4000))
                    await attacker.until_cut(reader, writer)


async def _renegotiate(attacker: Attacker) -> None:
    """Request another handshake in TLS 1.2 repeatedly, by `R` in openssl's own client."""
    source = attacker.random.choice(attacker.sources)
    client = ("openssl", "s_client", "-connect", f"127.0.0.1:{attacker.port}", "-bind", f"{source}:0", "-tls1_2")
    async with program(*client, stderr=asyncio.subprocess.STDOUT) as process, asyncio.timeout(PATIENCE):
        await process.communicate(b"R\n" * 50)


@dataclass(frozen=True)
class Attack:
    """An attack on one connection, its number of workers, addresses and processes, and its permitted cost for posd.
    `send` returns the pieces to send, and `then` follows each piece. `rest`: seconds between two connections of a
    worker. `do` replaces `send` and `then`. `tills`: number of tills that use all their connections. `events`:
    permitted rows of events. `insider`: whether the attacker is an admitted till or terminal. An attack by an insider
    is not part of the combined attack. `log_stands_still`: whether nothing reads posd's log during the attack.
    """

    then: Then = Attacker.leave
    send: Callable[[Attacker], Iterable[bytes]] = lambda _: [b""]
    over: Callable[[Attacker], AbstractAsyncContextManager[Streams]] = Attacker.secure
    rest: float = 0.0
    do: Callable[[Attacker], Awaitable[None]] | None = None
    workers: int = 40
    addresses: int = 8
    processes: int = 2
    tills: int = 0
    events: int = 0
    insider: bool = False
    log_stands_still: bool = False

    async def once(self, attacker: Attacker) -> None:
        """Attack once. Raise the exceptions of a connection that posd has refused (`CUT_OFF`)."""
        if self.do is not None:
            await self.do(attacker)
            return
        async with self.over(attacker) as (reader, writer):
            for piece in self.send(attacker):
                writer.write(piece)
                await self.then(attacker, reader, writer)


def one(piece: Callable[[Attacker], bytes]) -> Callable[[Attacker], Iterable[bytes]]:
    """Return the function of an attack that sends one piece on a connection."""
    return lambda attacker: [piece(attacker)]


#: Number of addresses of a distributed attack.
EVERYWHERE = 240
#: Maximum number of rows of events of one payment.
EVENTS = limits.EVENTS_OF_TRANSACTION.value + limits.FINALS_OF_TRANSACTION.value

_LINE = "POST {} HTTP/1.1\r\n"
_FORGED = one(lambda _: _small(forged()))
_HALF_HELLO = one(lambda a: HELLO[: a.random.choice((0, 5, len(HELLO) // 2, len(HELLO)))])

_BOMBS = (b"x: y\r\n" * 10_000, b"x" * 65_536, b"a: " + PIECE)


def _till(then: Then, send: Callable[[Attacker], Iterable[bytes]], workers: int = 40, **more: Any) -> Attack:
    """Return an attack by an admitted till."""
    return Attack(then, send, Attacker.till, workers=workers, insider=True, **{"processes": 1} | more)


_CONNECTIONS = one(lambda _: _get("/v1/health"))
_STREAMS = one(lambda _: _get("/v1/feed", "accept: text/event-stream"))
_PAGES = pump(lambda _: _get("/v1/transactions?limit=500") * 20, deaf=RETRY_AFTER_SECONDS)
_HALF_BODIES = one(lambda _: _put(4 * len(PIECE)) + PIECE * 3)

ATTACKS: Mapping[str, Attack] = {
    "slow-headers": Attack(drip(b"y"), one(lambda _: _LINE.format(forged()).encode() + b"x: "), workers=300),
    "slow-bodies": Attack(drip(b" "), one(lambda _: head(forged(), "content-length: 100000")), workers=300),
    "half-handshakes": Attack(Attacker.until_cut, _HALF_HELLO, Attacker.tcp, workers=400),
    "open-close": Attack(over=Attacker.tcp),
    "open-hold": Attack(Attacker.until_cut, over=Attacker.tcp, workers=600),
    "handshakes": Attack(),
    "forged": Attack(Attacker.hear, _FORGED),
    "huge-bodies": Attack(pump(lambda _: PIECE), one(lambda _: head(forged(), f"content-length: {2**30}"))),
    "endless-bodies": Attack(pump(lambda _: CHUNK), one(lambda _: head(forged(), "transfer-encoding: chunked"))),
    "header-bombs": Attack(pump(lambda a: a.random.choice(_BOMBS)), one(lambda _: _LINE.format(forged()).encode())),
    "pipelining": Attack(Attacker.hear_and_hold, one(lambda _: _small(forged()) * PIPELINED)),
    "http2": Attack(pump(lambda _: HTTP2_FRAMES), one(lambda _: HTTP2), _http2),
    "garbage": Attack(
        Attacker.until_cut,
        one(lambda a: a.random.choice((*GARBAGE, a.random.randbytes(30_000)))),
        lambda a: a.secure() if a.random.random() < 0.3 else a.tcp(),
    ),
    "tls-tricks": Attack(do=trick),
    "replays": Attack(Attacker.hear, lambda a: [whole(a.path, a.body)] * REPLAYS, workers=8),
    "large-replays": Attack(
        drip(b" "), one(lambda a: head(a.path, "content-length: 1000000") + PIECE * 15), workers=60
    ),
    "written-anew": Attack(Attacker.hear, _written_anew, workers=8),
    "malformed": Attack(Attacker.hear, _malformed),
    "deaf": Attack(pump(lambda _: _small(forged()) * 20, deaf=PATIENCE)),
    "deaf-replays": Attack(pump(lambda a: whole(a.path, a.body) * 20, deaf=0), workers=8),
    "announcements": Attack(do=announce, workers=4),
    "everywhere-handshakes": Attack(addresses=EVERYWHERE),
    "everywhere-half": Attack(Attacker.until_cut, _HALF_HELLO, Attacker.tcp, workers=600, addresses=EVERYWHERE),
    "everywhere-forged": Attack(Attacker.hear, _FORGED, addresses=EVERYWHERE),
    "till-connections": _till(Attacker.hear_and_hold, _CONNECTIONS, 2000, tills=1, rest=RETRY_AFTER_SECONDS),
    "till-streams": _till(Attacker.hear_and_hold, _STREAMS, 2000, tills=1, rest=RETRY_AFTER_SECONDS),
    "till-pages": _till(_PAGES, one(lambda _: b""), 390, tills=1),
    "till-half-bodies": _till(Attacker.hear_and_hold, _HALF_BODIES, 390, tills=1, rest=RETRY_AFTER_SECONDS),
    "till-voids": _till(Attacker.take, _voids),
    "till-searches": _till(Attacker.take, _searches),
    "endless-events": Attack(Attacker.hear, _new_events, workers=8, events=EVENTS, insider=True),
    "heavy-events": Attack(Attacker.hear, _heavy_events, workers=8, events=EVENTS, insider=True),
    "unread-log": Attack(Attacker.hear, _FORGED, insider=True, log_stands_still=True),
    # This attack is last, because it may leave the most memory in use.
    "tills-of-one-user": _till(
        Attacker.hear_and_hold, _CONNECTIONS, 4000, processes=4, tills=4, rest=RETRY_AFTER_SECONDS
    ),
}

#: Attacks that run at the same time: all attacks of strangers, and all attacks by which tills and terminals fill
#: memory.
TOGETHER: Mapping[str, Sequence[str]] = {
    "everything": [name for name, attack in ATTACKS.items() if not attack.insider],
    "insiders": ("till-pages", "till-half-bodies", "till-voids", "till-searches", "heavy-events", "unread-log"),
}
