"""A model as the cost model sees it: sizes only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from magicdec.profiles.storage.typed import Count, Name


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder of the Llama family, as its Hugging Face configuration gives them."""

    name: Name
    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    max_position: Count  # the trained context window
    tied: bool = False  # the output head is the embedding matrix
    source: str = ""

    @property
    def streamed(self) -> int:
        """P: weights that one pass reads. The input embedding is a lookup and does not count."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp) + self.vocab * self.hidden

    @property
    def stored(self) -> int:
        """Weights that memory holds."""
        return self.streamed + (0 if self.tied else self.vocab * self.hidden)

    def first(self, layers: int) -> ModelShape:
        """Its first layers with its head: an early exit."""
        return replace(self, name=f"{self.name}, {layers} layers", layers=layers)

    def kv_bytes_per_token(self, element_size: float = 2) -> float:
        """κ: bytes of K and V that one token adds, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_size
