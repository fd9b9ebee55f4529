"""Discovery over mDNS/DNS-SD: announcements of terminals, by serial.

A failure of discovery never affects payments to configured addresses. The failure is logged, and discovery is started
again. The mDNS library does not follow changes of interfaces, so discovery restarts the library after each change.
Earlier announcements stay until they are repeated, or until their addresses are unreachable.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog
from zeroconf import Error, RecordUpdate, RecordUpdateListener, ServiceStateChange, Zeroconf
from zeroconf._dns import DNSPointer, DNSRecord
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf
from zeroconf.const import _TYPE_A, _TYPE_AAAA

from posd.base.times import iso
from posd.config.schema import DiscoveryConfig
from posd.terminals.announcements import Announcement, read_announcement
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interface, Interfaces
from posd.terminals.terminal import NOT_ANNOUNCED

# Choice of the interfaces for mDNS. No I/O.
#
# The interfaces with a configured address are chosen. Without configured addresses, all interfaces except loopback are
# chosen. Only interfaces that are up and have a carrier are chosen. The library takes IPv4 addresses as texts and, for
# IPv6, the index of the interface.


class InterfaceSelection(msgspec.Struct, frozen=True):
    """Chosen interfaces for mDNS. `spoken`: (name of the interface, argument for the library), in a fixed order.

    `missing`: configured addresses that no running interface of this machine has.
    """

    spoken: tuple[tuple[str, str | int], ...]
    missing: tuple[str, ...] = ()

    @property
    def interfaces(self) -> list[str | int]:
        """Arguments for the mDNS library."""
        return [item for _, item in self.spoken]


def select(state: Iterable[Interface], chosen: Iterable[str]) -> InterfaceSelection:
    """Return the interfaces for mDNS. `chosen`: the configured addresses; empty: all interfaces."""
    running = sorted((item for item in state if item.running), key=lambda item: item.index)
    chosen = tuple(chosen)
    if not chosen:
        everything = (entry for item in running if not _is_loopback(item) for entry in _of(item))
        return InterfaceSelection(tuple(everything))
    spoken: dict[tuple[str, str | int], None] = {}
    missing = []
    for text in chosen:
        found = [(item, address) for item in running for address in item.addresses if _is(address, text)]
        for item, address in found:
            spoken[item.name, item.index if ":" in address else address] = None
        if not found:
            missing.append(text)
    return InterfaceSelection(tuple(spoken), tuple(missing))


def _of(interface: Interface) -> list[tuple[str, str | int]]:
    """Return names and arguments for one interface: its first IPv4 address, and its index if it has IPv6."""
    four = sorted(address for address in interface.addresses if ":" not in address)
    six = any(":" in address for address in interface.addresses)
    return [(interface.name, address) for address in four[:1]] + [(interface.name, interface.index)] * six


def _is_loopback(interface: Interface) -> bool:
    return any(ipaddress.ip_address(address).is_loopback for address in interface.addresses)


def _is(address: str, chosen: str) -> bool:
    """Return whether an address is the configured one. A configured address without a scope fits any scope."""
    same = ipaddress.ip_address(address) == ipaddress.ip_address(chosen)
    return same or ("%" not in chosen and address.partition("%")[0] == chosen)


#: Longest time that a close waits for a library that is still starting, in seconds. A start takes milliseconds.
START_SECONDS = 1.0
#: Time-out of one look-up of a service's address, in milliseconds.
RESOLVE_TIMEOUT_MS = 3000
#: Seconds after which an announcement with several addresses is read again. A device with a new address announces the
#: old and the new one for about a second.
SETTLE_SECONDS = 2.5
#: Seconds until mDNS is started again after a failure. A change of an interface starts it at once.
RETRY_SECONDS = 10.0
#: Maximum number of concurrent look-ups of services, and of services that wait for a look-up. Devices can announce any
#: number of services.
MAX_RESOLVING = 32
MAX_WAITING = 256
#: Maximum number of mDNS records in the library, which stores them for an hour or longer. The library's own limit of
#: 10,000 does not apply to its timers for records.
MAX_RECORDS = 8_000

log = structlog.get_logger("posd.discovery")


class Discovery:
    """Browser for terminals that reports to the fleet. Run `run` as a task; cancel it to stop."""

    def __init__(
        self, config: DiscoveryConfig, fleet: Fleet, interfaces: Interfaces, now: Callable[[], datetime]
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._interfaces = interfaces
        self._now = now
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, AsyncServiceInfo] = {}  # instance name in lower case -> service to look up
        self._wake = asyncio.Event()
        #: Number of announcements that were ignored: the library refuses them, or they are not of a terminal.
        self.ignored = 0
        #: Reason why mDNS does not run on all interfaces, as text, or None.
        self.trouble: str | None = "it has not started yet"
        interfaces.listen(self._wake.set)
        fleet.expect_announcements()

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
            except (OSError, Error, RuntimeError) as error:  # an interface has vanished, or the port is in use
                self._say(f"mDNS cannot start on {names(selection)} ({error})")
                await self._changed(RETRY_SECONDS)
                continue
            await self._browse(zeroconf, selection)

    async def _browse(self, zeroconf: AsyncZeroconf, selection: InterfaceSelection) -> None:
        """Browse until the interfaces change, or too many records were announced."""
        records = _Records(zeroconf.zeroconf, self._wake.set)
        browser = None
        try:
            with suppress(Error):  # NotRunningException: the library was closed before it had started
                await zeroconf.zeroconf.async_wait_for_start()
            zeroconf.zeroconf.async_add_listener(records, None)
            browser = Browser(zeroconf.zeroconf, list(self._config.service_types), handlers=[self._on_change])
            self._fleet.expect_announcements()
            log.info("discovery.started", service_types=list(self._config.service_types), interfaces=names(selection))
            while select(self._interfaces.state, self._config.interfaces) == selection and not records.too_many:
                await self._changed(None)
        finally:
            self._waiting.clear()
            for task in self._resolving.values():
                task.cancel()
            await closed(browser, zeroconf)
        self._fleet.mark_stale()
        if records.too_many:
            self._say("a device announces without end on this network; mDNS pauses. Find out which device it is")
            await asyncio.sleep(RETRY_SECONDS)

    async def _changed(self, seconds: float | None) -> None:
        """Wait until an interface changes, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def _say(self, trouble: str | None) -> None:
        """Set the current problem of mDNS, and log each new problem once."""
        before, self.trouble = self.trouble, trouble
        self._fleet.state.no_address = NOT_ANNOUNCED if trouble is None else trouble
        if trouble is not None and trouble != before:
            log.warning(
                "discovery.unavailable",
                error=trouble,
                detail="check discovery.interfaces and the network of this machine. Terminals with a base_url work",
                retry_s=RETRY_SECONDS,
            )

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        key = name.lower()
        self._waiting.pop(key, None)
        if key in self._resolving:
            self._resolving.pop(key).cancel()  # the running look-up is outdated
        if state_change is ServiceStateChange.Removed:
            gone = self._fleet.withdraw(key)
            if gone is not None and gone.serial in self._fleet:
                log.info("discovery.gone", terminal=gone.serial, host=gone.hosts[0])
            return
        try:  # an exception here would stop the library for this and later packets
            info = AsyncServiceInfo(service_type, name)
        except Error:
            self._ignore("the mDNS library refuses its name")
            return
        if len(self._resolving) < MAX_RESOLVING:
            self._start(zeroconf, info)
        elif info.load_from_cache(zeroconf):  # a complete announcement needs no look-up, and so does not have to wait
            self._take(info)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting[key] = info

    def _ignore(self, reason: str) -> None:
        self.ignored += 1
        log.debug("discovery.ignored", reason=reason)

    def _start(self, zeroconf: Zeroconf, info: AsyncServiceInfo) -> None:
        task = asyncio.get_running_loop().create_task(self._resolve(zeroconf, info))
        self._resolving[info.key] = task

        def resolved(done: "asyncio.Task[None]") -> None:
            if self._resolving.get(info.key) is done:
                del self._resolving[info.key]
            if self._waiting and len(self._resolving) < MAX_RESOLVING:
                self._start(zeroconf, self._waiting.pop(next(iter(self._waiting))))

        task.add_done_callback(resolved)

    async def _resolve(self, zeroconf: Zeroconf, info: AsyncServiceInfo) -> None:
        try:
            if not await info.async_request(zeroconf, RESOLVE_TIMEOUT_MS):
                return
        except Error:  # closed meanwhile (NotRunningException), or a name that cannot be queried
            return
        if self._take(info) > 1:
            await asyncio.sleep(SETTLE_SECONDS)
            again = AsyncServiceInfo(info.type, info.name)
            if again.load_from_cache(zeroconf):
                self._take(again)

    def _take(self, info: AsyncServiceInfo) -> int:
        """Pass an announcement to the fleet. Return the number of its addresses."""
        try:
            found = read(info, self._config, self._now())
        except ValueError as error:
            self._ignore(str(error))
            return 0
        if self._fleet.announce(found):
            in_fleet = found.serial in self._fleet
            (log.info if in_fleet else log.debug)(
                "discovery.found", terminal=found.serial, host=found.hosts[0], port=found.port, in_fleet=in_fleet
            )
        return len(found.hosts)


