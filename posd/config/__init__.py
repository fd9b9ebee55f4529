"""Configuration: `load` reads its files, checks all values at once, and returns the configuration in force."""

from posd.config.reader import examine, load, parse
from posd.config.schema import Config, Pin, Source, TerminalConfig, TerminalDefaults
from posd.config.values import ConfigError, ConfigProblem, HeaderError, HeaderValue, ListenAddress

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "HeaderError",
    "HeaderValue",
    "ListenAddress",
    "Pin",
    "Source",
    "TerminalConfig",
    "TerminalDefaults",
    "examine",
    "load",
    "parse",
]
