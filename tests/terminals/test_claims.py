"""The choice between several announcements of a serial. Every rule is tested without a network."""

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from posd.terminals.announcements import MAX_CLAIMS, Announcement, CandidateVerdict, SerialAnnouncements
from tests.rig.tables import every

A, B, C = (f"https://192.0.2.{number}:6869" for number in (1, 2, 3))
SIX = "https://[2001:db8::1]:6869"
ANSWERS, UNCHECKED, SILENT, REFUSED = (
    CandidateVerdict.ANSWERS,
    CandidateVerdict.UNCHECKED,
    CandidateVerdict.SILENT,
    CandidateVerdict.REFUSED,
)


def announced(name: str, *urls: str) -> Announcement:
    hosts = tuple(url.removeprefix("https://").removesuffix(":6869") for url in urls)
    return Announcement(name, "SN-1", hosts, 6869, None, None, "2026-11-20T10:00:00.000Z")


def claims(*announcements: Announcement) -> SerialAnnouncements:
    made = SerialAnnouncements("https")
    for item in announcements:
        made.announce(item)
    return made


def judge(
    made: SerialAnnouncements,
    url: str,
    verdict: CandidateVerdict,
    *,
    certificate: str | None = None,
    tried: float = 0.0,
) -> None:
    found = made.find(url)
    assert found
    for candidate in found:
        candidate.verdict, candidate.certificate, candidate.tried = verdict, certificate, tried


def believed(made: SerialAnnouncements) -> str | None:
    return made.best[1].base_url if made.best else None


def test_without_announcements_there_is_no_address() -> None:
    assert believed(claims()) is None
    assert claims().rivals == []
    assert claims().sweep() == []


def test_the_newest_of_the_unprobed_addresses_is_used() -> None:
    made = claims(announced("a", A), announced("b", B))
    assert believed(made) == B
    made.announce(announced("a", C))
    assert believed(made) == C
    assert made.withdraw("a") is not None
    assert believed(made) == B
    assert made.withdraw("a") is None


def test_a_repeated_announcement_does_not_count_as_newer() -> None:
    made = claims(announced("a", A), announced("b", B))
    assert not made.announce(announced("a", A))
    assert believed(made) == B


@every("verdicts", list(product(CandidateVerdict, repeat=2)), ids=lambda pair: "-".join(v.name for v in pair))
def test_the_better_address_is_used_or_the_newer_of_two_equal_addresses(
    verdicts: tuple[CandidateVerdict, CandidateVerdict],
) -> None:
    made = claims(announced("a", A), announced("b", B))
    judge(made, A, verdicts[0])
    judge(made, B, verdicts[1])
    assert believed(made) == (A if verdicts[0] < verdicts[1] else B)


def test_all_addresses_of_one_announcement_are_candidates_in_their_order() -> None:
    made = claims(announced("a", A, SIX))
    assert [candidate.base_url for candidate in made.candidates] == [A, SIX]
    assert believed(made) == A
    judge(made, A, SILENT)
    assert believed(made) == SIX
    judge(made, SIX, SILENT)
    assert believed(made) == A


def test_a_terminal_that_moves_is_used_at_its_new_address() -> None:
    made = claims(announced("a", A))
    judge(made, A, ANSWERS)
    assert made.announce(announced("a", B))
    assert believed(made) == B  # this call comes before posd has probed that address
    judge(made, B, ANSWERS)
    assert believed(made) == B


@pytest.mark.parametrize("verdict", [SILENT, REFUSED], ids=lambda verdict: verdict.name)
def test_the_old_address_is_used_while_only_the_old_address_replies(verdict: CandidateVerdict) -> None:
    made = claims(announced("a", A))
    judge(made, A, ANSWERS)
    made.announce(announced("a", B))
    judge(made, B, verdict)
    assert believed(made) == A
    assert made.sweep() == []
    judge(made, A, SILENT)
    assert believed(made) == B
    assert [item.hosts for item in made.sweep()] == [("192.0.2.1",)]
    assert len(made) == 1


@pytest.mark.parametrize("verdict", [UNCHECKED, SILENT, REFUSED], ids=lambda verdict: verdict.name)
def test_an_address_that_never_replied_is_removed_after_a_move(verdict: CandidateVerdict) -> None:
    made = claims(announced("a", A))
    judge(made, A, verdict)
    made.announce(announced("a", B))
    assert [candidate.base_url for candidate in made.candidates] == [B]


@pytest.mark.parametrize(("old", "new", "left"), [("x", "x", 1), ("x", "y", 2), (None, None, 1)], ids=str)
def test_a_device_at_two_addresses_does_not_conflict_with_itself(old: str | None, new: str | None, left: int) -> None:
    made = claims(announced("a", A))
    judge(made, A, ANSWERS, certificate=old)
    made.announce(announced("a", B))
    judge(made, B, ANSWERS, certificate=new)
    made.sweep()
    assert (len(made), believed(made)) == (left, B)
    assert (made.rivals == []) == (left == 1)


