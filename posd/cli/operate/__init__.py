"""Commands on the daemon and its database: status, logs, settings, backup, restore, quarantine."""
