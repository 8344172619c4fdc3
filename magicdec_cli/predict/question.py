"""The options of `magicdec predict` as a setup and the axes of a grid. Numbers only, no rich."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.cli.predict.here import acceptance_here, this_machine
from magicdec.cli.settings.resolve import resolve
from magicdec.cli.settings.unused import refuse_idle
from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.draft_spec import LOOKUP, MEASURED_BY, SELF, who_is
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.gamma.auto import ASSUMED
from magicdec.engine.loading.files import user_path
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.acceptance.recorded import recorded_acceptance
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.costs.catalog import find_hardware, find_model
from magicdec.profiles.costs.grid import Axes, Setup
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.memory import RESERVE
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import Drafting, HostCost, lookup_cost
from magicdec.profiles.costs.table_file import BUDGET
from magicdec.profiles.files.sweep import sweep

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "fp8": 1.0}
MOST_BATCH, MOST_CONTEXT = 100_000, 100_000_000
BATCHES = (1, 8, 32, 128)
CONTEXTS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
COLUMNS = 4  # contexts of the page that nothing was asked of
LONGEST_DRAFT = 6
# A small model of the same tokenizer, for the memory of standard speculation.
STANDARD_DRAFTS = {
    "Llama-3.1-8B": "Llama-3.2-1B", "Llama-3.1-70B": "Llama-3.2-1B",
    "Llama-2-7B": "TinyLlama-1.1B", "Llama-2-7B-32K": "TinyLlama-1.1B",
    "Llama-2-13B": "TinyLlama-1.1B", "Llama-2-70B": "TinyLlama-1.1B",
    "Qwen2.5-7B": "Qwen2.5-0.5B", "Qwen2.5-14B": "Qwen2.5-0.5B",
    "Qwen2.5-32B": "Qwen2.5-0.5B", "Qwen2.5-72B": "Qwen2.5-0.5B",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line gave, as text where it needs reading; None where it gave nothing."""

    model: str | None = None  # the calibrated one, or `run`'s default
    hardware: str | None = None
    batch: str | None = None
    context: str | None = None
    budget: str | None = None
    gamma: str | None = None
    alpha: str | None = None
    draft_model: str | None = None
    draft: str | None = None
    draft_weights: str = "auto"
    select_reads: float = 0.0
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    reserve: float = RESERVE
    target_speedup: float = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be predicted, and what a reader must know about the answer."""

    setup: Setup
    axes: Axes
    standard: ModelShape | None  # draft model of standard speculation, for its memory
    notes: tuple[str, ...]


def question(options: Options) -> Question:
    """Reads and checks all options. Raises ConfigError with the option's name."""
    options = _with_draft(options)
    axes = _axes(options)
    given = _acceptance(options.alpha, axes.budget[0])
    _check_numbers(options)
    here = this_machine() if options.hardware is None else None
    hardware = here.hardware if here else find_hardware(str(options.hardware))
    target = _target(options.model, here)
    drafter = None if options.draft_model is None else find_model(options.draft_model)
    part = _part(options.draft, target)
    require(
        part is None or given is not None,
        f"--draft {options.draft}: its acceptance is not known; give --alpha, a number or "
        "@run.json (of models that were not trained to exit early next to nothing is accepted)",
    )
    weights = options.draft_weights
    if weights == "auto":
        able = "int8" in hardware.by_weights and drafter is None and options.draft != LOOKUP
        weights = "int8" if able else "same"
    itself = drafter is None and options.draft in (None, SELF)
    own = here if here and target == here.model and itself else None
    longest = max(axes.gamma or (LONGEST_DRAFT,))
    known = own and acceptance_here(own, axes.budget[0], longest, weights)
    assumed = AcceptanceRates((ASSUMED,), "assumption", constant=True, assumed=True)
    acceptance = given or known or assumed
    usual = _usual(hardware, here)
    setup = Setup(
        target, hardware, acceptance,
        Drafting(
            model=part or drafter, weights=weights, select_per_token=options.select_reads,
            weight_bytes=BYTES["int8"] if weights == "int8" else None,
            borrowed=part is not None, caught_up=int(drafter is not None),
            host=None if options.draft != LOOKUP else lookup_cost() if here else HostCost(),
        ),
        BYTES[options.weight_dtype or usual],
        BYTES[options.kv_dtype] if options.kv_dtype else here.kv_bytes if here else BYTES[usual],
        options.reserve, options.target_speedup,
    )  # fmt: skip
    contexts = axes.context or default_contexts(target)
    gammas = axes.gamma or tuple(range(1, min(acceptance.longest or LONGEST_DRAFT, MAX_GAMMA) + 1))
    axes = Axes(axes.batch, contexts, axes.budget, gammas)
    acceptance.require_known(max(gammas))
    standard = drafter
    if standard is None and target.name in STANDARD_DRAFTS:
        standard = find_model(STANDARD_DRAFTS[target.name])
    return Question(setup, axes, standard, tuple(_notes(setup, axes, options, here)))


