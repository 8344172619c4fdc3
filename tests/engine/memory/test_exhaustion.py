"""Memory that runs out is one line and exit code 1, whoever notices, and never a signal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from magicdec.cli import main
from magicdec.cli.main import run_command_line
from magicdec.engine.errors import ConfigError, OutOfMemoryError
from magicdec.engine.memory.exhaustion import memory_errors, ran_out


def test_torch_and_numpy_say_it_in_words_that_are_known():
    with pytest.raises(OutOfMemoryError, match="out of memory; lower"), memory_errors():
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(OutOfMemoryError, match="out of memory; lower"), memory_errors():
        np.empty(2**60, dtype=np.uint8)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("could not create a primitive"),
        RuntimeError("could not create a memory object"),
        RuntimeError("could not execute a primitive"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        RuntimeError("unable to mmap 541 bytes from file <model.safetensors>: error 12"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
    ids=str,
)
def test_every_way_to_say_it(error, monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    assert run_command_line(["doctor"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "magicdec: out of memory; lower --batch or --context"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("could not create a primitive descriptor for the concat primitive"),
        RuntimeError("shape mismatch"),
        ConfigError("batch 0: out of memory is no batch"),
        OSError(errno.ENOSPC, "No space left on device"),
        KeyError("can't allocate memory"),
    ],
    ids=str,
)
def test_other_failures_keep_their_names(error):
    assert ran_out(error) is None
    with pytest.raises(type(error)) as raised, memory_errors():
        raise error
    assert raised.value is error


def test_a_gpu_is_told_apart():
    line = ran_out(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert line == "the GPU ran out of memory; lower --batch or --context"


SWEEP = """
import os, resource, sys
import psutil, torch
torch.set_num_threads(1)  # threads do not outlive a fork; each child starts its own
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.memory.free import share_one_heap
from magicdec.engine.request import Request
from magicdec.engine.session import open_session

session = open_session(sys.argv[1])
requests = [Request("doc", tuple(range(3, 203)), 0)]
plans = [DecodeConfig(gamma=0, max_new_tokens=4), DecodeConfig(max_new_tokens=4, budget=64)]

def child(kind, taken, left):
    torch.set_num_threads(2)
    limit = getattr(psutil.Process().memory_info(), taken) + left * 2**20
    resource.setrlimit(kind, (limit, limit))
    share_one_heap()
    try:
        for config in plans:
            list(session.run(requests, config, batch=1))
    except OutOfMemoryError as error:
        return 1 if "\\n" not in str(error) else 2
    return 0

for kind, taken in ((resource.RLIMIT_AS, "vms"), (resource.RLIMIT_DATA, "data")):
    for left in (0, 20, 36, 44, 80, 130, 200, 400):
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                code = child(kind, taken, left)
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
"""


def test_no_limit_ends_a_run_with_a_signal(checkpoint: Path, own_cache: Path):
    """oneDNN and FBGEMM write through what malloc returned unseen: 20, 36 and 44 MiB were SIGSEGV,
    and 0 for ever."""
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, str(checkpoint)], capture_output=True, text=True, timeout=300
    )
    codes = [int(code) for code in done.stdout.split()]
    assert len(codes) == 16, done.stderr
    for part in (codes[:8], codes[8:]):
        assert set(part) == {0, 1} and part[:4] == [1] * 4 and part[-1] == 0, codes


@pytest.mark.parametrize("limit", [500, 640, 760])
def test_too_little_address_space_for_torch_is_one_line(checkpoint: Path, tmp_path: Path, limit):
    """Importing it there ended in a ValueError, a SystemError, or never."""
    (tmp_path / "a.txt").write_text("a cat " * 99)
    command = (
        f"ulimit -v {limit * 1024}; exec {sys.executable} -m magicdec.cli run {tmp_path}/a.txt "
        f"--model {checkpoint} --context 99"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stdout == ""
    opening, line = done.stderr.splitlines()
    assert opening.startswith("opening") and f"of the {limit} MiB that ulimit -v allows" in line
