"""Copy of the last configuration that worked, for a start with a mistake in its files.

It is used only for the same file, and only with a state folder from the service manager.
"""

import os
from pathlib import Path

import msgspec

from posd.base import files
from posd.config.layers import Layers
from posd.config.reader import whole
from posd.config.schema import Config
from posd.config.values import ConfigError

#: Name of the copy in the state folder. It holds the secrets in the configuration.
NAME = "config.last"


class KeptFiles(msgspec.Struct, frozen=True):
    """Texts of the files in their order; `first` is the one that `--config` names."""

    first: str
    texts: dict[str, str]


def keep(config: Config) -> None:
    """Store a configuration in force, as its files were when they were read. Raise OSError."""
    if (place := _place()) is not None:
        texts = {str(layer.file): layer.text for layer in config.layers.files}
        files.replace(place, msgspec.json.encode(KeptFiles(str(config.layers.first), texts)))


def recall(path: Path) -> Config | None:
    """Return the stored copy of a configuration file; None if the file was removed or the copy is unusable."""
    place = _place()
    if place is None or not path.exists():
        return None
    try:
        kept = msgspec.json.decode(place.read_bytes(), type=KeptFiles)
        layers = Layers(path.absolute())
        for file, text in kept.texts.items():
            layers.add(Path(file), text)
        return whole(layers) if kept.first == str(layers.first) else None
    except (OSError, msgspec.DecodeError, ConfigError):
        return None


def _place() -> Path | None:
    folder = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder, NAME) if folder else None
