"""What `posd print` reads: a file or standard input, as text or as the document of a terminal, and the id of a job."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from posd.base.uuids import ID_RULE, is_print_job_id
from posd.cli.app.api import decode
from posd.cli.app.context import context
from posd.client.exact import Verbatim
from posd.config import load
from posd.printing.request import MAX_DOCUMENT_BYTES

#: the member of the document that holds a text, where there is no configuration to name it.
TEXT_MEMBER = "text"
#: control characters that a text has; any other is for a printer or a sign that the file is no text.
TEXT_CONTROLS = frozenset("\t\n\r\f")


def job_id(text: str) -> str:
    """Click type: the id of a print job. Raise BadParameter."""
    if not is_print_job_id(text):
        raise click.BadParameter(f"{text!r} is not the id of a print job: it {ID_RULE}")
    return text


def read_document(ctx: click.Context, file: str, *, as_text: bool) -> Any:
    """Return the document that a file (`-`: standard input) makes, to be encoded: a text under its member, or as it is.

    Raise BadParameter where it can be neither, and ConfigError.
    """
    text = _text(_content(file), file)
    if not as_text and text.lstrip().startswith("{"):
        return _json(text, file)
    _check_plain(text, file)
    document = {_text_member(ctx): text}
    _check_size(len(msgspec.json.encode(document)), file)
    return document


def _content(file: str) -> bytes:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise _refused(f"cannot read {_name(file)}: {error.strerror}") from error
    _check_size(len(content), file)
    return content


def _check_size(size: int, file: str) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise _refused(
            f"{_name(file)} is too large: a document has at most {MAX_DOCUMENT_BYTES // 1024} KiB; print it in parts"
        )


def _text(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(
            f"{_name(file)} is not UTF-8 text (byte {error.start}). Text in another encoding can be converted (iconv "
            "-f LATIN1 -t UTF-8); an image or a printer's own commands have to stand in a JSON document, as the "
            "terminal wants them"
        ) from error
    if not text.strip():
        raise _refused(f"{_name(file)} is empty: there is nothing to print")
    return text


def _check_plain(text: str, file: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        found = next((char for char in line if not char.isprintable() and _steers(char)), None)
        if found is not None:
            raise _refused(
                f"{_name(file)} is not plain text: line {number} has the control character 0x{ord(found):02x}. What "
                "steers a printer has to stand in a JSON document, as the terminal wants it"
            )


def _steers(char: str) -> bool:
    return (char < " " or "\x7f" <= char <= "\x9f") and char not in TEXT_CONTROLS


def _json(text: str, file: str) -> Verbatim:
    try:
        document = decode(text)
    except (ValueError, RecursionError) as error:
        raise _refused(
            f"{_name(file)} begins like a JSON object and is none ({error}). Mend it, or say --text to print it as text"
        ) from error
    if not document:
        raise _refused(f"{_name(file)} is an empty JSON object: there is nothing to print")
    return Verbatim(text)


def _text_member(ctx: click.Context) -> str:
    # Who names the socket need not have a configuration; one that is there has to be right.
    if context(ctx).socket_path and not Path(context(ctx).config_path).exists():
        return TEXT_MEMBER
    return load(Path(context(ctx).config_path), check_files=False).print_.text_member


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="FILE")
