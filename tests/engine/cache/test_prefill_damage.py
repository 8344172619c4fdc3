"""Damage, eviction, full disks and other processes cost time, never a run or a result."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
import torch

from magicdec.engine.cache.prefill_files import HEADER, Damaged, PrefillFiles
from magicdec.engine.cache.reuse import BLOCK

KEYS = [f"{n:032x}" for n in range(1, 9)]


def files(cache_dir):
    return sorted(cache_dir.glob("prefills/*/*.kv"), key=lambda f: -f.stat().st_mtime_ns)


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def cut(path, offset):
    path.write_bytes(path.read_bytes()[:offset])


@pytest.mark.parametrize("damage", [flip, cut])
@pytest.mark.parametrize("where", [0, 10, 25, HEADER, -1, 5000])
def test_damage_is_noticed_wherever_it_is(cache_dir, damage, where):
    stored = PrefillFiles("ab", 2**20)
    data = memoryview(bytes(range(256)) * 40)
    with stored.writing({}):
        stored.write(KEYS[0], [data[:100], data[100:]])
    assert stored.read(KEYS[0]) == data
    damage(stored.path(KEYS[0]), where)
    with pytest.raises(Damaged):
        stored.read(KEYS[0])


def test_a_file_under_another_name_is_damaged(cache_dir):
    stored = PrefillFiles("ab", 2**20)
    with stored.writing({}):
        stored.write(KEYS[0], [memoryview(b"data")])
    stored.path(KEYS[0]).rename(stored.path(KEYS[1]))
    with pytest.raises(Damaged):
        stored.read(KEYS[1])
    assert stored.read(KEYS[0]) is None


@pytest.mark.parametrize("damage", [flip, cut])
@pytest.mark.parametrize(("index", "reused"), [(0, 0), (1, BLOCK), (2, 300 - 64)])
def test_damaged_files_are_dropped_and_computed_again(
    tiny, prompt, store, run, cache_dir, damage, index, reused
):
    """Of two blocks and an end, in the order of their use."""
    model = tiny().ours
    computed, _ = run(model, prompt(300), store())
    damaged = files(cache_dir)[index]
    damage(damaged, 900)
    mine = store()
    again, found = run(model, prompt(300), mine)
    assert found == reused
    (warning,) = mine.warnings
    assert str(damaged) in warning and "damaged" in warning and "\n" not in warning
    for ours, theirs in ((again.k, computed.k), (again.v, computed.v)):
        torch.testing.assert_close(ours[..., :300, :], theirs[..., :300, :], rtol=1e-4, atol=1e-4)
    healed = store()
    assert run(model, prompt(300), healed)[1] == 300 and healed.warnings == []


def test_the_longest_unused_goes_first_and_a_chain_from_its_end(cache_dir):
    stored = PrefillFiles("ab", 400 + 4 * HEADER)
    part = memoryview(bytes(100))
    with stored.writing({}):
        for key in KEYS[:4]:
            stored.write(key, [part])
        stored.touch(KEYS[:2])
        stored.touch(KEYS[2:4])
        stored.touch(KEYS[:2])  # used again: now 2, 3 are the older chain
        stored.make_room(100, keep=[])
        assert [bool(stored.size(k)) for k in KEYS[:4]] == [True, True, True, False]
        stored.make_room(200 + HEADER, keep=[KEYS[2]])
        assert [bool(stored.size(k)) for k in KEYS[:4]] == [True, False, True, False]


def test_the_limit_holds_over_all_models(tiny, prompt, store, run, cache_dir):
    model = tiny().ours
    run(model, prompt(300), store())
    taken = sum(f.stat().st_size for f in files(cache_dir))
    run(model, prompt(300), store("b", limit=2 * taken))
    assert run(model, prompt(300), store())[1] == 300  # now the more recent one
    run(model, prompt(300), store("c", limit=2 * taken))
    assert sum(f.stat().st_size for f in files(cache_dir)) <= 2 * taken
    assert run(model, prompt(300), store(limit=2 * taken))[1] == 300
    assert run(model, prompt(300), store("b", limit=2 * taken))[1] == 0


def test_of_a_prompt_beyond_the_limit_the_beginning_is_kept(tiny, prompt, store, run, cache_dir):
    model = tiny().ours
    small = BLOCK * model.spec.kv_bytes_per_token(4) + 1000
    mine = store(limit=small)
    run(model, prompt(300), mine)
    (warning,) = mine.warnings
    assert "300 tokens" in warning and "--prefill-cache-size" in warning
    assert sum(f.stat().st_size for f in files(cache_dir)) <= small
    assert run(model, prompt(300), store(limit=small))[1] == BLOCK


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_full_disk_loses_nothing_but_the_cache(
    tiny, prompt, store, run, cache_dir, monkeypatch, after
):
    model = tiny().ours
    write, calls = os.write, iter(range(10**6))

    def full(file, data):
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    mine = store()
    with monkeypatch.context() as patched:
        patched.setattr("magicdec.engine.cache.prefill_files.os.write", full)
        computed, _ = run(model, prompt(300), mine)
        run(model, prompt(310), mine)
    (warning,) = mine.warnings
    assert "No space left" in warning and "--no-prefill-cache" in warning
    assert computed.prompts[0] is not None
    assert not list(cache_dir.rglob(".tmp-*"))
    later = store()
    assert run(model, prompt(300), later)[1] in (0, BLOCK)
    assert run(model, prompt(300), later)[1] == 300 and later.warnings == []


def test_an_interrupted_write_leaves_nothing_behind(
    tiny, prompt, store, run, cache_dir, monkeypatch
):
    model = tiny().ours
    cache, _ = run(model, prompt(300), None)
    write, calls = os.write, iter(range(10**6))

    def interrupted(file, data):
        if next(calls) == 4:  # in the second block
            write(file, data[:10])
            raise KeyboardInterrupt
        return write(file, data)

    with monkeypatch.context() as patched:
        patched.setattr("magicdec.engine.cache.prefill_files.os.write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store().keep(cache, 0, cache.prompts[0].tokens, cache.prompts[0])
    assert len(files(cache_dir)) == 1 and not list(cache_dir.rglob(".tmp-*"))
    later = store()
    assert run(model, prompt(300), later)[1] == BLOCK and later.warnings == []


def test_what_a_killed_process_left_is_swept_up(cache_dir):
    stored = PrefillFiles("ab", 2**20)
    with stored.writing({}):
        half = stored.folder / ".tmp-half"
        half.write_bytes(b"half")
        stored.make_room(1, keep=[])
    assert not half.exists()


def test_a_folder_that_cannot_be_written_is_one_warning(tiny, prompt, store, run, cache_dir):
    cache_dir.parent.mkdir(exist_ok=True)
    cache_dir.write_text("a file where the folder should be")
    mine = store()
    for _ in range(2):
        assert run(tiny().ours, prompt(300), mine)[1] == 0
    (warning,) = mine.warnings
    assert str(cache_dir) in warning


STORE = """
import os, sys
from pathlib import Path
from magicdec.engine.cache.prefill_files import PrefillFiles
stored = PrefillFiles("ab", 40 * 10_100)
me = int(sys.argv[1])
for turn in range(60):
    key = f"{turn % 30:032x}"
    data = bytes([turn % 30]) * 10_000
    with stored.writing({"model": "m"}):
        stored.make_room(10_000, [])
        stored.write(key, [memoryview(data)])
    for other in range(30):
        read = stored.read(f"{other:032x}")
        assert read is None or read == bytes([other]) * 10_000
print("done")
"""


def test_processes_write_evict_and_read_at_the_same_time(cache_dir):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", STORE, str(n)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "MAGICDEC_CACHE_DIR": str(cache_dir)},
        )
        for n in range(2)
    ]  # fmt: skip
    assert [process.communicate(timeout=120)[0] for process in running] == ["done\n"] * 2
