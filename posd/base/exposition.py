"""Prometheus' text exposition format, version 0.0.4: what a metric is, and how values are written.

Every process of posd that is watched has a table of its metrics, and writes them by it.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from posd.base.locks import Histogram
from posd.base.text import escaped

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]


class Family(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def counter(name: str, words: str, labels: str = "") -> Family:
    """Return a metric that only grows; `labels` with spaces between, as of the two below."""
    return Family(name, "counter", words, tuple(labels.split()))


def gauge(name: str, words: str, labels: str = "") -> Family:
    """Return a metric that says how something is now."""
    return Family(name, "gauge", words, tuple(labels.split()))


def histogram(name: str, words: str, labels: str = "") -> Family:
    """Return a metric that counts values by their size."""
    return Family(name, "histogram", words, tuple(labels.split()))


def table(*families: Family) -> Mapping[str, Family]:
    """Return metrics by name, in the order in which they are shown."""
    return {family.name: family for family in families}


#: One value of a metric: the values of its labels in their order, and the number or the histogram.
Sample = tuple[tuple[str, ...], float | Histogram]
#: Of one metric: its name, and all its values.
Samples = tuple[str, Sequence[Sample]]


def render(families: Mapping[str, Family], samples: Iterator[Samples]) -> str:
    """Write all values as text, in the order of the table; a metric without any is left out."""
    found = dict(samples)
    lines: list[str] = []
    for name, family in families.items():
        values = found.pop(name, ())
        if values:
            lines += _head(family)
            for labels, value in values:
                lines += _lines(family, labels, value)
    assert not found, found.keys()  # noqa: S101 - every metric stands in the table
    return "\n".join(lines) + "\n"


def _head(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"


def _lines(family: Family, labels: tuple[str, ...], value: float | Histogram) -> Iterator[str]:
    pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(family.labels, labels, strict=True)]
    if not isinstance(value, Histogram):
        yield f"{family.name}{_braced(pairs)} {_number(value)}"
        return
    total = 0
    for bound, total in value.cumulative():
        le = "+Inf" if bound == float("inf") else _number(bound)
        bucket = _braced([*pairs, f'le="{le}"'])
        yield f"{family.name}_bucket{bucket} {total}"
    yield f"{family.name}_sum{_braced(pairs)} {_number(value.sum)}"
    yield f"{family.name}_count{_braced(pairs)} {total}"


def _braced(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return escaped(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Who may ask for it on this machine's loopback address.


def refusal(method: str, path: str, host: str | None) -> tuple[int, str, tuple[tuple[bytes, bytes], ...]] | None:
    """Return status, words and headers where a request is not for the metrics.

    The host that a request names has to be this machine: a web page, opened on it, must not read the metrics by a name
    of its own that leads here.
    """
    if host is not None and not _is_here(host):
        return 421, "call this listener by its loopback address, as in http://127.0.0.1:9464/metrics", ()
    if path != "/metrics":
        return 404, "there is nothing here but /metrics", ()
    if method != "GET":
        return 405, "only GET is possible", ((b"allow", b"GET"),)
    return None


def _is_here(host: str) -> bool:
    """Whether a Host header names this machine: a loopback address or localhost, with any port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
