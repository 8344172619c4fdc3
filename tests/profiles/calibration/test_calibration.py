"""Calibrations on disk: what comes back, what is refused, and which one is found."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.profiles.calibration.store import (
    as_record,
    calibrations_folder,
    load_calibration,
    read_calibration,
    save_calibration,
)


def test_what_is_saved_comes_back(calibration):
    saved = calibration()
    path = save_calibration(saved)
    assert read_calibration(path) == saved
    assert load_calibration("smollm2-135m", saved.fingerprint) == saved
    assert [p.name for p in calibrations_folder().iterdir()] == [path.name], "nothing half-written"


def test_none_is_none(calibration):
    assert load_calibration() is None
    save_calibration(calibration())
    assert load_calibration("another-model") is None


def test_saving_again_replaces_and_another_fingerprint_does_not(calibration):
    first = save_calibration(calibration())
    later = replace(calibration(), created="2026-11-30T10:00:00+00:00")
    assert save_calibration(later) == first
    assert load_calibration() == later
    assert save_calibration(calibration(threads=4)) != first


def test_the_one_that_holds_is_found_then_the_nearest(calibration):
    fits, near, far = calibration(), calibration(threads=4), calibration(threads=4, torch="2.12")
    newer = replace(far, created="2026-12-01T10:00:00+00:00")
    for saved in (fits, near, newer):
        save_calibration(saved)
    assert load_calibration("smollm2-135m", fits.fingerprint) == fits
    assert load_calibration("smollm2-135m", {**fits.fingerprint, "threads": 8}) in (fits, near)
    assert load_calibration("smollm2-135m", newer.fingerprint) == newer
    assert load_calibration() == newer, "the newest where nothing else is known"


def test_a_model_of_billions_is_read_back(calibration):
    made = calibration(parameters=8_030_261_248)
    save_calibration(made)
    assert load_calibration() == made


def test_what_differs_is_named(calibration):
    made = calibration()
    assert made.stale_because(made.fingerprint) == ""
    assert made.stale_because({"torch": "2.13.0"}) == "", "what is not known is not compared"
    now = {**made.fingerprint, "threads": 4, "kv_dtype": "bfloat16"}
    assert made.stale_because(now) == "KV dtype float32 → bfloat16, threads 2 → 4"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: "{", "not valid JSON"),
        (lambda d: "[" * 100_000, "not valid JSON"),
        (lambda d: " " * 1_000_001, "larger than any calibration"),
        (lambda d: json.dumps(d).replace("0.0003", "NaN"), "NaN is no number"),
        (lambda d: json.dumps([d]), "no calibration of schema"),
        (lambda d: json.dumps({**d, "schema": "magicdec.calibration/9"}), "no calibration of"),
        (lambda d: json.dumps({**d, "extra": 1}), "unknown key 'extra'"),
        (lambda d: json.dumps({k: v for k, v in d.items() if k != "model"}), "'model' is missing"),
        (lambda d: json.dumps(d).replace('"layers": 30', '"layers": -3'), "'layers'"),
        (lambda d: json.dumps(d).replace("0.8,", "1.8,", 1), "efficiency' must be"),
        (lambda d: json.dumps(d).replace("0.0003", "1e999"), "layer_s"),
        (lambda d: json.dumps(d).replace("[0.6]", '["much"]'), "'rates 1'"),
        (lambda d: json.dumps(d).replace("[0.6]", "[]"), "'rates'"),
        (lambda d: json.dumps(d).replace('"threads": 2', '"threads": true'), ": threads must"),
        (lambda d: json.dumps(d).replace('"threads": 2', '"treads": 2'), "'threads' is missing"),
        (lambda d: json.dumps(d).replace('"launch_s"', '"lunch_s"'), "'launch_s' is missing"),
        (lambda d: json.dumps(d).replace('"dtype": "float32"', '"dtype": "fp4"'), "'dtype'"),
        (lambda d: json.dumps(d).replace('"selections": [', '"selections": [3, '), "selections 1"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_what_to_do(calibration, damage, said):
    path = save_calibration(calibration())
    text = damage(as_record(calibration()))
    assert text != json.dumps(as_record(calibration()))
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_calibration()
    message = str(error.value)
    assert said in message and str(path) in message and "magicdec calibrate" in message
    assert "\n" not in message


def test_no_place_to_write_is_an_error_of_one_line(
    calibration, tmp_path, monkeypatch
):  # fmt: skip
    place = tmp_path / "taken"
    place.write_text("a file where the folder should be")
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(place))
    with pytest.raises(ConfigError, match="cannot be written"):
        save_calibration(calibration())


def test_loading_needs_no_torch(calibration):
    save_calibration(calibration())
    code = (
        "import sys; from magicdec.profiles.calibration.store import *; "
        "found = load_calibration(current=known_here()); "
        "assert found and found.stale_because(known_here()); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_weights_of_the_name_and_another_machine_make_it_stale(calibration):
    made = calibration(identity="3f" * 16, machine="AuthenticAMD 25/17/1, 2 cores")
    assert read_calibration(save_calibration(made)) == made and not made.unnamed
    now = {**made.fingerprint, "identity": "a0" * 16}
    assert made.stale_because(now) == "weights 3f3f3f3f → a0a0a0a0"
    save_calibration(calibration(**now))
    assert load_calibration("smollm2-135m", made.fingerprint) == made
    assert "64 cores" in made.stale_because({"machine": "AuthenticAMD 25/17/1, 64 cores"})


def test_one_of_an_earlier_version_is_read_and_says_what_it_does_not_name(calibration):
    old = calibration()
    assert read_calibration(save_calibration(old)) == old
    assert old.unnamed == "weights or machine"
    now = {**old.fingerprint, "identity": "3f" * 16, "machine": "GenuineIntel 6/1/1, 2 cores"}
    assert old.stale_because(now) == ""
    newer = calibration(**now)
    save_calibration(newer)
    assert load_calibration("smollm2-135m", newer.fingerprint) == newer
