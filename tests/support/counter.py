"""A shop of processes: simulated terminals, and a daemon that a test can kill."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx2

from posd.cli.app.connection import Api, Problem, Unreachable
from posd.tls import issue
from tests.support import forks
from tests.support.leftovers import OWNER, owner
from tests.support.ports import reserve

#: Limit of a wait in seconds, far longer than any wait takes.
PATIENCE = 60.0

CONFIG = """
[local_api]
directory = "{home}/run"
till_group = ""
admin_group = ""

[webhooks]
listen = "127.0.0.1:{port}"

[database]
path = "{home}/state/posd.db"

[discovery]
enabled = false

[terminal_defaults]
scheme = "http"
"""

T = TypeVar("T")


class Counter:
    """Context manager for the processes of a shop in a directory. The processes end with the block."""

    def __init__(
        self, home: Path, terminals: int = 1, *, speed: float = 200.0, extra: str = "", also: Sequence[str] = ()
    ) -> None:
        """Create the shop. `terminals`: number of terminals. `also`: serials of further terminals. `extra`: lines for
        the daemon's configuration.
        """
        self.home = home
        self.serials = [*(f"SN-{number:04}" for number in range(1, terminals + 1)), *also]
        self.socket = home / "run" / "admin.sock"
        self.config = home / "config.toml"
        self._ledger = home / "ledger"
        self._speed = speed
        self._extra = extra
        self._controls: dict[str, str] = {}
        self._owner = owner()
        self._processes: dict[str, forks.Forked] = {}

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _open(self) -> None:
        for name in ("run", "state", "terminals", "ledger"):
            (self.home / name).mkdir()
        made = issue.init(self.home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        ports = [reserve() for _ in self.serials]
        entries = "".join(
            f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://127.0.0.1:{port}"\n'
            for serial, port in zip(self.serials, ports, strict=True)
        )
        self.config.write_text(CONFIG.format(home=self.home, port=reserve()) + entries + self._extra)
        for serial, port in zip(self.serials, ports, strict=True):
            (self.home / "terminals" / serial).mkdir()
            options = {
                "--serial": serial,
                "--listen": f"127.0.0.1:{port}",
                "--trust": made.ca_certificate,
                "--state": self.home / "terminals" / serial,
                "--ledger": self._ledger / f"{serial}.jsonl",
                "--speed": self._speed,
                "--control": self._controls.setdefault(serial, f"127.0.0.1:{reserve()}"),
                "--set": "wait-seconds=0",
            }
            words = [str(word) for pair in options.items() for word in pair]
            self._start(serial, "simulate", "--http", "--json", *words)
        self.start_daemon()
        self.until(lambda: self._reachable(), "no terminal answers")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name in list(self._processes):
            self._end(name, signal.SIGKILL)

    def start_daemon(self) -> None:
        """Start the daemon, and wait until it replies to a call."""
        self._start("posd", "--config", str(self.config), "run")
        self.until(lambda: self.get("/version") is not None, "posd does not answer")

    def kill_daemon(self) -> None:
        self._end("posd", signal.SIGKILL)

    def tidy(self) -> None:
        """Start the daemon if it is stopped. End the open payments."""
        if "posd" not in self._processes:
            self.start_daemon()
        for payment in self.get("/transactions", {"open": "true"})["transactions"]:
            with suppress(Problem), Api(self.socket) as api:
                api.post(f"/transactions/{payment['client_transaction_id']}/abort")
            # A payment that can no longer be aborted needs an approval at the terminal.
            self._hand("approve", payment["terminal"])
            self.ended(payment["client_transaction_id"])

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return a response of the local API, or None if there is no response."""
        try:
            with Api(self.socket) as api:
                return api.get(path, query).body
        except (Unreachable, Problem):
            return None

    def charge(self, amount: float = 11.2, serial: str = "", *, scenario: str = "", **request: Any) -> str:
        """Start a payment with a scenario. Return the id, which is `identity` if given."""
        identity = request.pop("identity", None) or str(uuid4())
        metadata = {"scenario": scenario} if scenario else {}
        exact = {"subtotal_iva0": Decimal(str(amount))}
        body = {"terminal": serial or self.serials[0], "amount": exact, "metadata": metadata}
        with Api(self.socket) as api:
            api.put(f"/transactions/{identity}", body | request)
        return identity

    def hand(self, deed: str, serial: str = "") -> None:
        """Perform an action at a terminal: present-card, approve, unplug."""
        answer = self._hand(deed, serial or self.serials[0])
        assert answer.status_code == 200, answer.text

    def _hand(self, deed: str, serial: str) -> httpx2.Response:
        with httpx2.Client(trust_env=False, timeout=PATIENCE) as client:
            return client.post(f"http://{self._controls[serial]}/terminals/{serial}/{deed}", json={})

    def transaction(self, identity: str) -> Any:
        return self.get(f"/transactions/{identity}")

    def ended(self, identity: str) -> Any:
        """Wait for the outcome of a payment. Return the outcome."""
        return self.until(lambda: self.transaction(identity)["outcome"], "it does not end")

    def ledger(self, serial: str = "") -> list[dict[str, Any]]:
        """Return the events that really happened at a terminal."""
        lines = (self._ledger / f"{serial or self.serials[0]}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def until(self, look: Callable[[], T | None], otherwise: str) -> T:
        """Poll until there is a result. If there is no result in time, fail with this text."""
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"{otherwise}: {self.tail()}"
            time.sleep(0.05)
        return found

    def tail(self) -> str:
        """Return the end of the daemon's log."""
        return (self.home / "posd.log").read_text()[-2000:]

    def _reachable(self) -> bool:
        listed = self.get("/terminals", {"check": "true"})
        by_serial = {item["serial"]: item["reachable"] for item in listed["terminals"]} if listed else {}
        return all(by_serial.get(serial) for serial in self.serials)

    def _start(self, name: str, *arguments: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POSD_")}
        environment[OWNER] = self._owner
        with (self.home / f"{name}.log").open("ab") as log:
            self._processes[name] = forks.Forked(arguments, stdout=log.fileno(), stderr=log.fileno(), env=environment)

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(PATIENCE)
