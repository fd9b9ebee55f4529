"""Which fates the connections through a proxy meet."""

from collections import Counter

from tests.chaos.proxy import IN_A_HUNDRED, Fate, Proxy


def test_no_fate_is_dealt_to_connections_that_can_meet_none():
    proxy = Proxy("SN-0001", 1, ())
    proxy.faulty = False
    assert {proxy._draw()[0] for _ in range(150)} == {Fate.PASSED}
    proxy.faulty = True
    drawn = Counter(proxy._draw()[0] for _ in range(100))
    assert {fate: drawn[fate] for fate in IN_A_HUNDRED} == IN_A_HUNDRED
