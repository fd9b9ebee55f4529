"""What the simulator refuses before it runs."""


class SettingsError(ValueError):
    """Something in the settings cannot be; the message says what, why and what to do."""
