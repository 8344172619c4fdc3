"""One setting as flags, config files, environment and the TUI see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import brief


@dataclass(frozen=True, slots=True)
class Knob:
    """Its names, what it accepts and what it means; see knobs.KNOBS for all of them."""

    name: str  # the field's
    kind: Literal["int", "float", "str", "bool", "choice", "list", "ids", "map"]
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    unset: str = ""  # what None means; empty when None is not allowed, nor an empty text
    words: tuple[str, ...] = ()  # what a whole number may be instead; ".toml": such a file
    words_mean: str = ""  # help on those, which few grids take
    label: str = ""  # its name in the app; empty: the app does not show it

    @property
    def key(self) -> str:
        """Its spelling in a config file."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def env(self) -> str:
        return f"MAGICDEC_{self.name.upper()}"

    @property
    def expects(self) -> str:
        """What a value must be, for messages."""
        match self.kind:
            case "int":
                also = [f"a {w} file" if w.startswith(".") else w for w in self.words]
                number = f"an integer in {self.low}..{self.high}"
                return ", ".join([number, *also[:-1]]) + (f" or {also[-1]}" if also else "")
            case "float":
                return f"a number in {self.low:g}..{self.high:.12g}"
            case "choice":
                return "one of " + ", ".join(self.choices)
            case "bool":
                return "true or false"
            case "map":
                return "KEY=VALUE"
            case "list":
                return "a list of texts"
            case "ids":
                return f"a token's number in {self.low}..{self.high:.12g}, or a list of them"
            case "str":
                return "a text" if self.unset else "a text that is not empty"

    def parse(self, text: str, source: str) -> Any:
        """The value of one flag or environment variable. Raises ConfigError naming `source`."""
        try:
            match self.kind:
                case "int":
                    return text if self.is_word(text) else self.check(int(text), source)
                case "float":
                    return self.check(float(text), source)
                case "bool":
                    words = {"1": True, "true": True, "yes": True, "on": True}
                    words |= {"0": False, "false": False, "no": False, "off": False}
                    return words[text.strip().lower()]
                case "list":
                    return (text,)
                case "ids":
                    return self.check(int(text), source)
                case "map":
                    key, equals, value = text.partition("=")
                    if not (equals and key.strip()):
                        raise ValueError
                    return {key.strip().replace("-", "_"): value.strip()}
                case "choice" | "str":
                    return self.check(text, source)
        except (KeyError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise self._error(text, source) from None

    def check(self, value: object, source: str) -> Any:
        """A typed value, as TOML gives it. Raises ConfigError naming `source`."""
        match self.kind, value:
            case ("bool", bool()):
                return value
            case ("int", int() as number) if not isinstance(value, bool) and self._fits(number):
                return number
            case ("int", str()) if self.is_word(value):
                return value
            case ("float", int() | float() as real) if not isinstance(value, bool) and self._fits(
                real
            ):
                return float(real)
            case ("choice", str()) if value in self.choices:
                return value
            case ("str", str()) if self.unset or value.strip():
                return value
            case ("list", str()):
                return (value,)
            case ("list", list()) if all(isinstance(item, str) for item in value):
                return tuple(value)
            case ("ids", int()) if not isinstance(value, bool) and self._fits(value):
                return (value,)
            case ("ids", list()):
                return tuple(number for item in value for number in self.check(item, source))
            case ("map", dict()):
                return {str(key).replace("-", "_"): item for key, item in value.items()}
        raise self._error(value, source)

    def is_word(self, text: str) -> bool:
        return any(
            text.endswith(word) if word.startswith(".") else text == word for word in self.words
        )

    def _fits(self, number: float) -> bool:
        return (self.low is None or number >= self.low) and (
            self.high is None or number <= self.high
        )

    def _error(self, value: object, source: str) -> ConfigError:
        return ConfigError(f"{source} must be {self.expects}, got {brief(value)}")
