"""A part of the simulated world: a till, a terminal, the operator, a program."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import World


class Part:
    """A part of the world, with the functions that all parts use."""

    def __init__(self, world: "World") -> None:
        self.world, self.checks, self.truth = world, world.checks, world.truth
        self.seen, self.holds = world.seen, world.holds


def new_id(random: "Random", version: int | None = 4) -> str:
    """Draw an id."""
    return str(UUID(int=random.getrandbits(128), version=version))


async def within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Return whether the work ended within these seconds. Otherwise cancel it."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
