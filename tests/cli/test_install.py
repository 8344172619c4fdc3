"""The package installs nothing generic, and transformers stays importable beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY_FORWARD = """
import torch, transformers
from transformers.utils.import_utils import is_kernels_available
config = transformers.LlamaConfig(
    vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=1,
)
model = transformers.LlamaForCausalLM(config)
assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 16)
import magicdec.kernels, magicdec.engine.engine
print(is_kernels_available(), magicdec.engine.__file__)
"""


def run(code: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env={**os.environ, **env},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_transformers_works_from_the_repository_root():
    """`python -c` puts the root on sys.path: its `kernels` folder must not be taken for a package
    that transformers probes for."""
    out = run(TINY_FORWARD, ROOT)
    assert out.startswith("False ")
    assert Path(out.split(" ", 1)[1]).parent == ROOT / "engine"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which the built wheel is installed."""
    made = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = made / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "magicdec_cli", "engine", "kernels",
                 "profiles"):  # fmt: skip
        (source / name).symlink_to(ROOT / name)
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(made), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(made / "site")
    return made / "site"


def test_the_wheel_holds_one_name(site):
    assert {p.name.split("-")[0] for p in site.iterdir()} == {"magicdec"}
    packages = {p.parent.relative_to(site).as_posix() for p in site.rglob("*.py")}
    folders = {"magicdec_cli": "cli", "engine": "engine", "kernels": "kernels",
               "profiles": "profiles"}  # fmt: skip
    for folder, name in folders.items():
        for module in (ROOT / folder).rglob("*.py"):
            inside = module.parent.relative_to(ROOT / folder)
            assert (Path("magicdec") / name / inside).as_posix() in packages, module


def test_the_wheel_holds_the_cost_models_data(site):
    data = ROOT / "profiles" / "costs" / "data"
    installed = site / "magicdec" / "profiles" / "costs" / "data"
    files = {path.relative_to(data) for path in data.rglob("*.toml")}
    assert files and files == {path.relative_to(installed) for path in installed.rglob("*.toml")}


def test_transformers_works_beside_the_installed_wheel(site, tmp_path):
    out = run(TINY_FORWARD, tmp_path, PYTHONPATH=str(site))
    assert out == f"False {site / 'magicdec' / 'engine' / '__init__.py'}"


def test_the_installed_command_starts(site, tmp_path):
    code = "from magicdec.cli.main import main; import sys; sys.argv[1:] = ['selectors']; main()"
    assert "snapkv" in run(code, tmp_path, PYTHONPATH=str(site))
