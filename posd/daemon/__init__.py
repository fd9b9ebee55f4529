"""The process: built, started, watched, reloaded, stopped. Only this package wires the parts together."""
