"""posd stores the configuration that it has read, even if the files have changed."""

from pathlib import Path

import pytest

from posd.config import load
from posd.daemon import reload


def test_the_read_configuration_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    file = tmp_path / "config.toml"
    file.write_text('[logging]\nlevel = "debug"\n')
    config = load(file)
    for later in ("[nonsense]\n", '[logging]\nlevel = "error"\n'):
        file.write_text(later)
        reload.store_copy(config)
        again = reload.recall_copy(file)
        assert again is not None
        assert again.logging.level == "debug"
