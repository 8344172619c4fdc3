"""What the cost model says of settings before they run. numpy is imported when first asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.expected_acceptance import Book
from magicdec.cli.tui.process.messages import Ready
from magicdec.engine.draft_spec import LOOKUP
from magicdec.engine.errors import MagicdecError
from magicdec.engine.report import Tally
from magicdec.engine.selection import chosen_once
from magicdec.profiles.costs.step_times import Factors, StepTimes, factors

if TYPE_CHECKING:
    from magicdec.profiles.costs.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Taken:
    """What corrects a price, and seconds of what has none.

    ends: of the speedup, what is left where some rows end before others; once: selection per row
    and prompt token, of `selector`; of others it is not known.
    """

    run: int
    factors: Factors
    rest: float
    ends: float
    once: float
    selector: str

    @classmethod
    def of(
        cls, run: int, settings: Settings, context: int, omega: float, price: StepTimes[float],
        plain: Tally, drafted: Tally,
    ) -> Taken | None:  # fmt: skip
        """From a finished run. None where a pass had no steps."""
        if not (plain.steps and drafted.steps and plain.tokens_per_s and drafted.tokens_per_s):
            return None
        phases, steps, gamma = drafted.phases, drafted.steps, settings.gamma
        static = chosen_once(settings.selector)
        mine = StepTimes(
            plain.decode_seconds / plain.steps,
            (phases.draft + (0.0 if static else phases.select)) / steps / gamma,
            phases.verify / steps,
            phases.select / steps if static else 0.0,
            (phases.commit + phases.other) / steps,
        )
        return cls(
            run, factors([("", price, mine)]), mine.rest,
            drafted.tokens_per_s / plain.tokens_per_s / mine.speedup(gamma, omega),
            mine.select / _selected(settings, context, omega), settings.selector,
        )  # fmt: skip

    def put(
        self, price: StepTimes[float], settings: Settings, context: int, omega: float
    ) -> StepTimes[float]:
        """The price as this run had it."""
        known = settings.selector == self.selector
        return replace(
            self.factors.corrected(price, ""), rest=self.rest,
            select=self.once * _selected(settings, context, omega) if known else 0.0,
        )  # fmt: skip


def _selected(settings: Settings, context: int, omega: float) -> float:
    """Prompt tokens of all rows that are selected from, by the step."""
    return settings.batch * context * omega / max(settings.max_new_tokens - 1, 1)


ELEMENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is predicted of settings. step: seconds of a whole speculative one."""

    speedup: float
    omega: float
    times: StepTimes[float]
    step: float
    hardware: str  # whose costs
    rough: bool  # nobody calibrated this machine
    acceptance: str  # whose acceptance
    assumed: bool  # nothing of the kind was measured
    run: int | None = None  # by whose step times the costs were corrected

    @property
    def break_even(self) -> float:
        """Tokens per step at which speculating is as fast as plain decoding."""
        return self.omega / self.speedup


