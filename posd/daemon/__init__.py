"""Process of the daemon: construction, start, supervision, reload and stop. Only this package connects the parts."""
