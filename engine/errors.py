"""What can go wrong for a user, and the exit code the command line gives it.

Every message is one line: the cause with the offending value, then the next thing to try.
"""

from __future__ import annotations


class MagicdecError(Exception):
    """A failure that a user can act on."""

    exit_code = 1  # the run failed


class ConfigError(MagicdecError, ValueError):
    """A setting, option or document that cannot be used as given."""

    exit_code = 2


class ModelError(MagicdecError):
    """A model or device that is unavailable, unsupported or damaged."""

    exit_code = 3


class PluginError(MagicdecError):
    """A plug-in, a stranger's code, has failed or broken its contract."""


class AlteredError(MagicdecError):
    """A plug-in wrote where it may only read, so that the text is not plain decoding's."""

    exit_code = 4


class OutOfMemoryError(MagicdecError):
    """The run does not fit; the message names the largest batch and context that do."""


def require(ok: bool, message: str) -> None:
    """Raises ConfigError(message) unless `ok`."""
    if not ok:
        raise ConfigError(message)
