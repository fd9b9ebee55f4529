"""Shared parts of all commands: options, output, errors, exit codes, the connection to the daemon, waiting."""
