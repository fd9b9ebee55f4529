"""Checks of each terminal: mDNS announcements; address, TCP, TLS with the configured trust, HTTP.

The terminal API documents no harmless request. A GET is not harmless, because abort is a GET by default, and the
profile may set any path. So doctor sends `OPTIONS /`, without credentials. This method is safe by HTTP's rules (RFC
9110, 9.3.7), and the profile cannot use it. So no terminal reads the request as a payment or an abort. Any reply, even
an error, shows that HTTP works. Its Date header shows the terminal's clock.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from posd.base import tls_contexts
from posd.cli.doctor.context import CheckFinding, CheckStatus, DoctorContext, Findings
from posd.cli.explain.catalogue import named, say
from posd.config import TerminalConfig
from posd.config.schema import DiscoveryConfig
from posd.terminals import trust
from posd.terminals.announcements import Announcement
from posd.terminals.attempt import CallFailed, clock_ahead
from posd.terminals.authentication import none
from posd.terminals.client import HEADERS, TerminalAccess
from posd.terminals.exchange import ClientExchange, request_bytes
from posd.terminals.interfaces import snapshot
from posd.tls.certificate import server_hostname

if TYPE_CHECKING:
    from posd.terminals.discovery import InterfaceSelection

#: Maximum number of terminals that are called at the same time.
AT_ONCE = 16
#: Time-out of a reply, in seconds. A terminal replies to this request at once. The configured time-out is for payments.
REPLY_SECONDS = 10.0


def check(shop: DoctorContext) -> Findings:
    """Check for each terminal how far a call gets, and store the terminal's clock."""
    documents = {item["serial"]: item for item in shop.terminals_of_daemon}
    for terminal, said in zip(shop.terminals, asyncio.run(_all(shop)), strict=True):
        yield said
        document = documents.get(terminal.serial, {})
        if said.status is CheckStatus.OK and document.get("reachable") is False and document.get("reason"):
            yield shop.tell("terminal.was_away", terminal.serial, reason=document["reason"])


async def _all(shop: DoctorContext) -> list[CheckFinding]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(terminal: TerminalConfig) -> CheckFinding:
        async with turns:
            return await _reach(shop, terminal)

    return await asyncio.gather(*map(one, shop.terminals))


async def _reach(shop: DoctorContext, terminal: TerminalConfig) -> CheckFinding:
    serial, given = terminal.serial, dict[str, Any](section=shop.section(terminal.serial))
    base_url = shop.addresses.get(serial)
    if base_url is None:
        discovery = "no_announcement" if shop.settings.discovery.enabled else "no_discovery"
        return shop.tell(f"terminal.{discovery}", serial, **given)
    given["at"] = f"{base_url} ({named('from the configuration' if terminal.base_url else 'found by mDNS')})"
    context = trust.context(None)
    if secure := base_url.startswith("https:"):
        try:
            context = trust.context(terminal.ca_file, terminal.pin, system=terminal.trusts_system)
        except OSError as error:
            told = any(item.check == "configuration" and "ca_file" in item.subject for item in shop.found)
            return shop.tell("terminal.ca_told" if told else "terminal.no_ca", serial, reason=error, **given)
    # This probe is the one before each payment: it checks dates only while posd trusts the clock.
    trusted = shop.health("clock").get("status") != "degraded"
    found = await TerminalAccess(terminal, context, none, clock_sure=lambda: trusted).probe(base_url)
    if found.reason is not None:
        code = "dates" if found.of_dates else "refused" if found.refused else "away"
        return shop.tell(f"terminal.{code}", serial, reason=found.reason, **given)
    try:
        await _ask(shop, terminal, base_url, context if secure else None)
    except (OSError, CallFailed) as error:
        return shop.tell("terminal.silent", serial, reason=str(error) or type(error).__name__, **given)
    given["how"] = "TLS, with a certificate that is trusted" if secure else "HTTP, without TLS"
    if secure and terminal.pin is None:
        strict = tls_contexts.strict_client(terminal.ca_file, system=terminal.trusts_system)
        judged = await TerminalAccess(terminal, strict, none, clock_sure=lambda: trusted).probe(base_url)
        if judged.refused:
            return shop.tell("terminal.not_strict", serial, reason=judged.reason, **given)
    return shop.tell("terminal.answers", serial, **given)


