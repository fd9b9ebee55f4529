"""Prometheus' text exposition format, version 0.0.4."""

from collections.abc import Iterator, Sequence

from posd.api.metrics.families import FAMILIES, Family
from posd.base.meters import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: One value of a metric: the values of its labels in their order, and the number or the histogram.
Sample = tuple[tuple[str, ...], float | Histogram]
#: Of one metric: its name, and all its values.
Samples = tuple[str, Sequence[Sample]]


def render(samples: Iterator[Samples]) -> str:
    """Write all values as text, in the order of the table; a metric without any is left out."""
    found = dict(samples)
    lines: list[str] = []
    for name, family in FAMILIES.items():
        values = found.pop(name, ())
        if values:
            lines += _head(family)
            for labels, value in values:
                lines += _lines(family, labels, value)
    assert not found, found.keys()  # noqa: S101 - whatever has a value stands in the table
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
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
