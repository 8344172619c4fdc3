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


class WrongWeightsError(ModelError):
    """A kept model is not as it was made: nothing that it said counts."""


class NotFiniteError(MagicdecError):
    """A model computes NaN or infinity."""


class OutOfMemoryError(MagicdecError):
    """The run does not fit; the message names the largest batch and context that do."""


def require(ok: bool, message: str) -> None:
    """Raises ConfigError(message) unless `ok`."""
    if not ok:
        raise ConfigError(message)


def require_utf8(text: str, name: str) -> None:
    """Raises ConfigError where a text from the command line or the environment held bytes that are
    not UTF-8: Python lets them through as halves of characters, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise ConfigError(
            f"{name} holds a byte that is not UTF-8, 0x{byte:02x} as character {error.start + 1}; "
            "write it in UTF-8"
        ) from None
