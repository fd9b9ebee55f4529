"""The checks of the health resource (local API, GET /health)."""

import shlex

import msgspec

from posd.api import documents
from posd.api.certificate import ServedCertificate
from posd.api.documents import CertificateCheck, Check, Checks, Refusals
from posd.base.limits import FREE_FOR_EXTRAS, FREE_FOR_PAYMENTS
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls.context import Context
from posd.clock.clock import TODO, WallClock
from posd.config.values import is_address
from posd.daemon import downtime
from posd.daemon.in_force import InForce
from posd.daemon.presence import Presence
from posd.httpd.server import Listener
from posd.storage import changes
from posd.terminals.certificate_refusals import CertificateRefusals
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Conflict
from posd.upkeep.unseen import SEEN, Unseen

#: What a person does where a file of the database was moved under the daemon.
PUT_BACK = (
    "put the same file back under its name: posd goes on by itself. Do not restart posd before that: what is in a file "
    "without a name is lost then. If it cannot be put back: stop posd, and restore a backup (posd restore BACKUP)"
)


#: What a person does about a disk that is full.
FREE = "free the disk"


class Health(msgspec.Struct, eq=False, frozen=True):
    """Looks at all that can be wrong with posd and its machine."""

    context: Context
    lan: Listener
    discovery: Discovery | None
    certificate: ServedCertificate
    distrust: CertificateRefusals
    presence: Presence
    unseen: Unseen
    clock: WallClock
    fleet: Fleet
    in_force: InForce

    async def checks(self) -> Checks:
        """Return the checks: state and words."""
        return Checks(
            storage=await self._storage(),
            webhook_listener=await self._listener(),
            certificate=self._certificate_check(),
            discovery=self._browsing(),
            clock=self._clock(),
            configuration=self.in_force.check(),
            restore=self._restore(),
            identity=self._identity(),
        )

    async def _storage(self) -> Check:
        try:
            await self.context.read(changes.newest_seq)
        except Problem as problem:
            return Check("failing", problem.detail, "check the disk of this machine (posd doctor)")
        if self.context.write_error is not None:
            await self.context.probe_write()  # in an idle shop nothing else would show that it is well again
        if (moved := self.context.moved) is not None:
            return Check("failing", f"nothing can be recorded: {moved}", PUT_BACK)
        if self.context.write_error is not None:
            return Check("failing", f"the last write failed: {self.context.write_error}", self._free())
        if self.context.intake.short_of(FREE_FOR_PAYMENTS):
            words = "the disk is nearly full: new payments are refused, so that the events of open ones can be kept"
            return Check("failing", words, self._free())
        if self.context.intake.short_of(FREE_FOR_EXTRAS):
            words = "the disk is nearly full: print jobs are refused, so that payments can be kept"
            return Check("degraded", words, self._free())
        return _well("the database can be read, and the last write succeeded")

    def _free(self) -> str:
        """Say what frees the disk: the command shows what is large on it."""
        disk = self.context.intake.disk
        return f"free the disk: {shlex.join(('sudo', 'du', '-xah', '--threshold=100M', disk))}" if disk else FREE

    async def _listener(self) -> Check:
        if not self.lan.listening:
            return Check("failing", "the webhook listener does not accept connections", "restart posd")
        if (error := self.lan.accept_error) is not None:
            return Check(
                "failing",
                f"the webhook listener cannot accept connections now ({error})",
                "look at what else runs on this machine",
            )
        if (found := await self.presence.look()) is not None:
            absence, left = found
            return Check("degraded", downtime.words(absence, len(left)), downtime.todo(left))
        return _well(f"listening on port {self.lan.port}, {self.lan.connections} connections")

    def _certificate_check(self) -> CertificateCheck:
        state, words, todo = self.certificate.check()
        hosts = self.fleet.addresses.hosts()
        complete = {serial for host, serial in hosts.items() if is_address(host)} >= set(self.fleet.serials)
        if (refused := self.distrust.words(hosts, complete=complete)) is not None:
            state, words = ("degraded" if state == "ok" else state), f"{words}; {refused}"
            todo = todo or "see what each of these devices needs (posd tls status)"
        info = self.certificate.served.info
        served = documents.Served(info.fingerprint_sha256, not_after=iso(info.not_after), port=self.lan.port)
        return CertificateCheck(state, words, todo, served, _refused_by(self.distrust))

    def _browsing(self) -> Check:
        if self.discovery is None:
            return _well("switched off; terminals need a base_url in the configuration")
        if not self.discovery.running:
            return Check(
                "degraded",
                f"{self.discovery.trouble}; terminals with a base_url work",
                "check the network of this machine (posd doctor)",
            )
        return _well("listening for announcements")

    def _identity(self) -> Check:
        addresses = self.fleet.addresses
        disputes = {serial: found for serial in self.fleet.serials if (found := addresses.conflict(serial)) is not None}
        if disputes:
            words = "; ".join(item.what for item in disputes.values())
            # What was sent to another device at its address is asked for there: only starts and aborts are kept back.
            asked = all(item.kind is Conflict.SERIAL for item in disputes.values())
            sent = "no payment is sent there" if asked else "nothing is sent there"
            return Check("degraded", f"{words}: {sent}", " ".join(item.todo for item in disputes.values()))
        if rivals := [serial for serial in self.fleet.serials if addresses.has_rivals(serial)]:
            return _well(
                f"each terminal is called where it is trusted; something else answers as {', '.join(rivals)}, and is "
                "sent nothing (posd terminals)"
            )
        return _well("no device contradicts another about which terminal it is")

    def _clock(self) -> Check:
        if (doubt := self.clock.doubt) is not None:
            waits = "Payments go on; nothing is removed, and no certificate is made or renewed, until it is believed"
            return Check("degraded", f"{doubt}. {waits}", TODO)
        return _well(iso(self.clock.reading.wall))

    def _restore(self) -> Check:
        unseen = self.unseen
        if words := unseen.words:
            if unseen.refuses:
                words += " No payment is started under a new id until a person has looked."
            if unseen.count:
                words += f" {_payments(unseen.count)} taken over by no more than an id."
            return Check("degraded", words, f"look at them (they are shown), then: {SEEN}")
        if (error := unseen.witness_error) is not None:
            words = f"the witness beside the database cannot be written ({error}); payments go on"
            return Check("degraded", words, f"{FREE}, and check that posd may write beside its database")
        if unseen.mention is not None:
            return _well(f"the witness of the last run could not be used at the start: {unseen.mention}")
        return _well("the database knows all that its witness knows")


def _payments(count: int) -> str:
    return "1 payment was" if count == 1 else f"{count} payments were"


def _well(detail: str) -> Check:
    return Check("ok", detail, "")


def _refused_by(distrust: CertificateRefusals) -> list[Refusals]:
    """Return the recent refusals of the certificate, the newest last."""
    return [
        Refusals(address, item.alert, item.count, iso(item.first_at), iso(item.last_at))
        for address, item in distrust.recent().items()
    ]
