"""`magicdec run` against a session without a model."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from magicdec.cli import session_api
from magicdec.cli.main import run_command_line
from magicdec.engine.config import DecodeConfig

FAKE = Path(__file__).parents[1] / "fake_session.py"


def load_fake() -> ModuleType:
    spec = importlib.util.spec_from_file_location("magicdec_fake_session", FAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fake = load_fake()


class Magicdec:
    """Runs commands in this process; `session` is what they opened."""

    def __init__(self, document: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.document = str(document)
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str, scene: str = "") -> int:
        self.session = fake.FakeSession(scene)
        fake.install(self.session)
        code = run_command_line(["run", self.document, *arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: str, scene: str = "", code: int = 0) -> dict[str, Any]:
        assert self(*arguments, "--json", scene=scene) == code, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document


@pytest.fixture
def magicdec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Magicdec:
    document = tmp_path / "doc.txt"
    document.write_text("Some long document.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setenv("MAGICDEC_SELECTOR", fake.SELECTOR)
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "cache"))
    # undone after the test, whatever the fake puts there
    monkeypatch.setattr(session_api, "open_session", session_api.open_session)
    plugin = fake.SELECTOR.partition(":")[0]
    monkeypatch.setitem(sys.modules, plugin, ModuleType(plugin))
    return Magicdec(document, capsys)


def test_json_has_the_schemas_fields_and_consistent_numbers(magicdec: Magicdec) -> None:
    record = magicdec.json("--batch", "3", "--gamma", "4", "--max-new-tokens", "20")
    assert record["schema"] == "magicdec.run/1" and record["interrupted"] is False
    assert {"baseline", "speedup", "lossless"}.isdisjoint(record)
    assert record["predicted"] is None, "nothing was calibrated"
    assert [row["finish_reason"] for row in record["rows"]] == ["length"] * 3
    assert [len(row["token_ids"]) for row in record["rows"]] == [20] * 3
    assert record["rows"][0]["text"].startswith("The argument parser")
    speculation = record["speculative_decoding"]
    steps, accepted = speculation["num_spec_steps"], speculation["num_accepted_draft_tokens"]
    assert speculation["draft_acceptance_rate"] == pytest.approx(
        accepted / speculation["num_draft_tokens"]
    )
    gained = speculation["num_spec_tokens"]
    assert speculation["mean_acceptance_length"] == pytest.approx(gained / steps)
    assert accepted <= gained <= accepted + steps
    counts = zip(*(speculation[f"{w}_per_position"] for w in ("accepted", "drafted")), strict=True)
    assert [n / d for n, d in counts] == speculation["acceptance_rate_per_position"]
    assert speculation["acceptance_rate_per_position_of_all_drafts"] == [
        n / steps for n in speculation["accepted_per_position"]
    ]
    assert sum(speculation["accepted_per_step"]) == steps
    per_position = speculation["acceptance_rate_per_position"]
    drafted = speculation["drafted_per_position"]
    assert len(per_position) == 4 and sum(drafted) == speculation["num_draft_tokens"]
    weighted = sum(rate * count for rate, count in zip(per_position, drafted, strict=True))
    assert weighted == pytest.approx(accepted)
    phases = dict(record["phases_s"])
    assert phases.pop("wall") == pytest.approx(sum(phases.values()))
    assert record["decode"]["tokens"] == 3 * 19
    assert record["config"]["gamma"] == 4 and record["env"]["device"] == "cpu"
    assert "beyond the 2,048" in record["warnings"][0]


def test_json_is_all_there_is_on_stdout_and_quiet_silences_progress(magicdec: Magicdec) -> None:
    record = magicdec.json("--quiet")
    assert record["rows"] and magicdec.err.startswith("warning: ")
    assert len(magicdec.err.splitlines()) == 1


def test_compare_gives_baseline_speedup_and_verdict(magicdec: Magicdec) -> None:
    record = magicdec.json("--batch", "2", "--compare")
    plain, speculative = magicdec.session.configs
    assert (plain.gamma, speculative.gamma) == (0, 3)
    base = record["baseline"]
    assert [row["token_ids"] for row in base["rows"]] == [
        row["token_ids"] for row in record["rows"]
    ]
    decode = base["decode"]["seconds"] / record["decode"]["seconds"]
    assert record["speedup"]["decode"] == pytest.approx(decode)
    prefill = base["phases_s"]["prefill"]
    assert record["speedup"]["shared_prefill_s"] == prefill
    assert record["speedup"]["end_to_end"] == pytest.approx(
        (prefill + base["decode"]["seconds"]) / (prefill + record["decode"]["seconds"])
    )
    assert record["lossless"]["checked"] and record["lossless"]["identical"]
    assert record["lossless"]["first_divergence"] is None


def test_the_report_shows_texts_numbers_and_verdict(magicdec: Magicdec) -> None:
    assert magicdec("--batch", "2", "--compare") == 0
    out = magicdec.out
    assert "row 1  doc.txt  999 → 64 tokens · length" in out
    assert "argument and exits with status two.\nSee also the section" in out
    assert "acceptance rate ." in out and "by position" in out
    assert "✓ identical to plain decoding, 128 tokens in 2 rows" in out
    assert "× decode" in out and "× end to end" in out
    assert "\x1b" not in out, "no colour in a pipe"


def test_one_of_a_thing_is_singular(magicdec: Magicdec) -> None:
    assert magicdec("--max-new-tokens", "1") == 0
    assert "→ 1 token ·" in magicdec.out and "1 row," in magicdec.err
    assert "speculative " in magicdec.out.splitlines()[-2], "what was asked for, without a step too"


def test_a_tie_is_reported_and_is_no_failure(magicdec: Magicdec) -> None:
    assert magicdec("--batch", "2", "--compare", scene="tie") == 0
    assert "≈ 1 tie, otherwise identical" in magicdec.out
    assert "row 1, token 7: tie" in magicdec.out and "logit gap 0.0021" in magicdec.out


def test_a_difference_that_is_no_tie_exits_4(magicdec: Magicdec) -> None:
    assert magicdec("--batch", "2", "--compare", scene="differs") == 4
    assert "✗ FAILED" in magicdec.out
    assert "differ by more than rounding" in magicdec.err
    record = magicdec.json("--batch", "2", "--compare", scene="differs", code=4)
    assert record["lossless"]["ok"] is False
    assert record["lossless"]["first_divergence"]["position"] == 3
    assert len(record["lossless"]["divergences"]) == 2


def test_sampling_is_not_compared_token_for_token(magicdec: Magicdec) -> None:
    assert magicdec("--compare", "--temperature", "0.7") == 0
    assert "not checked" in magicdec.out and "distribution" in magicdec.out
    record = magicdec.json("--compare", "--temperature", "0.7")
    assert record["lossless"]["checked"] is False and record["lossless"]["identical"] is None


def test_plain_decoding_has_no_acceptance_figures(magicdec: Magicdec) -> None:
    record = magicdec.json("--gamma", "0")
    assert record["speculative_decoding"]["num_spec_steps"] == 0
    assert record["speculative_decoding"]["draft_acceptance_rate"] is None
    assert record["speculative_decoding"]["mean_acceptance_length"] is None
    assert magicdec("--gamma", "0") == 0
    assert "acceptance rate" not in magicdec.out


@pytest.mark.parametrize(
    "scene", ["interrupt-load", "interrupt-first", "interrupt-plain", "interrupt"]
)
def test_an_interrupted_run_delivers_what_is_finished(magicdec: Magicdec, scene: str) -> None:
    record = magicdec.json("--batch", "2", "--compare", scene=scene, code=130)
    assert record["interrupted"] is True
    assert record["speedup"]["decode"] is None and record["lossless"]["checked"] is False
    lengths = [len(row["token_ids"]) for row in record["rows"]]
    plain_lengths = [len(row["token_ids"]) for row in record["baseline"]["rows"]]
    if scene == "interrupt":
        assert plain_lengths == [12, 12], "its first turn"
        assert all(3 <= n <= 9 for n in lengths)
        assert record["rows"][0]["finish_reason"] is None
    elif scene == "interrupt-plain":
        assert plain_lengths == [3, 3] and lengths == []
    elif scene == "interrupt-first":
        assert plain_lengths == [1, 1] and lengths == [], "what prefill gives"
    else:
        assert plain_lengths == lengths == []
    assert magicdec("--batch", "2", "--compare", scene=scene) == 130
    said = (magicdec.out + magicdec.err).count("interrupted")
    assert said == 1, "on stderr, once"
    if scene in ("interrupt-load", "interrupt-first"):
        assert magicdec.out == ""
        assert magicdec.err.endswith("interrupted: nothing was decoded yet\n")
    else:
        assert "row 0  doc.txt" in magicdec.out
        assert magicdec.err.endswith("interrupted: what was finished is above\n")


def test_an_error_in_one_pass_keeps_what_both_have(
    magicdec: Magicdec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(session: object, config: DecodeConfig, step: int) -> None:
        if config.gamma and step == 2:
            raise RuntimeError("the second pass\nhas fallen over")

    monkeypatch.setattr(fake.FakeSession, "_maybe_interrupt", crash)
    record = magicdec.json("--batch", "2", "--compare", code=1)
    assert record["error"] == "RuntimeError: the second pass has fallen over"
    assert record["interrupted"] is False and record["speedup"]["decode"] is None
    assert [len(row["token_ids"]) for row in record["baseline"]["rows"]] == [12, 12]
    assert all(len(row["token_ids"]) >= 3 for row in record["rows"])
    assert magicdec("--batch", "2", "--compare") == 1
    assert "row 1  doc.txt" in magicdec.out
    assert "RuntimeError: the second pass has fallen over" in magicdec.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("scene", "code", "said"),
    [
        ("document", 2, "there is no file 'missing.txt'"),
        ("memory", 1, "batch 2 at context 4000 fits"),
        ("model", 3, "no model 'smollm2-135m'"),
        ("crash", 1, "RuntimeError: the weights have fallen over"),
    ],
)
def test_failures_are_one_line_with_their_exit_code(
    magicdec: Magicdec, scene: str, code: int, said: str
) -> None:
    assert magicdec("--quiet", scene=scene) == code
    assert magicdec.out == ""
    assert said in magicdec.err and len(magicdec.err.splitlines()) == 1
    assert magicdec("--quiet", "--verbose", scene=scene) == code
    assert "Traceback" in magicdec.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--gamma", "33"],
            "--gamma must be an integer in 0..32, auto, adaptive or a .toml file, got 33",
        ),
        (["--gamma", "0", "--compare"], "compare plain decoding with itself"),
        (["--top-p", "0.9"], "top-p would have no effect at temperature 0"),
        (["--stop", ""], "a stop string is empty"),
        (["--selector", "nobody"], "no KVSelector is called 'nobody'"),
        (["--selector-option", "sinks=many"], "sinks must be int, got 'many'"),
        (["--selector-option", "other=1"], "has no option 'other'"),
    ],
)
def test_what_can_be_refused_is_refused_before_the_model_loads(
    magicdec: Magicdec, arguments: list[str], said: str
) -> None:
    assert magicdec(*arguments) == 2
    assert said in magicdec.err and magicdec.out == ""
    assert len(magicdec.err.splitlines()) == 1
    assert magicdec.session.settings is None


def test_a_workload_without_a_length_is_refused_before_the_model_loads(magicdec: Magicdec) -> None:
    magicdec.document = "ruler:niah-multikey"
    assert magicdec("--quiet") == 2
    assert magicdec.err.strip().endswith("fills any length; say which with --context N")
    assert magicdec.session.settings is None


def test_settings_reach_the_engine(magicdec: Magicdec) -> None:
    magicdec.json(
        "--model", "m", "--device", "cpu", "--dtype", "bfloat16", "--threads", "2", "--chunk", "64",
        "--attention", "reference", "--context", "500", "--take", "tail", "--prompt", "Why?",
        "--raw", "--batch", "2", "--rows", "windows", "--budget", "77", "--gamma", "2",
        "--max-new-tokens", "9", "--stop", "a", "--stop", "b", "--ignore-eos", "--temperature",
        "0.5", "--top-k", "5", "--top-p", "0.9", "--min-p", "0.1", "--seed", "3",
        "--selector-option", "sinks=2",
    )  # fmt: skip
    settings = magicdec.session.settings
    assert magicdec.session.sources == [magicdec.document]
    assert (settings.model, settings.device, settings.dtype) == ("m", "cpu", "bfloat16")
    assert (settings.threads, settings.chunk, settings.attention) == (2, 64, "reference")
    assert (settings.context, settings.take, settings.prompt) == (500, "tail", "Why?")
    assert (settings.raw, settings.batch, settings.rows) == (True, 2, "windows")
    (config,) = magicdec.session.configs
    assert (config.budget, config.gamma, config.max_new_tokens) == (77, 2, 9)
    assert config.stop == ("a", "b") and config.ignore_eos
    assert config.selector_options == {"sinks": "2"}
    sampling = config.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.5, 5, 0.9)
    assert (sampling.min_p, sampling.seed) == (0.1, 3)


def script(*arguments: str, **env: str) -> dict[str, Any]:
    """Arguments of a process that is `magicdec` with the fake session."""
    return {
        "args": [sys.executable, str(FAKE), "run", "builtin:pydoc", *arguments],
        "env": {**os.environ, "TERM": "xterm-256color", "MAGICDEC_CACHE_DIR": os.devnull, **env},
        "stdout": subprocess.PIPE,
    }


def on_a_terminal(*arguments: str, **env: str) -> tuple[str, str]:
    """(stdout, what the terminal on stderr received)."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(**script(*arguments, COLUMNS="80", LINES="24", **env), stderr=end)
    os.close(end)
    received = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        received += chunk
    os.close(terminal)
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    return out.decode(), received.decode()


