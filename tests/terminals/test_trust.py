"""Trust in terminals, and failed connections. A failed connection proves that nothing was sent."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import pytest_asyncio
import trustme

from posd.config import Pin
from posd.terminals import trust
from tests.support.daemon import Daemon, running
from tests.support.shop import AMOUNT, acknowledging
from tests.support.terminal import ScriptedTerminal, scripted_terminal

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG_AGO = datetime.now(UTC) - timedelta(days=30)
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


def usual(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("127.0.0.1")


def expired(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=YESTERDAY)


def wrong_name(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("terminal.example")


def by_ca(terminal: ScriptedTerminal) -> str:
    return terminal.toml


def by_another_ca(terminal: ScriptedTerminal) -> str:
    other = terminal.ca_file.with_suffix(".other.pem")
    trustme.CA().cert_pem.write_to_path(str(other))
    return replace(terminal, ca_file=other).toml


def by_system(terminal: ScriptedTerminal) -> str:
    return "\n".join(line for line in terminal.toml.splitlines() if not line.startswith("ca_file")) + "\n"


def by_fingerprint(terminal: ScriptedTerminal) -> str:
    return by_system(terminal) + f'fingerprint_sha256 = "{terminal.fingerprint}"\n'


def by_another_fingerprint(terminal: ScriptedTerminal) -> str:
    return by_system(terminal) + f'fingerprint_sha256 = "{"0" * 64}"\n'


def by_key(terminal: ScriptedTerminal) -> str:
    return by_system(terminal) + f'public_key_sha256 = "{terminal.public_key}"\n'


def by_another_key(terminal: ScriptedTerminal) -> str:
    return by_system(terminal) + f'public_key_sha256 = "{terminal.fingerprint}"\n'


Issue = Callable[[trustme.CA], trustme.LeafCert]
Trust = Callable[[ScriptedTerminal], str]

#: Name -> the terminal's certificate, the configured trust, a word of the reason (None: trusted).
CASES: dict[str, tuple[Issue, Trust, str | None]] = {
    "CA": (usual, by_ca, None),
    "wrong CA": (usual, by_another_ca, "certificate"),
    "the system's CAs": (usual, by_system, "certificate"),
    "expired": (expired, by_ca, "expired"),
    "wrong name": (wrong_name, by_ca, "127.0.0.1"),
    "pinned": (usual, by_fingerprint, None),
    "pinned, wrong name": (wrong_name, by_fingerprint, None),
    "pinned, expired": (expired, by_fingerprint, None),
    "pinned, another certificate": (usual, by_another_fingerprint, "fingerprint"),
    "pinned key": (usual, by_key, None),
    "pinned key, wrong name": (wrong_name, by_key, None),
    "pinned key, expired": (expired, by_key, None),
    "pinned key, another key": (usual, by_another_key, "public key"),
}


@asynccontextmanager
async def one_daemon(directory: Path) -> AsyncIterator[tuple[Daemon, dict[str, ScriptedTerminal]]]:
    """Run a daemon with one terminal for each case, one terminal without a listener, and one silent terminal."""
    async with AsyncExitStack() as stack:
        terminals, entries = {}, []
        for number, (name, (issue, trust, _)) in enumerate(CASES.items()):
            terminal = await stack.enter_async_context(scripted_terminal(directory, f"SN-{number}", issue))
            terminal.start = acknowledging(terminal.serial)
            terminals[name] = terminal
            entries.append(trust(terminal))
        for serial, listens in (("SN-CLOSED", False), ("SN-SILENT", True)):
            reserved = stack.enter_context(socket.socket())
            reserved.bind(("127.0.0.1", 0))
            if listens:
                reserved.listen()  # the kernel accepts the connection, and no program reads
            address = f"https://127.0.0.1:{reserved.getsockname()[1]}"
            entries.append(
                f'[[terminals]]\nserial = "{serial}"\nbase_url = "{address}"\nconnect_timeout_seconds = 0.3\n'
            )
        yield await stack.enter_async_context(running(directory, "".join(entries))), terminals


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[tuple[Daemon, dict[str, ScriptedTerminal]]]:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with one_daemon(Path(directory)) as made:
            yield made


async def assert_unsent(posd: Daemon, serial: str, word: str) -> None:
    """Check that a start on a terminal ends with the result that nothing was sent, and with the reason.

    Check that the terminal is free.
    """
    for _ in range(2):
        identity = str(uuid4())
        reply = await posd.call("PUT", f"/transactions/{identity}", {"terminal": serial, "amount": AMOUNT})
        assert reply.status == 201
        document = reply.json
        outcome = document["outcome"]
        assert (document["phase"], document["next_step"], document["attention"]) == ("final", "new_id_ok", [])
        assert (outcome["result"], outcome["status"], outcome["reached_acquirer"]) == ("not_started", None, False)
        assert [item["kind"] for item in outcome["evidence"]] == ["unsent"]
        assert word in outcome["evidence"][0]["reason"]
        repeated = await posd.call("PUT", f"/transactions/{identity}", {"terminal": serial, "amount": AMOUNT})
        assert (repeated.status, repeated.json["phase"]) == (200, "final")
        known = (await posd.call("GET", f"/terminals/{serial}")).json
        assert (known["reachable"], known["transaction"]) == (False, None)


@pytest.mark.quick(6)
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_certificate_is_trusted_or_refused_by_the_configuration(
    shop: tuple[Daemon, dict[str, ScriptedTerminal]], case: str
) -> None:
    posd, terminals = shop
    terminal, word = terminals[case], CASES[case][2]
    if word is not None:
        await assert_unsent(posd, terminal.serial, word)
        assert terminal.requests == []
        return
    body = {"terminal": terminal.serial, "amount": AMOUNT}
    reply = await posd.call("PUT", f"/transactions/{uuid4()}", body)
    assert (reply.status, reply.json["phase"]) == (201, "active")
    assert len(terminal.requests) == 1


@pytest.mark.parametrize("pin", [None, Pin("certificate", "0" * 64)], ids=["CA", "pinned"])
async def test_tls_below_1_2_is_refused(pin: Pin | None) -> None:
    assert trust.context(None, pin).minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_terminal_without_a_listener_was_sent_nothing(shop: tuple[Daemon, dict[str, ScriptedTerminal]]) -> None:
    await assert_unsent(shop[0], "SN-CLOSED", "connect")


async def test_a_terminal_that_ignores_the_handshake_was_sent_nothing(
    shop: tuple[Daemon, dict[str, ScriptedTerminal]],
) -> None:
    began = asyncio.get_running_loop().time()
    await assert_unsent(shop[0], "SN-SILENT", "in time")
    assert asyncio.get_running_loop().time() - began < 15
