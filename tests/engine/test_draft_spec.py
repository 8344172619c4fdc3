"""Who drafts, over what: one record, taken apart once, and the same wherever it is written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.cli.settings.knobs import KNOBS, Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec, Who, who_is
from magicdec.engine.errors import ConfigError
from magicdec.engine.selection import measured_as
from magicdec.profiles.files.json_fields import Fields
from magicdec.profiles.recorded.decode import key_from_json
from magicdec.profiles.recorded.schema import CellKey

NAMES = [
    "self",
    "lookup",
    "layers:6",
    "org/small",
    "lookup+self",
    "layers:6+self",
    "/my/small+self",
]
SPECS = [
    DraftSpec(None, draft="lookup"),
    *(DraftSpec("full", draft=name) for name in NAMES),
    *(DraftSpec("snapkv", (("window", "16"),), 64, draft=name) for name in NAMES),
    DraftSpec("streaming", (), 128, 0.7, "int8", tree="sequoia", tree_nodes=9),
    DraftSpec("streaming", (), 128, draft="layers:2", gamma_policy="/my/plan.toml"),
]


@pytest.mark.parametrize(
    "who",
    [
        Who("self", "self", "self"),
        Who("lookup", "lookup", "lookup"),
        Who("layers:6", "layers", "layers:6", layers=6),
        Who("org/small", "model", "org/small", model="org/small"),
        Who("selfish", "model", "selfish", model="selfish"),
        Who("lookup+self", "cascade", "lookup"),
        Who("layers:6+self", "cascade", "layers:6", layers=6),
        Who("/my/small+self", "cascade", "/my/small", model="/my/small"),
    ],
    ids=lambda who: who.name,
)
def test_a_name_says_who_drafts(who):
    assert who_is(who.name) == who
    who.check()
    assert DecodeConfig(draft=who.name).who == DraftSpec("snapkv", draft=who.name).who == who


@given(st.text(max_size=12) | st.lists(st.sampled_from([*NAMES, "+", "/"])).map("".join))
def test_whatever_it_is_called_it_is_taken_apart_without_a_loss(name):
    who = who_is(name)
    assert who.first + "+self" * who.cascades == name
    assert (who.model, who.layers).count(None) >= 1
    try:
        who.check()
    except ConfigError as refused:
        with pytest.raises(ConfigError) as caught:
            DecodeConfig(draft=name)
        assert str(caught.value) == str(refused)
    else:
        assert DecodeConfig(draft=name).who is who


@pytest.mark.parametrize("name", NAMES)
def test_folders_are_left_out_where_others_read(name):
    who = who_is(name)
    assert "/my/" not in who.stored and "/" not in who.short
    assert who_is(who.stored).kind == who_is(who.short).kind == who.kind


def _settings(flags):
    """What the command line makes of them."""
    knobs, values = {knob.flag: knob for knob in KNOBS}, {}
    for flag, text in zip(flags[::2], flags[1::2], strict=True):
        value = knobs[flag].parse(text, flag)
        name = knobs[flag].name
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return Settings(**values)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_its_flags_make_a_run_that_drafts_like_that(spec):
    asked = _settings(spec.flags)
    said = asked.spec(spec.draft_weights)
    decided_elsewhere = {"temperature", "tree", "tree_nodes", "gamma_policy"}
    assert {k: v for k, v in said.json.items() if k not in decided_elsewhere} == {
        k: v for k, v in spec.json.items() if k not in decided_elsewhere
    }


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_a_profile_gives_back_what_it_was_told(spec):
    key = CellKey.at(measured_as(spec, 0.5, spec.draft_weights), batch=2, context=900, gamma=3)
    assert key_from_json(Fields(key.stored.json, "there")) == key.stored
    assert "/my/" not in str(key.stored.json)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_a_run_is_drafted_by_it(spec):
    base = DecodeConfig(max_new_tokens=7, draft="other", budget=33, draft_weights="int8")
    config = base.drafted_by(spec, 5)
    assert (config.who, config.gamma, config.max_new_tokens) == (spec.who, 5, 7)
    assert config.budget == (spec.budget or 33) and config.draft_weights == spec.draft_weights
    left_open = DraftSpec("snapkv", draft_weights="auto")
    assert base.drafted_by(left_open, 5).draft_weights == "int8"


def test_equal_ways_are_equal_whatever_was_asked_for():
    assert DraftSpec("snapkv", (("window", 8),), 64, draft="lookup") == DraftSpec(
        None, draft="lookup"
    )
    assert DraftSpec("snapkv", (), 64, draft_kv="full") == DraftSpec("full")
    assert DraftSpec("snapkv", (), 64, tree_nodes=9) == DraftSpec("snapkv", (), 64)
    assert sorted(SPECS)[0].draft == "self"
