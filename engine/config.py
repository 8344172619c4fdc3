"""The settings of one decoding run. Plain data: no torch, so that `--help` stays cheap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from magicdec.engine.errors import require, require_utf8
from magicdec.engine.gamma.policy import FIXED, GammaPolicy
from magicdec.engine.trees.beam import fed

MAX_GAMMA = 32
MAX_SEED = 2**63 - 1
LEAST_TEMPERATURE = 0.001  # below it sampling is greedy decoding at a higher price
REPETITION = 0.01, 100.0  # what logits may be divided by
MOST_PENALTY = 2.0  # of presence and frequency, either way, as in OpenAI's interface

MAX_TREE_NODES = 128

TreeKind = Literal["none", "specexec", "sequoia"]
DraftWeights = Literal["auto", "same", "int8"]
DraftKV = Literal["selected", "full"]

#: p[k] of a tree's siblings, as `run` measures it: smollm2-135m greedily drafting for itself over
#: snapkv, budget 256, int8 weights; "Dracula" and "Pride and Prejudice", four windows of 1,000
#: tokens each; the k-th sibling was tried 581, 47 and 14 times, later ones too seldom to tell.
SIBLING_RATES = (0.92, 0.70, 0.57)

SELF, LOOKUP, LAYERS = "self", "lookup", "layers:"
#: Tokens at a text's end that lookup searches for: the longest match wins, one says little.
LOOKUP_TOKENS = 2, 5
DIGITS = 9  # of a number of layers: more than any model has, and Python reads no thousands of them
UNDER_SELF = "+self"  # ends the name of a cascade: lookup+self, layers:6+self, a model's + "+self"
WAYS = "self, lookup, layers:N, a model, or a cascade: lookup+self, layers:N+self or MODEL+self"
INNER_GAMMA = 4  # the most tokens that a cascade's inner drafter puts to the middle one at once


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How the next token is drawn. The same transformation is applied to draft and target.

    Order: penalties (see `penalties`), temperature, top-k, top-p, min-p; each of the last three
    renormalises what the one before left. Temperature 0 is greedy decoding and admits penalties
    alone, because nothing else would have an effect. Raises ConfigError for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    seed: int | None = None  # None: 0 for sampling
    repetition_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0  # 0: off
    frequency_penalty: float = 0.0  # 0: off

    def __post_init__(self) -> None:
        require(
            self.greedy or LEAST_TEMPERATURE <= self.temperature <= 100.0,
            f"temperature must be 0 (greedy) or in {LEAST_TEMPERATURE}..100, "
            f"got {self.temperature}",
        )
        require(self.top_k >= 0, f"top-k must be 0 (off) or positive, got {self.top_k}")
        require(0.0 < self.top_p <= 1.0, f"top-p must be in (0, 1], got {self.top_p}")
        require(0.0 <= self.min_p <= 1.0, f"min-p must be in 0..1, got {self.min_p}")
        require(
            self.seed is None or 0 <= self.seed <= MAX_SEED,
            f"seed must be in 0..2^63-1, got {self.seed}",
        )
        least, most = REPETITION
        require(
            least <= self.repetition_penalty <= most,
            f"repetition-penalty must be in {least:g}..{most:g}, 1 being off, "
            f"got {self.repetition_penalty}",
        )
        for name in ("presence", "frequency"):
            value = getattr(self, f"{name}_penalty")
            require(
                -MOST_PENALTY <= value <= MOST_PENALTY,
                f"{name}-penalty must be in {-MOST_PENALTY:g}..{MOST_PENALTY:g}, 0 being off, "
                f"got {value}",
            )
        if self.greedy:
            idle = [
                name
                for name, given in {
                    "top-k": self.top_k != 0,
                    "top-p": self.top_p != 1.0,
                    "min-p": self.min_p != 0.0,
                    "seed": self.seed is not None,
                }.items()
                if given
            ]
            require(
                not idle,
                f"{', '.join(idle)} would have no effect at temperature 0 (greedy); "
                "add --temperature 0.7 or leave it out",
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalises(self) -> bool:
        penalties = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        return penalties != (1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """What to generate and how to speculate. Raises ConfigError for a value out of range."""

    max_new_tokens: int = 64  # per row, the token that prefill gives included
    gamma: int = 3  # the most draft tokens of a step, in a tree its depth; 0 is plain decoding
    gamma_policy: GammaPolicy = FIXED  # how many of them a step drafts
    tree: TreeKind = "none"  # draft several tokens for a position
    tree_nodes: int = 16  # the most tokens of a tree
    tree_rates: tuple[float, ...] = SIBLING_RATES  # p[k], from which Sequoia makes its shape
    tree_shape: tuple[int, ...] = ()  # Sequoia's, if given: see `trees.shape.TreeShape`
    draft: str = SELF  # who drafts: self, lookup, layers:N, a model, or a cascade: lookup+self
    draft_kv: DraftKV = "selected"  # full: the draft attends to all, no selector
    budget: int = 256  # prompt KV entries that a draft step may read
    selector: str = "snapkv"  # a name of `magicdec selectors`, or package.module:Class
    selector_options: Mapping[str, object] = field(default_factory=dict)
    draft_weights: DraftWeights = "auto"  # int8: a quantised twin drafts, the model verifies
    stop: tuple[str, ...] = ()  # texts, or special tokens by their texts
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def __post_init__(self) -> None:
        require(
            1 <= self.max_new_tokens <= 1_000_000,
            f"max-new-tokens must be in 1..1000000, got {self.max_new_tokens}",
        )
        require(0 <= self.gamma <= MAX_GAMMA, f"gamma must be in 0..{MAX_GAMMA}, got {self.gamma}")
        require(
            self.tree in get_args(TreeKind),
            f"tree must be one of {', '.join(get_args(TreeKind))}, got {self.tree!r}",
        )
        require(
            1 <= self.tree_nodes <= MAX_TREE_NODES,
            f"tree-nodes must be in 1..{MAX_TREE_NODES}, got {self.tree_nodes}",
        )
        require(
            bool(self.tree_rates)
            and self.tree_rates[0] > 0
            and all(0 <= rate <= 1 for rate in self.tree_rates),
            "tree-rates must be shares in 0..1, the first of them above 0, "
            f"got {', '.join(f'{rate:g}' for rate in self.tree_rates) or 'none'}",
        )
        require(
            self.tree == "none"
            or self.draft == SELF
            or (self.draft_layers is not None and self.inner is None),
            f"a tree is drafted by the model itself, not by draft {self.draft!r}; "
            "give draft self or layers:N, or tree none",
        )
        require(
            self.tree == "none" or self.gamma_policy.name == "fixed",
            f"a tree is as deep in every step: gamma {self.gamma_policy.name} has no effect on it; "
            "give gamma a number, or tree none",
        )
        require(self.budget >= 1, f"budget must be at least 1, got {self.budget}")
        require(
            self.draft_kv in get_args(DraftKV),
            f"draft-kv must be selected or full, got {self.draft_kv!r}",
        )
        require(bool(self.draft), f"draft is empty; give {WAYS}")
        require(
            not self._misspelt,
            f"draft {self.draft!r} is no way to draft; give {WAYS}; a folder of that name is "
            f"./{self.draft}",
        )
        require(
            self.draft_layers is None or self.draft_layers >= 1,
            f"draft {self.draft!r} runs no layer; give a number of layers, such as layers:6, or "
            "layers:6+self for a cascade",
        )
        require(
            self.inner not in ("", SELF),
            f"draft {self.draft!r} names nobody who drafts for the self-draft; "
            "give lookup+self, layers:6+self or MODEL+self",
        )
        require(
            self.draft_model is None or not self.draft_model.rstrip("/\\").endswith(UNDER_SELF),
            f"draft {self.draft!r}: {self.draft_model!r} ends in +self, which makes a name a "
            "cascade's; a cascade has one drafter under self, and a folder that is called so needs "
            "another name or a link to it",
        )
        require(
            self.draft != LOOKUP or self.draft_kv == "selected",
            "draft-kv full has no effect on lookup, which reads no KV cache; leave it out",
        )
        require(
            self.gamma_policy.stop is None or self.draft != LOOKUP,
            "gamma adaptive has no effect on lookup, which has no probabilities; "
            "give a number, or --draft lookup+self",
        )
        require(
            self.draft_weights in get_args(DraftWeights),
            f"draft-weights must be auto, same or int8, got {self.draft_weights!r}",
        )
        for stop in self.stop:
            require_utf8(stop, "a stop string")
            require(
                re.fullmatch(r"(\\[nrt])+", stop) is None,
                f"stop {stop} is a backslash and a letter, not a line break or tab; a shell "
                f"writes those as $'{stop}', a TOML file as \"{stop}\"",
            )
        require(all(self.stop), "a stop string is empty; leave --stop out for none")

    @property
    def drafts_trees(self) -> bool:
        return self.tree != "none" and self.gamma > 0

    @property
    def most_drafted(self) -> int:
        """Draft tokens that a step judges per row, at most."""
        if not self.drafts_trees:
            return self.gamma
        return len(self.tree_shape) or self.tree_nodes

    @property
    def inner(self) -> str | None:
        """Who drafts for the self-draft of a cascade; None when nobody does."""
        return self.draft.removesuffix(UNDER_SELF) if self.draft.endswith(UNDER_SELF) else None

    @property
    def drafts_itself(self) -> bool:
        """Whether all of the model's layers make the drafts."""
        return self.draft == SELF or self.inner is not None

    @property
    def draft_layers(self) -> int | None:
        """How many of the model's layers draft, in a cascade for the others; 0 for what is no
        number, None for other drafts."""
        name = self.draft.removesuffix(UNDER_SELF)
        if not name.startswith(LAYERS):
            return None
        count = name.removeprefix(LAYERS)
        if not (count.isascii() and count.isdigit()):
            return 0
        return int(count.lstrip("0")[:DIGITS] or 0)

    @property
    def _misspelt(self) -> bool:
        """Whether it begins like a name with a meaning, and goes on as none of them does."""
        name = self.draft.removesuffix(UNDER_SELF)
        first, plus, _ = name.partition("+")
        words = first in ("", SELF, LOOKUP) or first.startswith(LAYERS)
        return name == LAYERS.rstrip(":") or (bool(plus) and words)

    @property
    def scratch(self) -> int:
        """The most tokens beyond the accepted ones that a draft is fed in a step, or judged on."""
        if self.drafts_trees and self.tree == "specexec":
            return max(self.tree_nodes, fed(self.tree_nodes, self.gamma))
        return self.most_drafted + (0 if self.inner is None else INNER_GAMMA)

    @property
    def draft_model(self) -> str | None:
        """The other model that drafts, in a cascade for the self-draft, as `--model` names one.

        None when there is none."""
        name = self.draft if self.inner is None else self.inner
        return None if name in (SELF, LOOKUP) or self.draft_layers is not None else name
