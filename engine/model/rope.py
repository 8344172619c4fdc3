"""Rotary position embedding (RoFormer, arXiv 2104.09864) with the scalings transformers knows.

Inverse frequencies come from transformers' own `ROPE_INIT_FUNCTIONS`, except for the unscaled
kind, whose one-line formula is not worth a slow import.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.files import quiet_transformers
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.untrusted import brief


class Rope:
    """cos and sin for token positions.

    Dynamic NTK scaling makes the frequencies depend on how long the text is. They then follow
    what transformers does for one unpadded row: the whole prompt uses the prompt's length, each
    later token its own. A token's rotation is thereby a function of its position and its row's
    prompt length alone, the same in a plain step and in a verify pass.
    """

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        self._spec = spec
        self._device, self._dtype = device, dtype
        self.dynamic = spec.rope.get("rope_type", "default") == "dynamic"
        inv_freq, self._scale = self._usable()
        self._inv_freq = inv_freq.to(device)  # [D/2], for texts inside the trained window
        self._stretched: dict[int, Tensor] = {}  # by text length, dynamic scaling only

    def depends_on_prompt_length(self, length: int) -> bool:
        """Whether K of a prompt this long differ from those of a longer one's prefix."""
        return self.dynamic and length > self._spec.max_position

    def tables(self, positions: Tensor, prompts: Sequence[int], last: Sequence[int]) -> Tensor:
        """cos and sin, stacked: [2, n, T, D] for positions [n, T].

        prompts: each row's prompt length; last: each row's last position, as host integers.
        """
        if self.dynamic and max(*prompts, *last) >= self._spec.max_position:
            inv_freq = self._dynamic(positions, prompts, last)  # [n, T, D/2]
        else:
            inv_freq = self._inv_freq
        angles = positions[..., None].float() * inv_freq  # [n, T, D/2]
        angles = torch.cat((angles, angles), dim=-1)
        return (torch.stack((angles.cos(), angles.sin())) * self._scale).to(self._dtype)

    def _dynamic(self, positions: Tensor, prompts: Sequence[int], last: Sequence[int]) -> Tensor:
        new = positions.shape[1]
        rows = []
        for prompt, end in zip(prompts, last, strict=True):
            lengths = [max(prompt, p + 1) for p in range(end - new + 1, end + 1)]
            if lengths[0] == lengths[-1]:  # a chunk of the prompt
                rows.append(self._stretch(lengths[0]).expand(new, -1))
            else:
                rows.append(torch.stack([self._stretch(n) for n in lengths]))
        return torch.stack(rows)

    def _stretch(self, length: int) -> Tensor:
        if length <= self._spec.max_position:
            return self._inv_freq
        if length not in self._stretched:
            self._stretched[length] = self._frequencies(length)[0].to(self._device)
        return self._stretched[length]

    def _usable(self) -> tuple[Tensor, float]:
        """`_frequencies`. Raises ModelError where the settings give none."""
        try:
            inv_freq, scale = self._frequencies(None)
            found = bool(inv_freq.isfinite().all()) and math.isfinite(scale)
        except Exception:  # of arithmetic, or of transformers, which trusts the settings
            found = False
        if not found:
            raise ModelError(
                f"the model's RoPE settings give no usable frequencies: {brief(self._spec.rope)}; "
                "copy or download the model again"
            )
        return inv_freq, scale

    def _frequencies(self, length: int | None) -> tuple[Tensor, float]:
        spec = self._spec
        kind = spec.rope.get("rope_type", "default")
        if kind == "default":
            half = torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim
            return 1.0 / spec.rope["rope_theta"] ** half, 1.0
        from transformers import PreTrainedConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        with quiet_transformers():
            config = PreTrainedConfig(
                hidden_size=spec.hidden_size,
                num_attention_heads=spec.heads,
                head_dim=spec.head_dim,
                max_position_embeddings=spec.max_position,
                rope_parameters=spec.rope,
            )
            inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
        return inv_freq, float(scale)
