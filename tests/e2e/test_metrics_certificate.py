"""Metrics of the certificate. No stranger can choose the value of a label."""

import asyncio
import ssl
from pathlib import Path

from posd.tls.files import describe
from tests.e2e.test_distrust import other_ca, refuse
from tests.e2e.test_metrics import families, scrape, value
from tests.rig.daemon import Daemon, running


async def test_the_metrics_show_the_certificate_and_its_refusals(posd: Daemon) -> None:
    for socket in (posd.till_socket, posd.admin_socket):
        answer = await scrape(socket)
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    end = describe(posd.directory / "state" / "tls" / "server.crt").not_after.timestamp()
    found = await families(posd)
    assert value(found, "posd_certificate_expiry_timestamp_seconds") == end
    assert value(found, "posd_certificate_trouble") == 0
    stranger = ssl.create_default_context(cafile=str(other_ca(posd.directory)))
    await asyncio.to_thread(refuse, stranger, posd.port, "127.0.0.1")
    await posd.log_line("listener.distrusted")
    assert value(await families(posd), "posd_certificate_refusals", address="127.0.0.1") == 1


async def test_a_stranger_adds_no_label_to_a_metric(home: Path) -> None:
    async with running(home, '[[terminals]]\nserial = "SN-1"\nbase_url = "https://192.0.2.1"\n') as posd:
        stranger = ssl.create_default_context(cafile=str(other_ca(posd.directory)))
        await asyncio.to_thread(refuse, stranger, posd.port, "127.0.0.1", "127.0.0.2")
        await posd.log_line("listener.distrusted")
        assert value(await families(posd), "posd_certificate_refusals", address="other") == 1
