"""Metrics in Prometheus' text format (local API, GET /metrics): so far of the build and of the certificate."""

from collections.abc import Iterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd import __version__
from posd.web.alerts import Distrust
from posd.web.certificate import ServedCertificate
from posd.web.local import Route

#: Prometheus' text exposition format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(msgspec.Struct, frozen=True):
    """One metric: its name, what it says, its kind (`gauge`, `counter`), its samples as (labels, value)."""

    name: str
    help: str
    kind: str
    samples: tuple[tuple[Mapping[str, str], float], ...]

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{named}}} {value:.17g}" if named else f"{self.name} {value:.17g}"


class MetricsCalls:
    """The handler of /metrics."""

    def __init__(self, certificate: ServedCertificate, distrust: Distrust) -> None:
        self._certificate = certificate
        self._distrust = distrust

    @property
    def routes(self) -> tuple[Route, ...]:
        """The table of these calls."""
        return (Route("GET", "/metrics", self.metrics),)

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        text = "".join(f"{line}\n" for metric in self._metrics() for line in metric.lines())
        return Response(text, headers={"content-type": CONTENT_TYPE})

    def _metrics(self) -> Iterator[Metric]:
        yield Metric("posd_build_info", "The version that runs.", "gauge", (({"version": __version__}, 1),))
        yield Metric(
            "posd_certificate_expiry_timestamp_seconds",
            "When the certificate that terminals are shown ends, in seconds since 1970.",
            "gauge",
            (({}, self._certificate.served.info.not_after.timestamp()),),
        )
        yield Metric(
            "posd_certificate_trouble",
            "1 where the certificate on the disk cannot be served, so that an older one is.",
            "gauge",
            (({}, float(self._certificate.trouble is not None)),),
        )
        yield Metric(
            "posd_certificate_refusals",
            "How often a device refused the certificate, of those that did within a day.",
            "gauge",
            tuple(({"address": address}, item.count) for address, item in self._distrust.recent().items()),
        )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
