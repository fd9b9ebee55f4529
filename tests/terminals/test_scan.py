"""Looking for terminals in a subnet: what is looked through, how politely, and what is recognised."""

import asyncio
from collections.abc import Iterator

import pytest
import trustme

from posd.terminals import trust
from posd.terminals.scan import Answer, Limits, NotScanned, Report, Scan, Seen, Wanted, addresses, subnet
from tests.support.street import Street, street

#: Patient with a loaded machine; no more polite than it has to be on loopback.
LIMITS = Limits(per_second=500.0, connect_seconds=60.0, handshake_seconds=60.0)
HERE = "127.77.0.0/26"
TERMINAL, STRANGER, NAMED, IMPOSTOR = "127.77.0.5", "127.77.0.6", "127.77.0.11", "127.77.0.12"
FULL, MUTE, WEB = "127.77.0.7", "127.77.0.8", "127.77.0.9"
NAME = "sn-0002.terminals.example"


# The plan


@pytest.mark.parametrize(
    ("text", "count", "first", "last"),
    [
        ("192.168.7.0/24", 254, "192.168.7.1", "192.168.7.254"),
        ("192.168.7.9/24", 254, "192.168.7.1", "192.168.7.254"),  # the address of a machine in it
        ("10.1.0.0/22", 1022, "10.1.0.1", "10.1.3.254"),
        ("172.31.255.0/31", 2, "172.31.255.0", "172.31.255.1"),
        ("192.168.7.9", 1, "192.168.7.9", "192.168.7.9"),
        ("169.254.3.0/30", 2, "169.254.3.1", "169.254.3.2"),
        ("fd00:1::/118", 1023, "fd00:1::1", "fd00:1::3ff"),
        ("fd00:1::7", 1, "fd00:1::7", "fd00:1::7"),
        ("::1", 1, "::1", "::1"),
    ],
)
def test_every_address_that_a_device_can_have_is_looked_at(text: str, count: int, first: str, last: str) -> None:
    planned = list(addresses(subnet(text)))
    assert (len(planned), planned[0], planned[-1]) == (count, first, last)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.0/21", "a /22 or smaller"),
        ("10.0.0.0/8", "too many addresses"),
        ("fd00::/64", "a /118 or smaller"),
        ("fd00::/117", "too many addresses"),
        ("8.8.8.0/24", "not a private network"),
        ("0.0.0.0/0", "not a private network"),
        ("10.0.0.0/7", "not a private network"),
        ("172.32.0.0/24", "not a private network"),
        ("100.64.0.0/24", "not a private network"),
        ("2001:db8::/120", "not a private network"),
        ("fe80::/120", "not a private network"),  # which of the cards it is on, an address alone does not say
        ("192.168.7.0/33", "no subnet"),
        ("192.168.7", "no subnet"),
        ("shop", "no subnet"),
        ("", "no subnet"),
    ],
)
def test_what_is_not_the_shops_own_network_or_too_large_is_not_looked_through(text: str, words: str) -> None:
    with pytest.raises(NotScanned, match=words):
        subnet(text)


# The scan


@pytest.fixture(scope="module")
def seen() -> Iterator[tuple[Street, Report]]:
    """A street with devices of every kind, and what one look from door to door found."""
    authority, other = trustme.CA(), trustme.CA()
    with street() as here:
        pinned = here.terminal(TERMINAL, authority.issue_cert("192.168.7.5"))  # of the address that it had before
        here.terminal(STRANGER, authority.issue_cert(STRANGER))
        here.terminal(NAMED, authority.issue_cert(NAME))
        here.terminal(IMPOSTOR, other.issue_cert(NAME))
        here.web(WEB)
        context = trust.context(None, "")
        authority.configure_trust(context)
        wanted = [Wanted("SN-0001", pinned), Wanted("SN-0002", "", NAME, context), Wanted("SN-0003", "0" * 64)]
        scan = Scan(list(addresses(subnet(HERE))), here.port, wanted, limits=LIMITS)
        asyncio.run(scan.run())
        yield here, scan.report


def at(report: Report, address: str) -> Seen | None:
    return next((item for item in report.listening if item.address == address), None)


def test_a_terminal_is_recognised_by_its_certificate_or_by_the_name_that_its_ca_vouches_for(
    seen: tuple[Street, Report],
) -> None:
    _, report = seen
    assert report.found == {"SN-0001": TERMINAL, "SN-0002": NAMED}


def test_a_device_with_another_certificate_is_no_known_terminal(seen: tuple[Street, Report]) -> None:
    _, report = seen
    for address in (STRANGER, IMPOSTOR):
        stranger = at(report, address)
        assert stranger is not None
        assert (stranger.answer, stranger.serial) == (Answer.TLS, None)
        assert len(stranger.fingerprint_sha256 or "") == 64


