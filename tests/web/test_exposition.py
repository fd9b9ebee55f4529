"""Metrics as posd writes them, and a strict reader. The reader accepts the metrics and refuses invalid text."""

from collections.abc import Mapping

import pytest

from posd.base.exposition import Family, Histogram, render
from posd.collect import collector
from posd.daemon.metrics import FAMILIES
from posd.relay import relay
from tests.rig.exposition import read


def test_histograms_are_cumulative_and_end_with_the_count() -> None:
    meter = Histogram((0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 10.0, 11):
        meter.observe(value)
    assert list(meter.cumulative()) == [(0.1, 2), (1, 3), (10, 4), (float("inf"), 5)]
    text = render(FAMILIES, iter([("posd_storage_commit_seconds", meter)]))
    samples = read(text)["posd_storage_commit_seconds"].samples
    assert samples["posd_storage_commit_seconds_bucket", (("le", "0.1"),)] == 2
    assert samples["posd_storage_commit_seconds_bucket", (("le", "+Inf"),)] == 5
    assert samples["posd_storage_commit_seconds_count", ()] == 5
    assert samples["posd_storage_commit_seconds_sum", ()] == pytest.approx(21.65)


def test_labels_are_escaped_and_numbers_are_exact_and_missing_values_are_left_out() -> None:
    samples = {'a"b\\c\nd': 1.5, "plain": 1_700_000_000_123}
    without = [("posd_connections", {}), ("posd_disk_free_bytes", None)]
    text = render(FAMILIES, iter([("posd_terminal_reachable", samples), *without]))
    assert 'posd_terminal_reachable{terminal="a\\"b\\\\c\\nd"} 1.5\n' in text
    assert 'posd_terminal_reachable{terminal="plain"} 1700000000123\n' in text
    assert set(read(text)) == {"posd_terminal_reachable"}


@pytest.mark.parametrize("families", [FAMILIES, relay.FAMILIES, collector.FAMILIES])
def test_names_follow_the_conventions(families: Mapping[str, Family]) -> None:
    for name, family in families.items():
        assert (family.kind == "counter") == name.endswith("_total"), name
        assert name.startswith("posd_"), name
        assert not {"le", "quantile"} & set(family.labels), name
        assert family.help.endswith("."), name
        assert "\n" not in family.help, name


GOOD = "# HELP a_total x\n# TYPE a_total counter\na_total 1\n"
BUCKETS = '# HELP h x\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="+Inf"} 2\nh_sum 3\nh_count 2\n'


@pytest.mark.parametrize(
    "text",
    [
        GOOD.rstrip("\n"),
        GOOD + GOOD,
        GOOD + "a_total 2\n",
        "# TYPE a_total counter\na_total 1\n",
        GOOD.replace("counter", "gauge"),
        GOOD.replace("a_total 1", "a_total -1"),
        GOOD.replace("a_total 1", 'a_total{b="1",} 1'),
        GOOD.replace("a_total 1", 'a_total{b="1",b="2"} 1'),
        GOOD + 'a_total{b="2"} 1\n',
        BUCKETS.replace("1\n", "3\n", 1),
        BUCKETS.replace("+Inf", "2"),
        BUCKETS.replace("h_count 2", "h_count 3"),
        BUCKETS.replace("h_sum 3\n", ""),
        BUCKETS.replace('le="1"} 1\n', 'le="2"} 0\nh_bucket{le="1"} 1\n'),
    ],
    ids=str,
)
def test_the_reader_refuses_invalid_text(text: str) -> None:
    read(GOOD)
    read(BUCKETS)
    with pytest.raises(AssertionError):
        read(text)