def read(info: AsyncServiceInfo, rules: DiscoveryConfig, now: datetime) -> Announcement:
    """Return the announcement of a service that was looked up. Raise ValueError."""
    addresses = info.parsed_scoped_addresses()
    return read_announcement(info.name, info.type, info.decoded_properties, addresses, info.port, rules, iso(now))


async def closed(browser: AsyncServiceBrowser | None, zeroconf: AsyncZeroconf) -> None:
    """Close browser and library, even if the caller is cancelled meanwhile, so that no socket stays open."""

    async def close() -> None:
        if browser is not None:
            await browser.async_cancel()
        with suppress(Error):  # a library that is still starting would open its sockets after the close
            await zeroconf.zeroconf.async_wait_for_start(START_SECONDS)
        await zeroconf.async_close()

    closing = asyncio.create_task(close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing})
        raise


class Browser(AsyncServiceBrowser):
    """Browser for service types in upper and lower case (RFC 6762, 16). The library compares them exactly.

    So each record is passed to the library with the configured spelling of the service type.
    """

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        """Handle the records of a packet."""
        spelled = [RecordUpdate(self._spelled(item.new), item.old) for item in records]
        for item in records:
            # For a new address, the library itself reads the services of the host, with their names as received.
            if item.old is None and item.new.type in (_TYPE_A, _TYPE_AAAA):
                services = zc.cache.async_entries_with_server(item.new.name)
                spelled += [RecordUpdate(self._spelled(service), None) for service in services]
        super().async_update_records(zc, now, spelled)

    def _spelled(self, record: DNSRecord) -> DNSRecord:
        """Return a record with the configured spelling of its names."""
        name, times = self._name(record.name), (int(record.ttl), record.created)
        if isinstance(record, DNSPointer):
            alias = self._name(record.alias)
            if (name, alias) == (record.name, record.alias):
                return record
            return DNSPointer(name, record.type, record.class_, times[0], alias, times[1])
        return record if name == record.name else DNSRecord(name, record.type, record.class_, *times)

    def _name(self, name: str) -> str:
        for type_ in self.types:
            head, tail = name[: len(name) - len(type_)], name[len(name) - len(type_) :]
            if tail.lower() == type_.lower() and (not head or head.endswith(".")):
                return f"{head}{type_}"
        return name


