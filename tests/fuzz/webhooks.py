"""Target: the webhook endpoint of a real daemon, over TLS."""

import asyncio
import re
from collections.abc import Callable, Mapping
from ssl import SSLError
from uuid import uuid4

from hypothesis import strategies as st

from posd.base.ids import Channel
from tests.fuzz import seeds
from tests.fuzz.mutation import bodies
from tests.fuzz.seeds import IDENTITY, PRINT_JOB
from tests.fuzz.target import Case, beside
from tests.rig.daemon import Daemon
from tests.rig.https import connect, post, status_of
from tests.rig.webhooks import address, chunked, faults, printed, quarantined, recorded

#: Maximum duration of a call, and maximum time until posd admits a refused caller, in seconds.
PATIENCE_SECONDS = 60.0
#: Seconds until a refused connection is tried again.
AGAIN_SECONDS = 0.1

#: Kind of a wrong callback URL -> function that makes its path from the right path.
FORGED: Mapping[str, Callable[[str], str]] = {
    "no token": lambda path: path.rsplit("/", 1)[0],
    "empty token": lambda path: path.rsplit("/", 1)[0] + "/",
    "another token": lambda path: path[:-1] + ("A" if path[-1] != "A" else "B"),
    "longer token": lambda path: path + "A",
    "another id": lambda path: "/".join((*path.split("/")[:3], IDENTITY, path.rsplit("/", 1)[1])),
    "another channel": lambda path: path.replace("/transactions/", "/x/").replace("/print-jobs/", "/transactions/"),
    "one more segment": lambda path: path + "/x",
    "invalid bytes in the token": lambda path: path.rsplit("/", 1)[0] + "/%ff%00",
    "another path": lambda path: "/",
}


async def check(posd: Daemon, case: Case) -> None:
    """Check one callback. An authentic body is never lost. With 200 the events or the job's journal have the body
    verbatim. With 400 and 403 the quarantine has the body. A repeated callback gets the same reply, and after a 200
    nothing more is stored. posd refuses a forged callback and stores nothing. The daemon runs and has logged no fault.
    """
    channel, forged, method, size = Channel(case.given[0]), *case.given[1:]
    identity = str(uuid4())
    body = case.body.replace(IDENTITY.encode(), identity.encode()).replace(PRINT_JOB.encode(), identity.encode())
    path = address(posd, identity, channel)
    called = FORGED[forged](path) if forged else path
    status = await _deliver(posd, called, body, method, size)
    if forged or method != "POST":
        # posd does not read more from a client without a token, so the connection can end before the response is read
        assert status in (403, 404, 405) or (forged and status == 0), status
        assert _kept(posd, channel, identity) == ([], [])
    else:
        await _check_kept(posd, channel, identity, body, status)
        again = await _deliver(posd, path, body)
        assert again == status, "the repeated callback gets another reply"
        await _check_kept(posd, channel, identity, body, again, times=2)
    assert posd.process.returncode is None, "the daemon has ended"
    assert faults(posd) == []


async def _deliver(posd: Daemon, path: str, body: bytes, method: str = "POST", size: int | None = None) -> int:
    """Call the listener. If a size is given, send the body in chunks of this size. Return the HTTP status, or 0 without
    a response. posd refuses a caller before TLS after too many calls without a valid token. A refused caller calls
    again, as a terminal does.
    """
    data = post(f"https://127.0.0.1{path}", body, method=method)
    if size is not None:
        data = re.sub(rb"content-length: \d+\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n", data, count=1)
        data = data[: data.index(b"\r\n\r\n") + 4] + chunked(body, size)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                reader, writer = await connect(posd.port, posd.ca)
                break
            except (OSError, SSLError):
                await asyncio.sleep(AGAIN_SECONDS)
        try:
            writer.write(data)
            return status_of(await reader.readuntil(b"\r\n"))
        except (OSError, EOFError):
            return 0
        finally:
            writer.transport.abort()


async def _check_kept(posd: Daemon, channel: Channel, identity: str, body: bytes, status: int, times: int = 1) -> None:
    taken, refused = _kept(posd, channel, identity)
    if status == 200:
        assert (taken, refused) == ([body], []), "posd lost an event or stored it twice"
        assert (await posd.call("GET", f"/{channel}/{identity}/history")).json["history"]
        if channel is Channel.TRANSACTION:
            assert len((await posd.call("GET", f"/{channel}/{identity}/events")).json["events"]) == 1
    else:
        assert status in (400, 403), status
        assert taken == []
        assert refused
        assert set(refused) == {body}
        assert len(refused) <= times


def _kept(posd: Daemon, channel: Channel, identity: str) -> tuple[list[bytes], list[bytes]]:
    """Return the accepted bodies of an id, and the refused bodies in quarantine."""
    refused = [body for _, body in quarantined(posd, identity)]
    if channel is Channel.PRINT:
        return printed(posd, identity), refused
    return [body for _, body in recorded(posd, identity)], refused


#: Cases are mostly authentic callbacks, sent by POST in one piece.
BESIDE = (
    st.sampled_from(("",) * 12 + tuple(FORGED)),
    st.sampled_from(("POST",) * 12 + ("GET", "PUT", "HEAD", "PROPFIND")),
    st.sampled_from((None, None, None, 1, 4096)),
)
CASES = st.one_of(
    beside(bodies(seeds.EVENTS, seeds.EVENT_WORDS), st.just(Channel.TRANSACTION), *BESIDE),
    beside(bodies(seeds.PRINT_WEBHOOKS, seeds.PRINT_WORDS), st.just(Channel.PRINT), *BESIDE),
)
