"""Certificate of the webhook listener: its reload, its renewal, and the devices that refuse it.

posd loads changed files into a new TLS context and tests them there. If the certificate is valid and matches its key,
posd serves it on new connections. Otherwise posd writes a log line, and keeps the previous pair. Open connections are
unaffected.

A separate process, `posd tls renew`, renews a certificate that `posd tls init` made. The daemon does not load the
library that creates certificates, because it is large and needed only once a year.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
import structlog

from posd.api.documents import Check, Refusals, State
from posd.base.clocks import monotonic, next_tick
from posd.base.problems import RemedyStep, remedy
from posd.base.times import iso
from posd.httpd.admission import plain
from posd.tls.certificate import Subjects, Validity, renewal_reasons
from posd.tls.files import ServingContext, TlsError, TlsFiles, load_pair, new_ca_signs_from, outside_dates, publish_ca
from posd.upkeep.known_ca import REMEDY, STEPS, KnownCa

#: Seconds between two checks of the files and of this machine's addresses. SIGHUP and a changed address start a check
#: at once.
CHECK_SECONDS = 60.0
#: Seconds to the next attempt if a renewal failed, or if the new certificate also has to be renewed.
RENEWAL_PAUSE_SECONDS = 3600.0
#: Seconds to the next renewal after a successful one. The pause limits the renewals for an address that changes often.
HELPED_PAUSE_SECONDS = 10.0
#: Time-out of a renewal, in seconds. A renewal takes about one second.
RENEWAL_SECONDS = 120.0
#: The health check is degraded from this number of days before a new CA begins to sign.
NEW_CA_DAYS = 90
#: Seconds between two reminders of the operator.
REMINDER_SECONDS = 86_400.0
#: Maximum number of characters of a failed renewal's output in the log.
MAX_WORDS = 1000

#: Remedy for a bad certificate while the clock is not trusted.
CLOCK_FIRST = RemedyStep("set the clock first if it is wrong, or confirm it if it is right", "posd clock")

log = structlog.get_logger("posd.certificate")
listener_log = structlog.get_logger("posd.listener")


class CertificatePair(msgspec.Struct, frozen=True):
    """Files of a certificate, and the way to renew it.

    `renewable`: configuration file for `posd tls renew`; None for a PKI of the shop. `wanted`: returns the names by
    which terminals call this machine; it may block. `own`: files of posd's CA, and the directory where every user may
    read the CA; None for a PKI of the shop.
    """

    certificate: Path
    private_key: Path
    renewable: Path | None = None
    wanted: Callable[[], Subjects] = Subjects
    own: tuple[TlsFiles, Path] | None = None

    @property
    def files(self) -> tuple[Path, Path]:
        """The certificate, and its private key."""
        return self.certificate, self.private_key

    @property
    def cure(self) -> Sequence[RemedyStep]:
        """Steps by which an operator gives the listener a new certificate."""
        if self.renewable is not None:
            by_itself = RemedyStep("posd renews it by itself within a minute")
            return by_itself, RemedyStep("if it does not", "posd tls renew")
        return (RemedyStep(f"put a new pair of the shop's own PKI into {self.certificate} and {self.private_key}"),)


class ServedCertificate(msgspec.Struct, eq=False):
    """Served certificate, and certificate on disk. Run `run` as a task; cancel it to stop."""

    pair: CertificatePair
    loaded_from: "FileStamps"
    served: ServingContext
    now: Callable[[], datetime]
    check_seconds: float
    #: Returns whether the clock is trusted. Without a trusted clock, posd checks no dates and renews no certificate.
    sure: Callable[[], bool]
    #: Record of posd's CA, to detect its loss. None: the CA is not recorded.
    known_ca: KnownCa | None = None
    #: Reason why the certificate on disk is not served, or None.
    trouble: str | None = None
    #: Time at which a new CA begins to sign, or None. Until then the terminals must receive the new CA.
    new_ca_from: datetime | None = None
    _listeners: list[Callable[[ServingContext], None]] = []
    _asked: bool = False
    _taken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _reminded: dict[str, float] = {}
    _renewal_after: float = 0.0

    @classmethod
    async def open(
        cls,
        pair: CertificatePair,
        now: Callable[[], datetime],
        check_seconds: float = CHECK_SECONDS,
        sure: Callable[[], bool] = lambda: True,
        known_ca: KnownCa | None = None,
    ) -> "ServedCertificate":
        """Load the pair. Renew it first if it has expired or is not valid yet.

        If the renewal fails, posd serves the pair outside its dates, so that payments continue. posd also continues to
        serve a pair that expires later. While the clock is not trusted, the dates are not checked. Raise TlsError.
        """
        if known_ca is not None and pair.renewable is not None:
            await known_ca.look()
        state = _state(pair)
        try:
            served = await asyncio.to_thread(load_pair, *pair.files, None)
        except TlsError as error:
            if known_ca is None or known_ca.trouble is None:
                raise
            raise TlsError(f"{str(error).partition('; ')[0]}; {REMEDY}") from error
        at = now()
        if sure() and (words := outside_dates(served.info, pair.certificate, at)) is not None:
            await _renew_first(pair, words)
            state = _state(pair)
            served = await asyncio.to_thread(load_pair, *pair.files, None)
        return cls(pair, state, served, now, check_seconds, sure, known_ca)

    def use(self, pair: CertificatePair) -> None:
        """Replace the pair. The next check serves it if it is valid."""
        self.pair = pair

    async def reload(self) -> None:
        """Reload the files now, and log the result (SIGHUP)."""
        self._asked = True
        self._taken.clear()
        self._wake.set()
        await self._taken.wait()

    def listen(self, listener: Callable[[ServingContext], None]) -> None:
        """Call `listener` with the served certificate after each change."""
        self._listeners.append(listener)

    def look(self) -> None:
        """Start a check now, because this machine's addresses changed."""
        self._wake.set()

    def check(self) -> Check:
        """Return the health check.

        The check reports the certificate's end, and faults of the files.
        """
        info, now = self.served.info, self.now()
        days = info.days_left(now)
        if self.pair.renewable is not None and self.known_ca is not None and self.known_ca.trouble is not None:
            return Check.of("failing", self.known_ca.trouble, *STEPS, reason="ca_lost")
        if not self.sure():
            return self._check_without_clock(now)
        validity = info.validity(now)
        if validity is Validity.FUTURE:
            future = f"the certificate is not valid yet: terminals may refuse it until {info.not_before:%Y-%m-%d}"
            return Check.of("degraded", future, *self.pair.cure, reason="not_yet_valid")
        if validity is Validity.EXPIRED:
            return Check.of("failing", "the certificate has expired", *self.pair.cure, reason="expired")
        words, todo, reason = list[str](), tuple[RemedyStep, ...](), ""
        if validity is Validity.ENDS:
            words.append(f"the certificate ends in {days} days")
            todo, reason = tuple(self.pair.cure), "ends"
        if self.trouble is not None:  # the pair on disk would prevent the next start
            words.append(f"the certificate on disk is not served: {self.trouble}")
            todo = todo or (RemedyStep("put a certificate and its key in place", "posd tls status"),)
            reason = reason or "not_served"
        state: State = "degraded" if words else "ok"
        if self.new_ca_from is not None:
            left = (self.new_ca_from - now).days
            state = "degraded" if left < NEW_CA_DAYS else state
            words.append(f"in {left} days a new CA will sign: terminals without it will then refuse the certificate")
            put = RemedyStep("put it on every terminal", "posd tls ca > ca.crt")
            todo = todo or (put, RemedyStep("then", "posd tls renew --end-old-ca"))
            reason = reason or "new_ca"
        return Check.of(state, "; ".join(words) or f"valid for {days} more days", *todo, reason=reason)

    def _check_without_clock(self, now: datetime) -> Check:
        info = self.served.info
        until = f"from {info.not_before:%Y-%m-%d} to {info.not_after:%Y-%m-%d}"
        if info.validity(now) not in (Validity.VALID, Validity.ENDS):
            words = f"the certificate is valid {until}; its dates cannot be checked: the clock is not trusted"
            return Check.of("degraded", words, CLOCK_FIRST, reason="dates_unchecked")
        if self.trouble is not None:
            words = f"the certificate on disk is not served: {self.trouble}"
            return Check.of("degraded", words, RemedyStep("", "posd tls status"), reason="not_served")
        return Check.of("ok", f"valid {until}")

    async def run(self) -> None:
        """Check and renew the certificate, and remind the operator, until cancelled."""
        while True:
            self._wake.clear()
            asked, self._asked = self._asked, False
            state, wanted = await self._look()
            if self.known_ca is not None and self.pair.renewable is not None:
                await self.known_ca.look()
            await self._take_up(state, asked=asked)
            if asked:
                self._taken.set()
            await self._renew_where_due(wanted)
            self._remind_of_the_end()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_tick(self.check_seconds)):
                    await self._wake.wait()

    async def _look(self) -> "tuple[FileStamps, Subjects]":
        """Read the state of the files and the names of this machine.

        One call to a thread reads both, because each such call costs time.
        """
        state, wanted, self.new_ca_from = await asyncio.to_thread(
            lambda: (_state(self.pair), self.pair.wanted(), _new_ca_from(self.pair))
        )
        return state, wanted

    async def _take_up(self, state: "FileStamps", *, asked: bool) -> None:
        if state == self.loaded_from and not asked:
            self.trouble = None  # the fault on disk is gone
            return
        try:
            served = await asyncio.to_thread(load_pair, *self.pair.files, self.now() if self.sure() else None)
        except TlsError as error:
            self.trouble = str(error)
            if asked or self._due(self.trouble):
                detail = "posd goes on with the earlier certificate, and checks again by itself"
                log.warning("certificate.refused", error=self.trouble, detail=detail, retry_s=self.check_seconds)
            return
        self.trouble = None
        # Read the state before the files, so that the next check detects a change during the load.
        self.loaded_from = state
        same = served.info == self.served.info
        self.served = served
        for listener in self._listeners:
            listener(served)
        log.info(
            "certificate.loaded",
            detail="the same as before" if same else "a new certificate, for new connections",
            fingerprint_sha256=served.info.fingerprint_sha256,
            expires=iso(served.info.not_after),
        )

    async def _renew_where_due(self, wanted: Subjects) -> None:
        if self.pair.renewable is None or monotonic() < self._renewal_after:
            return
        reasons = renewal_reasons(self.served.info, wanted, self.now())
        if not reasons or not self.sure():
            return
        self._renewal_after = monotonic() + RENEWAL_PAUSE_SECONDS
        if failure := await renew(self.pair.renewable):
            if self._due(failure):
                log.warning("certificate.not_renewed", error=failure, detail="; ".join(reasons))
            return
        log.info("certificate.renewed", detail="; ".join(reasons))
        state, wanted = await self._look()
        await self._take_up(state, asked=True)
        if not renewal_reasons(self.served.info, wanted, self.now()):
            self._renewal_after = monotonic() + HELPED_PAUSE_SECONDS

    def _remind_of_the_end(self) -> None:
        info = self.served.info
        days = info.days_left(self.now())
        validity = info.validity(self.now())
        if validity in (Validity.ENDS, Validity.EXPIRED) and self.sure() and self._due("end"):
            ends = validity is Validity.ENDS
            words = f"the certificate ends in {days} days" if ends else "the certificate has expired"
            log.warning("certificate.ends", detail=f"{words}; {remedy(self.pair.cure)}", expires=iso(info.not_after))

    def _due(self, what: str) -> bool:
        """Return whether a reminder about `what` is due today. If so, record the reminder."""
        now = monotonic()
        self._reminded = {key: at for key, at in self._reminded.items() if now - at < REMINDER_SECONDS}
        if what in self._reminded:
            return False
        self._reminded[what] = now
        return True


