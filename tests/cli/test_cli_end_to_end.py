"""`magicdec run` with the real engine and a tiny random model of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line


@pytest.fixture
def model(checkpoint: Path) -> Path:
    return checkpoint


@pytest.fixture
def magicdec(
    model: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., dict[str, Any]]:  # fmt: skip
    document = tmp_path / "doc.txt"
    document.write_text("All the world is a stage, and all the men and women merely players. " * 3)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAGICDEC_BUDGET", "40")  # as an option it is refused where it means nothing

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        fixed = ["run", str(document), "--model", str(model), "--json", "--quiet"]
        assert run_command_line([*fixed, *arguments]) == code, capsys.readouterr().err
        record: dict[str, Any] = json.loads(capsys.readouterr().out)
        return record

    return run


@pytest.mark.parametrize("selector", ["full", "window", "streaming", "snapkv"])
def test_compare_is_identical_and_shares_the_prefill(
    magicdec: Callable[..., dict[str, Any]], selector: str
) -> None:
    record = magicdec(
        "--compare",
        "--batch",
        "3",
        "--max-new-tokens",
        "24",
        "--selector",
        selector,
        "--ignore-eos",
    )
    assert record["lossless"]["ok"] is True and record["lossless"]["checked"] is True
    assert [len(row["token_ids"]) for row in record["rows"]] == [24] * 3
    assert record["decode"]["tokens"] == 3 * 23
    assert record["speedup"]["decode"] > 0
    for side in (record, record["baseline"]):
        phases = dict(side["phases_s"])
        assert phases.pop("wall") == pytest.approx(sum(phases.values()))
    prompts = sum(row["prompt_tokens"] for row in record["rows"])
    assert record["baseline"]["prefill"]["prompt_tokens"] == prompts
    assert record["prefill"]["reused_prompt_tokens"] == prompts
    if selector == "full":
        assert record["speculative_decoding"]["draft_acceptance_rate"] == 1.0
    assert record["env"]["dtype"] == "float32"


def test_accepted_characters_are_told_apart(model: Path, tmp_path: Path) -> None:
    from magicdec.cli.session_api import open_session
    from magicdec.cli.settings.knobs import Settings
    from magicdec.engine.events import RowStep, StepFinished

    document = tmp_path / "doc.txt"
    document.write_text("All the world is a stage. " * 4)
    settings = Settings(
        model=str(model), gamma=3, max_new_tokens=40, budget=8, device="cpu", ignore_eos=True
    )
    session = open_session([str(document)], settings, lambda what, share: None)
    session.requests()
    events = list(session.run(settings.decode_config()))
    shares = [s for e in events if isinstance(e, StepFinished) for s in e.rows]
    assert shares and all(isinstance(share, RowStep) for share in shares)
    for share in shares:
        assert share.accepted_chars is not None
        assert 0 <= share.accepted_chars <= len(share.text)
        assert len(share.rejected) == share.drafted - share.accepted
        assert isinstance(session.spell(share.tokens[-1], share.rejected), str)
        if share.accepted == 0:
            assert share.accepted_chars == 0
        if share.accepted == len(share.tokens):  # cut before the target's own token
            assert share.accepted_chars == len(share.text)
    assert sum(share.accepted_chars or 0 for share in shares) > 0


def test_a_missing_document_is_named_before_the_model_opens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["run", str(tmp_path / "none.txt"), "--model", "no-such-model", "--quiet"]
    assert run_command_line(arguments) == 2
    captured = capsys.readouterr()
    assert "none.txt" in captured.err and len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_a_documents_name_cannot_drive_the_terminal(
    model: Path, tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "a\033]0;pwned\007.txt"
    document.write_text("All the world is a stage.")
    arguments = ["run", str(document), "--model", str(model), "--max-new-tokens", "2", "-q"]
    assert run_command_line(arguments) == 0
    out, err = capsys.readouterr()
    assert "row 0  a\ufffd]0;pwned\ufffd.txt  25" in out and "\033" not in out + err


def test_an_unknown_model_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["run", "builtin:pydoc", "--model", "no-such-model", "--quiet"]) == 3
    captured = capsys.readouterr()
    assert "no-such-model" in captured.err and len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("task", ["ruler:cwe", "ruler:qa?seed=5", "ruler:niah-multikey"])
def test_a_generated_task_fills_the_context_anew_for_every_row(
    model: Path, own_cache: Path, capsys: pytest.CaptureFixture[str], task: str
) -> None:  # fmt: skip
    command = ["run", task, "--model", str(model), "--json", "--quiet", "--max-new-tokens", "4",
               "--compare", "--budget", "40", "--gamma", "2"]  # fmt: skip
    assert run_command_line([*command, "--context", "1500", "--batch", "2"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [row["document"] for row in record["rows"]] == [f"{task}#0", f"{task}#1"]
    assert all(0 < row["prompt_tokens"] <= 1500 for row in record["rows"])
    assert record["lossless"]["ok"] is True
    assert run_command_line(command) == 2
    assert "--context" in capsys.readouterr().err


@pytest.fixture(scope="module")
def draft(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller model of the same vocabulary, trained for 128 tokens."""
    import shutil

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("draft")
    torch.manual_seed(1)
    config = LlamaConfig.from_pretrained(
        checkpoint, num_hidden_layers=1, hidden_size=32, intermediate_size=48,
        max_position_embeddings=128,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, folder)
    return folder


