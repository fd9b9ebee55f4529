"""`posd abort`: asking the terminal to give up what it runs."""

import uuid

import click

from posd.cli.app.connection import connect, id_argument, json_option
from posd.cli.app.output import Output


@click.command()
@id_argument
@json_option
@click.pass_context
def abort(ctx: click.Context, output: Output, transaction_id: uuid.UUID) -> None:
    """Ask the terminal to abort a payment.

    An abort is a request: the customer may have been faster, so the outcome still has to be awaited.
    """
    with connect(ctx) as api:
        reply = api.post(f"/transactions/{transaction_id}/abort")
    if output.as_json:
        output.json(reply.raw)
    output.line("The terminal was asked to abort. It may still approve: wait for the outcome.")
    output.line(f"its outcome: posd await {transaction_id}")