@dataclass(slots=True)
class Forecaster:
    """Knows the model and the machine once the engine is ready, and acceptance as runs end."""

    ready: Ready | None = None
    book: Book = field(default_factory=Book)
    remark: str = ""  # where the costs come from
    taken: Taken | None = None  # by the latest run
    _hardware: tuple[Hardware | None, bool] | None = None  # and whether its costs are rough

    def see(self, ready: Ready) -> str:
        """Predicts for this model and machine from now on; says what the costs are worth."""
        before = self.ready, self._hardware
        self.ready, self._hardware = ready, None
        if before != (ready, self._machine()):  # what runs took was set beside other prices
            self.taken = None
        return self.remark

    def weights(self, settings: Settings) -> str:
        """The draft weights that `auto` becomes, by the engine's rule."""
        if settings.gamma == 0 or settings.draft_weights == "same" or settings.draft == LOOKUP:
            return "same"
        if settings.draft_weights == "int8":
            return "int8"
        if self.ready is None or not self.ready.int8 or settings.temperature > 0:
            return "same"
        return "same" if _sees_all(settings.selector) else "int8"

    def unpriced(self, settings: Settings) -> str:
        """Why these settings never have a prediction; empty when they may have one."""
        if settings.gamma == 0:
            return "plain decoding: nothing is drafted"
        if not settings.predictable:
            return f"measured only: the cost model does not price {_unpriced(settings)}"
        if settings.who.kind not in ("self", "layers"):
            return "no preview: costs are known of the model's own layers drafting"
        return ""

    def unknown(self, settings: Settings) -> bool:
        """Whether nothing is known of their acceptance, and nothing can be assumed."""
        return self.book.expect(settings, self.weights(settings)) is None

    def forecast(self, settings: Settings, context: int | None = None) -> Forecast | None:
        """None where `unpriced`, and while model, machine or context are not known.

        context: in place of the setting's, for rows that turned out shorter.
        """
        context = context or settings.context
        if self.ready is None or context is None or self.unpriced(settings):
            return None
        price = self._price(settings, context)
        expected = self.book.expect(settings, self.weights(settings))
        if price is None or expected is None:
            return None
        hardware, rough = self._machine()
        assert hardware is not None, "it has a price"
        omega = expected.tokens_per_step(settings.gamma)
        ends = 1.0
        if self.taken is not None:
            price, rough = self.taken.put(price, settings, context, omega), False
            ends = self.taken.ends
        return Forecast(
            speedup=ends * price.speedup(settings.gamma, omega),
            omega=omega,
            times=price,
            step=price.step(settings.gamma),
            hardware=hardware.label,
            rough=rough,
            acceptance=expected.source,
            assumed=expected.assumed,
            run=self.taken.run if self.taken is not None else None,
        )

    def learn(
        self, run: int, settings: Settings, context: int, plain: Tally, drafted: Tally
    ) -> None:  # fmt: skip
        """A finished run: what its steps took corrects what is priced from now on. Its acceptance
        is in the book already."""
        price = None if self.unpriced(settings) else self._price(settings, context)
        expected = self.book.expect(settings, self.weights(settings))
        if price is None or expected is None:
            return
        omega = expected.tokens_per_step(settings.gamma)
        found = Taken.of(run, settings, context, omega, price, plain, drafted)
        self.taken = found or self.taken

    def _price(self, settings: Settings, context: int) -> StepTimes[float] | None:
        """By the cost model alone; None for an unknown machine."""
        hardware, _ = self._machine() if self.ready is not None else (None, True)
        if hardware is None:
            return None
        assert self.ready is not None
        from magicdec.profiles.costs.speculation import step_costs
        from magicdec.profiles.predict.drafting import PricedRow, drafting_of

        kv_bytes = self._bytes("kv_dtype")
        [times] = step_costs(
            self.ready.shape, hardware,
            drafting_of(
                settings.spec(self.weights(settings)), self.ready.shape, PricedRow(context, 0),
                kv_bytes,
            ),
            rows=settings.batch, context=context, gamma=settings.gamma,
            weight_bytes=self._bytes("dtype"), kv_bytes=kv_bytes,
        ).cells()  # fmt: skip
        return times

    def memory(self, settings: Settings, context: int | None = None) -> float | None:
        """Bytes of weights and caches; what a pass needs besides is not in it."""
        context = context or settings.context
        if self.ready is None or context is None or settings.who.model:
            return None
        shape, weights = self.ready.shape, self.weights(settings)
        size = shape.stored * self._bytes("dtype") + shape.streamed * (weights == "int8")
        kept = min(settings.budget, context) if settings.gamma and settings.draft != LOOKUP else 0
        row = context + settings.max_new_tokens + kept
        return size + settings.batch * row * shape.kv_bytes_per_token(self._bytes("kv_dtype"))

    def _bytes(self, key: str) -> float:
        assert self.ready is not None
        return ELEMENT_BYTES.get(str(self.ready.environment.get(key)), 4.0)

    def _machine(self) -> tuple[Hardware | None, bool]:
        if self._hardware is None:
            assert self.ready is not None
            self._hardware = self._calibrated(self.ready) or _nearest(self.ready.environment)
        return self._hardware

    def _calibrated(self, ready: Ready) -> tuple[Hardware, bool] | None:
        """This machine as it was calibrated for this model, if that holds; a word if it does not.

        With it comes the acceptance that was seen then, for as long as no run tells better.
        """
        from magicdec.profiles.calibration.calibration import fingerprint_of
        from magicdec.profiles.calibration.store import load_calibration

        fingerprint = fingerprint_of(ready.environment)
        try:
            found = load_calibration(str(fingerprint["model"]), fingerprint)
        except MagicdecError as error:
            self.remark = str(error)
            return None
        if found is None:
            self.remark = "rough costs: run magicdec calibrate to predict for this machine"
            return None
        stale = found.stale_because(fingerprint)
        if stale:
            self.remark = f"the calibration is stale ({stale}): run magicdec calibrate again"
            return None
        unnamed = f", which names no {found.unnamed}" if found.unnamed else ""
        self.remark = f"costs are those of the calibration of {found.created[:10]}{unnamed}"
        for seen in found.acceptances:
            self.book.learn_calibrated(seen.selector, seen.budget, seen.weights, seen.rates)
        return found.hardware, False


def _nearest(environment: Mapping[str, object]) -> tuple[Hardware | None, bool]:
    """The catalogue's: its costs are rough."""
    from magicdec.profiles.costs.catalog import find_hardware
    from magicdec.profiles.machine.expected_time import ROUGH_CPU

    gpu = environment.get("device") == "cuda"
    try:
        return find_hardware(str(environment.get("device_name")) if gpu else ROUGH_CPU), True
    except MagicdecError:
        return None, True


def _unpriced(settings: Settings) -> str:
    """What of settings that are not `predictable` is in the way."""
    if settings.tree != "none":
        return "trees"
    return "cascades" if settings.who.cascades else f"γ {settings.gamma_policy}"


def _sees_all(selector: str) -> bool:
    from magicdec.engine.selection import SELECTORS

    try:
        return bool(SELECTORS.load(selector).whole)
    except Exception:  # a run will say what is wrong with it
        return False
