"""Settings of a simulated terminal, and their checks."""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Literal

from posd.simulator.scenario import DEFAULT_PRINT_SCENARIO, DEFAULT_SCENARIO, payments, prints
from posd.simulator.wire import AmountUnit, Edition, SettingsError, number_fault

#: Maximum size of a DNS label, in bytes. The serial is the instance name of the announcement.
MAX_SERIAL_BYTES = 63
#: Maximum of `window_seconds` and of `clock_offset`. Both are larger than any test needs.
MAX_WINDOW_SECONDS = 86_400
MAX_CLOCK_OFFSET_SECONDS = 366 * 86_400

Auth = Literal["none", "hash-encrypt", "hmac"]
TimestampUnit = Literal["s", "ms"]
KeyPosition = Literal["last", "first"]

__all__ = ["MAX_SERIAL_BYTES", "Settings", "SettingsError"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a terminal.

    `state`: an existing directory for the queue, the record of finals and the print jobs. Without certificate and
    private_key the terminal speaks plain HTTP. `trust`: CA of the webhook receivers; None: the system's CAs. `speed`
    divides the delays of people and printer, the waiting limit, the backoff and the 15 minutes of the delivery policy.
    `speed` does not change `delivery_timeout`, the time-out of a delivery in real seconds. `wait_seconds`: longest wait
    for an abort, in terminal seconds (0: no limit). The same `seed` and client_transaction_id give the same payment.
    `unruly`: events arrive out of order and some twice, as on a bad network. `tip`: tip that the cardholder adds to
    each charge, pre-auth, re-auth and capture. Without `mdns_interfaces` the terminal is announced on every interface.

    `scenario_file`: the user's own payment scenario, in place of `scenario`. `virtual`: the clock is advanced only by
    command. `ca_certificate` and `ca_private_key` sign further certificates of the terminal. Without them the terminal
    generates a CA that no client trusts. `move_ports`: ports to which the terminal moves, in turn; empty: a free port.

    `edition`: edition of the vendor's documents, which determines paths, methods and refusals. `clock_offset`: number
    of seconds by which the terminal's clock is ahead. The terminal's clock checks timestamps, and dates replies and
    events. `amount_unit`: unit of the amounts in requests. `answer_amount_unit`: unit of amounts in replies and events
    (None: the same).

    `auth`: authentication of the calls. `business_code`: the merchant's secret. `window_seconds`: accepted difference
    between the timestamp and the terminal's clock. `timestamp_unit`: unit of the timestamp; None: the usual unit of the
    scheme `auth`. `minute_utc_offset`: UTC offset of the time in the password, in minutes.
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
    scenario_file: Path | None = None
    virtual: bool = False
    ca_certificate: Path | None = None
    ca_private_key: Path | None = None
    move_ports: tuple[int, ...] = ()
    edition: Edition = "classic"
    clock_offset: float = 0.0
    amount_unit: AmountUnit = "main"
    answer_amount_unit: AmountUnit | None = None
    currency: str = "USD"
    auth: Auth = "none"
    business_code: str = field(default="", repr=False)
    key_separator: str = "___"
    timestamp_unit: TimestampUnit | None = None
    key_position: KeyPosition = "last"
    minute_utc_offset: int = 0
    window_seconds: float = 300.0
    encrypt_replies: bool = False

    def __post_init__(self) -> None:
        """Raise SettingsError for an invalid value."""
        _check(0 < len(self.serial.encode()) <= MAX_SERIAL_BYTES, f"serial {self.serial!r} must have 1 to 63 bytes")
        _check((self.certificate is None) == (self.private_key is None), "certificate and key: give both, or neither")
        _check(
            (self.ca_certificate is None) == (self.ca_private_key is None),
            "CA certificate and CA key: give both, or neither",
        )
        _check_known("scenario", self.scenario, payments())
        _check_known("print scenario", self.print_scenario, prints())
        _check(self.speed > 0, "speed must be above 0 (1 is real time)")
        _check(self.wait_seconds >= 0, "wait-seconds must not be negative (0 waits without limit)")
        _check(self.delivery_timeout > 0, "delivery-timeout must be above 0 seconds")
        fault = None if self.tip is None else number_fault(self.tip)
        _check(fault is None, f"tip {self.tip} {fault}")
        for port in (self.port, *self.move_ports):
            _check(0 <= port <= 65535, f"port {port} must be 0 to 65535")
        for address in (self.host, *self.mdns_interfaces):
            _check(_is_address(address), f"{address!r} must be an IP address of this machine, not a name")
        signs = self.auth != "none"
        _check(signs or not self.business_code, "business-code has no use without auth: hash-encrypt, or hmac")
        _check(not signs or bool(self.business_code), f"auth {self.auth} needs a business-code: @FILE, or the code")
        _check(self.auth == "hash-encrypt" or not self.encrypt_replies, "encrypt-replies goes with auth hash-encrypt")
        _check(0 < self.window_seconds <= MAX_WINDOW_SECONDS, "window-seconds must be above 0, and at most a day")
        _check(abs(self.minute_utc_offset) < 24 * 60, "minute-utc-offset must be less than a day of minutes")
        _check(abs(self.clock_offset) <= MAX_CLOCK_OFFSET_SECONDS, "clock-offset must be at most a year of seconds")
        whole = self.tip is None or self.answered_in != "whole" or self.tip == self.tip.to_integral_value()
        _check(whole, f"tip {self.tip} must be a whole number, as the amounts of the answers are")

    @property
    def answered_in(self) -> AmountUnit:
        """Unit of amounts in replies and events."""
        return self.answer_amount_unit or self.amount_unit

    @property
    def terminal_id(self) -> str:
        """The terminal's id, which is always the same for one serial."""
        return f"{self._random('id').randrange(10**8):08}"

    @property
    def wifi_mac(self) -> str:
        """The address of the terminal's network card, which is always the same for one serial."""
        rng = self._random("mac")
        mac = [0x02, *(rng.randrange(256) for _ in range(5))]  # 0x02: locally administered
        return ":".join(f"{octet:02X}" for octet in mac)

    def _random(self, what: str) -> Random:
        return Random(f"{self.serial}/{what}")  # noqa: S311 - an identity, not a secret

    @property
    def scenario_name(self) -> str:
        """Name of the scenario for payments that choose none."""
        return self.scenario if self.scenario_file is None else self.scenario_file.stem

    @property
    def wait_limit(self) -> float | None:
        """Waiting limit in terminal seconds; None: no limit."""
        return self.wait_seconds or None


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


def _check_known(kind: str, name: str, names: Collection[str]) -> None:
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    _check(name in names, f"there is no {kind} {name}{meant}; posd simulate --list shows them")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
