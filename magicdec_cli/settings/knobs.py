"""Every setting of a run, declared once: flags, config keys, environment and the TUI read this.

A setting is a field of `Settings`; its type and default are the field's, the rest is metadata.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from magicdec.cli.settings.knob import Knob
from magicdec.engine.config import (
    MAX_GAMMA,
    MAX_SEED,
    MAX_TREE_NODES,
    MOST_PENALTY,
    REPETITION,
    SIBLING_RATES,
    DecodeConfig,
    SamplingConfig,
)
from magicdec.engine.draft_spec import FULL, LOOKUP, DraftSpec, Who, who_is
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import GammaPolicy

AUTO, ADAPTIVE, SCHEDULE = "auto", "adaptive", ".toml"  # what --gamma takes besides a number

DECODE = DecodeConfig()
SAMPLING = SamplingConfig()


def setting(
    default: Any, group: str, help: str, *, low: float | None = None, high: float | None = None,
    unset: str = "", words: tuple[str, ...] = (), words_mean: str = "",
    label: str = "",
) -> Any:  # fmt: skip
    """A field of Settings. `low` and `high` are inclusive; `unset` says what None means; words,
    words_mean: see `Knob`; `label` puts it among the knobs of the app."""
    metadata = {
        "group": group, "help": help, "low": low, "high": high, "unset": unset, "words": words,
        "words_mean": words_mean, "label": label,
    }  # fmt: skip
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's settings, resolved. Documents are not among them: they are the command's input."""

    model: str = setting(
        "smollm2-135m", "Model",
        "An alias of `magicdec models list`, a Hugging Face id, a folder with safetensors, "
        "or a .gguf file.",
    )  # fmt: skip
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "Model", "Where to run; auto takes a GPU when there is one."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "Model", "Precision of weights and arithmetic; auto is float32 on a CPU."
    )
    kv_dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "Model",
        "Precision in which K and V are stored; auto is --dtype. bfloat16 halves the cache.",
    )  # fmt: skip
    attention: Literal["auto", "native", "sdpa", "reference"] = setting(
        "auto", "Model", "Attention backend; native is this program's own for CPUs, built on "
        "first use; reference is the slow, readable one.",
    )  # fmt: skip
    threads: int | None = setting(
        None, "Model", "CPU threads.", low=1, high=4096, unset="all cores"
    )
    chunk: int = setting(
        512, "Model", "Prompt tokens per prefill pass; smaller needs less memory.",
        low=1, high=1_000_000,
    )  # fmt: skip
    sync_phases: bool = setting(
        False, "Model", "On a GPU, wait for it at every change of phase: draft and verify times "
        "are then exact, and decoding a little slower.",
    )  # fmt: skip
    prefill_cache: bool = setting(
        True, "Model", "Keep prefills on disk, so that a prompt that begins like an earlier one is "
        "not computed again (CPU only; default: on).",
    )  # fmt: skip
    prefill_cache_size: float = setting(
        4.0, "Model", "GiB of disk that kept prefills may take; the longest unused go first.",
        low=0, high=1_000_000,
    )  # fmt: skip

    context: int | None = setting(
        None, "Documents", "Tokens to take of each document.",
        low=1, high=100_000_000, unset="the whole document", label="context",
    )  # fmt: skip
    take: Literal["head", "tail"] = setting(
        "head", "Documents", "Which end of a longer document --context keeps."
    )
    prompt: str | None = setting(
        None, "Documents", "Text after the document, such as a question; instruct models get it "
        "through their chat template.", unset="continue the document",
    )  # fmt: skip
    raw: bool = setting(False, "Documents", "Use no chat template.")
    batch: int = setting(
        1, "Documents", "Rows decoded together; further documents wait for a free slot.",
        low=1, high=100_000, label="batch",
    )  # fmt: skip
    rows: Literal["staggered", "windows"] = setting(
        "staggered", "Documents",
        "How fewer documents than --batch fill the rows: staggered end points of a document "
        "(one shared prefill) or separate windows of it.",
    )  # fmt: skip

    gamma: int = setting(
        DECODE.gamma, "Speculation", "γ, draft tokens per step; 0 is plain decoding.",
        low=0, high=MAX_GAMMA, words=(AUTO, ADAPTIVE, SCHEDULE), label="γ",
        words_mean=" auto: as many as pay, by calibration or the run's own times; adaptive: as "
        "long as the draft is sure of itself; FILE.toml: a schedule by batch and context.",
    )  # fmt: skip
    gamma_policy: str = "fixed"  # given through gamma: fixed, auto, adaptive or a file
    tree: Literal["none", "specexec", "sequoia"] = setting(
        DECODE.tree, "Speculation",
        "Draft several tokens for a position, γ positions deep, and verify the tree in one pass: "
        "specexec keeps the draft's likeliest branches; sequoia draws one shape, the best for "
        "--tree-rates and this machine's calibration.", label="tree",
    )  # fmt: skip
    tree_nodes: int = setting(
        DECODE.tree_nodes, "Speculation", "Tokens of a tree, at most.", low=1, high=MAX_TREE_NODES,
        label="nodes",
    )  # fmt: skip
    tree_rates: str | None = setting(
        None, "Speculation",
        "How often sequoia's first, second, ... child is accepted when those before it were not: "
        "shares such as .8,.4,.2, or @RUN.json of a run with a tree.",
        unset="as the default model was measured",
    )  # fmt: skip
    draft: str = setting(
        DECODE.draft, "Speculation",
        "Who drafts: self; lookup (what followed the same words before); layers:N (the first N "
        "layers and the head); another MODEL, named like --model, of the same vocabulary; or a "
        "cascade, lookup+self, layers:N+self, MODEL+self: the first drafts for the self-draft, a "
        "model over what --selector, --budget and --draft-kv leave of a cache of its own.",
        label="draft",
    )  # fmt: skip
    draft_kv: Literal["selected", "full"] = setting(
        DECODE.draft_kv, "Speculation",
        "KV entries the draft attends to: those of --selector, or all. Another model with all "
        "of its own is standard speculative decoding.",
    )  # fmt: skip
    selector: str = setting(
        DECODE.selector, "Speculation",
        "What the draft keeps of the KV cache: a name of `magicdec selectors` or "
        "package.module:Class.", label="selector",
    )  # fmt: skip
    selector_option: Mapping[str, object] = setting(
        dict, "Speculation", "An option of the selector, KEY=VALUE; repeatable."
    )
    budget: int = setting(
        DECODE.budget, "Speculation", "Prompt KV entries a draft step may read.",
        low=1, high=100_000_000, label="budget",
    )  # fmt: skip
    draft_weights: Literal["auto", "same", "int8"] = setting(
        DECODE.draft_weights, "Speculation",
        "Weights that draft; int8 (CPU) is faster and as lossless. auto is int8 on a CPU when "
        "greedy. With sampling the distribution stays exact under int8, but a row's text then "
        "depends on its batch mates, not on its seed alone.", label="weights",
    )  # fmt: skip

    max_new_tokens: int = setting(
        DECODE.max_new_tokens, "Generation", "Tokens to generate per row.", low=1, high=1_000_000,
        label="tokens",
    )  # fmt: skip
    stop: tuple[str, ...] = setting(
        (), "Generation", "End a row before this text, or this special token; repeatable."
    )
    stop_token: tuple[int, ...] = setting(
        (), "Generation", "End a row at the token of this number; repeatable.",
        low=0, high=2**31 - 1,
    )  # fmt: skip
    ignore_eos: bool = setting(False, "Generation", "Generate on after the end-of-text token.")
    temperature: float = setting(
        SAMPLING.temperature, "Generation", "Randomness; 0 is greedy decoding.", low=0, high=100,
        label="T",
    )  # fmt: skip
    top_k: int = setting(
        SAMPLING.top_k, "Generation", "Sample among the k likeliest tokens; 0 is off.",
        low=0, high=10_000_000,
    )  # fmt: skip
    top_p: float = setting(
        SAMPLING.top_p, "Generation",
        "Sample among the likeliest tokens that hold this probability together; 1 is off.",
        low=0, high=1,
    )  # fmt: skip
    min_p: float = setting(
        SAMPLING.min_p, "Generation",
        "Drop tokens less likely than this times the likeliest one; 0 is off.", low=0, high=1,
    )  # fmt: skip
    seed: int | None = setting(
        SAMPLING.seed, "Generation", "Seed of the sampling.", low=0, high=MAX_SEED, unset="0"
    )
    repetition_penalty: float = setting(
        SAMPLING.repetition_penalty, "Generation",
        "Divide the logits of tokens that prompt or output hold by this, multiply negative ones; "
        "1 is off. Penalties work greedily, too.", low=REPETITION[0], high=REPETITION[1],
    )  # fmt: skip
    presence_penalty: float = setting(
        SAMPLING.presence_penalty, "Generation",
        "Subtract this from the logits of tokens that the output holds; 0 is off.",
        low=-MOST_PENALTY, high=MOST_PENALTY,
    )  # fmt: skip
    frequency_penalty: float = setting(
        SAMPLING.frequency_penalty, "Generation",
        "Subtract this as often as the output holds a token; 0 is off.",
        low=-MOST_PENALTY, high=MOST_PENALTY,
    )  # fmt: skip

    @property
    def selects(self) -> bool:
        """Whether the draft reads a selection of the cache, so that a budget means something."""
        from magicdec.engine.selection import SELECTORS

        kept = self.draft != LOOKUP and self.draft_kv == "selected"
        return kept and not SELECTORS.load(self.selector).whole

    @property
    def penalties(self) -> tuple[float, float, float]:
        return self.repetition_penalty, self.presence_penalty, self.frequency_penalty

    @property
    def prefill_cache_bytes(self) -> int:
        """How much of the disk prefills may take; 0 keeps none."""
        return int(self.prefill_cache_size * 2**30) if self.prefill_cache else 0

    @property
    def policy(self) -> GammaPolicy:
        """What --gamma names, before a calibration is asked. Raises ConfigError for a file."""
        from magicdec.profiles.files.gamma_names import policy_of

        return policy_of(self.gamma_policy)

    @property
    def who(self) -> Who:
        return who_is(self.draft)

    @property
    def predictable(self) -> bool:
        """Whether the cost model knows how it drafts, and how many tokens."""
        return self.gamma_policy == "fixed" and self.tree == "none" and not self.who.cascades

    def spec(self, weights: str) -> DraftSpec:
        """Who drafts, over what, as profiles name it; weights: those that draft."""
        options = tuple((name, str(v)) for name, v in sorted(self.selector_option.items()))
        return DraftSpec(
            self.selector, options, self.budget, self.temperature, weights, self.draft,
            "selected" if self.selects else FULL, self.tree, self.tree_nodes, self.gamma_policy,
        )  # fmt: skip

    def decode_config(self) -> DecodeConfig:
        """The engine's share. Raises ConfigError for settings that contradict each other."""
        return DecodeConfig(
            max_new_tokens=self.max_new_tokens,
            gamma=self.gamma,
            gamma_policy=self.policy,
            tree=self.tree,
            tree_nodes=self.tree_nodes,
            tree_rates=sibling_rates(self.tree_rates),
            budget=self.budget,
            draft=self.draft,
            draft_kv=self.draft_kv,
            selector=self.selector,
            selector_options=dict(self.selector_option),
            draft_weights=self.draft_weights,
            stop=self.stop,
            stop_tokens=self.stop_token,
            ignore_eos=self.ignore_eos,
            sampling=SamplingConfig(
                self.temperature, self.top_k, self.top_p, self.min_p, self.seed, *self.penalties
            ),
        )


