"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# Whether an example comes quickly says something about the machine, not about posd.
settings.register_profile("posd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("posd")