def _with_draft(options: Options) -> Options:
    """--draft MODEL is --draft-model. Raises ConfigError where both are given."""
    if options.draft is None:
        return options
    require(
        options.draft_model is None,
        f"--draft {options.draft} and --draft-model {options.draft_model} both say who drafts; "
        "give one",
    )
    who = who_is(options.draft)
    require(
        not who.cascades,
        f"--draft {options.draft} cannot be predicted: how much its drafters agree decides what a "
        f"draft costs; measure it with {MEASURED_BY}",
    )
    who.check()
    require(
        options.draft != LOOKUP or options.budget is None,
        "--draft lookup reads no KV entries; leave --budget out",
    )
    if options.draft == LOOKUP:
        refuse_idle(
            {"--select-reads": options.select_reads or None,
             "--draft-weights": None if options.draft_weights == "auto" else "given"},
            "with --draft lookup, which reads no KV entries and no weights",
        )  # fmt: skip
    if who.model is None and options.draft != LOOKUP:
        return options
    return dataclasses.replace(options, draft_model=who.model, budget=options.budget or "full")


def _part(draft: str | None, target: ModelShape) -> ModelShape | None:
    """The target's first layers, where they draft."""
    count = who_is(draft or SELF).layers
    if count is None:
        return None
    require(
        count < target.layers,
        f"--draft layers:{count} needs a model of more layers, {target.name} has {target.layers}",
    )
    return target.first(count)


def _usual(hardware: Hardware, here: Calibration | None) -> str:
    return str(here.fingerprint["dtype"]) if here else usual_dtype(hardware)


def usual_dtype(hardware: Hardware) -> str:
    """What models are run in there, and what the device's arithmetic rate is for."""
    return "float32" if hardware.device.name.casefold().startswith("cpu") else "bfloat16"


def default_contexts(model: ModelShape) -> tuple[int, ...]:
    """A few within the model's window, the longest included."""
    within = [c for c in CONTEXTS if c <= model.max_position] or [model.max_position]
    return tuple(within if len(within) <= COLUMNS else within[::-2][::-1])


def _axes(options: Options) -> Axes:
    """Empty where the default depends on more than the options."""
    batch: tuple[int, ...] = BATCHES
    if options.batch is not None:
        batch = sweep(options.batch, "--batch", low=1, high=MOST_BATCH)
    context: tuple[int, ...] = ()
    if options.context is not None:
        context = sweep(options.context, "--context", low=1, high=MOST_CONTEXT)
    gamma: tuple[int, ...] = ()
    if options.gamma is not None:
        gamma = sweep(options.gamma, "--gamma", low=1, high=MAX_GAMMA)
    budget: tuple[int | None, ...] = (BUDGET if options.draft_model is None else None,)
    if options.budget is not None:
        budget = budgets(options.budget)
    if budget == (None,):
        refuse_idle(
            {"--select-reads": options.select_reads or None},
            "where the draft reads its full KV cache",
        )
    return Axes(batch, context, budget, gamma)


