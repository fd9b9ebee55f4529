"""GET /metrics: Prometheus' text format on both sockets; what it says of the certificate is so."""

import asyncio
import re
import ssl
from pathlib import Path

import httpx2
import pytest

from posd import __version__, tls
from tests.e2e.test_distrust import other_ca, refuse
from tests.support.daemon import Daemon

#: A line of the format: a comment, or a sample.
LINE = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+')


async def scrape(socket: Path, method: str = "GET") -> httpx2.Response:
    async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(socket), verify=False)) as client:
        return await client.request(method, "http://posd/metrics")


def samples(text: str) -> dict[str, float]:
    """Read what is no comment: name and labels -> value."""
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def test_the_certificate_and_who_refuses_it(posd: Daemon) -> None:
    for socket in (posd.till_socket, posd.admin_socket):
        answer = await scrape(socket)
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
        assert answer.text.endswith("\n")
        assert [line for line in answer.text.splitlines() if LINE.fullmatch(line) is None] == []
        end = tls.describe(posd.directory / "state" / "tls" / "server.crt").not_after.timestamp()
        assert samples(answer.text) == {
            f'posd_build_info{{version="{__version__}"}}': 1,
            "posd_certificate_expiry_timestamp_seconds": end,
            "posd_certificate_trouble": 0,
        }
    stranger = ssl.create_default_context(cafile=str(other_ca(posd.directory)))
    await asyncio.to_thread(refuse, stranger, posd.port, "127.0.0.1")
    await posd.log_line("listener.distrusted")
    found = samples((await scrape(posd.till_socket)).text)
    assert found['posd_certificate_refusals{address="127.0.0.1"}'] == 1


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_it_is_only_read(posd: Daemon, method: str) -> None:
    assert (await scrape(posd.till_socket, method)).status_code == 405