async def _renew_first(pair: CertificatePair, words: str) -> None:
    """Renew the pair if posd made it, and log the result. `words`: why the pair is not valid by a trusted clock."""
    if pair.renewable is None:
        return
    if failure := await renew(pair.renewable):
        log.warning("certificate.not_renewed", error=failure, detail=words)
    else:
        log.info("certificate.renewed", detail="it was not valid by its dates")


async def renew(config_file: Path) -> str:
    """Run `posd tls renew --if-needed`. Return the reason of a failure and what to do, or an empty text."""
    command = ("-P", "-m", "posd", "--config", str(config_file), "tls", "renew", "--if-needed", "--no-reload")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RENEWAL_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        return f"posd tls renew did not end within {RENEWAL_SECONDS:g} s; run it by hand"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    words = said.decode("utf-8", "replace").strip().removeprefix("posd: ")[:MAX_WORDS]
    return words or f"posd tls renew ended with code {process.returncode}; run it by hand"


def _new_ca_from(pair: CertificatePair) -> datetime | None:
    """Publish the CA for all users. Return the time at which a waiting CA begins to sign, or None."""
    if pair.own is not None:
        with suppress(OSError, LookupError, TlsError):  # the CA cannot be read; `posd tls status` reports this
            publish_ca(*pair.own)
            return new_ca_signs_from(pair.own[0])
    return None


