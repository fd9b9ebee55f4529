"""The certificate that the webhook listener serves: taken up anew when its files change, renewed before its end.

What is on the disk is loaded into a fresh context and tried there; only a pair that fits and is valid replaces the one
that is served, for new connections. So a half-written or mismatched pair changes nothing but a line in the log, and
no connection that is open notices anything.

The certificate of `posd tls init` is renewed by `posd tls renew` in a process of its own: what makes certificates is
large, and the daemon needs it once a year.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from posd import tls
from posd.api import documents
from posd.base.clocks import monotonic, next_tick
from posd.base.times import iso

#: How often the files and this machine's addresses are looked at, in seconds; SIGHUP, and an address that the kernel
#: reports, make it at once.
CHECK_SECONDS = 60.0
#: After a renewal that failed or did not help, how long until the next try, in seconds.
RENEWAL_PAUSE_SECONDS = 3600.0
#: The same after one that helped: an address that comes and goes must not keep the machine busy.
HELPED_PAUSE_SECONDS = 10.0
#: Longest that a renewal may take, in seconds; it takes about one.
RENEWAL_SECONDS = 120.0
#: People are reminded once a day, in seconds.
REMINDER_SECONDS = 86_400.0
#: What of a failed renewal's words goes into the log, in characters.
MAX_WORDS = 1000

#: What to do about a certificate while the clock is not believed.
CLOCK_FIRST = "see to the clock first: posd clock"

log = structlog.get_logger("posd.certificate")


class Pair(msgspec.Struct, frozen=True):
    """The files of a certificate, and by whom it is renewed.

    `renewable` is the configuration file where `posd tls renew` renews it, None for the shop's own PKI. `wanted` says
    by what terminals call this machine now; it may block.
    """

    certificate: Path
    private_key: Path
    renewable: Path | None = None
    wanted: Callable[[], tls.Subjects] = tls.Subjects

    @property
    def cure(self) -> str:
        """What to do about a certificate that ends."""
        if self.renewable is not None:
            return "posd renews it by itself within a minute; where it does not: posd tls renew"
        return f"put a new pair of the shop's own PKI into {self.certificate} and {self.private_key}"


class NotRenewed(Exception):
    """The certificate could not be renewed; the message says why and what to do."""


class ServedCertificate(msgspec.Struct, eq=False):
    """What is served, and what is on the disk. Run `run` as a task; cancel it to stop."""

    pair: Pair
    loaded_from: "State"
    served: tls.Served
    now: Callable[[], datetime]
    check_seconds: float
    #: Whether the clock can be believed: while it cannot, nothing is judged by it, and nothing is renewed.
    sure: Callable[[], bool]
    #: Why what is on the disk is not served, None where it is.
    trouble: str | None = None
    _listeners: list[Callable[[tls.Served], None]] = []
    _asked: bool = False
    _taken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _reminded: dict[str, float] = {}
    _renewal_after: float = 0.0

    @classmethod
    async def open(
        cls,
        pair: Pair,
        now: Callable[[], datetime],
        check_seconds: float = CHECK_SECONDS,
        sure: Callable[[], bool] = lambda: True,
    ) -> "ServedCertificate":
        """Load the pair; one that has ended, or is from the future, is renewed first where it can be.

        While the clock is not believed it is served as it is. Raise TlsError.
        """
        state = _state(pair)
        try:
            served = await asyncio.to_thread(_load, pair, now() if sure() else None)
        except (tls.Expired, tls.NotYetValid) as error:
            await _renew_first(pair, error)
            state = _state(pair)
            served = await asyncio.to_thread(_load, pair, None)
        return cls(pair, state, served, now, check_seconds, sure)

    def use(self, pair: Pair) -> None:
        """Serve another pair, from the next look on, if it can be served."""
        self.pair = pair

    async def reload(self) -> None:
        """Load the files now, and say what came of it (SIGHUP)."""
        self._asked = True
        self._taken.clear()
        self._wake.set()
        await self._taken.wait()

    def listen(self, listener: Callable[[tls.Served], None]) -> None:
        """Call `listener` with what is served from now on, at each change."""
        self._listeners.append(listener)

    def look(self) -> None:
        """Look now whether anything has to be done (this machine's addresses changed)."""
        self._wake.set()

    def check(self) -> tuple[documents.State, str, str]:
        """Return state, words and cure for the health resource: the end of what is served, trouble on the disk."""
        info, now = self.served.info, self.now()
        days = info.days_left(now)
        if not self.sure():
            return self._check_without_clock(now)
        if info.not_before > now:
            future = f"the certificate is from the future: terminals may refuse it until {info.not_before:%Y-%m-%d}"
            return "degraded", future, self.pair.cure
        if days < 0:
            return "failing", "the certificate has expired", self.pair.cure
        words, todo = [], ""
        if days < tls.RENEWAL_DAYS:
            words.append(f"the certificate ends in {days} days")
            todo = self.pair.cure
        if self.trouble is not None:  # the next start would fail by it
            words.append(f"the one on the disk is not served: {self.trouble}")
            todo = todo or "put a certificate and its key in place (posd tls status)"
        return ("degraded", "; ".join(words), todo) if words else ("ok", f"valid for {days} more days", "")

    def _check_without_clock(self, now: datetime) -> tuple[documents.State, str, str]:
        info = self.served.info
        until = f"from {info.not_before:%Y-%m-%d} to {info.not_after:%Y-%m-%d}"
        if not info.not_before <= now <= info.not_after:
            words = f"the certificate is valid {until}; whether it is now cannot be told, for the clock is not believed"
            return "degraded", words, CLOCK_FIRST
        if self.trouble is not None:
            return "degraded", f"the one on the disk is not served: {self.trouble}", "posd tls status"
        return "ok", f"valid {until}", ""

    async def run(self) -> None:
        """Look, renew, remind, until cancelled."""
        while True:
            self._wake.clear()
            asked, self._asked = self._asked, False
            state, wanted = await self._look()
            await self._take_up(state, asked=asked)
            if asked:
                self._taken.set()
            await self._renew_where_due(wanted)
            self._remind_of_the_end()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_tick(self.check_seconds)):
                    await self._wake.wait()

    async def _look(self) -> "tuple[State, tls.Subjects]":
        """Look at the files, and by what terminals call this machine: in one go, for it wakes a thread each time."""
        return await asyncio.to_thread(lambda: (_state(self.pair), self.pair.wanted()))

    async def _take_up(self, state: "State", *, asked: bool) -> None:
        if state == self.loaded_from and not asked:
            self.trouble = None  # what was wrong on the disk was undone
            return
        try:
            served = await asyncio.to_thread(_load, self.pair, self.now() if self.sure() else None)
        except tls.TlsError as error:
            self.trouble = str(error)
            if asked or self._due(self.trouble):
                detail = "the certificate that was loaded before goes on; posd looks again by itself"
                log.warning("certificate.refused", error=self.trouble, detail=detail, retry_s=self.check_seconds)
            return
        self.trouble = None
        # Taken before the files were read: what changes meanwhile is another change.
        self.loaded_from = state
        same = served.info == self.served.info
        self.served = served
        for listener in self._listeners:
            listener(served)
        log.info(
            "certificate.loaded",
            detail="the same as before" if same else "a new one, for connections from now on",
            fingerprint_sha256=served.info.fingerprint_sha256,
            expires=iso(served.info.not_after),
        )

    async def _renew_where_due(self, wanted: tls.Subjects) -> None:
        if self.pair.renewable is None or monotonic() < self._renewal_after:
            return
        reasons = self._reasons(wanted)
        if not reasons or not self.sure():
            return
        self._renewal_after = monotonic() + RENEWAL_PAUSE_SECONDS
        try:
            await renew(self.pair.renewable)
        except NotRenewed as error:
            if self._due(str(error)):
                log.warning("certificate.not_renewed", error=str(error), detail="; ".join(reasons))
            return
        log.info("certificate.renewed", detail="; ".join(reasons))
        state, wanted = await self._look()
        await self._take_up(state, asked=True)
        if not self._reasons(wanted):
            self._renewal_after = monotonic() + HELPED_PAUSE_SECONDS

    def _reasons(self, wanted: tls.Subjects) -> tuple[str, ...]:
        return tls.renewal_reasons(self.served.info, wanted, self.now())

    def _remind_of_the_end(self) -> None:
        info = self.served.info
        days = info.days_left(self.now())
        if days < tls.RENEWAL_DAYS and self.sure() and self._due("end"):
            words = f"the certificate ends in {days} days" if days >= 0 else "the certificate has expired"
            log.warning("certificate.ends", detail=f"{words}; {self.pair.cure}", expires=iso(info.not_after))

    def _due(self, what: str) -> bool:
        """Whether people were not told of that today."""
        now = monotonic()
        self._reminded = {key: at for key, at in self._reminded.items() if now - at < REMINDER_SECONDS}
        if what in self._reminded:
            return False
        self._reminded[what] = now
        return True