@pytest.mark.parametrize("kept", [("--draft-kv", "full"), ("--selector", "streaming")])
def test_a_draft_model_by_name(
    magicdec: Callable[..., dict[str, Any]], draft: Path, kept: tuple[str, str]
) -> None:
    record = magicdec(
        "--compare", "--batch", "2", "--max-new-tokens", "20", "--ignore-eos", "--draft",
        str(draft), *kept,
    )  # fmt: skip
    assert record["lossless"]["identical"] and record["config"]["draft"] == str(draft)
    assert record["speculative_decoding"]["num_draft_tokens"] > 0
    (warning,) = record["warnings"]
    assert "was trained for 128 tokens: of a prompt of 204 it sees the last 105" in warning


def test_a_draft_model_under_the_self_draft(
    magicdec: Callable[..., dict[str, Any]], draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = magicdec(
        "--compare", "--batch", "2", "--max-new-tokens", "20", "--ignore-eos", "--draft",
        f"{draft}+self", "--budget", "64",
    )  # fmt: skip
    assert record["lossless"]["identical"] and record["config"]["draft"] == f"{draft}+self"
    assert record["speculative_decoding"]["num_draft_tokens"] > 0
    assert record["inner_drafts"]["drafted"] > 0
    (warning,) = record["warnings"]
    assert f"draft {draft} was trained for 128 tokens: of a prompt of 204 it sees" in warning


@pytest.mark.parametrize("name", ["lookup", "layers:1"])
def test_drafts_that_need_no_model(magicdec: Callable[..., dict[str, Any]], name: str) -> None:
    record = magicdec("--compare", "--draft", name, "--max-new-tokens", "20", "--ignore-eos")
    assert record["lossless"]["identical"] and record["config"]["draft"] == name


@pytest.mark.parametrize(
    "name,code,message",
    [
        ("looukp", 3, "draft 'looukp' is not self, lookup, layers:N or a cascade such as lookup+"),
        ("layers:2", 2, "needs a model of more layers, this one has 2; give layers:1"),
        ("layers:0", 2, "draft 'layers:0' runs no layer"),
        ("strangers", 2, "has another vocabulary than"),
        ("strangers+self", 2, "draft strangers has another vocabulary than"),
        ("looukp+self", 3, "draft 'looukp+self': 'looukp' is not lookup or layers:N, and"),
        ("./odd+self", 3, "./odd+self is a folder, but a draft whose name ends in +self"),
        ("./odd+self/", 2, "a folder that is called so needs another name or a link to it"),
    ],
)
def test_a_draft_that_cannot_be_used_is_refused_in_one_line(
    model: Path, draft: Path, tmp_path: Path, name: str, code: int, message: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    import shutil

    monkeypatch.chdir(tmp_path)
    Path("odd+self").mkdir()
    if name.startswith("strangers"):
        shutil.copytree(draft, "strangers")
        file = Path("strangers/tokenizer.json")
        data = json.loads(file.read_text())
        vocabulary = data["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        file.write_text(json.dumps(data))
    Path("doc.txt").write_text("All the world is a stage. " * 4)
    assert run_command_line(
        ["run", "doc.txt", "--model", str(model), "--draft", name, "--quiet"]
    ) == code  # fmt: skip
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_penalties_reach_the_text_and_the_record(magicdec: Callable[..., dict[str, Any]]) -> None:
    common = ("--max-new-tokens", "30", "--ignore-eos", "--batch", "2")
    penalties = (
        "--repetition-penalty", "1.3", "--presence-penalty", "-0.5", "--frequency-penalty", "0.75",
    )  # fmt: skip
    record = magicdec("--compare", *common, *penalties)
    assert record["lossless"]["ok"] is True and record["lossless"]["identical"] is True
    config = record["config"]
    found = [config[f"{name}_penalty"] for name in ("repetition", "presence", "frequency")]
    assert found == [1.3, -0.5, 0.75]
    texts = [row["token_ids"] for row in record["rows"]]
    assert texts != [row["token_ids"] for row in magicdec(*common)["rows"]]


ASKED = {
    "do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 0, "repetition_penalty": 1.05,
    "no_repeat_ngram_size": 3, "suppress_tokens": None, "max_new_tokens": 99,
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "options", "said"),
    [
        (ASKED, (), "asks for repetition_penalty 1.05, no_repeat_ngram_size 3, temperature 0.6, "
         "top_p 0.95; unasked, this run does without, unlike transformers: add "
         "--repetition-penalty 1.05 --temperature 0.6 --top-p 0.95; there is no option for "
         "no_repeat_ngram_size"),
        (ASKED, ("--temperature", "0.6", "--top-p", "0.95", "--repetition-penalty", "1.2"),
         "asks for no_repeat_ngram_size 3; unasked, this run does without, unlike transformers: "
         "there is no option for no_repeat_ngram_size"),
        ({"repetition_penalty": 1.1}, (), "asks for repetition_penalty 1.1; unasked, this run "
         "does without, unlike transformers: add --repetition-penalty 1.1"),
        ({"repetition_penalty": 1.1}, ("--repetition-penalty", "1.1"), None),
        ({"do_sample": True}, (), "asks for temperature 1.0; unasked, this run does without, "
         "unlike transformers: add --temperature 1"),
        ({"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.0}, (), None),
        ({"stop_strings": ["x"], "bad_words_ids": [[1]]}, (), "asks for bad_words_ids a list of 1 "
         "items, stop_strings a list of 1 items; unasked, this run does without, unlike "
         "transformers: add --stop TEXT; there is no option for bad_words_ids"),
    ],
)  # fmt: skip
def test_what_generation_config_asks_for_is_named_and_not_done(
    magicdec: Callable[..., dict[str, Any]], model: Path, tmp_path: Path, asked: dict[str, Any],
    options: tuple[str, ...], said: str | None,
) -> None:  # fmt: skip
    folder = Path(shutil.copytree(model, tmp_path / "asking"))
    (folder / "generation_config.json").write_text(json.dumps(asked))
    common = ("--max-new-tokens", "6", *options)
    record = magicdec("--model", str(folder), *common)
    assert [row["token_ids"] for row in record["rows"]] == [
        row["token_ids"] for row in magicdec(*common)["rows"]
    ]
    told = [warning for warning in record["warnings"] if "generation_config.json" in warning]
    assert told == ([] if said is None else [f"generation_config.json of {folder} {said}"])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--repetition-penalty", "0", "0.01..100"), ("--repetition-penalty", "-1", "0.01..100"),
        ("--presence-penalty", "2.5", "-2..2"), ("--frequency-penalty", "-3", "-2..2"),
        ("--frequency-penalty", "nan", "-2..2"), ("--presence-penalty", "much", "-2..2"),
    ],
)  # fmt: skip
def test_penalties_out_of_range_are_refused(
    option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["run", "builtin:pydoc", option, value]) == 2
    error = capsys.readouterr().err
    assert f"{option} must be a number in {expected}, got" in error
    assert len(error.splitlines()) == 1
