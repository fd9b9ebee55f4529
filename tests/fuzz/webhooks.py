"""Target: the webhook endpoint of a real daemon, over TLS."""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from posd.base.ids import Channel
from tests.fuzz import seeds
from tests.fuzz.mutation import bodies
from tests.fuzz.seeds import IDENTITY, PRINT_JOB
from tests.fuzz.shop import Shop
from tests.fuzz.target import Case, Target
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


class Webhooks:
    """The target, with the daemon that it calls."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def check(self, case: Case) -> None:
        """An authentic body is never lost: 200 has it among the events, or the
        job's journal, verbatim; 400 and 403 have it in quarantine. The same again is answered the same, and a 200
        keeps nothing more. What is forged is refused and leaves nothing. The daemon is alive and has logged no fault.
        """
        channel, forged, method, chunks = Channel(case.given[0]), *case.given[1:]
        identity = self._shop.fresh()
        body = case.body.replace(IDENTITY.encode(), identity.encode()).replace(PRINT_JOB.encode(), identity.encode())
        path = self._shop.address(channel, identity)
        if forged:
            path = FORGED[forged](path)
        sent = body if chunks is None else [body[start : start + chunks] for start in range(0, len(body), chunks)]
        status = self._shop.deliver(path, sent, method)
        if forged or method != "POST":
            # who shows no token is not listened to: still sending, he may meet the end before the answer
            assert status in (403, 404, 405) or (forged and status == 0), status
            assert self._kept(channel, identity) == ([], [])
        else:
            self._check_kept(channel, identity, body, status)
            again = self._shop.deliver(path, body)
            assert again == status, "the same callback again is answered in another way"
            self._check_kept(channel, identity, body, again, times=2)
        self._shop.check()

    def _check_kept(self, channel: Channel, identity: str, body: bytes, status: int, times: int = 1) -> None:
        taken, refused = self._kept(channel, identity)
        if status == 200:
            assert (taken, refused) == ([body], []), "an event was lost, or kept twice"
            shown = self._shop.local.get(f"/{channel}/{identity}/history")
            assert shown.json()["history"]
            if channel is Channel.TRANSACTION:
                events: list[Any] = self._shop.local.get(f"/{channel}/{identity}/events").json()["events"]
                assert len(events) == 1
        else:
            assert status in (400, 403), status
            assert taken == []
            assert refused
            assert set(refused) == {body}
            assert len(refused) <= times

    def _kept(self, channel: Channel, identity: str) -> tuple[list[bytes], list[bytes]]:
        """Return the accepted bodies of an id, and those that were refused and kept."""
        refused = [body for _, body in quarantined(self._shop.posd, identity)]
        if channel is Channel.TRANSACTION:
            return [body for _, body in recorded(self._shop.posd, identity)], refused
        with disk(self._shop.posd) as db:
            query = "SELECT body FROM print_journal WHERE print_job_id = ? AND body IS NOT NULL ORDER BY seq"
            return [bytes(row[0]) for row in db.execute(query, (identity,))], refused


def target(shop: Shop) -> Target:
    """Return the target for a daemon that runs."""
    webhooks = Webhooks(shop)
    forged = st.sampled_from(("",) * 12 + tuple(FORGED))
    methods = st.sampled_from(("POST",) * 12 + ("GET", "PUT", "HEAD", "PROPFIND"))
    chunks = st.sampled_from((None, None, None, 1, 4096))
    events = bodies(seeds.EVENTS, seeds.EVENT_WORDS)
    prints = bodies(seeds.PRINT_WEBHOOKS, seeds.PRINT_WORDS)
    cases = st.one_of(
        st.builds(Case, events, st.tuples(st.just(Channel.TRANSACTION), forged, methods, chunks)),
        st.builds(Case, prints, st.tuples(st.just(Channel.PRINT), forged, methods, chunks)),
    )
    return Target("webhook", cases, webhooks.check)
