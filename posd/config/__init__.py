"""The configuration: `load` reads the file, checks everything in it at once, and gives the values in force."""

from posd.config.reader import examine, load, parse
from posd.config.schema import Config, Source, TerminalConfig, TerminalDefaults
from posd.config.values import ConfigError, ConfigProblem, HeaderError, HeaderValue, ListenAddress

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "HeaderError",
    "HeaderValue",
    "ListenAddress",
    "Source",
    "TerminalConfig",
    "TerminalDefaults",
    "examine",
    "load",
    "parse",
]
