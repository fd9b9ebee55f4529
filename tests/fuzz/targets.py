"""All targets: those that are functions, and those that need a daemon."""

from tests.fuzz import webhooks
from tests.fuzz.codec import ACKNOWLEDGEMENT, EVENT, SEARCH
from tests.fuzz.configuration import CONFIGURATION
from tests.fuzz.printing import PRINT_CREATION, PRINT_POLL, PRINT_WEBHOOK
from tests.fuzz.requests import DECISION, PRINT, START
from tests.fuzz.shop import Shop
from tests.fuzz.target import Target

PURE: tuple[Target, ...] = (
    EVENT,
    ACKNOWLEDGEMENT,
    SEARCH,
    PRINT_WEBHOOK,
    PRINT_CREATION,
    PRINT_POLL,
    START,
    PRINT,
    DECISION,
    CONFIGURATION,
)
#: Names of the targets that need a daemon.
SERVED = ("webhook",)


def served(shop: Shop) -> tuple[Target, ...]:
    """Return the targets of a daemon that runs."""
    return (webhooks.target(shop),)
