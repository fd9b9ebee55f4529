"""Simulated card terminal with the real wire format: requests, acknowledgements, events and their delivery.

The simulator imports nothing from the rest of posd. So an error in reading the wire format cannot be the same on both
sides, and stay hidden.
"""

from posd.simulator.ledger import Entry, Ledger
from posd.simulator.settings import Settings
from posd.simulator.simulator import Simulator, started
from posd.simulator.wire import SettingsError

__all__ = ["Entry", "Ledger", "Settings", "SettingsError", "Simulator", "started"]
