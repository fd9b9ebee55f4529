"""Paths of a daemon's files in its directory."""

from pathlib import Path


class Home:
    """A directory with all files of a daemon."""

    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "state" / "tls" / "ca.crt"

    @property
    def till_socket(self) -> Path:
        return self.directory / "run" / "till.sock"

    @property
    def admin_socket(self) -> Path:
        return self.directory / "run" / "admin.sock"

    @property
    def database(self) -> Path:
        return self.directory / "state" / "posd.db"

    @property
    def key(self) -> Path:
        """The key of all callback tokens."""
        return self.directory / "state" / "callback.key"

    @property
    def config_file(self) -> Path:
        return self.directory / "config.toml"
