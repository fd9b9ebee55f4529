"""Discovery over mDNS/DNS-SD: announcements of terminals, by serial.

Trouble here never hurts payments to configured addresses: it is logged, and tried again. The library does not follow
interfaces that come, go or change, so that it is started anew for those that there are; what was announced before stays
known until it is heard again, or cannot be reached.
"""

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog
from zeroconf import Error, RecordUpdate, RecordUpdateListener, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from posd.base.times import iso
from posd.config.schema import DiscoveryConfig
from posd.terminals.addresses import NOT_ANNOUNCED
from posd.terminals.claims import Malformed, Rules, read_announcement
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interface, Interfaces, Snapshot

# On which interfaces mDNS is spoken, from the interfaces that there are: no I/O.
#
# Those that the configuration chose by their addresses, without a choice all but loopback; only what is up, with a
# carrier. The library takes IPv4 addresses as text and, for IPv6, the index of the interface.


class Selection(msgspec.Struct, frozen=True):
    """What mDNS is spoken on, in a fixed order: (name of the interface, what the library is given).

    `missing`: addresses that the configuration chose and that this machine does not have now.
    """

    spoken: tuple[tuple[str, str | int], ...]
    missing: tuple[str, ...] = ()

    @property
    def interfaces(self) -> list[str | int]:
        """What the library is given."""
        return [item for _, item in self.spoken]


def select(state: Snapshot, chosen: Iterable[str]) -> Selection:
    """Return the selection; `chosen` are the addresses in the configuration, none for all interfaces."""
    running = sorted((item for item in state.interfaces if item.running), key=lambda item: item.index)
    chosen = tuple(chosen)
    if not chosen:
        everything = (entry for item in running if not _is_loopback(item) for entry in _of(item))
        return Selection(tuple(everything))
    spoken: dict[tuple[str, str | int], None] = {}
    missing = []
    for text in chosen:
        found = [(item, address) for item in running for address in item.addresses if _is(address, text)]
        for item, address in found:
            spoken[item.name, item.index if ":" in address else address] = None
        if not found:
            missing.append(text)
    return Selection(tuple(spoken), tuple(missing))


def _of(interface: Interface) -> list[tuple[str, str | int]]:
    """Return what the library is given of one interface: an IPv4 address of it, and its index where it has IPv6."""
    four = sorted(address for address in interface.addresses if ":" not in address)
    six = any(":" in address for address in interface.addresses)
    return [(interface.name, address) for address in four[:1]] + [(interface.name, interface.index)] * six


def _is_loopback(interface: Interface) -> bool:
    return any(ipaddress.ip_address(address).is_loopback for address in interface.addresses)


def _is(address: str, chosen: str) -> bool:
    """Whether an address is the chosen one; one without a scope is chosen on every interface that has it."""
    same = ipaddress.ip_address(address) == ipaddress.ip_address(chosen)
    return same or ("%" not in chosen and address.partition("%")[0] == chosen)


#: How long one that is to be closed may still be starting, in seconds; it takes milliseconds, and the stop under three.
START_SECONDS = 1.0
#: How long one service is asked for its address, in milliseconds.
RESOLVE_TIMEOUT_MS = 3000
#: A device that gets another address announces old and new for about a second: what it says is read again after this.
SETTLE_SECONDS = 2.5
#: Where mDNS cannot start it is tried again after this, in seconds, or as soon as an interface changes.
RETRY_SECONDS = 10.0
#: Lookups of announced services under way at once, and waiting; a LAN that announces without end must not pile up.
MAX_RESOLVING = 32
MAX_WAITING = 256
#: Records that the library may hold for who announces without end; it keeps them for an hour and more. It has a limit
#: of its own, of 10,000, but what it plans for each of them has none.
MAX_RECORDS = 8_000
#: Lines about one terminal that comes and goes, in so many seconds; more are told at debug only.
MAX_LINES = 8
LINES_SECONDS = 60.0

log = structlog.get_logger("posd.discovery")


