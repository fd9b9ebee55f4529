"""A simulated card terminal that speaks the real wire: requests, acknowledgements, events and their delivery.

It stands alone: nothing of the rest of posd is imported here, so that a misreading of the wire on one side is not
repeated, and thereby hidden, on the other.
"""

from posd.simulator.journal import SettingsError
from posd.simulator.ledger import Entry, Ledger
from posd.simulator.settings import Settings
from posd.simulator.simulator import Shop, Simulator

__all__ = ["Entry", "Ledger", "Settings", "SettingsError", "Shop", "Simulator"]
