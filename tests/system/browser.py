"""Chromium without a window: what a page looks like on a screen and on paper, and that it asks no server for anything.

It needs Debian's `chromium`; `pdfinfo` (poppler-utils) counts the pages of what is printed.
"""

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

#: seconds: far above what a page takes.
PATIENCE = 120.0
#: Colours that a page with charts and text has at the least; a blank one has one.
COLOURS = 8

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-pdf-header-footer",
    # No name that a page asks for is found; what it asked for is in the log of the network.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--log-level=0",
)
#: A line of the page's console in Chromium's log: `[...:INFO:CONSOLE(12)] "text", source: file:///...`.
_CONSOLE = re.compile(r"CONSOLE[^\]]*\] (.*)")
#: What a page fetches by itself. A link is not fetched until a person follows it.
_FETCHING = re.compile(
    r"""<(?:script|link|img|iframe|object|embed|audio|video|source|base)\b|\bsrc(?:set)?\s*=|@import|url\((?!\#|["']?\#)""",
    re.IGNORECASE,
)


class BrowserMissing(Exception):
    """There is no Chromium here."""


class PageFault(AssertionError):
    """The page is not as it has to be."""


def screenshot(page: Path, png: Path, *, width: int, height: int, dark: bool = False) -> None:
    """Write what a window of that size shows of the page. Raise PageFault or BrowserMissing."""
    flags = ("--force-dark-mode",) if dark else ()
    _run(page, *flags, f"--screenshot={png.absolute()}", f"--window-size={width},{height}")
    if not png.exists():
        raise PageFault(f"Chromium wrote no screenshot of {page}")


def pdf(page: Path, pdf_path: Path) -> None:
    """Write what a printer would get of the page. Raise PageFault or BrowserMissing."""
    _run(page, f"--print-to-pdf={pdf_path.absolute()}")
    if not pdf_path.exists():
        raise PageFault(f"Chromium printed nothing of {page}")


def check_report(html: Path, work: Path) -> None:
    """Check a page of `posd report`: it stands alone, is quiet, shows something, and prints. `work` keeps the pictures.

    Raise PageFault with what is wrong, or BrowserMissing.
    """
    found = _FETCHING.search(html.read_text(encoding="utf-8"))
    if found:
        raise PageFault(f"{html} would fetch something: {found.group()}")
    for name, dark in (("light", False), ("dark", True)):
        picture = work / f"{html.stem}-{name}.png"
        screenshot(html, picture, width=1280, height=1800, dark=dark)
        seen = colours(picture.read_bytes())
        if len(seen) < COLOURS:
            raise PageFault(f"{picture} has only {len(seen)} colours: it is blank")
    printed = work / f"{html.stem}.pdf"
    pdf(html, printed)
    if not printed.read_bytes().startswith(b"%PDF-"):
        raise PageFault(f"{printed} is no PDF")
    if shutil.which("pdfinfo"):
        said = subprocess.run(["pdfinfo", printed], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
        pages = re.search(r"^Pages:\s+(\d+)", said, re.MULTILINE)
        if pages is None or int(pages.group(1)) < 1:
            raise PageFault(f"{printed} has no page")


def _run(page: Path, *flags: str) -> None:
    """Open a page; nothing may be said on its console, and nothing asked of the network for it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise BrowserMissing("there is no chromium: apt-get install chromium")
    with TemporaryDirectory(prefix="browser-") as home:
        log = Path(home) / "net.json"
        done = subprocess.run(
            [
                browser,
                *_FLAGS,
                f"--user-data-dir={home}/profile",
                f"--log-net-log={log}",
                *flags,
                page.resolve().as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            raise PageFault(f"Chromium ended with {done.returncode}: {done.stderr[-2000:]}")
        said = _CONSOLE.findall(done.stderr)
        if said:
            raise PageFault(f"the console of {page} says: {'; '.join(said)}")
        asked = _asked(log)
        if asked:
            raise PageFault(f"{page} asked the network for {', '.join(sorted(asked))}")


def _asked(log: Path) -> set[str]:
    """Return the addresses that were asked for, by the log of the network; those of the browser itself left out."""
    text = log.read_text(encoding="utf-8")
    try:
        events = json.loads(text)["events"]
    except ValueError:  # ended before it could close the list
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    found = set()
    for event in events:
        params = event.get("params") or {}
        address = str(params.get("url", ""))
        if (
            address.startswith(("http:", "https:", "ws:", "wss:"))
            and params.get("initiator", "not an origin") != "not an origin"
        ):
            found.add(address)
    return found


def colours(png: bytes) -> set[bytes]:
    """Return the colours of a PNG of 8 bits a channel without interlacing, as Chromium writes it."""
    position, data, header = 8, b"", b""
    while position < len(png):
        length = int.from_bytes(png[position : position + 4], "big")
        kind, content = png[position + 4 : position + 8], png[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            header = content
        elif kind == b"IDAT":
            data += content
        position += 12 + length
    width, depth, channels = int.from_bytes(header[:4], "big"), header[8], {2: 3, 6: 4}[header[9]]
    if depth != 8 or header[12]:
        raise PageFault("a PNG of another kind than Chromium's")
    raw, stride = zlib.decompress(data), width * channels
    before, found = bytes(stride), set()
    for start in range(0, len(raw), stride + 1):
        before = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels)
        found.update(before[place : place + 3] for place in range(0, stride, channels))
    return found


def _unfiltered(kind: int, line: bytearray, above: bytes, size: int) -> bytes:
    """Undo the filter of a line (PNG, 9.2)."""
    if kind == 2:
        return bytes((here + up) & 255 for here, up in zip(line, above, strict=True))
    for place in range(len(line)) if kind else ():
        left = line[place - size] if place >= size else 0
        up, corner = above[place], above[place - size] if place >= size else 0
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) // 2
        else:
            near = left + up - corner
            guess = min((abs(near - left), 0, left), (abs(near - up), 1, up), (abs(near - corner), 2, corner))[2]
        line[place] = (line[place] + guess) & 255
    return bytes(line)
