"""A stranger's first guess is right: where an idea lives, and that the READMEs say so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "kernels", "profiles", "magicdec_cli", "examples", "tests")
READMES = ("README.md", *(f"{folder}/README.md" for folder in FOLDERS))

#: Idea, its file, and what the file defines: the lines of the README's folder map.
IDEAS = [
    ("one speculative step", "engine/step.py", "speculative_step"),
    ("rows come and go", "engine/engine.py", "Engine"),
    ("settings of a run", "engine/config.py", "DecodeConfig"),
    ("exit codes", "engine/errors.py", "MagicdecError"),
    ("phase timer", "engine/clock.py", "Clock"),
    ("full KV cache", "engine/cache/kv.py", "KVCache"),
    ("prefill", "engine/cache/prefill.py", "prefill"),
    ("prefill reuse", "engine/cache/reuse.py", "slot_offers"),
    ("accept rule, chains", "engine/accept/chain.py", "Rejection"),
    ("accept rule, trees", "engine/accept/tree.py", "TreeRule"),
    ("sampling", "engine/accept/sampling.py", "distribution"),
    ("draft's KV view", "engine/views/make.py", "make_view"),
    ("SnapKV", "engine/selectors/snapkv.py", "SnapKV"),
    ("Quest's search", "engine/indexes/pages.py", "PageIndex"),
    ("prompt lookup", "engine/drafters/lookup.py", "LookupDrafter"),
    ("cascade", "engine/drafters/cascade.py", "CascadeDrafter"),
    ("draft model", "engine/drafters/other_model.py", "ModelDrafter"),
    ("γ choice", "engine/gamma/auto.py", "Auto"),
    ("memory plan", "engine/memory/plan.py", "forecast"),
    ("losslessness verdict", "engine/compare/verdict.py", "Losslessness"),
    ("the model's layers", "engine/model/decoder.py", "Decoder"),
    ("attention contract", "kernels/attention.py", "AttentionBackend"),
    ("native attention", "kernels/native_attention.py", "CpuAttention"),
    ("roofline", "profiles/costs/roofline.py", "forward"),
    ("speedup formula", "profiles/costs/step_times.py", "StepTimes"),
    ("break-even context", "profiles/costs/break_even.py", "break_even"),
    ("predicted run", "profiles/predict/run.py", "predict_run"),
    ("calibration fit", "profiles/calibration/fit.py", "fit_calibration"),
    ("acceptance survey", "profiles/acceptance/survey.py", "Survey"),
    ("tuner", "profiles/tuning/tuner.py", "Tuner"),
    ("reading a profile", "profiles/recorded/reader.py", "read_profile"),
    ("writing a profile", "profiles/recorded/writer.py", "ProfileWriter"),
    ("comparing profiles", "profiles/recorded/compare.py", "compare"),
    ("vLLM export", "profiles/export/vllm.py", "render"),
    ("knob table", "magicdec_cli/settings/knobs.py", "Settings"),
    ("config layering", "magicdec_cli/settings/resolve.py", "resolve"),
    ("break-even map", "magicdec_cli/output/heatmap.py", "heat_lines"),
    ("report of a run", "magicdec_cli/run/report.py", "print_report"),
    ("app", "magicdec_cli/tui/app.py", "TuningApp"),
    ("app's panels", "magicdec_cli/tui/panels/base.py", "Panel"),
]


def _defined(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


@pytest.mark.parametrize(("idea", "path", "name"), IDEAS, ids=[idea for idea, *_ in IDEAS])
def test_an_idea_is_where_a_stranger_looks(idea, path, name):
    assert (ROOT / path).is_file(), f"{idea}: there is no {path}"
    assert name in _defined(ROOT / path), f"{idea}: {path} defines no {name}"


def test_the_folder_map_of_the_readme_shows_exactly_these():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    row = re.compile(r"\| ([^|]+) \| \[`([^`|]+)`\]\(([^)]+)\) \| `(\w+)` \|")
    found = [match.groups() for line in text.splitlines() if (match := row.fullmatch(line))]
    assert found == [(idea, path, path, name) for idea, path, name in IDEAS]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_has_a_readme(folder):
    assert (ROOT / folder / "README.md").is_file()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("readme", READMES)
def test_what_a_readme_names_exists(readme):
    page = ROOT / readme
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    local = [target for target in targets if not target.startswith(("https://", "http://"))]
    for target in local:
        file, _, heading = target.partition("#")
        aim = (page.parent / file).resolve() if file else page
        assert aim.exists(), f"{readme} links to {target}"
        assert not heading or heading in _anchors(aim), f"{readme}: no heading for {target}"
    for path in re.findall(r"`((?:engine|kernels|profiles|magicdec_cli|tests)/[\w/.-]+)`", prose):
        if Path(path).stem != "mine":  # of the instructions: a file that its reader adds
            assert (ROOT / path).exists(), f"{readme} names {path}"


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_circle_of_imports_is_found():
    from tests.circles import circles

    line = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(line) == {}
    assert circles(line | {"c": {"b"}, "d": {"a"}}) == {"b": {"c"}, "c": {"b"}}
