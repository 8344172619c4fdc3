"""Models and hardware are found by any usual name, and broken files say what is wrong."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from magicdec.engine.errors import ConfigError, ModelError
from magicdec.profiles.costs import catalog
from magicdec.profiles.costs.hardware import (
    Constants,
    Device,
    Entry,
    Hardware,
    read_hardware,
    write_hardware,
)

PAPER = Path(__file__).parents[2] / "data" / "paper_tables.csv"
# Published totals, billions of weights, of the model cards.
TOTALS = {
    "Llama-2-7B": 6.74, "Llama-2-7B-32K": 6.74, "Llama-2-13B": 13.02, "Llama-2-70B": 68.98,
    "Llama-3.1-8B": 8.03, "Llama-3.1-70B": 70.55, "Llama-3.2-1B": 1.236, "Llama-3.2-3B": 3.213,
    "TinyLlama-1.1B": 1.100, "Llama-68M": 0.068, "Llama-160M": 0.162, "SmolLM2-135M": 0.1345,
    "Mistral-7B-v0.1": 7.24, "Mistral-7B-v0.3": 7.25,
    "Qwen2.5-0.5B": 0.494, "Qwen2.5-1.5B": 1.54, "Qwen2.5-3B": 3.09, "Qwen2.5-7B": 7.62,
    "Qwen2.5-14B": 14.77, "Qwen2.5-32B": 32.76, "Qwen2.5-72B": 72.71, "Qwen3-8B": 8.19,
    "Yi-1.5-6B": 6.06, "Yi-1.5-9B": 8.83, "Yi-1.5-9B-32K": 8.83, "Yi-1.5-34B": 34.39,
    "Yi-1.5-34B-32K": 34.39,
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
HARDWARE = '[[hardware]]\nname = "H100"\nmemory_bytes = 1e9\nbandwidth = 2e9\nflops = 3e9\n'


@pytest.fixture(autouse=True)
def user_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog.platformdirs, "user_config_dir", lambda name: str(tmp_path / name))
    folder = tmp_path / "magicdec"
    (folder / "hardware").mkdir(parents=True)
    (folder / "models").mkdir()
    return folder


def test_every_model_has_its_published_number_of_weights():
    found = {model.name: model.stored / 1e9 for model in catalog.list_models()}
    assert found == pytest.approx(TOTALS, rel=0.004)  # norms and biases are not counted


@pytest.mark.parametrize(
    ("name", "kappa"),
    [("Llama-3.1-8B", 131072), ("Llama-2-7B", 524288), ("Llama-3.1-70B", 327680),
     ("Qwen2.5-7B", 57344), ("Llama-3.2-1B", 32768), ("TinyLlama-1.1B", 22528)],
)  # fmt: skip
def test_kv_bytes_per_token(name, kappa):
    assert catalog.find_model(name).kv_bytes_per_token(2) == kappa


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("llama-3.1-8b", "Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("LLaMA-2-7B-32K", "Llama-2-7B-32K"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama-1.1B"),
        ("Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("qwen2.5 32b", "Qwen2.5-32B"),
        ("JackFram/llama-68m", "Llama-68M"),
        ("smollm2-135m", "SmolLM2-135M"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
    ],
)
def test_usual_names(given, name):
    assert catalog.find_model(given).name == name


@pytest.mark.parametrize(
    ("given", "label"),
    [("8xH100", "8×H100"), ("8×A100-80G", "8×A100"), ("2 x l40s", "2×L40S"), ("4090", "RTX-4090"),
     ("cpu-avx2", "cpu-avx2"), ("1xH200", "H200")],
)  # fmt: skip
def test_hardware_names(given, label):
    assert catalog.find_hardware(given).label == label


@pytest.mark.parametrize(
    ("given", "message"),
    [("Llama-3.1-9B", "Llama-3.1-8B"), ("", "no model"), ("no/such.json", "no such file")],
)
def test_unknown_models(given, message):
    with pytest.raises(ConfigError, match=message) as error:
        catalog.find_model(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", ["8xV100", "0xA100", "99999999xA100", "x", "8x", "a.toml"])
def test_unknown_hardware(given):
    with pytest.raises(ConfigError):
        catalog.find_hardware(given)


def test_a_folder_with_a_config(tmp_path):
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_key_value_heads": 2, "head_dim": None}))
    model = catalog.find_model(str(tmp_path / "mine"))
    assert (model.name, model.kv_heads, model.head_dim, model.tied) == ("mine", 2, 16, False)
    assert catalog.find_model(str(path)) == model


@pytest.mark.parametrize(
    ("change", "error"),
    [({"hidden_size": "64"}, "hidden_size"), ({"num_hidden_layers": 0}, "num_hidden_layers"),
     ({"model_type": "gpt2"}, "gpt2"), ({"num_key_value_heads": 3}, "share 3")],
)  # fmt: skip
def test_bad_configs(tmp_path, change, error):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(ConfigError, match=error):
        catalog.find_model(str(tmp_path))


def test_damaged_config(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError):
        catalog.find_model(str(tmp_path))


def test_the_users_hardware_wins_under_every_alias(user_folder):
    (user_folder / "hardware" / "mine.toml").write_text(HARDWARE)
    assert catalog.find_hardware("H100-SXM").device.bandwidth == 2e9
    assert [h.device.bandwidth for h in catalog.list_hardware() if h.device.name == "H100"] == [2e9]


def test_the_users_models(user_folder):
    sizes = "\n".join(f"{k} = 4" for k in ("layers", "hidden", "intermediate", "heads", "kv_heads",
                                           "head_dim", "vocab", "max_position"))  # fmt: skip
    (user_folder / "models" / "mine.toml").write_text(f'[[model]]\nname = "My-Model"\n{sizes}\n')
    assert catalog.find_model("my-model").layers == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1e9", "-1e9", "memory_bytes"),
        ("2e9", "nan", "bandwidth"),
        ("3e9", '"fast"', "flops"),
        ("flops", "flop", "did you mean 'flops'"),
        ("flops = 3e9", "", "'flops' is missing"),
        ("3e9\n", "3e9\n[hardware.constants]\ngemm_efficiency = 1.2\n", "gemm_efficiency"),
        ("3e9\n", "3e9\n[hardware.constants]\nlayer_s = -1\n", "layer_s"),
        ("3e9\n", "3e9\nconstants = 3\n", "must be a table"),
        ("=", "", "not valid TOML"),
        ("[[hardware]]", "[hardware]", "must be one"),
        ("3e9\n", "3e9\nconstants_of = 'A100'\nconstants = {}\n", "keep one"),
    ],
)
def test_bad_hardware_files(tmp_path, old, new, message):
    path = tmp_path / "bad.toml"
    path.write_text(HARDWARE.replace(old, new))
    with pytest.raises(ConfigError, match=message) as error:
        catalog.find_hardware(str(path))
    assert str(path) in str(error.value)


def test_hardware_is_written_as_it_is_read(tmp_path):
    measured = Hardware(
        Device("My \"box\" 'é'", 1e9, 2e9, 3e9, "a sheet", link=4e9),
        constants=Constants(launch_s=0.001),
        by_weights={"int8": Constants(gemm_efficiency=0.25)},
        provenance="measured here",
    )
    entries = [Entry(measured, ("box",)), Entry(Hardware(Device("other", 1, 2, 3)), (), "box")]
    path = tmp_path / "box.toml"
    path.write_text(write_hardware(entries), encoding="utf-8")
    assert read_hardware(path) == entries
    with pytest.raises(ConfigError, match="2 kinds"):
        catalog.find_hardware(str(path))
    path.write_text(write_hardware([measured]), encoding="utf-8")
    assert catalog.find_hardware(f"3x{path}") == replace(measured, count=3)


def test_borrowed_constants_follow_their_lender(user_folder):
    h100, h200 = (catalog.find_hardware(name) for name in ("H100", "H200"))
    assert h200.constants == h100.constants
    assert h200.provenance.startswith("not fitted; constants of H100")
    (user_folder / "hardware" / "mine.toml").write_text(
        HARDWARE + "[hardware.constants]\nlayer_s = 0.5\n"
    )
    assert catalog.find_hardware("H200").constants.layer_s == 0.5
    borrowed = [hardware for hardware in catalog.list_hardware() if hardware.device.name == "H200"]
    assert borrowed[0].constants.layer_s == 0.5


@pytest.mark.parametrize(
    ("lender", "message"), [("H200", "borrows its own"), ("nobody", "no hardware is called")]
)
def test_nothing_is_borrowed_from_a_borrower(user_folder, lender, message):
    text = HARDWARE.replace("H100", "mine") + f'constants_of = "{lender}"\n'
    (user_folder / "hardware" / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        catalog.find_hardware("mine")


def test_shipped_constants_are_physical_and_say_where_they_come_from():
    for hardware in catalog.list_hardware():
        assert len(hardware.provenance) > 20
        default = dataclasses.asdict(Constants())
        values = dataclasses.asdict(hardware.constants)
        own = [name for name, value in values.items() if value != default[name]]
        assert len(own) <= 6, hardware.device.name
        for name, value in values.items():
            assert value >= 0 and (value <= 1 or not name.endswith("_efficiency"))


def test_pricing_imports_nothing_heavy():
    code = (
        "import sys; from pathlib import Path; from magicdec.cli.predict.against import against\n"
        f"against(Path({str(PAPER)!r}), format='csv', fit=False, output=None)\n"
        "heavy = {'torch', 'transformers', 'scipy', 'rich', 'textual'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 66
