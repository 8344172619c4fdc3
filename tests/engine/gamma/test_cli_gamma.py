"""--gamma auto, adaptive and FILE on the command line."""

from __future__ import annotations

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.run.gamma import with_calibration
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.settings.resolve import resolve
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import MOST_CHOSEN, Adaptive, Entry, Schedule, Situation
from magicdec.profiles.files.gamma_schedule import schedule_text


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("word,kind", [("auto", Auto), ("adaptive", Adaptive)])
def test_a_word_names_the_policy(word, kind, folder):
    for given, env in (({"gamma": word}, {}), ({}, {"MAGICDEC_GAMMA": word})):
        settings = resolve(given, env).settings
        assert (settings.gamma, settings.gamma_policy) == (MOST_CHOSEN, word)
        config = settings.decode_config()
        assert config.gamma == MOST_CHOSEN and isinstance(config.gamma_policy, kind)
    (folder / "magicdec.toml").write_text(f'gamma = "{word}"')
    assert resolve({}, {}).settings.gamma_policy == word
    assert resolve({"gamma": "2"}, {}).settings.decode_config().gamma == 2


def test_a_file_is_a_schedule(folder):
    (folder / "plan.toml").write_text(schedule_text([Entry(1, 1, 5), Entry(4, 1, 2)]))
    config = resolve({"gamma": "plan.toml"}, {}).settings.decode_config()
    assert config.gamma == 5 and isinstance(config.gamma_policy, Schedule)
    now = Situation(most=5, rows=4, context=100, left=9)
    assert config.gamma_policy.gamma(now) == 2 and config.gamma_policy.source == "plan.toml"


@pytest.mark.parametrize(
    "text,message",
    [
        ("often", "must be an integer in 0..32, auto, adaptive or a .toml file, got 'often'"),
        ("33", "got 33"),
        ("none.toml", "there is no file 'none.toml'"),
        ("", "got ''"),
    ],
)
def test_what_gamma_is_not(text, message, capsys):
    assert run_command_line(["run", "builtin:pydoc", "--gamma", text]) == 2
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1


def test_a_schedule_without_drafts_is_plain_decoding(folder, capsys):
    (folder / "plan.toml").write_text(schedule_text([Entry(1, 1, 0)]))
    arguments = ["run", "builtin:pydoc", "--gamma", "plan.toml", "--compare"]
    assert run_command_line(arguments) == 2
    assert "compare plain decoding with itself" in capsys.readouterr().err


def test_adaptive_needs_probabilities():
    with pytest.raises(ConfigError, match="no effect on lookup"):
        Settings(gamma=8, gamma_policy="adaptive", draft="lookup").decode_config()


def test_config_show_names_the_policy(monkeypatch, capsys):
    monkeypatch.setenv("MAGICDEC_GAMMA", "auto")
    assert run_command_line(["config", "show", "--format", "csv"]) == 0
    assert "gamma,auto,MAGICDEC_GAMMA" in capsys.readouterr().out


def test_other_commands_take_numbers(monkeypatch, capsys):
    assert run_command_line(["profile", "survey", "builtin:pydoc", "--gamma", "auto"]) == 2
    assert "--gamma" in capsys.readouterr().err


def test_without_a_calibration_the_policy_stays_as_it_is():
    settings = Settings(gamma=8, gamma_policy="auto")
    config = settings.decode_config()
    assert with_calibration(config, settings, {"model": "smollm2-135m"}, []) is config
