"""What payments and print jobs have in common."""

from enum import StrEnum


class Phase(StrEnum):
    """posd's own view of a transaction."""

    STARTING = "starting"
    IN_DOUBT = "in_doubt"
    ACTIVE = "active"
    FINAL = "final"
