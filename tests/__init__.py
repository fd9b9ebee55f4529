"""If Python may not write bytecode beside its source, Python writes it to a folder that is kept from run to run."""

import os
import sys
from pathlib import Path

if (
    sys.dont_write_bytecode
):  # without the folder each of a thousand processes would compile posd and its libraries again
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
