"""The process: built, started, watched, reloaded, stopped. The only place that wires the parts together."""
