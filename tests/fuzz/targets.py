"""All targets: those that are functions, and those that need a daemon."""

from tests.fuzz import webhooks
from tests.fuzz.codec import ACKNOWLEDGEMENT, EVENT, SEARCH
from tests.fuzz.configuration import CONFIGURATION
from tests.fuzz.shop import Shop
from tests.fuzz.target import Target

PURE: tuple[Target, ...] = (EVENT, ACKNOWLEDGEMENT, SEARCH, CONFIGURATION)
#: Names of the targets that need a daemon.
SERVED = ("webhook",)


def served(shop: Shop) -> tuple[Target, ...]:
    """Return the targets of a daemon that runs."""
    return (webhooks.target(shop),)
