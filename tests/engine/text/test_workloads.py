"""Generated tasks: exactly long enough, different by row, the same by seed, solvable."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.text.ruler.names import TASKS, read_sources, read_workload
from magicdec.engine.text.ruler.sentences import sentences
from magicdec.engine.text.ruler.tasks import FAMILY_NAMES, GIVEN_NAMES, biographies, made_up_words
from magicdec.engine.text.ruler.workload import Instance, Workload

UNIT = {"niah-multikey": 2, "cwe": 6, "qa": 40}  # the longest unit of each, in words


def words(text: str) -> int:
    return len(text.split())


def made(task: str, number: int = 0, limit: int = 3000, seed: int = 0) -> Instance:
    return read_workload(f"ruler:{task}?seed={seed}").instance(number, words, limit)


@pytest.mark.parametrize("limit", [500, 1234, 20_000])
@pytest.mark.parametrize("task", TASKS)
def test_length_is_just_below_what_was_asked(task, limit):
    used = words(made(task, limit=limit).text)
    assert limit - UNIT[task] < used <= limit


@given(
    st.integers(1, 50), st.integers(0, 30), st.integers(0, 500),
    st.lists(st.integers(1, 30), min_size=20, max_size=20),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_any_filling_is_fitted_to_the_last_unit(frame, unit, room, sizes):
    """Units of any size: nothing longer than the limit, and no room for one more unit."""

    def count(units: int) -> int:
        return frame + sum(sizes[i % 20] + unit for i in range(units))

    workload = Workload("w", lambda dice, units: Instance(str(units), ()))
    limit = count(1) + room
    units = int(workload.instance(0, lambda text: count(int(text)), limit).text)
    assert count(units) <= limit < count(units + 1)


@pytest.mark.parametrize("task", TASKS)
def test_seed_and_row_decide_and_nothing_else(task):
    first = made(task)
    assert made(task) == first
    others = [made(task, 1), made(task, seed=1)]
    assert len({first.text, *(other.text for other in others)}) == 3
    assert all(other.answers != first.answers for other in others)


@pytest.mark.parametrize("row", range(5))
def test_needles_are_in_the_haystack_once(row):
    instance = made("niah-multikey", row)
    needles = re.findall(r"The secret number of the (\w+ \w+) is (\d{7})\.", instance.text)
    assert len(needles) == len(dict(needles)) == 4
    asked = re.search(r"Answer: The secret number of the (\w+ \w+) is$", instance.text)
    assert asked is not None and dict(needles)[asked[1]] == instance.answers[0]
    assert instance.text.count(instance.answers[0]) == 1
    assert instance.text.count(f"{asked[1]} is ") == 1


def test_needles_lie_at_all_depths():
    depths = []
    for row in range(30):
        text = made("niah-multikey", row, limit=1500).text
        depths.append(text.index(made("niah-multikey", row, limit=1500).answers[0]) / len(text))
    assert min(depths) < 0.25 and max(depths) > 0.75


def test_a_haystack_of_ones_own(tmp_path):
    (tmp_path / "hay.txt").write_text("Grass grows. It is mown! Is it dry?")
    source = f"ruler:niah-multikey?haystack={tmp_path / 'hay.txt'}&seed=7"
    text = read_workload(source).instance(0, words, 400).text
    assert text.count("Grass grows.") > 10 and words(text) == 400


@pytest.mark.parametrize(
    ("context", "often", "seldom"),
    [(1500, 6, 1), (3975, 6, 1), (3976, 30, 3), (4000, 30, 3), (16_000, 30, 3)],
)
def test_words_occur_as_often_as_published(context, often, seldom):
    """From 4,096 tokens on, of which the answer has 120; a chat template takes from the rest."""
    instance = read_workload("ruler:cwe").instance(0, words, context - 50, context)
    counts = Counter(re.findall(r"\d+\. (\w+)", instance.text))
    assert {counts[word] for word in instance.answers} == {often}
    assert {n for word, n in counts.items() if word not in instance.answers} == {seldom}


@pytest.mark.parametrize("row", range(20))
@pytest.mark.parametrize("limit", [300, 1500])
def test_no_needle_stands_within_a_sentence(tmp_path, row, limit):
    """Words of a sentence are numbered here: between two neighbours stands no other."""
    said = [
        f"N{n}a, e.g. N{n}b (see N{n}c. {n}) and it is 3.5 of N{n}d{end}"
        for n, end in zip(range(90), ".!?" * 30, strict=True)
    ]
    (tmp_path / "hay.txt").write_text("A heading\n\n" + " ".join(said))
    make = read_workload(f"ruler:niah-multikey?haystack={tmp_path / 'hay.txt'}")
    text = make.instance(row, words, limit).text
    filling = text.split("\n\n")[1]
    parts = re.split(r"The secret number of the \w+ \w+ is \d+\.", filling)
    assert len(parts) == 5
    whole = ("A heading", *(end for one in said for end in (one, one.rpartition(" ")[2])))
    for before in parts[:-1]:
        assert not before.strip() or before.strip().endswith(whole)
    for after in parts[1:]:
        assert not after.strip() or after.strip().startswith(("N", "A heading"))


def test_sentences_end_where_readers_see_it():
    text = """Heading

