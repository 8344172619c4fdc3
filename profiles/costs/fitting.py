"""Fits the constants of a device to measured passes: bounded least squares on log times.

Logarithms, so that a miss of 5% weighs the same for a short draft step and for a long verify
pass, and a soft loss, so that a few odd timings do not bend the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.errors import ConfigError, require
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import Floats, forward

NOISE = 0.05  # relative, of a timing: what a residual of one stands for
SECONDS = (1e-9, 10.0)
NOTHING = 2e-9  # seconds; the search in logarithms cannot reach 0
EFFICIENCY = (0.005, 1.0)
OVERLAP = (1.0, 6.0)
# What passes of one model on one device can tell: no link, and launch_s looks like a layer more.
SINGLE = ("layer_s", "bandwidth_efficiency", "gemm_efficiency", "attention_efficiency")


@dataclass(frozen=True, slots=True)
class PassSample:
    """One measured forward pass: `rows` rows of `new` tokens that read `entries` tokens each."""

    model: ModelShape
    rows: float
    entries: float
    new: float
    seconds: float
    count: int = 1  # devices
    weight_bytes: float = 2
    kv_bytes: float = 2
    weights: str = "same"  # or the kind of other weights, say "int8"
    compact: bool = False  # a draft step on selected entries


@dataclass(frozen=True, slots=True)
class Prior:
    """What a constant is expected to be; one `sigma` (in the logarithm) off costs as much as a
    timing missed by NOISE."""

    centre: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants, and how far the passes they were fitted to lie from them."""

    constants: Constants
    free: tuple[str, ...]  # names of the fitted ones
    errors: Floats  # predicted ÷ measured − 1, in the order of the samples

    @property
    def mean_error(self) -> float:
        return float(np.mean(np.abs(self.errors)))

    @property
    def p90_error(self) -> float:
        return float(np.quantile(np.abs(self.errors), 0.9))

    @property
    def bias(self) -> float:
        return float(np.mean(self.errors))


def fit_constants(
    samples: Sequence[PassSample],
    device: Device,
    *,
    free: Sequence[str] = SINGLE,
    start: Constants | None = None,
    priors: Mapping[str, Prior] | None = None,
) -> Fit:
    """Fits the constants named in `free`; the others keep the values of `start`.

    Samples must be of one kind of weights. Raises ConfigError when they cannot determine the fit:
    fewer samples than constants, or times that are not positive numbers.
    """
    from scipy.optimize import least_squares

    _check(samples, free, priors or {})
    begin = start or Constants()
    passes = _Passes(samples, device)
    measured = np.log([sample.seconds for sample in samples])
    expected = {name: prior for name, prior in (priors or {}).items() if name in free}

    def residuals(x: NDArray[np.float64]) -> Floats:
        constants = replace(begin, **dict(zip(free, np.exp(x), strict=True)))
        misses = (np.log(passes.seconds(constants)) - measured) / NOISE
        pulls = [
            np.log(getattr(constants, name) / prior.centre) / prior.sigma
            for name, prior in expected.items()
        ]
        return np.concatenate([misses, pulls])

    low, high = np.log([_bounds(name) for name in free]).T
    guess = _guess(samples)  # also where `start` says 0: the search moves by factors
    first = np.log([getattr(begin, name) or getattr(guess, name) for name in free])
    first = np.clip(first, low, high)
    found = least_squares(
        residuals, first, bounds=(low, high), x_scale=0.3, loss="soft_l1", f_scale=2.0
    )
    values = {name: float(value) for name, value in zip(free, np.exp(found.x), strict=True)}
    values = {name: 0.0 if value < NOTHING else value for name, value in values.items()}
    constants = replace(begin, **values)
    errors = passes.seconds(constants) / np.exp(measured) - 1
    return Fit(constants, tuple(free), errors)


class _Passes:
    """Predicts samples, those of one model, dtype and count in one call."""

    def __init__(self, samples: Sequence[PassSample], device: Device) -> None:
        self.device = device
        self.size = len(samples)
        keys = [(s.model, s.count, s.weight_bytes, s.kv_bytes, s.compact) for s in samples]
        self.groups = {
            key: np.flatnonzero([other == key for other in keys]) for key in dict.fromkeys(keys)
        }
        self.shapes = np.array([(s.rows, s.entries, s.new) for s in samples], np.float64)

    def seconds(self, constants: Constants) -> Floats:
        found = np.empty(self.size)
        for (model, count, weight_bytes, kv_bytes, compact), where in self.groups.items():
            rows, entries, new = self.shapes[where].T
            found[where] = forward(
                model, Hardware(self.device, count, constants), rows=rows, entries=entries,
                new=new, weight_bytes=weight_bytes, kv_bytes=kv_bytes, compact=compact,
            ).total  # fmt: skip
        return found


def _guess(samples: Sequence[PassSample]) -> Constants:
    """A start inside the bounds: half of the quickest pass is overhead."""
    quickest = min(samples, key=lambda sample: sample.seconds)
    overhead = quickest.seconds / 2
    return Constants(
        launch_s=overhead / 4, layer_s=overhead / quickest.model.layers,
        step_s=overhead, compact_s=overhead / quickest.model.layers / 1000,
    )  # fmt: skip


def _bounds(name: str) -> tuple[float, float]:
    if name == "overlap":
        return OVERLAP
    return EFFICIENCY if name.endswith("_efficiency") else SECONDS


def _check(samples: Sequence[PassSample], free: Sequence[str], priors: Mapping[str, Prior]) -> None:
    known = [field.name for field in dataclasses.fields(Constants)]
    for name in free:
        require(name in known, f"no constant is called {name!r}; choose from {', '.join(known)}")
    require(
        0 < len(free) <= len(samples) + len(priors),
        f"{len(samples)} measured passes cannot determine {len(free)} constants; measure more",
    )
    for sample in samples:
        if not (np.isfinite(sample.seconds) and sample.seconds > 0):
            raise ConfigError(f"a pass cannot take {sample.seconds!r} seconds; measure it again")
    kinds = sorted({sample.weights for sample in samples})
    require(len(kinds) == 1, f"passes with {' and '.join(kinds)} weights; fit each kind alone")
