"""A daemon process for fuzzing, called by threads that wait for the answer."""

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import UUID, uuid5

import httpx2

from posd.base import ids
from posd.base.ids import Channel
from tests.fuzz.seeds import SERIAL
from tests.support.daemon import Daemon, running
from tests.support.ports import reserve
from tests.support.threaded import in_thread
from tests.support.webhooks import faults, key_file

#: A terminal of the fleet; nothing listens at its address.
GONE = "SN-GONE"

#: Seconds after which a call without an answer counts as stuck.
PATIENCE_SECONDS = 60.0
#: Seconds until a connection that was turned away is tried again.
AGAIN_SECONDS = 0.1

_NAMESPACE = UUID("7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")


class Shop:
    """The daemon, and unused ids."""

    def __init__(self, posd: Daemon) -> None:
        self.posd = posd
        self._numbers = count()
        own = httpx2.Limits(max_keepalive_connections=0)  # a connection for each request
        tls = ssl.create_default_context(cafile=str(posd.ca))
        self._outside = httpx2.Client(verify=tls, limits=own, timeout=PATIENCE_SECONDS, trust_env=False)
        socket = httpx2.HTTPTransport(uds=str(posd.till_socket), limits=own)
        #: The local API.
        self.local = httpx2.Client(transport=socket, base_url="http://posd/v1", timeout=PATIENCE_SECONDS)

    def fresh(self) -> str:
        """Return an unused id."""
        return str(uuid5(_NAMESPACE, str(next(self._numbers))))

    def deliver(self, path: str, body: bytes | Iterable[bytes], method: str = "POST") -> int:
        """Call the webhook listener, with the body in pieces if there are several; return the HTTP status, 0 if none
        came.

        Who has shown no valid token too often is turned away before TLS, and comes again as a terminal does.
        """
        url, headers = f"https://127.0.0.1:{self.posd.port}{path}", {"content-type": "application/json"}
        latest = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._outside.request(method, url, content=body, headers=headers).status_code
            except httpx2.ConnectError:
                if time.monotonic() > latest:
                    raise
                time.sleep(AGAIN_SECONDS)
            except (httpx2.NetworkError, httpx2.ProtocolError):
                return 0

    def address(self, channel: Channel, identity: str) -> str:
        """Return the path of the callback address of an id."""
        key = bytes.fromhex(key_file(self.posd).read_text().split()[0])
        return ids.path(channel, identity, ids.token(key, channel, identity))

    def check(self) -> None:
        """Check that the daemon runs, and that its log has no internal error."""
        assert self.posd.process is not None
        assert self.posd.process.returncode is None, "the daemon has ended"
        assert faults(self.posd) == []
        assert self.local.get("/version").status_code == 200


@contextmanager
def open_shop(directory: Path) -> Iterator[Shop]:
    """Run a daemon for the block; at the end its log must not have internal errors."""
    terminals = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://127.0.0.1:{reserve()}"\n' for serial in (SERIAL, GONE)
    )
    with in_thread(
        running(directory, terminals, "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.2\n")
    ) as posd:
        yield Shop(posd)
