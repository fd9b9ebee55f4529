"""A strict parser of Prometheus' text format 0.0.4. Every scraper accepts the texts that this parser accepts."""

import re
from dataclasses import dataclass, field

_NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
#: The two comments of a metric, and its samples.
BLOCK = re.compile(rf"# HELP ({_NAME}) (.+)\n# TYPE \1 (counter|gauge|histogram)\n((?:[^#].*\n)+)")
SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
LABELS = re.compile(rf"({LABEL.pattern}(,(?!$)|$))*")

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """A metric with its two comments and its samples. `samples`: (name, labels) -> value."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        return {name for _, pairs in self.samples for name, _ in pairs if name != "le"}


def read(text: str) -> dict[str, Family]:
    """Parse an exposition. Raise AssertionError if any part is wrong."""
    families: dict[str, Family] = {}
    left = BLOCK.sub("", text)
    assert not left, f"this is not a metric with HELP, TYPE and samples: {left!r}"
    for name, told, kind, lines in BLOCK.findall(text):
        assert name not in families, f"{name} appears twice"
        family = families[name] = Family(kind, told)
        allowed = {f"{name}{end}" for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
        for line in lines.splitlines():
            sample = SAMPLE.fullmatch(line)
            assert sample, f"the line is not a sample: {line!r}"
            assert sample[1] in allowed, f"{line} is in the block of {name}"
            key = sample[1], _labels(sample[2] or "")
            assert key not in family.samples, f"{line} appears twice"
            family.samples[key] = float(sample[3])
        _check(name, family)
    return families


def _labels(text: str) -> Labels:
    assert LABELS.fullmatch(text), f"the text is not a list of labels: {text!r}"
    pairs = LABEL.findall(text)
    assert len({name for name, _ in pairs}) == len(pairs), f"a label appears twice: {text!r}"
    return tuple(pairs)


def _check(name: str, family: Family) -> None:
    assert (family.kind == "counter") == name.endswith("_total"), f"{name} has the unknown type {family.kind}"
    assert len({frozenset(dict(pairs)) - {"le"} for _, pairs in family.samples}) == 1, (
        f"the samples of {name} differ in the names of their labels"
    )
    if family.kind == "counter":
        assert min(family.samples.values()) >= 0, f"{name} has a negative value"
    if family.kind == "histogram":
        _check_histogram(name, family)


def _check_histogram(name: str, family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, pairs), value in family.samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(pair for pair in pairs if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(pairs)["le"]), value))
    for rest, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds)), f"{name}{rest}: the values of le do not ascend"
        assert bounds[-1] == float("inf"), f"{name}{rest} has no +Inf"
        assert list(counts) == sorted(counts), f"{name}{rest} is not cumulative"
        assert counts[-1] == family.samples[f"{name}_count", rest], (
            f"{name}{rest}: the bucket +Inf differs from the count"
        )
        assert (f"{name}_sum", rest) in family.samples, f"{name}{rest} has no sum"
