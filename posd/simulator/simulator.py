"""The composition: one simulated terminal, put together from its parts, started and stopped."""

import contextlib
import ipaddress
import secrets
from random import Random
from types import TracebackType
from typing import Any, Self

from posd.simulator.announcer import Announcer, reachable_addresses
from posd.simulator.app import make_app
from posd.simulator.clock import Clock
from posd.simulator.ledger import Ledger
from posd.simulator.listener import Listener, client_context, server_context
from posd.simulator.messages import Device
from posd.simulator.posting import Poster
from posd.simulator.print_record import PrintRecord
from posd.simulator.printing import WEBHOOK_SECONDS, Printer
from posd.simulator.queue import Queue, QueueBusy
from posd.simulator.record import Record
from posd.simulator.sender import Sender
from posd.simulator.settings import Settings, SettingsError
from posd.simulator.terminal import Terminal


class Simulator:
    """A running terminal, as an async context manager.

    `async with Simulator(settings) as terminal:` listens when the block begins (the announcement follows in the
    background, see the ledger's `mdns` entry) and leaves nothing running when it ends; queued events, the record of
    finals and the print jobs stay in `settings.state`. Entering raises SettingsError where a file or the address
    cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._parts = contextlib.AsyncExitStack()
        self._ledger: Ledger | None = None
        self._printer: Printer | None = None
        #: The bodies of all start requests as received, oldest first.
        self.requests: list[str] = []
        #: The bodies of all searches as received, oldest first.
        self.searches: list[str] = []
        #: The bodies of all requests for print jobs as received, oldest first.
        self.print_requests: list[str] = []
        #: Where the terminal can be called, without a slash at the end; known once the block has begun.
        self.base_url = ""

    @property
    def ledger(self) -> Ledger:
        """What really happened."""
        if self._ledger is None:
            raise RuntimeError("the simulated terminal has not been started")
        return self._ledger

    def prints(self) -> list[dict[str, Any]]:
        """Return what came out on paper, as `GET /simulator/prints` answers it."""
        return [] if self._printer is None else self._printer.prints()

    def put_paper_in(self) -> None:
        """Put paper in, as `POST /simulator/paper` does."""
        if self._printer is not None:
            self._printer.put_paper_in()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._parts.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._parts.aclose()

    async def _start(self) -> None:
        settings = self._settings
        secure = settings.certificate is not None and settings.private_key is not None
        tls = server_context(settings.certificate, settings.private_key) if secure else None  # type: ignore[arg-type]
        seed = secrets.token_hex(8) if settings.seed is None else f"{settings.seed}/{settings.serial}"
        clock = Clock(settings.speed)

        try:
            self._ledger = ledger = Ledger(settings.ledger_file)
            self._parts.callback(ledger.close)
            queue = Queue(settings.state / "queue.jsonl")
            self._parts.callback(queue.close)
            record = Record(settings.state / "transactions.jsonl")
            self._parts.callback(record.close)
            print_record = PrintRecord(settings.state / "prints.jsonl")
            self._parts.callback(print_record.close)
        except (OSError, QueueBusy) as error:
            raise SettingsError(str(error)) from error
        ledger.add_missing(record.finals())

        trust = client_context(settings.trust)
        sender = Sender(
            queue,
            ledger,
            clock,
            tls=trust,
            timeout=settings.delivery_timeout,
            seed=seed,
            unruly=settings.unruly,
        )
        self._parts.push_async_callback(sender.stop)
        terminal = Terminal(
            _device(settings),
            ledger,
            record,
            sender,
            clock,
            seed=seed,
            scenario=settings.scenario,
            wait_limit=settings.wait_limit,
            tip=settings.tip,
        )
        self._parts.push_async_callback(terminal.stop)
        self._printer = printer = Printer(
            ledger,
            print_record,
            Poster(trust, WEBHOOK_SECONDS),
            clock,
            seed=seed,
            scenario=settings.print_scenario,
        )
        self._parts.push_async_callback(printer.stop)
        bodies = {"requests": self.requests, "searches": self.searches, "print_requests": self.print_requests}
        app = make_app(terminal, printer, ledger, bodies)
        listener = Listener(app, settings.host, settings.port, tls)
        port = await listener.start()
        self._parts.push_async_callback(listener.stop)
        sender.start()
        printer.start()

        addresses = reachable_addresses(settings.host, settings.mdns_interfaces)
        self.base_url = f"{'https' if tls else 'http'}://{_url_host(addresses[0])}:{port}"
        if settings.mdns:
            announcer = Announcer(
                ledger,
                serial=settings.serial,
                brand=settings.brand,
                model=settings.model,
                addresses=addresses,
                port=port,
            )
            announcer.start(settings.mdns_interfaces)
            self._parts.push_async_callback(announcer.stop)


def _device(settings: Settings) -> Device:
    """Make the terminal's identity; what is not set is drawn from the serial, always the same."""
    rng = Random(settings.serial)  # noqa: S311 - an identity, not a secret
    mac = [0x02, *(rng.randrange(256) for _ in range(5))]  # 0x02: locally administered
    return Device(
        serial_number=settings.serial,
        brand=settings.brand,
        model=settings.model,
        merchant_id=settings.merchant_id,
        wifi_mac=":".join(f"{octet:02X}" for octet in mac),
        terminal_id=f"{rng.randrange(10**8):08}",
    )


def _url_host(address: str) -> str:
    return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
