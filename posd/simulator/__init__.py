"""A simulated card terminal with the real wire format: requests, acknowledgements, events and their delivery.

It imports nothing from the rest of posd. So the two sides cannot share, and thereby hide, a misreading of the wire.
"""

from posd.simulator.ledger import Entry, Ledger
from posd.simulator.settings import Settings
from posd.simulator.simulator import Simulator, TerminalGroup
from posd.simulator.wire import SettingsError

__all__ = ["Entry", "Ledger", "Settings", "SettingsError", "Simulator", "TerminalGroup"]
