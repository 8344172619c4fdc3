"""The strict validators of what is exported, and the arithmetic under it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.profiles.acceptance.rates import AcceptanceCounts, pooled
from magicdec.profiles.export.plan import spans
from magicdec.profiles.export.registry import FORMATS, format_named

GOLDEN = Path(__file__).parents[1] / "golden"

VLLM = {"method": "draft_model", "model": "D", "num_speculative_tokens": 3}
RANGES = "num_speculative_tokens_per_batch_size"
BAD = {
    "vllm": [
        "nonsense", "[]", "{}", '{"a": NaN}',
        *(json.dumps(VLLM | change) for change in (
            {"model": ""}, {"num_speculative_tokens": 0}, {"num_speculative_tokens": "many"},
            {"typo": 1}, {RANGES: {"1-8": 3}}, {RANGES: []}, {RANGES: [[2, 8, 3]]},
            {RANGES: [[1, 8, 3], [8, 9, 1]]}, {RANGES: [[1, 8]]},
            {RANGES: [[1, 0, 3]]}, {RANGES: [[1, 8, -1]]}, {RANGES: [[8, 12, 1], [1, 8, 3]]},
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.5},
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2,
             "synthetic_acceptance_rates": [1, 1, 1]},
            {"rejection_sample_method": "synthetic"}, {"synthetic_acceptance_rates": [1, 1, 1]},
            *({"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}
              for rates in ([0.9, 0.8], [0.9, 0.8, 0.85], [1.1, 1, 1], ["a", 0, 0])),
        )),
    ],
    "vllm-experimental": [
        json.dumps(VLLM | {RANGES: entries}) for entries in (
            [[1, 8, 3]], [[1, 8, 0, 9, 3]], [[1, 8, 1, 9, 4]], [[1, 8, 1, 9, 3], [1, 8, 11, 20, 3]],
            [[1, 8, 1, 9, 3], [9, 16, 1, 8, 3]], [[1, 8, 1, 9, 3], [1, 8, 1, 9, 3]],
            [[1, 8, 1, 9, 3], [8, 16, 1, 9, 3]],
            [[1, 8, 1, 9, 3], [9, 16, 1, 9, 3], [9, 16, 10, 20, 1]],
        )
    ],
    "vllm-sparse": [
        json.dumps({"method": "sparse_attn", "sparse_attn_algorithm": "streamingllm",
                    "sparse_attn_ratio": 0.05, "sparse_attn_min_tokens": 256,
                    "num_speculative_tokens": 4} | change)
        for change in ({"sparse_attn_ratio": 0}, {"sparse_attn_ratio": 1},
                       {"tensor_parallel_size": 1}, {"sparse_attn_algorithm": "magic"},
                       {"sparse_attn_min_tokens": 0},
                       {"rejection_sample_method": "synthetic"})
    ],
    "sglang": ["{}", "[]", *(json.dumps(config) for config in (
        {"1": {"candidate_steps": []}}, {"1": [1]}, {"1": {"candidate_steps": [-1]}},
        {"one": {"candidate_steps": [1]}},
    ))],
    "tensorrt-llm": [
        "[", "a: b", "speculative_config: 3", "speculative_config: {decoding_type: Eagle}",
        "speculative_config: {decoding_type: Draft_Target, speculative_model: D, max_draft_len: 4, "
        "max_concurrency: 8, draft_len_schedule: {4: 4}}",
        *(f"speculative_config: {{decoding_type: Draft_Target, speculative_model: {model}, "
          f"max_draft_len: {most}, draft_len_schedule: {schedule}}}"
          for model, most, schedule in (
              ("D", 0, "{1: 0}"), ("D", 4, "{}"), ("D", 4, "{4: 2}"), ("D", 4, "{1: 4, 8: 5}"),
              ("D", 4, "{0: 4}"), ("D", 4, "{a: 4}"), ("D", 4, "[4]"), ("3", 4, "{1: 4}"),
              ("D", 4, "{1: 4}, typo: 1"))),
    ],
    "llama.cpp": [
        "", "--spec-type", "--spec-type draft-simple", "--spec-type other --spec-draft-n-max 4",
        "--spec-type draft-simple --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0",
        *(f"--spec-type draft-simple --spec-draft-model D --spec-draft-n-max {most} "
          f"--spec-draft-n-min {least} --spec-draft-p-min {p}{more}" for most, least, p, more in (
              (0, 0, 0, ""), (4, 5, 0, ""), (4, 0, 2, ""), (4, 0, "nan", ""), ("x", 0, 0, ""),
              (2, 0, 0, " --spec-synth-rates 0.9"), (2, 0, 0, " --spec-synth-rates 0.8,0.9"),
              (2, 0, 0, " --evil rm"), (2, 0, 0, "\n--evil rm"), (2, 0, 0, " '"))),
    ],
    "aiconfigurator": ["", "--nextn 0 --nextn-accepted 0", "--nextn 2 --nextn-accepted 2.1",
                       "--nextn 2", "--nextn 2 --nextn-accepted inf"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "text"), [(f, text) for f, many in BAD.items() for text in many]
)
def test_what_an_engine_would_refuse_is_refused(format, text):
    with pytest.raises(ConfigError) as caught:
        format_named(format).check(text)
    assert len(str(caught.value).splitlines()) == 1


#: Not what is written here, but what the engines' own code takes.
GOOD = {
    "vllm": [json.dumps(VLLM | change) for change in (
        {RANGES: [[9, 12, 1], [1, 8, 3]]}, {RANGES: [[1, 8, 3], [16, 32, 0]]},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.5},
        {"draft_tensor_parallel_size": 1, "max_model_len": 4096},
    )],
    "sglang": [json.dumps(config) for config in (
        {"2": {"candidate_steps": [3, 1, 1]}, "ema_alpha": 0.2},
        {"1": {"candidate_steps": [1, 3], "up_hysteresis": 0.1}, "64": {"candidate_steps": [0]}},
    )],
    "tensorrt-llm": [
        f"speculative_config: {{decoding_type: {kind}, {model}: D, max_draft_len: 4, "
        "draft_len_schedule: {8: 2, 4: 4}, acceptance_rate_window_size: 10}"
        for kind in ("Draft_Target",)
        for model in ("speculative_model", "speculative_model_dir")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "text"), [(f, text) for f, many in GOOD.items() for text in many]
)
def test_what_an_engine_takes_passes(format, text):
    format_named(format).check(text)


@pytest.mark.parametrize(
    ("format", "config", "remark"),
    [
        ("vllm", VLLM | {RANGES: [[1, 8, 9]]}, "cuts K 9 to num_speculative_tokens 3"),
        ("vllm", VLLM | {"model": "org/EAGLE3-8b"}, "for method eagle3, by its name"),
        ("vllm", VLLM, ""),
        # As its VllmConfig has it: what it drops, it does not judge.
        *(
            ("vllm", {**method, "num_speculative_tokens": 3, RANGES: ranges}, "every batch has 3")
            for method in ({"method": "suffix"}, {"model": "my.module.Proposer"})
            for ranges in ([[1, 8, 2]], [[2, 8, 3]])
        ),
        (
            "vllm",
            {"method": "ngram", "num_speculative_tokens": 3, RANGES: [[9, 12, 1], [1, 8, 3]]},
            "",
        ),
        ("sglang", {"1": {"candidate_steps": [1], "x": 1}, "typo": 1}, "ignores 'typo', 'x'"),
        ("sglang", {"1": {"candidate_steps": [0]}}, "no entry speculates"),
    ],
)
def test_what_an_engine_reads_otherwise_is_said(magicdec, tmp_path, format, config, remark):
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    code, out, err = magicdec("profile", "export", path, "--to", format, "--check")
    assert (code, out) == (0, "") and remark in err
    assert len(err.splitlines()) == (2 if remark else 1)


@pytest.mark.parametrize(
    ("format", "text", "said"),
    [
        ("vllm", json.dumps(VLLM | {"tensor_parallel_size": 2}), "draft_tensor_parallel_size"),
        ("vllm", json.dumps(VLLM | {"draft_sample_method": "x"}), "'greedy' or 'probabilistic'"),
        ("vllm", json.dumps(VLLM | {"max_model_len": 0}), "max_model_len"),
        (
            "vllm",
            json.dumps({"method": "ngram", "num_speculative_tokens": 3, RANGES: [[2, 4, 1]]}),
            "must start at batch 1",
        ),
        (
            "tensorrt-llm",
            "speculative_config: {decoding_type: Draft_Target, acceptance_window: 1}",
            "it is called acceptance_rate_window_size",
        ),
        ("tensorrt-llm", "speculative_config: {decoding_type: Eagle3}", "only Draft_Target"),
        ("tensorrt-llm", "speculative_config: {decoding_type: DraftTarget}", "'Draft_Target'"),
    ],
)
def test_a_refusal_names_the_member(format, text, said):
    with pytest.raises(ConfigError, match=said):
        format_named(format).check(text)


@pytest.mark.parametrize("format", FORMATS)
def test_golden_files_pass_the_check(magicdec, format):
    for path in GOLDEN.glob(f"{format}.*"):
        if not path.name.endswith(".notes.md"):
            code, _, err = magicdec("profile", "export", path, "--to", format, "--check")
            assert code == 0 and "valid" in err


counts = st.lists(st.integers(1, 1000), min_size=1, max_size=8).map(lambda c: sorted(c)[::-1])


@given(counts, st.lists(st.floats(0, 1), min_size=8, max_size=8))
@settings(max_examples=200, deadline=None)
def test_rates_never_rise_and_keep_the_counts(drafted, shares):
    accepted = [round(d * share) for d, share in zip(drafted, shares, strict=False)]
    acceptance = AcceptanceCounts(tuple(drafted), tuple(accepted))
    rates = acceptance.falling
    assert all(0 <= rate <= 1 for rate in rates)
    assert all(before >= after for before, after in pairwise(rates))
    kept = sum(r * d for r, d in zip(rates, drafted, strict=True))
    assert math.isclose(kept, sum(accepted), rel_tol=1e-9, abs_tol=1e-9)
    plain = [a / d for a, d in zip(accepted, drafted, strict=True)]
    if plain == sorted(plain, reverse=True):
        assert rates == pytest.approx(plain)


def test_counts_are_pooled_over_draft_lengths(make):
    """Position 1 of γ 1 and γ 3 counts alike."""
    cells = make.cell(gamma=1, noise=(1.0,)), make.cell(gamma=3, noise=(1.0,))
    found = pooled(cell.acceptance for cell in cells)
    assert found.drafted == (200, 100, 100)
    assert found.accepted == (180, 80, 70)
    assert found.length(2) == pytest.approx(1 + 0.9 + 0.8)


@given(st.sets(st.integers(1, 10**6), min_size=1, max_size=10).map(sorted))
@settings(deadline=None)
def test_spans_tile_and_hold_their_value(values):
    ranges = spans(values)
    assert ranges[0][0] == 1 and ranges[-1][1] == values[-1]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
    assert all(first <= value <= last for value, (first, last) in zip(values, ranges, strict=True))
