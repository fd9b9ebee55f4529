"""The HTML report of a simulated day, shown and printed by headless Chromium."""

import subprocess
import sys
from pathlib import Path

from tests.support.counter import Counter
from tests.system.browser import check_report


def check_page(directory: Path) -> str:
    """Play a day, write its page, and hold what a browser makes of it; return where the pictures are."""
    page, home = directory / "report.html", directory / "shop"
    home.mkdir()
    with Counter(home, terminals=2) as shop:
        for amount, scenario in ((11.2, "approve-contactless"), (25, "approve-chip-pin"), (7, "decline")):
            for serial in ("SN-0001", "SN-0002"):
                shop.ended(shop.charge(amount, serial, scenario=scenario))
        command = [sys.executable, "-m", "posd", "--socket", str(shop.socket), "report"]
        command += ["--html", str(page), "--timezone", "America/Guayaquil"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    check_report(page, directory)
    return f"{page.stat().st_size} bytes, on a screen in light and dark, and on paper"