class _Records(RecordUpdateListener):
    """Counter of the mDNS records in the library."""

    def __init__(self, zeroconf: Zeroconf, wake: Callable[[], None]) -> None:
        self._zeroconf = zeroconf
        self._wake = wake
        self._room = MAX_RECORDS  # records that may arrive before the next full count
        self.too_many = False

    def async_update_records(self, _zeroconf: Zeroconf, _now: float, records: list[RecordUpdate]) -> None:
        """Count the records of a packet."""
        self._room -= len(records)

    def async_update_records_complete(self) -> None:
        """Count all records in the library, if there may be too many."""
        if self._room >= 0 or self.too_many:
            return
        self._room = MAX_RECORDS - sum(map(len, self._zeroconf.cache.cache.values()))
        if self._room < 0:
            self.too_many = True
            self._wake()


def _missing(selection: InterfaceSelection) -> str | None:
    if not selection.spoken and not selection.missing:
        return "mDNS does not run: no interface of this machine is up and has an address"
    if selection.missing:
        how = "not everywhere" if selection.spoken else "not"
        return f"mDNS does {how} run: no interface that is up has the address {', '.join(selection.missing)}"
    return None


def names(selection: InterfaceSelection) -> str:
    """Return the names of the interfaces on which mDNS runs."""
    return ", ".join(dict.fromkeys(name for name, _ in selection.spoken))
