"""What the daemon does not load: it is a small machine."""

import subprocess
import sys


def test_the_daemon_loads_nothing_that_only_commands_or_tests_need() -> None:
    script = (
        "import sys; sys.modules['rich'] = None\n"
        "import posd.daemon\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules if sys.modules[name] is not None}))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"click", "cryptography", "rich", "pygments", "hypothesis", "pytest", "trustme"} & set(loaded)
