"""A part of the simulated world: a till, a terminal, the operator, a program."""

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import World


class Part:
    """A part of the world, with the functions that all parts use."""

    def __init__(self, world: "World") -> None:
        self.world, self.checks, self.truth = world, world.checks, world.truth
        self.seen, self.holds = world.seen, world.holds


def new_id(random: "Random") -> str:
    """Draw an id."""
    return str(UUID(int=random.getrandbits(128), version=4))