def test_an_address_that_is_no_longer_announced_is_removed() -> None:
    made = claims(announced("a", A, SIX))
    judge(made, A, SILENT)
    judge(made, SIX, ANSWERS)
    assert made.announce(announced("a", SIX, B))
    assert [candidate.base_url for candidate in made.candidates] == [SIX, B]
    assert made.best is not None
    assert made.best[1].verdict is ANSWERS  # posd keeps the result of the address's probe


#: Verdicts of the addresses A and B -> used address and other address, with their verdicts.
RIVALS = {
    (ANSWERS, ANSWERS): [(B, ANSWERS), (A, ANSWERS)],
    (ANSWERS, REFUSED): [(A, ANSWERS), (B, REFUSED)],
    (REFUSED, ANSWERS): [(B, ANSWERS), (A, REFUSED)],
}


@every("verdicts", list(product(CandidateVerdict, repeat=2)), ids=lambda pair: "-".join(v.name for v in pair))
def test_two_present_devices_conflict_if_one_of_them_is_the_terminal(
    verdicts: tuple[CandidateVerdict, CandidateVerdict],
) -> None:
    made = claims(announced("a", A), announced("b", B))
    judge(made, A, verdicts[0], certificate="x")
    judge(made, B, verdicts[1], certificate="x")
    assert [(item.base_url, item.verdict) for item in made.rivals] == RIVALS.get(verdicts, [])


@pytest.mark.parametrize("verdict", [ANSWERS, SILENT], ids=lambda verdict: verdict.name)
def test_a_flood_of_announcements_does_not_displace_a_trusted_address(verdict: CandidateVerdict) -> None:
    made = claims(announced("right", A))
    judge(made, A, verdict, certificate="x")
    for number in range(10):
        made.announce(announced(f"flood-{number}", f"https://198.51.100.{number}:6869"))
    assert A in [candidate.base_url for candidate in made.candidates]
    assert len(made) == MAX_CLAIMS


def test_two_service_types_of_one_device_do_not_conflict() -> None:
    names = ("a._card-terminal._tcp.local.", "a._https._tcp.local.")
    made = claims(announced(names[0], A, SIX), Announcement(names[1], "SN-1", ("192.0.2.1",), 443, None, None, ""))
    for candidate in made.candidates:
        candidate.verdict, candidate.certificate = ANSWERS, "x"
    assert made.rivals == []
    for candidate in made.find("https://192.0.2.1:443"):
        candidate.certificate = "y"
    assert made.rivals, "another device behind the same address"


def test_a_stale_announcement_is_removed_only_if_its_address_cannot_be_reached() -> None:
    made = claims(announced("a", A), announced("b", B), announced("c", C))
    made.mark_stale()
    made.announce(announced("b", B))
    judge(made, A, ANSWERS)
    judge(made, B, SILENT)
    judge(made, C, SILENT)
    assert [item.name for item in made.sweep()] == ["c"]


@every("order", list(permutations(range(MAX_CLAIMS))), ids=str)
def test_of_many_announcements_the_used_and_the_newest_announcement_are_kept(order: tuple[int, ...]) -> None:
    urls = [f"https://192.0.2.{number + 1}:6869" for number in range(MAX_CLAIMS)]
    made = claims(*(announced(f"n{number}", urls[number]) for number in order))
    judge(made, urls[0], ANSWERS)
    for number in range(100, 120):
        url = f"https://192.0.2.{number}:6869"
        made.announce(announced(f"n{number}", url))
        assert len(made) == MAX_CLAIMS
        assert believed(made) == urls[0]
        assert made.find(url), "the newest announcement must be kept, because it may be right"


def every_look(urls: tuple[str, ...]) -> Iterator[dict[str, tuple[CandidateVerdict, float]]]:
    """Yield every combination of probes.

    The probe of each address got a reply, got no reply, or was not made recently.
    """
    states = [(ANSWERS, 1.0), (SILENT, 1.0), (UNCHECKED, float("-inf")), (ANSWERS, -1.0)]
    for chosen in product(states, repeat=len(urls)):
        yield dict(zip(urls, chosen, strict=True))


def test_the_address_is_decided_as_soon_as_no_newer_address_can_be_better() -> None:
    for state in every_look((A, B)):
        made = claims(announced("a", A), announced("b", B))
        for url, (verdict, tried) in state.items():
            judge(made, url, verdict, tried=tried)
        newer, older = state[B], state[A]
        fresh = {url for url, (_, tried) in state.items() if tried >= 0}
        assert {item.base_url for item in made.stale(0)} == {A, B} - fresh
        decided = newer == (ANSWERS, 1.0) or (newer == (SILENT, 1.0) and older[1] >= 0)
        assert made.decided(0) == decided, state


def test_one_answering_address_of_an_announcement_is_enough() -> None:
    made = claims(announced("a", A, SIX))
    judge(made, SIX, ANSWERS, tried=1.0)
    assert made.decided(0)