def test_on_a_terminal_the_display_is_live_and_stdout_stays_clean() -> None:
    out, shown = on_a_terminal("--batch", "2", "--json", FAKE_DELAY="0.02")
    assert json.loads(out)["rows"]
    for expected in ("speculative", "acceptance", "ms per step", "tokens/s", "0/2 rows"):
        assert expected in shown
    assert "\x1b[?25l" in shown and "\x1b[?25h" in shown, "the cursor comes back"


def test_no_color_keeps_the_display_but_not_the_colours() -> None:
    _, shown = on_a_terminal("--batch", "2", FAKE_DELAY="0.02", NO_COLOR="1")
    assert "acceptance" in shown and "\x1b[32m" not in shown
    _, shown = on_a_terminal("--batch", "2", FAKE_DELAY="0.02")
    assert "\x1b[32m" in shown


@pytest.mark.parametrize(
    ("arguments", "env", "coloured"),
    [
        ([], {}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_in_a_pipe(arguments: list[str], env: dict[str, str], coloured: bool) -> None:
    result = subprocess.run(**script(*arguments, **env), stderr=subprocess.PIPE, text=True)
    assert result.returncode == 0
    assert ("\x1b[" in result.stdout) == coloured
    assert "\x1b[?25l" not in result.stderr, "nothing is animated off a terminal"


def test_a_terminal_without_unicode_gets_none() -> None:
    result = subprocess.run(
        **script("--compare", "--batch", "2", PYTHONIOENCODING="ascii"), stderr=subprocess.PIPE
    )
    assert result.returncode == 0
    out = result.stdout.decode("ascii")
    assert "?" not in out and "ok identical" in out and "x decode" in out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_valid_document(sent: signal.Signals) -> None:
    process = subprocess.Popen(
        **script("--batch", "2", "--json", FAKE_DELAY="0.05"), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None and process.stdout is not None
    with process:
        for line in process.stderr:
            if line.startswith("speculative"):
                process.send_signal(sent)
                break
        record = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert record["interrupted"] is True


def test_a_disturbed_comparison_says_so(
    magicdec: Magicdec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicdec.profiles.machine.other_programs import OthersLoad

    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)
    monkeypatch.setattr(OthersLoad, "share", property(lambda self: 0.48))
    record = magicdec.json("--batch", "2", "--compare")
    (warning,) = [line for line in record["warnings"] if "disturbed" in line]
    assert "other programs took 48% of the CPUs" in warning
    assert record["steadiness"]["disturbed"] and record["steadiness"]["others"] == 0.48
    low, high = record["speedup"]["decode_range"]
    assert low < record["speedup"]["decode"] < high
    assert magicdec("--batch", "2", "--compare") == 0
    assert "warning: a disturbed measurement: " in magicdec.err
    shown = " ".join(magicdec.out.split())
    assert f"{low:.2f} to {high:.2f}× by turn, of 6 · other programs 48% of the CPUs" in shown
    monkeypatch.setattr(OthersLoad, "share", property(lambda self: 0.01))
    quiet = magicdec.json("--batch", "2", "--compare")
    assert not quiet["steadiness"]["disturbed"] and len(quiet["warnings"]) == 1
