"""Runs of all attacks for a few seconds, with checks of payments, memory, descriptors, log lines and the disk. No check
depends on time. `python -m tests.hostile` measures the waits of the till on an idle machine.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.hostile.attacks import ATTACKS, TOGETHER
from tests.hostile.run import Run
from tests.hostile.shop import Shop, open_shop
from tests.rig.needs import needs
from tests.rig.webhooks import faults

#: Groups of attacks that run at the same time.
GROUPS: dict[str, Sequence[str]] = {
    "slow clients": ("slow-headers", "slow-bodies", "half-handshakes", "open-hold", "everywhere-half"),
    "many connections": ("open-close", "handshakes", "forged", "everywhere-handshakes", "everywhere-forged"),
    "large requests": ("huge-bodies", "endless-bodies", "header-bombs", "pipelining", "deaf"),
    "invalid protocols": ("http2", "garbage", "tls-tricks"),
    "replays": ("replays", "large-replays", "deaf-replays", "written-anew", "malformed"),
    "announcements": ("announcements",),
    "a till": ("till-connections",),
    "a till with streams": ("till-streams",),
    "a till that does not read": ("till-pages",),
    "a till that sends half bodies": ("till-half-bodies",),
    "a till that sends many calls": ("till-voids", "till-searches"),
    "a terminal": ("endless-events",),
    "a terminal with large events": ("heavy-events",),
    "an unread log": ("unread-log",),
    "all insiders": TOGETHER["insiders"],
    # The last group may leave the most memory in use.
    "many tills of one user": ("tills-of-one-user",),
}
#: Seconds of an attack by a group, and seconds of payments before the first attack.
SECONDS = 2.0
#: Nice value of the attackers. With this value parallel tests can continue.
NICE = 10
TERMINALS = 2

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """Yield a shop. Check at the end that the daemon has logged no fault."""
    with tempfile.TemporaryDirectory(prefix="posd-hostile-") as directory:
        async with open_shop(Path(directory), TERMINALS) as shop:
            yield shop
        assert not faults(shop.daemon)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(shop: Shop) -> Run:
    """Return the runner of measurements, after some payments."""
    run = Run(shop, nice=NICE)
    await run.warm_up(SECONDS)
    return run


async def test_every_attack_is_in_a_group() -> None:
    assert {name for names in GROUPS.values() for name in names} == set(ATTACKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id=name, marks=needs("openssl") if "tls-tricks" in names else ())
        for name, names in GROUPS.items()
    ],
)
async def test_strangers_cost_little_and_honest_payments_continue(run: Run, names: Sequence[str]) -> None:
    result = await run.attack(", ".join(names), names, 0, SECONDS)
    assert not result.faults, result
