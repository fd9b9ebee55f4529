"""Parts that all commands share: options, output, errors, exit codes, the connection to the daemon, waiting."""
