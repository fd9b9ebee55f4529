"""Fixtures of the tests of a full disk and of a power loss."""

from tests.e2e.conftest import home

__all__ = ["home"]
