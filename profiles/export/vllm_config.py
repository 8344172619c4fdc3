"""What vLLM 0.33.0 takes as `--speculative-config`: members, their types, and its rules.

As its `SpeculativeConfig` and the `DynamicSDSchedule` validation have them, for every method. Not
judged is what only the models or the rest of the engine's settings tell: whether a draft's
vocabulary fits, a length its window, `draft_tensor_parallel_size` the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from magicdec.engine.untrusted import shown
from magicdec.profiles.export.schema import Strict, one_of
from magicdec.profiles.export.settings import check_rates, wrong
from magicdec.profiles.export.vllm_names import (
    ATTENTION_BACKENDS,
    KV_DTYPES,
    LOAD_FORMATS,
    METHODS,
    MOE_BACKENDS,
    MTP,
    QUANTIZATION,
)

NAME = "vLLM"
SCHEDULE = "num_speculative_tokens_per_batch_size"
RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
NGRAM = ("ngram", "ngram_gpu")
#: A draft model whose name has one of these is taken for that kind of head.
BY_NAME = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
#: Methods that bring the weights of a draft, or none.
WITHOUT_MODEL = (*NGRAM, "suffix", "extract_hidden_states", "mtp", "dspark")
#: Of which it drops a schedule unread. They run on its first model runner alone
#: (`VllmConfig._get_v2_model_runner_unsupported_features`), whose proposers for them have a fixed
#: length (`VllmConfig._maybe_disable_dynamic_sd_for_v1`; both in vllm/config/vllm.py).
WITHOUT_SCHEDULE = ("suffix", "custom_class")
OWN_LENGTH = ("mtp", "dspark")  # whose checkpoint may say num_speculative_tokens

Positive = Annotated[int, Field(ge=1)]


def _backend(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


Backend = Annotated[
    str, BeforeValidator(_backend), AfterValidator(one_of(("AUTO", *ATTENTION_BACKENDS)))
]


class Load(Strict):
    """`draft_load_config`."""

    load_format: str = "auto"
    download_dir: str | None = None
    safetensors_load_strategy: Literal["lazy", "eager", "prefetch", "torchao"] | None = None
    safetensors_prefetch_num_threads: Positive = 1
    safetensors_prefetch_block_size: Positive = 1
    model_loader_extra_config: Any = None
    device: str | None = None
    ignore_patterns: list[str] | str = ""
    use_tqdm_on_load: bool = True
    pt_load_map_location: str | dict[str, str] = "cpu"


class Speculative(Strict):
    """Defaults are vLLM's where a rule reads them; absent ones are None or 0."""

    method: Annotated[str, AfterValidator(one_of(METHODS))] | None = None
    model: str | None = None
    num_speculative_tokens: Annotated[int, Field(gt=0)] = 0
    num_speculative_tokens_per_batch_size: list[tuple[int, int, int]] | None = None
    # The draft
    draft_tensor_parallel_size: Positive | None = None
    tensor_parallel_size: int | None = None
    quantization: str | None = None
    moe_backend: Annotated[str, AfterValidator(one_of(MOE_BACKENDS))] | None = None
    attention_backend: Backend | None = None
    kv_cache_dtype: str | None = None
    max_model_len: Positive | None = None
    revision: str | None = None
    code_revision: str | None = None
    draft_load_config: Load | None = None
    enforce_eager: bool | None = None
    # How it drafts
    draft_sample_method: Literal["greedy", "probabilistic"] = "greedy"
    draft_lm_head_quantization: Literal["fp8", "nvfp4"] | None = None
    index_share_for_mtp_iteration: bool | None = None
    disable_padded_drafter_batch: bool = False
    disable_eagle_block_drop: bool = False
    disable_lookahead_block_hashes: bool = False
    use_local_argmax_reduction: bool = False
    use_heterogeneous_vocab: bool = False
    parallel_drafting: bool = False
    enable_adaptive_verification: bool = False
    dspark_draft_topk: Positive | None = None
    xpress_topc: Annotated[int, Field(ge=0)] | None = None
    prompt_lookup_max: Positive | None = None
    prompt_lookup_min: Positive | None = None
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    # What is accepted
    rejection_sample_method: Literal["standard", "synthetic", "block", "fly"] = "standard"
    synthetic_acceptance_rates: list[float] | None = None
    synthetic_acceptance_length: float | None = None
    fly_window_size: Positive | None = None
    fly_entropy_threshold: Annotated[float, Field(ge=0)] = 0.3
    fly_entropy_top_k: Positive = 3
    # The engine's own, which it replaces
    target_model_config: Any = None
    target_parallel_config: Any = None
    draft_model_config: Any = None
    draft_parallel_config: Any = None


