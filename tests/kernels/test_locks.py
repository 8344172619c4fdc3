"""Who holds a lock is said; waiting has an end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from magicdec.kernels.locks import Timeout, held, holder, waited, who


def test_the_holder_is_known_while_there_is_one(tmp_path, hold):
    lock = tmp_path / "lock"
    with hold(lock) as pid:
        assert holder(lock) == pid and who(lock) == f"process {pid}"
    assert holder(lock) is None and who(lock) == "another process"
    assert holder(tmp_path / "none") is None


def test_a_free_lock_is_taken_without_a_word(tmp_path):
    said: list[str] = []
    with held(tmp_path / "lock", doing="is busy", say=said.append, patience=1):
        assert said == []
    with held(tmp_path / "lock", doing="is busy", say=said.append, patience=0):
        assert said == []


def test_who_has_no_patience_says_nothing(tmp_path, hold):
    said: list[str] = []
    with (
        hold(tmp_path / "lock"),
        pytest.raises(Timeout),
        held(tmp_path / "lock", doing="is busy", say=said.append, patience=0),
    ):
        pass
    assert said == []


def test_waiting_is_said_once_and_ends_with_the_lock(tmp_path, hold):
    said: list[str] = []
    with ExitStack() as other:
        pid = other.enter_context(hold(tmp_path / "lock"))

        def say(what: str) -> None:
            said.append(what)
            other.close()

        with held(tmp_path / "lock", doing="is busy", say=say, patience=60):
            assert said == [f"waiting for process {pid}, which is busy"]


def test_waiting_is_told_from_work(tmp_path, hold):
    """What is timed around a lock can leave it out: the kernels count to a run's phase `load`."""
    before = waited()
    with (
        hold(tmp_path / "lock"),
        pytest.raises(Timeout),
        held(tmp_path / "lock", doing="is busy", say=lambda _what: None, patience=0.3),
    ):
        pass
    assert waited() - before >= 0.3


def test_patience_starts_anew_while_the_holder_gets_on(tmp_path, hold):
    asked: list[int] = []

    def progress() -> int:
        asked.append(0)
        return min(len(asked), 4)  # then it stands still

    with (
        hold(tmp_path / "lock"),
        pytest.raises(Timeout),
        held(
            tmp_path / "lock", doing="is busy", say=lambda _what: None, patience=0.02,
            progress=progress,
        ),
    ):  # fmt: skip
        pass
    assert len(asked) > 4
