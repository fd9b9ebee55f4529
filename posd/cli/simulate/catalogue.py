"""`posd simulate --list` and `--show`: the catalogue of scenarios."""

import click
import msgspec

from posd.cli.app.output import Output
from posd.simulator.catalogue import payments
from posd.simulator.catalogue import text as payment_text
from posd.simulator.control_documents import listed_scenarios
from posd.simulator.print_catalogue import CHOICE, prints
from posd.simulator.print_catalogue import text as print_text


def show_list(*, as_json: bool) -> None:
    """Print the catalogue: a table, lines separated by tabs in a pipe, or JSON."""
    output = Output(as_json=as_json)
    scenarios = listed_scenarios()
    if as_json:
        output.json(msgspec.json.encode(scenarios))
        return
    output.table(
        ("name", "amount", "what happens", "when, in a real shop"),
        (
            (
                item["name"] if item["kind"] == "payment" else f"{CHOICE}{item['name']}",
                item["amount"] or "",
                item["summary"],
                item["when"],
            )
            for item in scenarios
        ),
        whole="name",
    )


def show_file(name: str) -> None:
    """Print the file of a scenario as it ships; of a print scenario where its name begins so."""
    plain = name.removeprefix(CHOICE)
    names, text = (prints(), print_text) if name.startswith(CHOICE) else (payments(), payment_text)
    if plain not in names:
        raise click.BadParameter(f"there is no scenario {name}; posd simulate --list shows them", param_hint="--show")
    click.echo(text(plain), nl=False)