def sibling_rates(text: str | None) -> tuple[float, ...]:
    """What --tree-rates says: shares, or @FILE of a run; those of the default model without it.

    Raises ConfigError.
    """
    if text is None:
        return SIBLING_RATES
    if text.startswith("@"):
        from magicdec.profiles.acceptance.recorded import recorded_siblings

        return recorded_siblings(Path(text[1:]))
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"tree-rates must be shares such as .8,.4,.2, or @RUN.json, got {text!r}"
        ) from None


def _knobs() -> tuple[Knob, ...]:
    kinds = {int: "int", float: "float", str: "str", bool: "bool"}
    hints = typing.get_type_hints(Settings)
    knobs = []
    for declared in fields(Settings):
        if not declared.metadata:
            continue
        hint = hints[declared.name]
        choices: tuple[str, ...] = ()
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
        if typing.get_origin(hint) is Literal:
            kind, choices = "choice", typing.get_args(hint)
        elif typing.get_origin(hint) is tuple:
            kind = "ids" if typing.get_args(hint)[0] is int else "list"
        else:
            kind = kinds.get(hint, "map")
        default = {} if declared.default is MISSING else declared.default
        knobs.append(
            Knob(declared.name, kind, default, choices=choices, **declared.metadata)  # type: ignore[arg-type]
        )
    return tuple(knobs)


KNOBS = _knobs()