async def _ask(shop: DoctorContext, terminal: TerminalConfig, base_url: str, context: SSLContext | None) -> None:
    """Send `OPTIONS /`, and store the terminal's clock. Raise OSError, CallFailed."""
    parts = urlsplit(base_url)
    request = request_bytes("OPTIONS", "/", {"host": parts.netloc, **HEADERS}, None)
    exchange = ClientExchange(request, lambda _transport: None, REPLY_SECONDS)
    try:
        async with asyncio.timeout(terminal.connect_timeout_seconds + REPLY_SECONDS):
            await asyncio.get_running_loop().create_connection(
                lambda: exchange,
                unquote(parts.hostname or ""),
                parts.port or (443 if context else 80),
                ssl=context,
                server_hostname=server_hostname(trust.called(base_url, terminal.server_name)) if context else None,
            )
            answer = await exchange.answer()
    finally:
        exchange.close()
    if (behind := clock_ahead(datetime.now(UTC), answer.date)) is not None:
        shop.clocks[terminal.serial] = -behind


# mDNS: announcements of terminals, queried and parsed by posd's own code.

#: Seconds of the wait for announcements, and of a query for details that one announcement lacks. zeroconf sends its
#: first three queries in the first three seconds.
LISTEN_SECONDS, RESOLVE_SECONDS = 3.5, 1.0


def listen(shop: DoctorContext) -> Findings:
    """Check which terminals announce themselves. Report terminals whose address is unknown without an announcement."""
    from posd.terminals.discovery import names, select  # imported here, because it loads zeroconf

    discovery = shop.settings.discovery
    if not discovery.enabled:
        yield shop.tell("mdns.off", "discovery")
        return
    needing = [one.serial for one in shop.terminals if not one.base_url and one.access_mode == "local"]
    status = "failure" if needing else "warning"
    selection = select(snapshot(), discovery.interfaces)
    for address in selection.missing:
        yield shop.tell("mdns.no_interface", address)
    if not selection.spoken:
        if not selection.missing:
            yield shop.tell("mdns.no_network", "interfaces", status)
        return
    try:
        found = asyncio.run(_listen(discovery, selection))
    except (OSError, RuntimeError) as error:
        yield shop.tell("mdns.broken", names(selection), status, reason=error)
        return
    fleet = {terminal.serial: terminal for terminal in shop.terminals}
    for item in found:
        one = fleet.get(item.serial)
        if one is not None and not one.base_url:
            shop.addresses.setdefault(item.serial, f"{one.scheme}://{item.hosts[0]}:{item.port}")
    heard = sorted({item.serial for item in found})
    strangers = ", ".join(serial for serial in heard if serial not in fleet)
    lost = [serial for serial in needing if serial not in heard and serial not in shop.addresses]
    code = ("another" if strangers else "silent") if lost else "heard"
    yield shop.tell(
        f"mdns.{code}",
        names(selection),
        ours=", ".join(serial for serial in heard if serial in fleet) or named("none"),
        others=say("doctor", "strangers", serials=strangers) if strangers else "",
        lost=", ".join(lost),
        section=shop.section(lost[0]) if lost else "",
    )


async def _listen(discovery: DiscoveryConfig, selection: "InterfaceSelection") -> list[Announcement]:
    """Return the announcements on the network. Raise OSError or RuntimeError if mDNS does not work."""
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    from posd.terminals.discovery import Browser, closed, read

    logging.getLogger("zeroconf").disabled = True  # a failed query is reported as a missing announcement
    services: dict[str, AsyncServiceInfo] = {}

    def take(*, service_type: str, name: str, **_: object) -> None:
        services[name] = AsyncServiceInfo(service_type, name)

    network = AsyncZeroconf(interfaces=selection.interfaces)
    browser = Browser(network.zeroconf, list(discovery.service_types), handlers=[take])
    try:
        await asyncio.sleep(LISTEN_SECONDS)
        found = list(services.values())
        await asyncio.gather(*(info.async_request(network.zeroconf, RESOLVE_SECONDS * 1000) for info in found))
    finally:
        await closed(browser, network)
    announced = []
    for info in found:
        with suppress(ValueError):
            announced.append(read(info, discovery, datetime.now(UTC)))
    return announced
