"""Target: the webhook endpoint of a real daemon, over TLS."""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from posd.base.ids import Channel
from tests.fuzz import seeds
from tests.fuzz.mutation import bodies
from tests.fuzz.seeds import IDENTITY, PRINT_JOB
from tests.fuzz.shop import Shop
from tests.fuzz.target import Case, beside
from tests.support.webhooks import disk, quarantined, recorded

#: Kind of a wrong address -> the function that makes its path from the right one.
FORGED: Mapping[str, Callable[[str], str]] = {
    "no token": lambda path: path.rsplit("/", 1)[0],
    "empty token": lambda path: path.rsplit("/", 1)[0] + "/",
    "another token": lambda path: path[:-1] + ("A" if path[-1] != "A" else "B"),
    "longer": lambda path: path + "A",
    "another id": lambda path: "/".join((*path.split("/")[:3], IDENTITY, path.rsplit("/", 1)[1])),
    "another channel": lambda path: path.replace("/transactions/", "/x/").replace("/print-jobs/", "/transactions/"),
    "a segment more": lambda path: path + "/x",
    "bytes": lambda path: path.rsplit("/", 1)[0] + "/%ff%00",
    "somewhere else": lambda path: "/",
}


def check(shop: Shop, case: Case) -> None:
    """An authentic body is never lost: 200 has it among the events, or the
    job's journal, verbatim; 400 and 403 have it in quarantine. The same again is answered the same, and a 200
    keeps nothing more. What is forged is refused and leaves nothing. The daemon is alive and has logged no fault.
    """
    channel, forged, method, chunks = Channel(case.given[0]), *case.given[1:]
    identity = shop.fresh()
    body = case.body.replace(IDENTITY.encode(), identity.encode()).replace(PRINT_JOB.encode(), identity.encode())
    path = shop.address(channel, identity)
    if forged:
        path = FORGED[forged](path)
    sent = body if chunks is None else [body[start : start + chunks] for start in range(0, len(body), chunks)]
    status = shop.deliver(path, sent, method)
    if forged or method != "POST":
        # posd does not read on from a caller without a token: the connection can end before the answer is read
        assert status in (403, 404, 405) or (forged and status == 0), status
        assert _kept(shop, channel, identity) == ([], [])
    else:
        _check_kept(shop, channel, identity, body, status)
        again = shop.deliver(path, body)
        assert again == status, "the repeated callback is answered in another way"
        _check_kept(shop, channel, identity, body, again, times=2)
    shop.check()


def _check_kept(shop: Shop, channel: Channel, identity: str, body: bytes, status: int, times: int = 1) -> None:
    taken, refused = _kept(shop, channel, identity)
    if status == 200:
        assert (taken, refused) == ([body], []), "an event was lost, or kept twice"
        shown = shop.local.get(f"/{channel}/{identity}/history")
        assert shown.json()["history"]
        if channel is Channel.TRANSACTION:
            events: list[Any] = shop.local.get(f"/{channel}/{identity}/events").json()["events"]
            assert len(events) == 1
    else:
        assert status in (400, 403), status
        assert taken == []
        assert refused
        assert set(refused) == {body}
        assert len(refused) <= times


def _kept(shop: Shop, channel: Channel, identity: str) -> tuple[list[bytes], list[bytes]]:
    """Return the accepted bodies of an id, and those that were refused and kept."""
    refused = [body for _, body in quarantined(shop.posd, identity)]
    if channel is Channel.TRANSACTION:
        return [body for _, body in recorded(shop.posd, identity)], refused
    with disk(shop.posd) as db:
        query = "SELECT body FROM print_journal WHERE print_job_id = ? AND body IS NOT NULL ORDER BY seq"
        return [bytes(row[0]) for row in db.execute(query, (identity,))], refused


#: Mostly authentic callbacks by POST in one piece.
BESIDE = (
    st.sampled_from(("",) * 12 + tuple(FORGED)),
    st.sampled_from(("POST",) * 12 + ("GET", "PUT", "HEAD", "PROPFIND")),
    st.sampled_from((None, None, None, 1, 4096)),
)
CASES = st.one_of(
    beside(bodies(seeds.EVENTS, seeds.EVENT_WORDS), st.just(Channel.TRANSACTION), *BESIDE),
    beside(bodies(seeds.PRINT_WEBHOOKS, seeds.PRINT_WORDS), st.just(Channel.PRINT), *BESIDE),
)