FileStamps = tuple[object, ...]


def _state(pair: CertificatePair) -> FileStamps:
    """Return the state of the files. A replaced or rewritten file has another inode, size or time."""
    return tuple(map(_stamp, pair.files))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


# Terminals that refuse this machine's certificate: their TLS alerts, counted per address. A device that does not trust
# posd's CA sends an alert (RFC 8446, 6.2) and disconnects. Without this count, the operator would only see payments
# without events. OpenSSL reports the alert as the reason of an SSLError, usually during the handshake. In TLS 1.3 the
# alert can arrive later, because posd's handshake ends before the device has checked the certificate.

#: Alert about a certificate (RFC 8446, 6.2) -> meaning and remedy.
WORDS: Final[Mapping[str, str]] = {
    "unknown_ca": "it does not trust the CA: put ca.crt on it (posd tls ca)",
    "bad_certificate": "it does not trust the CA, or called a name or address that is not in the "
    "certificate: put ca.crt on it (posd tls ca), and read posd tls status",
    "certificate_unknown": "it does not trust the CA, or called a name or address that is not in the "
    "certificate: put ca.crt on it (posd tls ca), and read posd tls status",
    "certificate_expired": "its clock says that the certificate has expired: check its clock, and posd tls status",
    "certificate_revoked": "it considers the certificate revoked: ask who runs the CA",
    "unsupported_certificate": "it cannot use this kind of certificate: ask its vendor which kind it accepts",
}

