"""A refused certificate of a terminal. posd can prove that it sent nothing, and the reason says what to do.

Each terminal is a TLS server that records every byte of every connection after its handshake.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import pytest_asyncio
import trustme

from tests.rig.certificates import (
    LATER,
    LONG_AGO,
    TOMORROW,
    YESTERDAY,
    Leaf,
    Recorder,
    issued,
    public_key_sha256,
    recording,
    self_signed,
)
from tests.rig.daemon import Daemon, running
from tests.rig.shop import AMOUNT

pytestmark = pytest.mark.asyncio(loop_scope="module")


def usual(directory: Path, authority: trustme.CA) -> Leaf:
    return issued(directory, authority, "127.0.0.1")


def expired(directory: Path, authority: trustme.CA) -> Leaf:
    return issued(directory, authority, "127.0.0.1", not_before=LONG_AGO, not_after=YESTERDAY)


def too_early(directory: Path, authority: trustme.CA) -> Leaf:
    return issued(directory, authority, "127.0.0.1", not_before=TOMORROW, not_after=LATER)


def named(directory: Path, authority: trustme.CA) -> Leaf:
    return issued(directory, authority, "terminal.example", "10.1.2.3")


def by_itself(directory: Path, _authority: trustme.CA) -> Leaf:
    return self_signed(directory, "127.0.0.1")


@dataclass(frozen=True)
class Case:
    """The terminal's certificate, further settings, and the reason.

    In both texts {ca} is the file of the certificate's CA, {other} is the file of another CA, and {fingerprint} is the
    certificate's fingerprint. {key} is the fingerprint of its public key.
    """

    make: Callable[[Path, trustme.CA], Leaf]
    trust: str
    reason: tuple[str, ...] = ()


REFUSED: dict[str, Case] = {
    "wrong CA": Case(
        usual,
        'ca_file = "{other}"',
        (
            "was issued by ",
            "the CA in {other} does not certify it",
            "it may be another device",
            "posd terminals pin SN-",
            "fingerprint is {fingerprint}",
        ),
    ),
    "the system's CAs": Case(usual, "", ("the CAs of this system do not certify it", "set ca_file")),
    "self-signed": Case(by_itself, 'ca_file = "{ca}"', ("is signed by itself", "{fingerprint}")),
    "expired": Case(expired, 'ca_file = "{ca}"', (f"has expired (on {YESTERDAY:%Y-%m-%d}, 1 days ago", "the clock")),
    "not valid yet": Case(
        too_early, 'ca_file = "{ca}"', (f"is not valid yet (valid from {TOMORROW:%Y-%m-%d}", "the clock")
    ),
    "wrong name": Case(
        named,
        'ca_file = "{ca}"',
        ("is not for 127.0.0.1, it is for terminal.example, 10.1.2.3:", "set server_name to one of these"),
    ),
    "wrong server_name": Case(
        named,
        'ca_file = "{ca}"\nserver_name = "pos-7.example"',
        ("is not for pos-7.example, it is for terminal.example",),
    ),
    "right address, other server_name": Case(
        usual,
        'ca_file = "{ca}"\nserver_name = "terminal.example"',
        ("is not for terminal.example, it is for 127.0.0.1",),
    ),
    "another fingerprint": Case(
        usual,
        f'fingerprint_sha256 = "{"0" * 64}"',
        (
            f"has fingerprint {{fingerprint}}, the configuration expects {'0' * 64}: it may be another device",
            "posd terminals pin SN-",
        ),
    ),
    "another public key": Case(usual, f'public_key_sha256 = "{"0" * 64}"', ("public key",)),
}
TRUSTED: dict[str, Case] = {
    "CA": Case(usual, 'ca_file = "{ca}"'),
    "server_name": Case(named, 'ca_file = "{ca}"\nserver_name = "terminal.example"'),
    "an address as server_name": Case(named, 'ca_file = "{ca}"\nserver_name = "10.1.2.3"'),
    "self-signed, pinned": Case(by_itself, 'fingerprint_sha256 = "{fingerprint}"'),
    "expired, pinned": Case(expired, 'fingerprint_sha256 = "{fingerprint}"'),
    "another name, pinned": Case(named, 'fingerprint_sha256 = "{fingerprint}"'),
    "expired, pinned key": Case(expired, 'public_key_sha256 = "{key}"'),
    "another name, pinned key": Case(named, 'public_key_sha256 = "{key}"'),
    "self-signed, its own CA": Case(by_itself, 'ca_file = "{leaf}"'),
}
CASES = REFUSED | TRUSTED


@dataclass
class Shop:
    """A daemon, with the terminal of each case and the complete texts of each case."""

    posd: Daemon
    terminals: dict[str, Recorder]
    texts: dict[str, dict[str, str]]

    async def start(self, case: str) -> dict[str, object]:
        """Start a payment on the terminal of a case. Return the transaction."""
        body = {"terminal": serial(case), "amount": AMOUNT}
        reply = await self.posd.call("PUT", f"/transactions/{uuid4()}", body)
        assert reply.status == 201
        await self.terminals[case].quiet()
        return dict(reply.json)


def serial(case: str) -> str:
    return f"SN-{list(CASES).index(case)}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    with TemporaryDirectory(prefix="posd-") as name:
        home = Path(name)
        authority, other = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(str(home / "ca.pem"))
        other.cert_pem.write_to_path(str(home / "other.pem"))
        async with AsyncExitStack() as stack:
            terminals, texts, entries = {}, {}, []
            for case, what in CASES.items():
                directory = home / serial(case)
                directory.mkdir()
                leaf = what.make(directory, authority)
                terminals[case] = await stack.enter_async_context(recording(leaf.context()))
                texts[case] = {
                    "ca": str(home / "ca.pem"),
                    "other": str(home / "other.pem"),
                    "leaf": str(leaf.certificate),
                    "fingerprint": leaf.fingerprint,
                    "key": public_key_sha256(leaf.der),
                }
                section = f'[[terminals]]\nserial = "{serial(case)}"\nbase_url = "{terminals[case].base_url}"\n'
                entries.append(section + what.trust.format_map(texts[case]) + "\nreply_timeout_seconds = 60\n")
            daemon = await stack.enter_async_context(running(home, "".join(entries)))
            yield Shop(daemon, terminals, texts)


@pytest.mark.parametrize("case", REFUSED, ids=str)
async def test_a_refused_terminal_gets_no_byte_and_the_reason_says_what_to_do(shop: Shop, case: str) -> None:
    document = await shop.start(case)
    outcome = document["outcome"]
    assert isinstance(outcome, dict)
    assert (document["phase"], document["next_step"], outcome["result"]) == ("final", "new_id_ok", "not_started")
    (evidence,) = outcome["evidence"]
    assert evidence["kind"] == "unsent"
    for part in CASES[case].reason:
        assert part.format_map(shop.texts[case]) in evidence["reason"]
    assert b"".join(shop.terminals[case].received) == b""
    known = (await shop.posd.call("GET", f"/terminals/{serial(case)}")).json
    assert (known["reachable"], known["transaction"]) == (False, None)
    for part in CASES[case].reason:
        assert part.format_map(shop.texts[case]) in known["reason"]


@pytest.mark.parametrize("case", TRUSTED, ids=str)
async def test_a_trusted_terminal_gets_the_request(shop: Shop, case: str) -> None:
    """The server never replies, so the payment is in doubt.

    This shows that the servers of this module would record a sent request, also in the tests of a refusal.
    """
    document = await shop.start(case)
    assert document["phase"] == "in_doubt"
    assert any(
        data.startswith(b"POST /terminal/v1/async/charge HTTP/1.1\r\n") for data in shop.terminals[case].received
    )
