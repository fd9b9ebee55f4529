"""Announcements by mDNS in these tests."""

from secrets import token_hex
from typing import Any

from zeroconf import ServiceInfo

from tests.rig.daemon import Daemon
from tests.rig.waits import until

#: Service type of this test run only, because other runs announce on the same loopback interface.
MARK = token_hex(3)
TYPE = f"_posd-{MARK}._tcp.local."
#: The section `[discovery]` with which posd finds these announcements.
DISCOVERY = f'service_types = ["{TYPE}"]\ninterfaces = ["127.0.0.1"]'


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


async def shown(posd: Daemon, serial: str, **expected: Any) -> Any:
    """Wait until the daemon shows a terminal and its identity in this state. Each request checks the identity."""

    async def found() -> Any:
        listed = (await posd.call("GET", "/terminals?check=true&all=true")).json["terminals"]
        terminal = next((item for item in listed if item["serial"] == serial), {})
        return expected.items() <= (terminal.get("identity", {}) | terminal).items() and terminal

    return await until(found)


def service(instance: str, port: int, properties: dict[str, str]) -> ServiceInfo:
    return ServiceInfo(
        TYPE,
        f"{instance}.{TYPE}",
        port=port,
        properties=properties,
        server=f"{instance}-{MARK}.local.",
        parsed_addresses=["127.0.0.1"],
    )