def _load(pair: Pair, at: datetime | None) -> tls.Served:
    """Load the pair, valid at that moment (None: no clock is asked). Raise TlsError."""
    return tls.load(pair.certificate, pair.private_key, at)


async def _renew_first(pair: Pair, error: tls.TlsError) -> None:
    """Renew a pair that is not valid by a clock that is believed. Raise TlsError where it has ended and cannot be.

    One from the future is served then: refusing to start would not help.
    """
    ended = isinstance(error, tls.Expired)
    if pair.renewable is None:
        if ended:
            raise error
        return
    try:
        await renew(pair.renewable)
    except NotRenewed as failure:
        if ended:
            raise tls.TlsError(f"{error}. Renewing it failed: {failure}") from failure
        log.warning("certificate.not_renewed", error=str(failure), detail=str(error))
        return
    log.info("certificate.renewed", detail="it had ended" if ended else "it was from the future")


async def renew(config_file: Path) -> None:
    """Run `posd tls renew --if-needed`. Raise NotRenewed."""
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
        raise NotRenewed(f"posd tls renew did not end within {RENEWAL_SECONDS:g} s; run it by hand") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        words = said.decode("utf-8", "replace").strip().removeprefix("posd: ")[:MAX_WORDS]
        raise NotRenewed(words or f"posd tls renew ended with code {process.returncode}; run it by hand")


State = tuple[object, ...]


def _state(pair: Pair) -> State:
    """Return what changes when a file does: replacing or rewriting it leaves another inode, size or time."""
    return tuple(_stamp(path) for path in (pair.certificate, pair.private_key))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
