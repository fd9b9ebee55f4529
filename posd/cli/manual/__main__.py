"""Writing the manual: `python -m posd.cli.manual --man DIR --markdown FILE`."""

from pathlib import Path

import click

from posd.cli.manual import configuration
from posd.cli.manual.markdown import markdown
from posd.cli.manual.pages import pages
from posd.cli.manual.roff import man_page


@click.command()
@click.option("--man", type=click.Path(path_type=Path), metavar="DIR", help="Write man pages to DIR/man1 and DIR/man5.")
@click.option("--markdown", "reference", type=click.Path(path_type=Path), metavar="FILE", help="Write commands.md.")
@click.option(
    "--config-example",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=configuration.example_file,
    show_default="that of the source tree",
    metavar="FILE",
    help="The commented example from which posd.toml(5) is made.",
)
def write(man: Path | None, reference: Path | None, config_example: Path) -> None:
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
        example = configuration.man_page(config_example.read_text(encoding="utf-8"))
        (man / "man5" / "posd.toml.5").write_text(example, encoding="utf-8")


if __name__ == "__main__":
    write(prog_name="python -m posd.cli.manual")
