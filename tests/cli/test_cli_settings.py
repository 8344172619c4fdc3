"""The knob table and where a setting's value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import KNOBS, Settings
from magicdec.cli.settings.resolve import resolve
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and user configuration; returns the user's config file."""
    work, user = tmp_path / "work", tmp_path / "user"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(user / name))
    for knob in KNOBS:
        monkeypatch.delenv(knob.env, raising=False)
    (user / "magicdec").mkdir(parents=True)
    return user / "magicdec" / "config.toml"


def test_defaults_are_the_engines() -> None:
    assert Settings().decode_config() == DecodeConfig()


def test_every_knob_has_help_and_a_valid_default() -> None:
    # what chooses γ is given through gamma itself
    assert {knob.name for knob in KNOBS} | {"gamma_policy"} == set(Settings.__dataclass_fields__)
    for knob in KNOBS:
        assert knob.help and knob.group
        if knob.default is None:
            assert knob.unset, f"{knob.name} must say what leaving it out means"
        elif knob.kind not in ("list", "ids", "map"):
            assert knob.check(knob.default, "here") == knob.default


def test_precedence(home: Path) -> None:
    home.write_text("gamma = 1\nbudget = 11\nbatch = 21\nmodel = 'user'\n")
    Path("magicdec.toml").write_text("gamma = 2\nbudget = 12\nbatch = 22\n")
    resolved = resolve({"gamma": "4"}, {"MAGICDEC_GAMMA": "3", "MAGICDEC_BUDGET": "13"})
    settings, sources = resolved.settings, resolved.sources
    assert (settings.gamma, sources["gamma"]) == (4, "--gamma")
    assert (settings.budget, sources["budget"]) == (13, "MAGICDEC_BUDGET")
    assert (settings.batch, sources["batch"]) == (22, "magicdec.toml")
    assert (settings.model, sources["model"]) == ("user", str(home))
    assert (settings.chunk, sources["chunk"]) == (Settings().chunk, "default")


def test_lists_maps_and_booleans_from_every_source() -> None:
    Path("magicdec.toml").write_text(
        "stop = ['a', 'b']\nignore-eos = true\n[selector-option]\nsinks = 8\n"
    )
    from_file = resolve({}, {}).settings
    assert from_file.stop == ("a", "b") and from_file.ignore_eos
    assert from_file.selector_option == {"sinks": 8}
    from_env = resolve({}, {
        "MAGICDEC_STOP": "x", "MAGICDEC_IGNORE_EOS": "off",
        "MAGICDEC_SELECTOR_OPTION": "sinks=1,recent-window=2",
    }).settings  # fmt: skip
    assert from_env.stop == ("x",) and not from_env.ignore_eos
    assert from_env.selector_option == {"sinks": "1", "recent_window": "2"}
    flags = {"stop": ["y", "z"], "ignore_eos": False, "selector_option": ["a=1", "b=x=y"]}
    from_flags = resolve(flags, {}).settings
    assert from_flags.stop == ("y", "z") and not from_flags.ignore_eos
    assert from_flags.selector_option == {"a": "1", "b": "x=y"}


def test_stop_tokens_are_numbers_wherever_they_come_from(home: Path) -> None:
    Path("magicdec.toml").write_text("stop-token = [2, 0]")
    assert resolve({}, {}).settings.stop_token == (2, 0)
    assert resolve({}, {"MAGICDEC_STOP_TOKEN": "7"}).settings.stop_token == (7,)
    found = resolve({"stop_token": ["5", "9"]}, {}).settings
    assert found.stop_token == found.decode_config().stop_tokens == (5, 9)
    for wrong in ("x", "-1", "1.5", "[1]"):
        with pytest.raises(ConfigError, match=r"--stop-token must be a token's number in 0\.\."):
            resolve({"stop_token": [wrong]}, {})
    Path("magicdec.toml").write_text("stop-token = [true]")
    with pytest.raises(ConfigError, match="stop-token must be a token's number"):
        resolve({}, {})


