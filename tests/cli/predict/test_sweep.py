"""The sweep grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.profiles.files.sweep import sweep


def read(text: str, low: int = 1, high: int = 1_000_000, most: int = 10_000) -> tuple[int, ...]:
    return sweep(text, "--batch", low=low, high=high, most=most)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", (8,)),
        ("1,4,8", (1, 4, 8)),
        (" 1 , 4 ", (1, 4)),
        ("1-6", (1, 2, 3, 4, 5, 6)),
        ("3-3", (3,)),
        ("1000-3000+500", (1000, 1500, 2000, 2500, 3000)),
        ("1000-2900+1k", (1000, 2000)),
        ("1024-8192*2", (1024, 2048, 4096, 8192)),
        ("1024-8191*2", (1024, 2048, 4096)),
        ("100-1000*1.5", (100, 150, 225, 338, 506, 759)),
        ("1-4*1.2", (1, 2, 3, 4)),  # 1.2 and 1.44 round to 1 again; 3.58 to 4
        ("8k,32K", (8000, 32000)),
        ("1k-4k*2", (1000, 2000, 4000)),
        ("8,1-3,2,8", (8, 1, 2, 3)),
    ],
)
def test_what_is_written_is_what_is_swept(text: str, values: tuple[int, ...]) -> None:
    assert read(text) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty item"),
        ("1,,2", "empty item"),
        ("1,", "empty item"),
        ("8-4", "backwards; write 4-8"),
        ("8k-4000", "backwards"),
        ("1-8+0", "whole number from 1"),
        ("1-8+1.5", "whole number from 1"),
        ("1-8*1", "above 1"),
        ("1-8*0", "above 1"),
        ("1-8*0.5", "above 1"),
        ("-3", "not a whole number"),
        ("1--3", "not a whole number"),
        ("1.5", "not a whole number"),
        ("four", "not a whole number"),
        ("1-8/2", "not a whole number"),
        ("1-2-3", "not a whole number"),
        ("1:8", "not a whole number"),
        ("1e3", "not a whole number"),
        ("nan", "not a whole number"),
        ("0", "outside 1..1,000,000"),
        ("0-4", "outside"),
        ("1-2000000", "outside"),
        ("9" * 500, "outside"),
        ("1-20000", "more than 10,000"),
        ("1-5000,10000-19999", "more than 10,000"),
        ("1-1000000*1.0001", "more than 10,000"),
    ],
)
def test_what_cannot_be_swept_says_why(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    message = str(error.value)
    assert said in message and message.startswith("--batch") and "\n" not in message
    assert len(message) < 700


def test_no_factor_leaves_0() -> None:
    with pytest.raises(ConfigError, match=r"--gamma: '0-8\*2' never leaves 0; begin at 1"):
        sweep("0-8*2", "--gamma", low=0, high=32)


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=50))
def test_a_list_keeps_its_order_and_each_value_once(values: list[int]) -> None:
    assert read(",".join(map(str, values))) == tuple(dict.fromkeys(values))


@given(st.integers(1, 2000), st.integers(0, 2000), st.integers(1, 500))
def test_an_additive_range_is_pythons_with_its_end(first: int, more: int, step: int) -> None:
    assert read(f"{first}-{first + more}+{step}") == tuple(range(first, first + more + 1, step))


@given(st.integers(1, 1000), st.integers(2, 10), st.integers(0, 10))
def test_a_whole_factor_hits_its_exact_powers(first: int, factor: int, times: int) -> None:
    last = first * factor**times
    found = read(f"{first}-{last}*{factor}", high=10**14)
    assert found == tuple(first * factor**i for i in range(times + 1))


@given(
    st.integers(1, 1000), st.integers(0, 100_000),
    st.decimals("1.01", "9", places=2).filter(lambda factor: factor > 1),
)  # fmt: skip
def test_a_factor_rises_within_its_ends(first: int, more: int, factor: object) -> None:
    found = read(f"{first}-{first + more}*{factor}")
    assert found[0] == first and found[-1] <= first + more
    assert list(found) == sorted(set(found))


@given(st.text("0123456789,-+*.k ", max_size=12))
def test_any_text_is_values_in_range_or_one_clear_line(text: str) -> None:
    try:
        found = read(text)
    except ConfigError as error:
        assert "--batch" in str(error) and "\n" not in str(error)
    else:
        assert found and all(1 <= value <= 1_000_000 for value in found)
        assert len(set(found)) == len(found) <= 10_000
