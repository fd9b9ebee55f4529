"""Where bytecode must not lie beside its source, that of all tests lies in a folder that is kept from run to run."""

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:  # else each of a thousand processes compiles posd and its libraries anew
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
