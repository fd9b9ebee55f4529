"""A real daemon and a scripted terminal for the client's tests."""

from tests.e2e.conftest import home, identity, posd, terminal

__all__ = ["home", "identity", "posd", "terminal"]
