"""The description of the local API, held against the daemon that serves it and against what was promised before."""
