"""Reader of a process's metrics, like Prometheus."""

import httpx2

from tests.rig.exposition import Family, read


async def scraped(port: int) -> dict[str, Family]:
    """Return the metrics from a port."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.text)


def numbers(found: dict[str, Family], name: str) -> dict[str, float]:
    """Return the values of a metric by label. A value without a label has the key ""."""
    return {"".join(text for _, text in pairs): number for (_, pairs), number in found[name].samples.items()}
