"""Command that writes the manual: `PYTHONPATH=packaging python -m manual`, with an option for each output."""

from pathlib import Path

import click

from manual import codes, configuration, logs
from manual.markdown import markdown
from manual.pages import pages
from manual.roff import man_page


@click.command()
@click.option(
    "--man", type=click.Path(path_type=Path), metavar="DIR", help="Write man pages to DIR/man1, man5 and man7."
)
@click.option("--markdown", "reference", type=click.Path(path_type=Path), metavar="FILE", help="Write commands.md.")
@click.option("--codes", "all_codes", type=click.Path(path_type=Path), metavar="FILE", help="Write codes.md.")
@click.option("--logs", "all_logs", type=click.Path(path_type=Path), metavar="FILE", help="Write logs.md.")
def write(man: Path | None, reference: Path | None, all_codes: Path | None, all_logs: Path | None) -> None:
    """Write the manual of every command, code and log event: man pages, commands.md of the site and two pages of
    docs/reference.
    """
    if not (man or reference or all_codes or all_logs):
        raise click.UsageError("name at least one output: --man DIR, --markdown FILE, --codes FILE, --logs FILE")
    if all_logs:
        all_logs.write_text(logs.markdown(), encoding="utf-8")
    if all_codes:
        all_codes.write_text(codes.markdown(), encoding="utf-8")
    if reference:
        reference.write_text(markdown(pages()), encoding="utf-8")
    if man:
        for section in ("man1", "man5", "man7"):
            (man / section).mkdir(parents=True, exist_ok=True)
        for page in pages():
            (man / "man1" / f"{page.name}.1").write_text(man_page(page), encoding="utf-8")
        example = configuration.man_page(configuration.EXAMPLE.read_text(encoding="utf-8"))
        (man / "man7" / "posd-codes.7").write_text(codes.man_page(), encoding="utf-8")
        (man / "man5" / "posd.toml.5").write_text(example, encoding="utf-8")


if __name__ == "__main__":
    write(prog_name="PYTHONPATH=packaging python -m manual")
