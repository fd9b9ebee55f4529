"""Configuration: `load` reads the configuration files, checks all values, and returns the configuration."""

from posd.config.reader import examine, load, parse
from posd.config.schema import Config, Pin, Source, TerminalConfig, TerminalDefaults
from posd.config.values import ConfigError, ConfigProblem, HeaderValue, ListenAddress

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
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
