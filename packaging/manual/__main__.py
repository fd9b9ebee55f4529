"""Writing the manual: `PYTHONPATH=packaging python -m manual --man DIR --markdown FILE`."""

from pathlib import Path

import click

from manual import configuration
from manual.markdown import markdown
from manual.pages import pages
from manual.roff import man_page


@click.command()
@click.option("--man", type=click.Path(path_type=Path), metavar="DIR", help="Write man pages to DIR/man1 and DIR/man5.")
@click.option("--markdown", "reference", type=click.Path(path_type=Path), metavar="FILE", help="Write commands.md.")
def write(man: Path | None, reference: Path | None) -> None:
    """Write the manual of every command: man pages, and docs/commands.md."""
    if not (man or reference):
        raise click.UsageError("say what to write: --man DIR, --markdown FILE, or both")
    if reference:
        reference.write_text(markdown(pages()), encoding="utf-8")
    if man:
        for section in ("man1", "man5"):
            (man / section).mkdir(parents=True, exist_ok=True)
        for page in pages():
            (man / "man1" / f"{page.name}.1").write_text(man_page(page), encoding="utf-8")
        example = configuration.man_page(configuration.EXAMPLE.read_text(encoding="utf-8"))
        (man / "man5" / "posd.toml.5").write_text(example, encoding="utf-8")


if __name__ == "__main__":
    write(prog_name="PYTHONPATH=packaging python -m manual")
