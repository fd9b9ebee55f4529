"""Words that start Python as another user of this machine, for `interpreter` of a fork."""

import functools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.rig.needs import lacking

#: A Python that all users may read, with the packages.
PYTHON = sys.executable if Path(os.__file__).is_relative_to("/usr") else "/usr/bin/python3"
PACKAGES = os.pathsep.join((str(Path(__file__).parents[2]), sysconfig.get_path("purelib")))
AS_ROOT = ("env", f"PYTHONPATH={PACKAGES}", PYTHON)


@functools.cache
def as_user(uid: int) -> tuple[str, ...]:
    """Return the words for a user without groups. Skip the test if this machine cannot run posd as this user."""
    words = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *AS_ROOT)
    if missing := lacking("setpriv", root=True):
        pytest.skip(missing)
    program = f"import sys, posd, httpx2; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    if subprocess.run([*words, "-c", program], check=False, capture_output=True).returncode:
        pytest.skip("needs posd and its Python where all users may read them")
    return words
