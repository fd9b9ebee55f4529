"""What a simulated terminal can be told, checked once."""

import ipaddress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from posd.simulator.amounts import number_fault
from posd.simulator.print_scenarios import DEFAULT_PRINT_SCENARIO, PRINT_SCENARIOS
from posd.simulator.scenarios import DEFAULT_SCENARIO, SCENARIOS

#: Bytes that one label of a DNS name can have; the serial is the instance name of the announcement.
MAX_SERIAL_BYTES = 63


class SettingsError(ValueError):
    """Something in the settings cannot be; the message says what, why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the terminal is set up. `state` must exist; it holds the queue, the record of finals and the print jobs.

    Without certificate and private_key the terminal speaks plain HTTP. `trust` is the CA of the receivers, None for
    the system's. `speed` divides every human delay, the printer's, the waiting limit, the backoff and the 15 minutes of
    the delivery policy; it does not touch `delivery_timeout` (of events), which is in real seconds, for networks do not
    run faster. `wait_seconds` (terminal seconds; 0: for ever) is how long wait-for-abort waits. The same `seed` and the
    same client_transaction_id give the same payment. `unruly` delivers events out of order and some of them twice, as a
    bad network does. `tip` is what the cardholder adds to the amount of each charge, pre-auth, re-auth and capture.
    Without `mdns_interfaces` the announcement goes to every interface.
    """

    state: Path
    serial: str = "SN-0001"
    brand: str = "Simulated"
    model: str = "SIM-1"
    merchant_id: str = "MERCHANT-0001"
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    private_key: Path | None = None
    trust: Path | None = None
    scenario: str = DEFAULT_SCENARIO
    print_scenario: str = DEFAULT_PRINT_SCENARIO
    speed: float = 1.0
    seed: int | None = None
    wait_seconds: float = 60.0
    delivery_timeout: float = 10.0
    unruly: bool = False
    tip: Decimal | None = None
    mdns: bool = True
    mdns_interfaces: tuple[str, ...] = ()
    ledger_file: Path | None = None

    def __post_init__(self) -> None:
        """Raise SettingsError where a value cannot be."""
        _check(0 < len(self.serial.encode()) <= MAX_SERIAL_BYTES, f"serial {self.serial!r} must have 1 to 63 bytes")
        _check((self.certificate is None) == (self.private_key is None), "certificate and key: give both, or neither")
        _check(self.scenario in SCENARIOS, f"scenario {self.scenario!r} is none of {', '.join(SCENARIOS)}")
        _check(
            self.print_scenario in PRINT_SCENARIOS,
            f"print-scenario {self.print_scenario!r} is none of {', '.join(PRINT_SCENARIOS)}",
        )
        _check(self.speed > 0, "speed must be above 0 (1 is real time)")
        _check(self.wait_seconds >= 0, "wait-seconds must not be negative (0 waits for ever)")
        _check(self.delivery_timeout > 0, "delivery-timeout must be above 0 seconds")
        fault = None if self.tip is None else number_fault(self.tip)
        _check(fault is None, f"tip {self.tip} {fault}")
        _check(0 <= self.port <= 65535, f"port {self.port} must be 0 to 65535")
        for address in (self.host, *self.mdns_interfaces):
            _check(_is_address(address), f"{address!r} must be an IP address of this machine, not a name")

    @property
    def wait_limit(self) -> float | None:
        """The waiting limit in terminal seconds, None without end."""
        return self.wait_seconds or None


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