def check_rules(config: Speculative) -> list[str]:
    """What vLLM reads otherwise than it is written. Raises ConfigError for what it refuses."""
    method, remarks = _method(config)
    _refuse(
        config.tensor_parallel_size is not None,
        "tensor_parallel_size is the target's; for the draft, draft_tensor_parallel_size",
    )
    most = config.num_speculative_tokens
    if not most and method == "suffix":
        most = config.suffix_decoding_max_tree_depth
    _refuse(
        not most and not (method in OWN_LENGTH and config.model is not None),
        "num_speculative_tokens must be an integer of at least 1",
    )
    _check_method(config, method)
    _check_vocabularies(config, method)
    if most:
        check_replay(config.rejection_sample_method, config.synthetic_acceptance_rates,
                     config.synthetic_acceptance_length, most)  # fmt: skip
        _check_fly(config, method, most)
    schedule = config.num_speculative_tokens_per_batch_size
    if schedule is not None and method in WITHOUT_SCHEDULE:
        remarks.append(f"vLLM drops {SCHEDULE} with method {method}: every batch has {most}")
    elif schedule is not None:
        remarks += check_ranges(schedule, most)
    return remarks


def _refuse(condition: bool, why: str) -> None:
    if condition:
        raise wrong(NAME, why)


def _method(config: Speculative) -> tuple[str, list[str]]:
    """The method that vLLM would take it for. Raises ConfigError where there is no draft."""
    method, model = config.method, config.model
    if method is None:
        if model is not None and _is_import_path(model):
            method = "custom_class"
        else:
            method = "ngram" if model in ("ngram", "[ngram]") else "draft_model"
    if method in MTP:
        method = "mtp"
    if method not in WITHOUT_MODEL:
        _refuse(
            not model and (model == "" or config.num_speculative_tokens > 0),
            "model must name a class to import" if method == "custom_class"
            else "model must name a draft model",
        )  # fmt: skip
    if method in ("draft_model", "mtp") and model is not None:
        for part, kind in BY_NAME.items():
            if part in model.lower():
                return kind, [f"vLLM takes {shown(model)} for method {kind}, by its name"]
    return method, []


def _is_import_path(model: str) -> bool:
    parts = model.split(".")
    return "/" not in model and len(parts) > 1 and all(part.isidentifier() for part in parts)


def _check_method(config: Speculative, method: str) -> None:
    if method in NGRAM:
        least = config.prompt_lookup_min or config.prompt_lookup_max or 5
        _refuse(
            least > (config.prompt_lookup_max or least),
            f"prompt_lookup_min {least} must not exceed prompt_lookup_max "
            f"{config.prompt_lookup_max}",
        )
    elif method == "suffix":
        _refuse(config.suffix_decoding_max_tree_depth < 1,
                "suffix_decoding_max_tree_depth must be at least 1")  # fmt: skip
        _refuse(config.suffix_decoding_max_cached_requests < 0,
                "suffix_decoding_max_cached_requests must be at least 0")  # fmt: skip
        _refuse(config.suffix_decoding_max_spec_factor < 0,
                "suffix_decoding_max_spec_factor must be at least 0")  # fmt: skip
        _refuse(not 0 <= config.suffix_decoding_min_token_prob <= 1,
                "suffix_decoding_min_token_prob must lie in 0..1")  # fmt: skip
    elif method not in ("custom_class", "extract_hidden_states"):
        _check_names(config)
        _refuse(config.dspark_draft_topk is not None and method != "dspark",
                "dspark_draft_topk goes with method dspark")  # fmt: skip
        _refuse(config.xpress_topc is not None and method != "dflash",
                "xpress_topc goes with method dflash")  # fmt: skip
    _refuse(config.index_share_for_mtp_iteration is not None and method != "mtp",
            "index_share_for_mtp_iteration goes with method mtp")  # fmt: skip
    _refuse(
        config.draft_lm_head_quantization is not None and method not in ("eagle", "eagle3", "mtp"),
        "draft_lm_head_quantization goes with methods eagle, eagle3 and mtp",
    )
    _refuse(
        method != "dspark" and config.enable_adaptive_verification
        and config.use_local_argmax_reduction,
        "enable_adaptive_verification excludes use_local_argmax_reduction",
    )  # fmt: skip