class Discovery:
    """Browses for terminals and tells the fleet. Run `run` as a task; cancel it to stop."""

    def __init__(
        self, config: DiscoveryConfig, fleet: Fleet, interfaces: Interfaces, now: Callable[[], datetime]
    ) -> None:
        self._config = config
        self._rules = Rules(config.serial_keys, config.interfaces)
        self._fleet = fleet
        self._interfaces = interfaces
        self._now = now
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, str] = {}  # instance name -> service type
        self._lines: dict[str, deque[float]] = {}
        self._wake = asyncio.Event()
        self._told: str | None = None
        #: Why mDNS does not run, or not everywhere, in words; None where all is well.
        self.trouble: str | None = "it has not started yet"
        interfaces.listen(self._wake.set)

    @property
    def running(self) -> bool:
        """Whether announcements are heard, on all of the chosen interfaces."""
        return self.trouble is None

    async def run(self) -> None:
        """Browse until cancelled."""
        while True:
            self._wake.clear()
            selection = select(self._interfaces.state, self._config.interfaces)
            self._say(_missing(selection))
            if not selection.spoken:
                await self._changed(None)
                continue
            try:
                zeroconf = AsyncZeroconf(interfaces=selection.interfaces)
            except (OSError, Error, RuntimeError) as error:  # an interface went meanwhile, or the port is not free
                self._say(f"mDNS cannot start on {_names(selection)} ({error})")
                await self._changed(RETRY_SECONDS)
                continue
            await self._browse(zeroconf, selection)

    async def _browse(self, zeroconf: AsyncZeroconf, selection: Selection) -> None:
        """Browse until the interfaces are others, or too much was announced."""
        records = _Records(zeroconf.zeroconf, self._wake.set)
        browser = None
        try:
            with suppress(Error):  # NotRunningException: closed at once
                await zeroconf.zeroconf.async_wait_for_start()
            zeroconf.zeroconf.async_add_listener(records, None)
            browser = AsyncServiceBrowser(
                zeroconf.zeroconf, list(self._config.service_types), handlers=[self._on_change]
            )
            log.info("discovery.started", service_types=list(self._config.service_types), interfaces=_names(selection))
            while select(self._interfaces.state, self._config.interfaces) == selection and not records.too_many:
                await self._changed(None)
        finally:
            self._waiting.clear()
            for task in self._resolving.values():
                task.cancel()
            await _closed(browser, zeroconf)
        self._fleet.addresses.unheard()
        if records.too_many:
            self._say("somebody announces without end on this network; mDNS pauses. Find out which device it is")
            await asyncio.sleep(RETRY_SECONDS)

    async def _changed(self, seconds: float | None) -> None:
        """Wait until an interface changes, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def _say(self, trouble: str | None) -> None:
        """Note why mDNS does not run as it should; tell it once."""
        self.trouble = trouble
        self._fleet.addresses.no_address = NOT_ANNOUNCED if trouble is None else trouble
        if trouble is not None and trouble != self._told:
            log.warning(
                "discovery.unavailable",
                error=trouble,
                detail="check discovery.interfaces and the network of this machine. Terminals with a base_url work",
                retry_s=RETRY_SECONDS,
            )
        self._told = trouble

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        self._waiting.pop(name, None)
        if name in self._resolving:
            self._resolving.pop(name).cancel()  # what it was about to say is old
        if state_change is ServiceStateChange.Removed:
            gone = self._fleet.addresses.withdraw(name)
            if gone is not None and gone.serial in self._fleet:
                (log.info if self._worth_a_line(gone.serial) else log.debug)(
                    "discovery.gone", terminal=gone.serial, host=gone.hosts[0]
                )
            return
        if len(self._resolving) < MAX_RESOLVING:
            self._start(zeroconf, service_type, name)
            return
        said = AsyncServiceInfo(service_type, name)
        if said.load_from_cache(zeroconf):  # all of it: nothing is to be waited for behind those who say less
            self._take(service_type, said)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting[name] = service_type

    def _start(self, zeroconf: Zeroconf, service_type: str, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._resolve(zeroconf, service_type, name))
        self._resolving[name] = task

        def resolved(done: "asyncio.Task[None]") -> None:
            if self._resolving.get(name) is done:
                del self._resolving[name]
            if self._waiting and len(self._resolving) < MAX_RESOLVING:
                waiting = next(iter(self._waiting))
                self._start(zeroconf, self._waiting.pop(waiting), waiting)

        task.add_done_callback(resolved)

    async def _resolve(self, zeroconf: Zeroconf, service_type: str, name: str) -> None:
        info = AsyncServiceInfo(service_type, name)
        try:
            if not await info.async_request(zeroconf, RESOLVE_TIMEOUT_MS):
                return
        except Error:  # NotRunningException: closed meanwhile
            return
        if self._take(service_type, info) > 1:
            await asyncio.sleep(SETTLE_SECONDS)
            again = AsyncServiceInfo(service_type, name)
            if again.load_from_cache(zeroconf):
                self._take(service_type, again)

    def _take(self, service_type: str, info: AsyncServiceInfo) -> int:
        """Tell the fleet what was announced; return how many addresses it has."""
        try:
            found = read_announcement(
                info.name,
                service_type,
                info.decoded_properties,
                info.parsed_scoped_addresses(),
                info.port,
                self._rules,
                iso(self._now()),
            )
        except Malformed as error:
            log.debug("discovery.ignored", reason=str(error))
            return 0
        if self._fleet.addresses.announce(found):
            in_fleet = found.serial in self._fleet
            (log.info if in_fleet and self._worth_a_line(found.serial) else log.debug)(
                "discovery.found", terminal=found.serial, host=found.hosts[0], port=found.port, in_fleet=in_fleet
            )
        return len(found.hosts)

    def _worth_a_line(self, serial: str) -> bool:
        """A device on the network can announce without end: a serial gets a few lines, the rest is logged at debug."""
        now = asyncio.get_running_loop().time()
        lines = self._lines.setdefault(serial, deque(maxlen=MAX_LINES))
        if len(lines) == MAX_LINES and now - lines[0] < LINES_SECONDS:
            return False
        lines.append(now)
        return True


async def _closed(browser: AsyncServiceBrowser | None, zeroconf: AsyncZeroconf) -> None:
    """Close both, also where posd stops in the middle of it: their sockets must not stay."""

    async def close() -> None:
        if browser is not None:
            await browser.async_cancel()
        with suppress(Error):  # one that is still starting would make its sockets after it was closed
            await zeroconf.zeroconf.async_wait_for_start(START_SECONDS)
        await zeroconf.async_close()

    closing = asyncio.create_task(close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing})
        raise


class _Records(RecordUpdateListener):
    """Watches how many records the library holds, under however many names."""

    def __init__(self, zeroconf: Zeroconf, wake: Callable[[], None]) -> None:
        self._zeroconf = zeroconf
        self._wake = wake
        self._room = MAX_RECORDS  # so many may still come before all are counted again
        self.too_many = False

    def async_update_records(self, _zeroconf: Zeroconf, _now: float, records: list[RecordUpdate]) -> None:
        """Hear of the records of a packet."""
        self._room -= len(records)

    def async_update_records_complete(self) -> None:
        """Count, after packets that may have brought too many."""
        if self._room >= 0 or self.too_many:
            return
        self._room = MAX_RECORDS - sum(map(len, self._zeroconf.cache.cache.values()))
        if self._room < 0:
            self.too_many = True
            self._wake()


def _missing(selection: Selection) -> str | None:
    if not selection.spoken and not selection.missing:
        return "mDNS does not run: no interface of this machine is up and has an address"
    if selection.missing:
        how = "not everywhere" if selection.spoken else "not"
        return f"mDNS does {how} run: no interface that is up has the address {', '.join(selection.missing)}"
    return None


def _names(selection: Selection) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in selection.spoken))
