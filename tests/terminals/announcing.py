"""Announcements by mDNS in these tests."""

from secrets import token_hex

from zeroconf import ServiceInfo

#: Service type of this test run only, because other runs announce on the same loopback interface.
MARK = token_hex(3)
TYPE = f"_posd-{MARK}._tcp.local."
#: The section `[discovery]` with which posd finds these announcements.
DISCOVERY = f'service_types = ["{TYPE}"]\ninterfaces = ["127.0.0.1"]'


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def service(instance: str, port: int, properties: dict[str, str]) -> ServiceInfo:
    return ServiceInfo(
        TYPE,
        f"{instance}.{TYPE}",
        port=port,
        properties=properties,
        server=f"{instance}-{MARK}.local.",
        parsed_addresses=["127.0.0.1"],
    )