#: An address is shown for this time after its newest refusal.
SHOWN_FOR = timedelta(days=1)
#: Seconds between two log lines about one address, and maximum number of lines in that time for all addresses.
LINE_EVERY_SECONDS = 3600.0
MAX_LINES = 32
#: Maximum number of stored addresses. A shop has fewer terminals. The address with the oldest refusal is dropped first.
MAX_ADDRESSES = 64
#: Maximum number of addresses in one sentence.
MAX_NAMED = 3


def refusal(error: BaseException | None) -> str | None:
    """Return the alert with which the peer refused our certificate, or None."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    _, found, name = (reason or "").partition("_ALERT_")  # as in TLSV1_ALERT_UNKNOWN_CA
    alert = name.lower()
    return alert if found and alert in WORDS else None


class CertificateRefusals(msgspec.Struct, eq=False):
    """Counts of refusals per address, in a bounded table, and their log lines.

    An `Allowance` cannot limit the lines. It refills during the hour, so it would allow up to twice MAX_LINES.
    """

    now: Callable[[], datetime]
    #: Returns whether an address belongs to this machine. From such an address `posd doctor` connects.
    is_own: Callable[[str], bool] = lambda _address: False
    _addresses: dict[str, Refusals] = {}
    #: Address -> time of its last log line (monotonic), and number of its refusals until then.
    _told: dict[str, tuple[float, int]] = {}
    _lines: list[float] = []

    def told(self, peer: str, error: BaseException) -> bool:
        """Return whether the error is a refusal of our certificate. Count a refusal from another machine."""
        alert = refusal(error)
        if alert is not None and not self.is_own(plain(peer)):
            self.note(peer, alert)
        return alert is not None

    def note(self, peer: str, alert: str) -> None:
        """Count one more refusal."""
        address, now = plain(peer), iso(self.now())
        before = self._addresses.pop(address, None) or Refusals(address, alert, 0, now, now)
        if len(self._addresses) >= MAX_ADDRESSES:
            oldest = next(iter(self._addresses))
            del self._addresses[oldest]
            self._told.pop(oldest, None)
        entry = msgspec.structs.replace(before, alert=alert, count=before.count + 1, last_at=now)
        self._addresses[address] = entry  # reinserted, so that the newest is last
        self._tell(entry, monotonic())

    def _tell(self, entry: Refusals, now: float) -> None:
        self._lines = [at for at in self._lines if now - at < LINE_EVERY_SECONDS]
        told_at, before = self._told.get(entry.address, (float("-inf"), 0))
        if now - told_at < LINE_EVERY_SECONDS or len(self._lines) >= MAX_LINES:
            return
        self._lines.append(now)
        self._told[entry.address] = now, entry.count
        address, alert, count = entry.address, entry.alert, entry.count - before
        detail = f"the device at {address} refuses this machine's certificate ({alert}): {WORDS[alert]}"
        listener_log.warning("listener.distrusted", peer=address, kind=alert, count=count, detail=detail)

    def recent(self) -> dict[str, Refusals]:
        """Return the addresses that refused the certificate within `SHOWN_FOR`, the newest last."""
        oldest = iso(self.now() - SHOWN_FOR)
        return {address: entry for address, entry in self._addresses.items() if entry.last_at > oldest}

    def words(self, terminals: Mapping[str, str], *, complete: bool) -> str | None:
        """Return a sentence with the terminals that refuse the certificate and what to do, or None.

        `terminals`: address -> serial. `complete`: whether `terminals` has the whole fleet. Otherwise any address may
        be a terminal.
        """
        found = {address: item for address, item in self.recent().items() if address in terminals or not complete}
        if not found:
            return None
        named = list(reversed(found.items()))[:MAX_NAMED]
        more = f"; and {len(found) - len(named)} more" if len(found) > len(named) else ""
        names = {address: f"terminal {serial} ({address})" for address, serial in terminals.items()}
        told = (f"{names.get(at, at)} refuses it ({item.alert}): {WORDS[item.alert]}" for at, item in named)
        return "; ".join(told) + more
