"""Which layers see a window only, as far as transformers is of one mind about a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.model.trained import scaled_window
from magicdec.engine.untrusted import brief

FULL, SLIDING = "full_attention", "sliding_attention"


def check_layers(folder: Path, config: Any) -> None:
    """Refuses what has no one meaning. `config` is transformers' object. Raises ModelError.

    transformers gives a llama model's layers no window, but where one is configured its cache
    forgets what is beyond it: with and without a cache it then says different texts.
    """
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if unknown := [kind for kind in kinds or () if kind not in (FULL, SLIDING)]:
        raise ModelError(
            f"{folder} has layers of {unknown[0]!r} (layer_types), which is not supported; "
            f"supported kinds: {FULL}, {SLIDING}"
        )
    if window is None:
        if kinds is not None and SLIDING in kinds:
            raise ModelError(
                f"{folder} has layers that see a window (layer_types) and says no window for them "
                "(sliding_window); copy or download the model again"
            )
        return
    if type(window) is not int:
        raise ModelError(
            f"{folder} has sliding_window = {brief(window, 60)} where a number of tokens, or null, "
            "is needed; copy or download the model again"
        )
    slides = kinds is None or SLIDING in kinds
    trained = scaled_window(config.max_position_embeddings, config.rope_parameters or {})
    if config.model_type == "llama" and slides and window < trained:
        raise ModelError(
            f"{folder} sets sliding_window {window} in a llama model, which has no windows: "
            "transformers says different texts of it with and without a cache; where the model was "
            "trained without one, set sliding_window and layer_types to null in config.json"
        )