def budgets(text: str) -> tuple[int | None, ...]:
    """A sweep, in which the item `full` stands for None."""
    items = [item.strip() for item in text.split(",")]
    numbers = [item for item in items if item != "full"]
    found: list[int | None] = []
    if numbers:
        found += sweep(",".join(numbers), "--budget", low=1, high=MOST_CONTEXT)
    return tuple(found + [None] * (len(numbers) < len(items)))


def _acceptance(text: str | None, budget: int | None) -> AcceptanceRates | None:
    """A rate, rates by position, or @FILE; None when nothing is said."""
    if text is None:
        return None
    if text.startswith("@"):
        return recorded_acceptance(user_path(text[1:]), budget)
    rates = []
    items = text.split(",")
    require(
        len(items) <= MAX_GAMMA,
        f"--alpha: {len(items):,} positions are more than a draft has; give {MAX_GAMMA} at most",
    )
    for item in items:
        try:
            rates.append(float(item))
        except ValueError:
            raise ConfigError(
                f"--alpha: {item!r} is not a number; give .8, .9,.85,.8 by position, or "
                f"@FILE, a run's JSON or a profile"
            ) from None
    return AcceptanceRates(tuple(rates), constant=len(rates) == 1)


def _target(name: str | None, here: Calibration | None) -> ModelShape:
    """The model that was asked for, else the calibrated one, else the one `run` would take."""
    if here and name in (None, here.model.name, here.fingerprint["model"]):
        return here.model
    return find_model(resolve().settings.model if name is None else name)


def _check_numbers(options: Options) -> None:
    require(
        0 <= options.reserve < 1,
        f"--reserve is a share of memory in 0..1 (1 excluded), got {options.reserve:g}",
    )
    require(
        0 < options.target_speedup <= 1000,
        f"--target-speedup must be above 0 and at most 1000, got {options.target_speedup:g}",
    )
    require(
        0 <= options.select_reads <= 100,
        f"--select-reads must be in 0..100 entries per token, got {options.select_reads:g}",
    )


def _notes(setup: Setup, axes: Axes, options: Options, here: Calibration | None) -> Sequence[str]:
    notes = []
    if here and setup.target != here.model:
        notes.append(
            f"the constants were fitted with {here.model.name}; calibrate --model to fit yours"
        )
    if setup.acceptance.assumed:
        notes.append(
            f"α {ASSUMED:g} at every position is an assumption: give --alpha, a number or "
            f"@run.json, for yours"
        )
    elif setup.acceptance.source != "--alpha":  # somebody's measurement
        notes.append(
            f"α from {setup.acceptance.source.removeprefix('--alpha ')}: another model, text, "
            f"context or budget may accept otherwise"
        )
    longest = max(axes.context)
    read_fully = [setup.target]
    if setup.drafting.model is not None and None in axes.budget:
        read_fully.append(setup.drafting.model)
    for model in read_fully:
        if longest > model.max_position:
            notes.append(
                f"context {longest:,} is beyond the {model.max_position:,} tokens {model.name} "
                f"was trained for"
            )
    if len(axes.budget) > 1:
        notes.append(
            "α is the same for every budget here, but acceptance grows with the budget: compare "
            "budgets with the α measured for each"
        )
    usual = _usual(setup.hardware, here)
    if options.weight_dtype not in (None, usual):
        notes.append(
            f"{options.weight_dtype} weights take {setup.weight_bytes:g} bytes each, but the "
            f"arithmetic rate stays that of {usual}"
        )
    if setup.drafting.host is not None:
        notes.append(
            "all numbers are of steps in which lookup finds something to draft: how often it "
            "does is the text's to say, the other steps are plain ones"
        )
    if setup.drafting.weights == "int8" and "int8" not in setup.hardware.by_weights:
        notes.append(f"int8 draft passes were not measured on {setup.hardware.device.name}")
    return notes
