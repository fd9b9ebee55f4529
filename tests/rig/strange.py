"""Texts that a stranger may write. Checks of output that contains these texts.

Each text contains a possible beginning of a new line, a cell, a formula, a tag or an assignment, and then a word. If a
line or a cell of the output begins with this word, it was forged.
"""

import re
from collections.abc import Mapping

#: Word in each of the texts. No line or cell of the output may begin with this word.
FORGED = "FORGED"

#: Kind -> text. Each text can be a JSON string and an argument. Tests that need other texts make their own.
STRANGE: Mapping[str, str] = {
    "line feed": f"x\n{FORGED}",
    "carriage return": f"x\r{FORGED}",
    "carriage return and line feed": f"x\r\n{FORGED}",
    "blank lines": f"x\n\n\n{FORGED}",
    "vertical tab": f"x\v{FORGED}",
    "form feed": f"x\f{FORGED}",
    "separators of files and records": f"x\x1c{FORGED}\x1d{FORGED}\x1e{FORGED}",
    "next line": f"x\x85{FORGED}",
    "line separator": f"x\u2028{FORGED}",
    "paragraph separator": f"x\u2029{FORGED}",
    "tab": f"x\t{FORGED}",
    "wipe the screen": f"x\x1b[2J\x1b[1;1H{FORGED}",
    "title of the window": f"x\x1b]0;{FORGED}\x07",
    "a link with a false text": f"x\x1b]8;;http://a/\x1b\\{FORGED}\x1b]8;;\x1b\\",
    "control sequence in one byte": f"x\x9b2J\x9d0;{FORGED}\x9c",
    "backspaces": f"declined\b\b\b\b\b\b\b\b{FORGED}",
    "null and delete": f"x\x00\x7f{FORGED}",
    "direction overridden": f"x\u202e{FORGED[::-1]}\u202c",
    "direction isolated": f"x\u2066\u2067\u2068{FORGED}\u2069\u200e\u200f\u061c",
    "invisible characters": f"x\u200b\u200c\u200d\u2060\ufeff\u00ad{FORGED}",
    "invisible tags": f"x\U000e0041\U000e007f{FORGED}",
    "characters without a meaning": f"x\ue000\uffff\U0010fffe{FORGED}",
    "formula": f'=HYPERLINK("http://a/";"{FORGED}")',
    "formula with plus": f"+{FORGED}",
    "formula with minus": f"-{FORGED}",
    "formula with at": f"@{FORGED}",
    "formula after a space": f"  ={FORGED}",
    "formula in wide letters": f"\N{FULLWIDTH EQUALS SIGN}{FORGED}",
    "formula in the next cell": f"x;={FORGED}",
    "formula in the next cell, quoted": f'x;"={FORGED}',
    "formula after a comma": f'x",={FORGED}',
    "command of an old spreadsheet": f"=cmd|'/C {FORGED}'!A0",
    "script": f"<script>{FORGED}</script>",
    "attribute": f"\"'><img src=x onerror={FORGED}>",
    "entity": f"&lt;script&gt;{FORGED}",
    "template": "{{ 7 * 191 }}{% raw %}",
    "markup of the tables": f"[bold]{FORGED}[/bold][link=http://a/]x[/link] :smile:",
    "label of a metric": f'"}} 1\nposd_{FORGED} 1',
    "assignment of the service manager": f"x\nREADY=1\nSTATUS={FORGED}",
    "level of the journal": f"x\n<0>{FORGED}",
    "field of a log line": f'","event":"{FORGED}","x":"',
    "template of Python": "{0} {id} {__class__} %s %(x)s",
    "wide letters": "\N{CJK UNIFIED IDEOGRAPH-5B57}\N{CJK UNIFIED IDEOGRAPH-6587}\N{FULLWIDTH LATIN CAPITAL LETTER A}",
    "combining marks": "e\u0301\u0302\u0303a\u20dd\ufe0f",
    "accents": "Caf\u00e9 a\u00f1o \u20ac",
}

#: All texts, joined to one text.
ALL = " | ".join(STRANGE.values())

#: posd's own control sequences: colours, and sequences that draw a line again.
OWN_SEQUENCE = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)")


def assert_lines(written: str, *, tabs: bool = False) -> None:
    """Assert that all lines of the output are printable, and that no stranger's text begins a line. With `tabs`, tabs
    separate cells, and no stranger's text begins a cell.
    """
    for line in written.split("\n"):
        cells = line.split("\t") if tabs else [line]
        for cell in cells:
            bad = [char for char in cell if not char.isprintable()]
            assert not bad, f"{bad!r} in {cell!r}"
            assert not cell.strip(" |\u2502").startswith((FORGED, f"posd_{FORGED}", "READY=", "<0>")), (
                f"forged: {line!r}"
            )


def assert_screen(written: str) -> None:
    """Assert that line ends and posd's own sequences are the only control characters in the output to a screen."""
    bad = [char for char in OWN_SEQUENCE.sub("", written) if not char.isprintable() and char not in "\r\n"]
    assert not bad, f"{bad!r} in {written!r}"
