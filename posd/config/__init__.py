"""The configuration: `load` reads the file, checks everything in it at once, and gives the values in force."""

from posd.config.headers import HeaderError, HeaderValue
from posd.config.problems import ConfigError, ConfigProblem
from posd.config.reader import examine, load, parse
from posd.config.schema import Config, Source, TerminalConfig, TerminalDefaults
from posd.config.values import ListenAddress

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
