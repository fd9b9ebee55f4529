"""The command packaging/nats/lanes, which makes the files of head office's server and of its lanes."""

import subprocess
from pathlib import Path

LANES = Path(__file__).parents[2] / "packaging" / "nats" / "lanes"
SETTINGS = ("--server", "tls://nats.example.org:4222", "--certificate", "/x.pem", "--private-key", "/x.key")


def lanes(output: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([LANES, "--output", output, *arguments], input=text, capture_output=True, text=True)


def made(output: Path, *arguments: str, text: str = "") -> Path:
    done = lanes(output, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return output