def _check_names(config: Speculative) -> None:
    """Of what is only looked up where a draft is loaded."""
    load = config.draft_load_config
    quantization = config.quantization or (None if config.model is None else config.quantization)
    for member, name, known in (
        ("quantization", quantization, QUANTIZATION),
        ("kv_cache_dtype", config.kv_cache_dtype, KV_DTYPES),
        ("load_format", load and load.load_format.lower(), LOAD_FORMATS),
    ):
        _refuse(name is not None and name not in known,
                f"{member} {shown(name)} is none of its own names")  # fmt: skip


def _check_vocabularies(config: Speculative, method: str) -> None:
    if config.use_heterogeneous_vocab:
        _refuse(method != "draft_model", "use_heterogeneous_vocab goes with method draft_model")
        _refuse(config.draft_sample_method != "greedy",
                "use_heterogeneous_vocab goes with draft_sample_method greedy")  # fmt: skip
        _refuse(config.use_local_argmax_reduction,
                "use_heterogeneous_vocab excludes use_local_argmax_reduction")  # fmt: skip


def _check_fly(config: Speculative, method: str, most: int) -> None:
    if config.rejection_sample_method != "fly":
        return
    _refuse(method == "extract_hidden_states", "fly needs a method that drafts")
    _refuse(most < 2, "fly needs num_speculative_tokens of at least 2")
    _refuse((config.fly_window_size or 0) >= most,
            f"fly_window_size must be below num_speculative_tokens {most}")  # fmt: skip


def check_replay(
    method: str, rates: Sequence[float] | None, length: float | None, most: int
) -> None:
    given = (rates is not None) + (length is not None)
    _refuse(
        given != (method == "synthetic"),
        f"rejection_sample_method 'synthetic' goes with either {RATES} or {LENGTH}",
    )
    _refuse(
        length is not None and not 1 <= length <= most + 1,
        f"{LENGTH} must lie in 1..{most + 1}, got {shown(length)}",
    )
    if rates is not None:
        _refuse(len(rates) != most, f"{RATES} must have {most} entries, one per position")
        check_rates(rates, NAME)


def check_ranges(entries: Sequence[tuple[int, int, int]], most: int) -> list[str]:
    """(first, last, K) in any order, from 1 on, without overlap; gaps inherit the K before.

    In any order with every method, ngram too: `validate_and_normalize_dynamic_sd_schedule` in
    vllm/v1/spec_decode/dynamic/utils.py, to which the scheduler takes all of them, sorts by `first`
    before it looks for overlaps, though what it then says of those reads "and sorted".
    """
    _refuse(not entries, f"{SCHEDULE} must have an entry")
    end = 0
    for first, last, gamma in sorted(entries, key=lambda entry: entry[0]):
        entry = [first, last, gamma]
        _refuse(first < 1 or last < first, f"range {entry} is none of batch sizes from 1")
        _refuse(end == 0 and first != 1, f"the first range must start at batch 1, got {first}")
        _refuse(first <= end, f"range {entry} overlaps the one before, which ends at {end}")
        _refuse(gamma < 0, f"K of range {entry} must be at least 0")
        end = last
    cut = sorted({gamma for _, _, gamma in entries if gamma > most > 0})
    return [f"vLLM cuts K {cut[-1]} to num_speculative_tokens {most}"] if cut else []