def test_an_empty_variable_counts_as_unset() -> None:
    assert resolve({}, {"MAGICDEC_GAMMA": ""}).sources["gamma"] == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gama = 3", "magicdec.toml: unknown key 'gama'; did you mean 'gamma'?"),
        (
            "gamma = 99",
            "gamma must be an integer in 0..32, auto, adaptive or a .toml file, got 99",
        ),
        (
            "gamma = '3'",
            "gamma must be an integer in 0..32, auto, adaptive or a .toml file, got '3'",
        ),
        (
            "gamma = true",
            "gamma must be an integer in 0..32, auto, adaptive or a .toml file, got True",
        ),
        ("dtype = 'int8'", "must be one of auto, float32, bfloat16, float16, got 'int8'"),
        ("stop = [1]", "magicdec.toml: stop must be a list of texts, got [1]"),
        ("gamma = ", "magicdec.toml: not valid TOML"),
        ("gamma = " + "[" * 5000, "magicdec.toml: not valid TOML: nested too deeply"),
        ("gamma = " + "9" * 5000, "magicdec.toml: not valid TOML"),
        ("gamma = 0x" + "f" * 5000, "magicdec.toml: gamma must be an integer in 0..32"),
        ("gamma" + ".a" * 1900 + " = 1", "magicdec.toml: gamma must be an integer in 0..32"),
        ("x" * 5000 + " = 1", "magicdec.toml: unknown key 'xxx"),
        ("model = ''", "magicdec.toml: model must be a text that is not empty, got ''"),
    ],
)
def test_a_bad_file_is_named_with_its_key(text: str, said: str) -> None:
    Path("magicdec.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        resolve({"gamma": "3"}, {})  # an overriding flag does not hide a broken file
    assert said in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_byte_order_mark_is_no_key_and_a_device_no_file() -> None:
    file = Path("magicdec.toml")
    file.write_bytes(b"\xef\xbb\xbfgamma = 5\nprompt = '" + b"long. " * 1000 + b"'\n")
    assert resolve({}, {}).settings.gamma == 5
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"magicdec\.toml: is no file; give a TOML file"):
        resolve({}, {})


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        (
            {"gamma": "x"},
            {},
            "--gamma must be an integer in 0..32, auto, adaptive or a .toml file, got 'x'",
        ),
        (
            {"gamma": "-1"},
            {},
            "--gamma must be an integer in 0..32, auto, adaptive or a .toml file, got -1",
        ),
        ({"seed": "-1"}, {}, "--seed must be an integer in 0..9223372036854775807, got -1"),
        ({"temperature": "nan"}, {}, "--temperature must be a number in 0..100, got nan"),
        ({"take": "middle"}, {}, "--take must be one of head, tail, got 'middle'"),
        ({"model": ""}, {}, "--model must be a text that is not empty, got ''"),
        ({"selector_option": ["sinks"]}, {}, "--selector-option must be KEY=VALUE, got 'sinks'"),
        ({}, {"MAGICDEC_RAW": "maybe"}, "MAGICDEC_RAW must be true or false, got 'maybe'"),
    ],
)
def test_a_bad_flag_or_variable_is_named(
    flags: dict[str, object], env: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(flags, env)
    assert said in str(error.value)


def test_config_show_names_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("magicdec.toml").write_text("budget = 128\n")
    monkeypatch.setenv("MAGICDEC_GAMMA", "5")
    assert run_command_line(["config", "show", "--format", "json"]) == 0
    shown = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert shown["gamma"]["value"] == 5 and shown["gamma"]["source"] == "MAGICDEC_GAMMA"
    assert shown["budget"]["value"] == 128 and shown["budget"]["source"] == "magicdec.toml"
    assert shown["context"]["value"] is None and shown["context"]["source"] == "default"
    assert set(shown) == {knob.key for knob in KNOBS}


def test_config_show_reports_a_bad_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("magicdec.toml").write_text("speed = 9\n")
    assert run_command_line(["config", "show"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "magicdec.toml: unknown key 'speed'" in captured.err


def test_run_help_documents_every_knob_and_term(capsys: pytest.CaptureFixture[str]) -> None:
    from magicdec.cli.output.terms import RUN_TERMS

    assert run_command_line(["run", "--help"]) == 0
    text = capsys.readouterr().out
    for knob in KNOBS:
        assert knob.flag in text
    for term in RUN_TERMS:
        assert f"\n  {term} " in text
