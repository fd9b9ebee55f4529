"""What works in a terminal while it has power: the delivery of its events, and its printer."""

from dataclasses import dataclass

from posd.simulator.clock import Clock
from posd.simulator.ledger import Ledger
from posd.simulator.listener import client_context
from posd.simulator.posting import Poster
from posd.simulator.print_record import PrintRecord
from posd.simulator.printing import WEBHOOK_SECONDS, Printer
from posd.simulator.queue import Item, Queue, QueueBusy
from posd.simulator.sender import Sender
from posd.simulator.settings import Settings, SettingsError


@dataclass(slots=True)
class _Running:
    sender: Sender
    print_record: PrintRecord
    poster: Poster


class Workings:
    """Sender and printer, made anew at each power-on from what stands in the state directory."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, *, seed: str) -> None:
        """Open the queue, which no other simulator gets meanwhile. Raises SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._seed = seed
        self._trust = client_context(settings.trust)
        self._running: _Running | None = None
        self._printer: Printer | None = None
        try:
            self._queue = Queue(settings.state / "queue.jsonl")
        except (OSError, QueueBusy) as error:
            raise SettingsError(str(error)) from error

    @property
    def waiting(self) -> int:
        """How many events wait for their delivery."""
        return sum(1 for _ in self._queue.items())

    @property
    def printer(self) -> Printer:
        """The printer; without power the one that there was, with all the paper that came out of it."""
        assert self._printer is not None  # noqa: S101 - made when the terminal was started
        return self._printer

    def submit(self, item: Item) -> None:
        """Queue an event; see `Outbox`."""
        if self._running is None:
            self._queue.put(item)
        else:
            self._running.sender.submit(item)

    def start(self, *, online: bool) -> None:
        """Switch on, where it is off, and go on with what waits. Raises SettingsError."""
        if self._running is None:
            self._running = self._make()
            self.connect(online=online)
            self._running.sender.start()
            self.printer.start()

    def connect(self, *, online: bool) -> None:
        """Have the network, or lose it: events wait then, and a print webhook is lost."""
        if self._running is not None:
            self._running.poster.offline = not online
            if online:
                self._running.sender.resume()
            else:
                self._running.sender.pause()

    async def stop(self) -> None:
        """Switch off, where it is on; what was not delivered or printed stays on file."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.sender.stop()
            await self.printer.stop()
            running.print_record.close()

    async def close(self) -> None:
        """Switch off for good."""
        await self.stop()
        self._queue.close()

    def _make(self) -> _Running:
        settings = self._settings
        try:
            print_record = PrintRecord(settings.state / "prints.jsonl")
        except OSError as error:
            raise SettingsError(str(error)) from error
        poster = Poster(self._trust, WEBHOOK_SECONDS, self._clock)
        first = self._printer is None
        self._printer = Printer(
            self._ledger, print_record, poster, self._clock, seed=self._seed, scenario=settings.print_scenario
        )
        if first:
            self._printer.catch_up()
        sender = Sender(
            self._queue,
            self._ledger,
            self._clock,
            tls=self._trust,
            timeout=settings.delivery_timeout,
            seed=self._seed,
            unruly=settings.unruly,
        )
        return _Running(sender, print_record, poster)
