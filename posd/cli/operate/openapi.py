"""`posd openapi`: the description of the local API."""

import click


@click.command()
def openapi() -> None:
    """Print the description of the local API, an OpenAPI 3.1 document: for whoever makes a client by it.

    It asks no daemon, and is the same whatever the configuration says. A daemon gives it at GET /v1/openapi.json.
    """
    from posd.api.openapi import document

    click.echo(document())
