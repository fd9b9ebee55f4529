"""Listeners of tills and operators, and the handlers of their calls."""

import socket
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from posd import __version__
from posd.api import routes
from posd.api.documents import Version
from posd.api.feed import FeedStream
from posd.api.maintenance import ClockCalls, MaintenanceCalls
from posd.api.report_calls import ReportCalls
from posd.api.terminals import TerminalCalls
from posd.base import limits
from posd.base.limits import Limit
from posd.calls.app import LocalApp, connection_refused
from posd.calls.parameters import BoundRoute, served
from posd.daemon import sockets
from posd.daemon.metrics import Metrics, metrics_listeners
from posd.daemon.parts import Daemon
from posd.daemon.status import HealthChecks
from posd.httpd.admission import ListenerPolicy, PeerQuotas, SocketPeer
from posd.httpd.server import HttpListener
from posd.payments.handlers import TransactionCalls
from posd.payments.reprocess import payment_records
from posd.printing.handlers import PrintJobCalls
from posd.printing.inbox import print_records
from posd.records.quarantine import Reprocessing
from posd.records.quotas import LimitCounters, limit_reached
from posd.storage.connection import schema_version
from posd.upkeep.retention import Retention

#: Seconds after which a program with too many connections may retry.
TOO_MANY_SECONDS: Final = 1
LOCAL_KEEP_ALIVE_SECONDS: Final = 75.0
NOT_ON_THE_FEED_SOCKET: Final = (
    "this socket serves GET /v1/feed, /v1/health and /v1/version only, the till socket the rest"
)

log = structlog.get_logger("posd.local")


class LocalApi:
    """Calls of tills and operators, on their listeners."""

    def __init__(self, daemon: Daemon, keys: tuple[bytes, ...], inherited: sockets.InheritedSockets) -> None:
        """Add the listeners to those of the daemon. `keys`: the keys of the callback URLs. Raise SocketError."""
        config, store, clock, context = daemon.config, daemon.store, daemon.clock, daemon.context
        grace = config.reconcile.first_event_grace_seconds
        self._daemon = daemon
        self._inherited = inherited
        self.retention = Retention(
            store,
            config.database.retention_days,
            daemon.is_calling,
            daemon.now,
            lambda: clock.confirmed,
            lambda: clock.doubt,
        )
        version = Version(
            version=__version__,
            api="v1",
            schema=schema_version(),
            timezone=config.merchant.timezone,
            currency=config.merchant.currency,
            language=config.local_api.language,
        )
        self.health = HealthChecks(daemon, version)
        calls = TransactionCalls(
            context,
            daemon.payments,
            daemon.aborts,
            daemon.reconciler,
            config,
        )
        self.metrics = Metrics(daemon, self.health, calls)
        records = (print_records(daemon.print_inbox), payment_records(daemon.inbox, daemon.parts.outstanding))
        self.maintenance = MaintenanceCalls(
            context,
            store,
            keys,
            daemon.restore_guard,
            self.retention,
            Reprocessing(store, records),
        )
        all_calls = served(
            routes.ALL,
            calls,
            PrintJobCalls(context, daemon.printing, daemon.spooler),
            self.maintenance,
            ClockCalls(context, clock),
            FeedStream(context, lambda: daemon.in_force.config.relay.metadata),
            ReportCalls(context, store, clock, config.merchant.timezone, grace),
            TerminalCalls(context, store, daemon.fleet, daemon.reconciler),
            self.metrics,
            self.health,
        )
        daemon.listeners += self._listeners(all_calls)
        tcp_socket = daemon.surroundings.tcp_socket
        daemon.listeners += metrics_listeners(config.metrics, self.metrics, daemon.noise, tcp_socket)

    def _listeners(self, calls: tuple[BoundRoute, ...]) -> list[HttpListener]:
        daemon = self._daemon
        api, quotas = daemon.config.local_api, daemon.quotas
        places = limits.places(daemon.surroundings.descriptors(limits.DESCRIPTORS))
        in_flight = quotas.in_flight
        app = LocalApp(calls, in_flight)
        feed = LocalApp(tuple(call for call in calls if call.route.feed), in_flight, NOT_ON_THE_FEED_SOCKET)
        doors = [
            (app, api.till_socket, api.till_group, False, places.tills, limits.CONNECTIONS_OF_TILLS),
            (app, api.admin_socket, api.admin_group, True, places.operators, limits.CONNECTIONS_OF_OPERATORS),
            (feed, api.feed_socket, api.feed_group, False, places.feed, limits.CONNECTIONS_OF_FEED),
        ]
        return [
            HttpListener(
                served_app,
                sock,
                ListenerPolicy(
                    name=path.name,
                    keep_alive_seconds=LOCAL_KEEP_ALIVE_SECONDS,
                    max_connections=most,
                    state={"admin": admin, "feed": served_app is feed},
                ),
                daemon.noise,
                daemon.now,
                PeerQuotas(min(places.process, most // 2), places.user, partial(_too_many, quotas.reached, limit)),
            )
            for served_app, path, group, admin, most, limit in doors
            if (sock := self._socket(path, group, may_miss=served_app is feed)) is not None
        ]

    def _socket(self, path: Path, group: str, *, may_miss: bool) -> socket.socket | None:
        """Return the socket at a path. With `may_miss`, log a failure and return None. Raise SocketError."""
        try:
            return self._inherited.take(path, group) or self._daemon.surroundings.unix_socket(path, group)
        except sockets.SocketError as error:
            if not may_miss:
                raise
            (log.info if isinstance(error, sockets.NoGroup) else log.warning)("feed.no_socket", error=str(error))
            return None


def _too_many(reached: LimitCounters, of_socket: Limit, which: str, sender: SocketPeer) -> bytes:
    """Count and log a sender with too many connections. Return the response to its next connection."""
    limit = {"process": limits.CONNECTIONS_OF_PROCESS, "user": limits.CONNECTIONS_OF_USER}.get(which, of_socket)
    reached.note(limit, pid=sender.pid, uid=sender.uid)
    return connection_refused(limit_reached(limit, "cannot take this connection", TOO_MANY_SECONDS))
