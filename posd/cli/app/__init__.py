"""What all commands share: options, output, errors, exit codes, the call to the daemon, waiting."""
