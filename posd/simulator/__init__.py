"""Simulated card terminal with the real wire format: requests, acknowledgements, events and their delivery.

The simulator imports nothing from the rest of posd. Otherwise both sides could share an error in reading the wire
format, and no test would find it.
"""

from posd.simulator.ledger import Entry, Ledger
from posd.simulator.settings import Settings
from posd.simulator.simulator import Simulator, started
from posd.simulator.wire import SettingsError

__all__ = ["Entry", "Ledger", "Settings", "SettingsError", "Simulator", "started"]