def test_what_listens_and_does_not_speak_tls_is_told(seen: tuple[Street, Report]) -> None:
    assert at(seen[1], WEB) == Seen(WEB, Answer.NO_TLS)


async def test_what_hangs_in_the_handshake_is_told() -> None:
    with street() as here:
        here.mute(MUTE)
        limits = Limits(connect_seconds=60.0, handshake_seconds=0.5)
        scan = Scan([MUTE], here.port, [], limits=limits)
        await scan.run()
    assert scan.report.listening == [Seen(MUTE, Answer.HANGS)]


async def test_what_does_not_answer_is_silent() -> None:
    with street() as here:
        here.full(FULL)
        scan = Scan([FULL], here.port, [], limits=Limits(connect_seconds=0.5))
        await scan.run()
    assert (scan.report.answers[Answer.SILENT], scan.report.listening) == (1, [])


def test_everything_is_counted(seen: tuple[Street, Report]) -> None:
    _, report = seen
    assert (report.tried, report.whole, report.unroutable) == (62, True, 0)
    assert len(report.listening) == 5
    assert report.answers == {
        Answer.SILENT: 0,
        Answer.REFUSED: 57,
        Answer.NO_TLS: 1,
        Answer.HANGS: 0,
        Answer.TLS: 4,
    }


def test_no_device_is_sent_anything_but_a_handshake(seen: tuple[Street, Report]) -> None:
    here, _ = seen
    # Once to see the certificate; once more to hold it against the name of SN-0002, where it is not pinned.
    assert {address: here.visits.count(address) for address in (TERMINAL, NAMED, WEB)} == {
        TERMINAL: 1,
        NAMED: 2,
        WEB: 1,
    }
    assert set(here.said.values()) == {b""}


def test_it_ends_where_all_are_found() -> None:
    with street() as here:
        pinned = here.terminal("127.77.0.1", trustme.CA().issue_cert("127.0.0.1"))
        scan = Scan(
            list(addresses(subnet(HERE))),
            here.port,
            [Wanted("SN-1", pinned)],
            limits=Limits(at_once=1, connect_seconds=60.0, handshake_seconds=60.0),
        )
        asyncio.run(scan.run())
    assert (scan.report.found, scan.report.tried, scan.report.whole) == ({"SN-1": "127.77.0.1"}, 1, False)


async def test_no_more_are_opened_a_second_than_said() -> None:
    loop = asyncio.get_running_loop()
    with street() as here:
        scan = Scan(
            [f"127.77.0.{number}" for number in range(1, 22)],
            here.port,
            [],
            limits=Limits(per_second=40.0, connect_seconds=60.0),
        )
        began = loop.time()
        await scan.run()
    assert loop.time() - began >= 20 / 40
    assert scan.report.answers[Answer.REFUSED] == 21


async def test_no_more_are_open_at_once_than_said() -> None:
    at_once, doors = 4, [f"127.77.0.{number}" for number in range(1, 13)]
    with street() as here:
        here.mute(*doors)
        limits = Limits(at_once=at_once, per_second=5000.0, connect_seconds=60.0, handshake_seconds=300.0)
        scan = Scan(doors, here.port, [Wanted("SN-1", "0" * 64)], limits=limits)
        looking = asyncio.create_task(scan.run())
        for gone in range(len(doors) - at_once):
            await asyncio.to_thread(here.wait_for_visits, at_once + gone)
            assert len(here.visits) == at_once + gone
            here.let_go()
        await asyncio.to_thread(here.wait_for_visits, len(doors))
        for _ in range(at_once):
            here.let_go()
        await looking
    assert scan.report.answers[Answer.NO_TLS] == len(doors)


async def test_what_was_found_before_it_was_stopped_stands() -> None:
    with street() as here:
        pinned = here.terminal("127.77.0.1", trustme.CA().issue_cert("127.0.0.1"))
        here.mute("127.77.0.2")
        found = asyncio.Event()

        def show(report: Report) -> None:
            if report.found:
                found.set()

        wanted = [Wanted("SN-1", pinned), Wanted("SN-2", "0" * 64)]
        scan = Scan(
            ["127.77.0.1", "127.77.0.2"], here.port, wanted, show, Limits(connect_seconds=60.0, handshake_seconds=300.0)
        )
        looking = asyncio.create_task(scan.run())
        async with asyncio.timeout(60):
            await found.wait()
        await asyncio.to_thread(here.wait_for_visits, 2)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
    assert (scan.report.found, scan.report.tried, scan.report.whole) == ({"SN-1": "127.77.0.1"}, 1, False)
