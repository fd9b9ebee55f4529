"""Announced addresses: which addresses are candidates, and their form in a URL."""

from posd.terminals.announcements import MAX_CANDIDATES, candidates
from tests.rig.tables import every

#: Announced addresses, chosen interfaces, candidates.
CASES: dict[str, tuple[list[str], tuple[str, ...], tuple[str, ...]]] = {
    "one": (["192.0.2.7"], (), ("192.0.2.7",)),
    "all of them, IPv4 first": (
        ["2001:db8::7", "192.0.2.7", "10.0.0.7"],
        (),
        ("192.0.2.7", "10.0.0.7", "[2001:db8::7]"),
    ),
    "IPv6 alone": (["2001:db8::7"], (), ("[2001:db8::7]",)),
    "unique local": (["fd00::7"], (), ("[fd00::7]",)),
    "the same twice": (["192.0.2.7", "192.0.2.7"], (), ("192.0.2.7",)),
    "loopback is left out": (["127.0.0.1", "::1", "192.0.2.7"], (), ("192.0.2.7",)),
    "loopback alone": (["127.0.0.1"], (), ()),
    "loopback chosen": (["127.0.0.1", "::1"], ("127.0.0.1",), ("127.0.0.1", "[::1]")),
    "loopback, another chosen": (["127.0.0.1"], ("192.0.2.1",), ()),
    "link-local": (["169.254.1.1", "fe80::1%eth0"], (), ()),
    "link-local, IPv4 chosen": (["169.254.1.1", "fe80::1%eth0"], ("169.254.9.9",), ("169.254.1.1",)),
    "link-local, IPv6 chosen": (["169.254.1.1", "fe80::1%eth0"], ("fe80::9%eth0",), ("[fe80::1%25eth0]",)),
    "link-local without scope": (["fe80::1"], ("fe80::9%eth0",), ()),
    "addresses of no device": (["0.0.0.0", "::", "255.255.255.255", "240.0.0.1", "224.0.0.1", "ff02::fb"], (), ()),
    "IPv4 written as IPv6": (["::ffff:192.0.2.7", "::192.0.2.7"], (), ()),
    "public": (["8.8.8.8", "2a00:1450::7", "64:ff9b::808:808", "2002:808:808::7", "2001::7"], (), ()),
    "public and private": (["8.8.8.8", "10.0.0.7", "2a00:1450::7", "fd00::7"], (), ("10.0.0.7", "[fd00::7]")),
    "shared address space": (["100.64.0.7"], (), ("100.64.0.7",)),
    "texts that are not addresses": (["", "here", "192.0.2.7:80", "192.0.2.0/24"], (), ()),
    "none": ([], (), ()),
}


@every("case", CASES, ids=str)
def test_an_announcement_has_only_usable_addresses_as_candidates(case: str) -> None:
    announced, chosen, expected = CASES[case]
    assert candidates(announced, chosen) == expected


def test_only_a_few_of_many_announced_addresses_are_kept() -> None:
    assert len(candidates([f"192.0.2.{number}" for number in range(200)], ())) == MAX_CANDIDATES
