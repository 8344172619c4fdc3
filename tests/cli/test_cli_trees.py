"""--tree on the command line: what is refused, what is recorded, and where a shape comes from."""

from __future__ import annotations

import json

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import sibling_rates
from magicdec.engine.config import SIBLING_RATES
from magicdec.engine.errors import ConfigError
from magicdec.profiles.acceptance.recorded import recorded_siblings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "flags,message",
    [
        (["--tree", "specexec", "--gamma", "0"], "gamma 0 drafts no tree; give --gamma 3"),
        (["--tree", "sequoia", "--draft", "lookup"], "not by draft 'lookup'; give draft self"),
        (["--tree", "sequoia", "--draft", "some/model"], "not by draft 'some/model'"),
        (["--tree", "sequoia", "--draft", "some/model+self"], "not by draft 'some/model+self'"),
        (
            ["--tree", "specexec", "--selector", "quest"],
            "trees are drafted over entries chosen once, and selector quest chooses again",
        ),
        (
            ["--draft", "lookup+self", "--selector", "topk"],
            "cascades are drafted over entries chosen",
        ),
        (["--tree", "medusa"], "--tree must be one of none, specexec, sequoia, got 'medusa'"),
        (["--tree-nodes", "500"], "--tree-nodes must be an integer in 1..128, got 500"),
        (["--tree-rates", ".8;.4"], "shares such as .8,.4,.2, or @RUN.json, got '.8;.4'"),
        (["--tree-rates", "1.5"], "shares in 0..1"),
        (["--tree-rates", "@missing.json"], "missing.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_in_a_line_before_anything_is_loaded(
    flags, message, capsys, monkeypatch
):
    monkeypatch.setattr("magicdec.cli.session_api.open_session", lambda *given: pytest.fail("open"))
    assert run_command_line(["run", "builtin:pydoc", *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    "flags,message",
    [
        (["--tree", "specexec"], "--tree is for `magicdec run`, `tune` and `profile record`"),
        (["--draft", "self,lookup+self"], "--draft lookup+self: a cascade drafts what self does"),
        (["--draft", "some/model+self"], "--draft some/model+self: a cascade drafts"),
        (["--gamma", "auto"], "'auto' is not a whole number or a range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_surveys_refuse_what_they_cannot_tell(flags, message, capsys):
    assert run_command_line(["profile", "survey", "builtin:pydoc", *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    "command,policies",
    [("run", True), ("tune", True), ("profile record", True), ("profile survey", False)],
)
def test_help_tells_of_policies_where_they_are_taken(command, policies, capsys):
    assert run_command_line([*command.split(), "--help"]) == 0
    found = " ".join(capsys.readouterr().out.split())
    assert "0 is plain decoding." in found
    assert ("as many as pay, by calibration" in found) is policies


def test_rates_as_shares_or_of_a_run(tmp_path):
    assert sibling_rates(None) == SIBLING_RATES
    assert sibling_rates(".8,.4, .2") == (0.8, 0.4, 0.2)
    path = tmp_path / "run.json"
    counts = {"siblings_tried": [100, 40, 25, 3], "siblings_accepted": [60, 10, 0, 3]}
    path.write_text(json.dumps({"speculative_decoding": counts}))
    # The fourth child was tried too seldom to be believed.
    assert sibling_rates(f"@{path}") == (0.6, 0.25, 0.0)


@pytest.mark.parametrize(
    "text,message",
    [
        ("not json", "is not JSON"),
        ("[]", "is of a run without trees"),
        ('{"speculative_decoding": {"siblings_tried": []}}', "is of a run without trees"),
        ('{"speculative_decoding": {"siblings_tried": "x", "siblings_accepted": [1]}}', "without"),
        (
            '{"speculative_decoding": {"siblings_tried": [true], "siblings_accepted": [true]}}',
            "without",
        ),
        (
            '{"speculative_decoding": {"siblings_tried": [20], "siblings_accepted": [1%s]}}'
            % ("0" * 400),
            "without",
        ),
        (
            '{"speculative_decoding": {"siblings_tried": [5], "siblings_accepted": [2]}}',
            "too few steps: 5 tried, 2 accepted; raise its --max-new-tokens",
        ),
    ],
)
def test_a_file_that_says_nothing_of_siblings_is_named(tmp_path, text, message):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        recorded_siblings(path)
    assert "some.json" in str(error.value) and "\n" not in str(error.value)
