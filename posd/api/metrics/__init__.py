"""Metrics in Prometheus' text format: `families` is the table of all, `sources` says where the values come from."""