It is (e.g. Here) one. "Two!" Three? It has 3.5 parts, i.e. Four.
(In brackets.) So on... and on"""
    assert [" ".join(words) for words in sentences(text)] == [
        "Heading", "It is (e.g. Here) one.", '"Two!"', "Three?",
        "It has 3.5 parts, i.e. Four.", "(In brackets.)", "So on... and on",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [300, 500, 4000])
def test_common_words_are_the_most_common(limit):
    instance = made("cwe", limit=limit)
    listed = re.findall(r"\d+\. (\w+)", instance.text)
    counts = Counter(listed)
    common = [counts[word] for word in instance.answers]
    others = [n for word, n in counts.items() if word not in instance.answers]
    assert len(common) == 10 and min(common) > max(others)
    assert re.findall(r"(\d+)\. \w+", instance.text) == [str(i + 1) for i in range(len(listed))]


@pytest.mark.parametrize("row", range(8))
def test_the_answer_is_in_the_paragraph_asked_about_and_no_other(row):
    instance = made("qa", row)
    question = re.search(
        r"Question: .*? (?:was|of|did) ([A-Z].*?)(?: born| work)?\?", instance.text
    )
    assert question is not None
    paragraphs = [part for part in instance.text.split("\n\n") if part.startswith("Document")]
    about = [part for part in paragraphs if question[1] in part]
    assert len(about) == 1 and instance.answers[0] in about[0]
    assert instance.text.endswith("Answer:")


def test_everybody_has_a_name_of_their_own():
    count = 2 * len(GIVEN_NAMES) * len(FAMILY_NAMES) + 50
    text = biographies(Random(0), count).text
    paragraphs = [part.partition(": ")[2] for part in text.split("\n\n") if "Document" in part[:9]]
    names = {
        name
        for part in paragraphs
        for name in re.findall(
            rf"(?:{'|'.join(GIVEN_NAMES)})(?: [A-Z]\.)* (?:{'|'.join(FAMILY_NAMES)})", part
        )[:1]
    }
    assert len(paragraphs) == len(names) == count


def test_words_differ():
    assert len(set(made_up_words(Random(0), 5000))) == 5000


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (["ruler:vt"], "choose from"),
        (["ruler:cwe", "builtin:pydoc"], "mixed"),
        (["ruler:cwe", "ruler:cwe"], "twice"),
        (["ruler:cwe?seed=-1"], "seed"),
        (["ruler:cwe?seed=99999999999999999999"], "seed"),
        (["ruler:cwe?haystack=a"], "haystack"),
        (["ruler:cwe?seed"], "?seed=3"),
        (["ruler:niah-multikey?haystack=/no/such/file"], "no file"),
        (["ruler:niah-multikey?haystack="], "haystack"),
    ],
)
def test_names_that_are_none(sources, said):
    with pytest.raises(ConfigError) as caught:
        read_sources(sources)
    assert said in str(caught.value)


@pytest.mark.parametrize("task", TASKS)
def test_too_little_room_says_how_much_is_needed(task):
    with pytest.raises(ConfigError, match=r"at least \d+ tokens, 20 are left"):
        made(task, limit=20)
