"""Selectors from outside the package: named when they fail, held to their contract, kept from
writing where they may only read."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from magicdec.cli.main import run_command_line
from magicdec.engine.errors import AlteredError, ConfigError, PluginError
from magicdec.engine.indexes.base import KeyIndex
from magicdec.engine.indexes.exact import ExactIndex
from magicdec.engine.plugins.contained import Contained
from magicdec.engine.plugins.key_seal import KeySeal
from magicdec.engine.plugins.watched_index import fixed
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import DynamicSelector, KVSelector, Search
from magicdec.kernels.backends import get_backend
from magicdec.kernels.candidates import Candidates
from magicdec.profiles.recorded.reader import read_profile

DO: dict[str, Callable] = {}  # what the selectors here do in a place; nothing wrong otherwise


@pytest.fixture(autouse=True)
def nothing_wrong():
    DO.clear()


def act(place, *given):
    return DO[place](*given) if place in DO else None


@dataclass(frozen=True)
class Static(KVSelector):
    """The first positions."""

    size: int = 0

    def __post_init__(self):
        act("__init__", self)

    @property
    def observed(self):
        return act("observed") or 0

    def ring(self, budget):
        return act("ring")

    def search(self, head_dim=128, element_size=2):
        return act("search") or Search()

    def select(self, keys, queries, budget):
        act("select", keys)
        return torch.arange(min(budget, keys.shape[1])).expand(keys.shape[0], -1)


class Index(KeyIndex):
    def __init__(self, shape):
        self._exact = ExactIndex(shape.search)

    def admit(self, slot, keys):
        act("admit", keys)

    def extend(self, slot, keys, first):
        act("extend", keys)

    def choose(self, layer, queries, keys, rows, budget):
        chosen = self._exact.choose(layer, queries, keys, rows, budget)
        found = act("choose", keys, chosen, rows)
        return chosen if found is None else found


@dataclass(frozen=True)
class Dynamic(DynamicSelector):
    """The oracle, by another's hand."""

    def index(self, shape):
        act("index")
        return Index(shape)

    def width(self, length, budget):
        return act("width") or super().width(length, budget)

    def most(self, budget):
        return act("most") or super().most(budget)


@dataclass(frozen=True)
class Refreshed(Dynamic):
    refresh: int = 1


def name(kind):
    return f"{__name__}:{kind.__name__}"


def fail(*given):
    raise ZeroDivisionError("first line\nsecond")


def leave(*given):
    sys.exit()


def write(keys, *given):
    keys[..., :4, :] += 3


def write_around(keys, *given):
    keys.numpy()[..., :4, :] += 3  # behind torch's back


@pytest.fixture
def run(tiny, prompt, decode):
    def decoded(kind, prompts=(), **settings):
        settings = {"budget": 8, "max_new_tokens": 16, "ignore_eos": True, **settings}
        return decode(
            tiny().ours, prompts or [prompt(40), prompt(33)], selector=name(kind), **settings
        )

    return decoded


def at(*place):
    def positions(keys, chosen, rows):
        wrong = chosen.clone()
        wrong[(-1, *place)] = VALUES[-1]
        return wrong

    return positions


VALUES = [0]


@pytest.mark.parametrize("kind", [Dynamic, Refreshed])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1 << 60, r"a position 1,152,921,504,606,846,9\d\d beyond a row's last one"),
        ((1 << 63) - 1, "a position [0-9,]+ beyond a row's last one"),
        (40, r"a position \d beyond a row's last one"),
        (-1, "position -1; positions begin at 0"),
        (-(1 << 63), "position -9223372036854775808; positions begin at 0"),
    ],
)
def test_positions_outside_a_row_are_refused(run, kind, value, said):
    """Also those inside a longer batch mate: what lies there is none of the row's."""
    VALUES[-1] = value
    DO["choose"] = at(0, 0)
    with pytest.raises(PluginError, match=f"selector {kind.__name__} returned ({said})"):
        run(kind)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda keys, chosen, rows: chosen.int(), "torch.int32 on cpu, not int64 on cpu"),
        (lambda keys, chosen, rows: chosen.tolist(), "list, not a tensor"),
        (lambda keys, chosen, rows: chosen[..., :5], r"\[2, 2, 5\], not \[2, 2, 8\]"),
    ],
)
def test_what_is_no_choice_is_refused(run, prompt, made, said):
    DO["choose"] = made
    with pytest.raises(PluginError, match=f"selector Dynamic returned {said}"):
        run(Dynamic, [prompt(40), prompt(40, 1)])


def test_a_row_that_is_shorter_may_be_padded(run, prompt):
    """Of 5 entries in a batch with one of 40 it chooses all; the rest is padding."""
    plain = run(Dynamic, [prompt(40), prompt(5)], gamma=0)
    assert run(Dynamic, [prompt(40), prompt(5)]).tokens == plain.tokens


@pytest.mark.parametrize("writing", [write, write_around])
def test_a_static_selector_writes_into_a_copy(run, writing):
    plain = run(Static, gamma=0)
    DO["select"] = writing
    assert run(Static).tokens == plain.tokens


@pytest.mark.parametrize("kind", [Dynamic, Refreshed])
@pytest.mark.parametrize("place", ["admit", "extend", "choose"])
@pytest.mark.parametrize("writing", [write, write_around])
def test_a_dynamic_selector_that_writes_into_live_keys_ends_the_run(run, kind, place, writing):
    plain = run(kind, gamma=0)
    DO[place] = writing
    with pytest.raises(
        AlteredError, match=f"selector {kind.__name__} wrote into the keys"
    ) as found:
        run(kind)
    assert found.value.exit_code == 4
    DO.clear()
    assert run(kind).tokens == plain.tokens


def test_what_was_written_into_serves_no_later_run(run, tiny, prompt):
    plain = run(Dynamic, gamma=0)
    engine = run(Dynamic).engine
    DO["choose"] = write_around
    with pytest.raises(AlteredError):
        run(Dynamic, engine=engine)
    assert engine.cache.prompts == [None, None] and engine.cache.seal is None
    DO.clear()
    assert run(Dynamic, engine=engine, gamma=0).tokens == plain.tokens


def test_a_run_that_is_left_early_forgets_what_was_written_into(tiny, prompt, tokenizer):
    from magicdec.engine.config import DecodeConfig
    from magicdec.engine.engine import Engine
    from magicdec.engine.events import StepFinished
    from magicdec.engine.request import Request
    from magicdec.kernels.backends import get_backend

    DO["choose"] = write_around
    backend = get_backend("sdpa", torch.device("cpu"))
    engine = Engine(tiny().ours, tokenizer, backend, slots=1, capacity=90, chunk=32)
    config = DecodeConfig(selector=name(Dynamic), budget=8, ignore_eos=True, draft_weights="same")
    events = engine.run([Request("doc", prompt(40), 0)], config)
    next(event for event in events if isinstance(event, StepFinished))
    events.close()
    assert engine.cache.prompts == [None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_seal_sees_changes_and_swaps_and_nothing_else(dtype):
    k = torch.randn(2, 3, 2, 20, 4).to(dtype)
    seal = KeySeal(k, "Wild")
    seal.admit(1, 5)
    seal.extend([0, 1], [2, 4])  # slot 0 is nobody's
    assert seal.broken() == []
    k[:, 1, :, 9:] += 1  # scratch
    k[:, 2] += 1
    seal.check(1)
    for change in (lambda row: row[0, 0, 0].neg_(), lambda row: row[:, :, [2, 7]].clone()):
        before = k.clone()
        if (swapped := change(k[:, 1])).dim() == 4:
            k[:, 1, :, [7, 2]] = swapped.movedim(2, 0).movedim(0, 2)
        assert seal.broken() == [1]
        k.copy_(before)
        assert seal.broken() == []


@pytest.mark.parametrize("wrong", [fail, leave])
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *((Static, place) for place in ("__init__", "observed", "ring", "select")),
        *((Dynamic, place) for place in ("index", "admit", "extend", "choose", "width")),
        *((Refreshed, place) for place in ("most", "choose")),
    ],
)
def test_whatever_a_selector_raises_names_it(run, kind, place, wrong):
    reason = "ZeroDivisionError: first line second" if wrong is fail else "SystemExit"
    DO[place] = wrong
    with pytest.raises(PluginError) as error:
        run(kind)
    assert str(error.value) == f"selector {kind.__name__} failed in {place}: {reason}"


@pytest.mark.parametrize(
    ("kind", "place", "value", "said"),
    [
        (Static, "observed", -1, "observed is -1, not an integer of 0 or more"),
        (Static, "observed", 2.5, "observed is 2.5, not"),
        (Static, "ring", 9, r"ring is 9, not None or in 1\.\.8"),
        (Static, "ring", True, "ring is True, not"),
        (Dynamic, "width", 10**9, r"width is 1000000000, not in 1\.\.8"),
        (Refreshed, "most", -3, "most is -3, not an integer of 1 or more"),
    ],
)
def test_numbers_are_checked(run, kind, place, value, said):
    DO[place] = lambda: value
    with pytest.raises(PluginError, match=f"selector {kind.__name__}: {said}"):
        run(kind)


def test_what_it_refuses_on_purpose_stays_a_setting_that_cannot_be(run):
    DO["ring"] = refuse
    with pytest.raises(ConfigError, match=r"^selector Static: size must be odd$"):
        run(Static)


def refuse(*given):
    raise ConfigError("size must be odd")


def test_an_import_that_leaves_is_a_selector_that_cannot_be_loaded(tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot load KVSelector 'leaving:Any': SystemExit$"):
        SELECTORS.create("leaving:Any")


def test_options_whose_types_cannot_be_known_are_named(tmp_path, monkeypatch):
    (tmp_path / "vague.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from magicdec.engine.selectors.streaming import Streaming\n\n"
        "@dataclass(frozen=True)\nclass Vague(Streaming):\n    size: Nowhere = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"^vague:Vague cannot be made: NameError: "):
        SELECTORS.create("vague:Vague", {"size": "4"})


def test_the_guard_is_invisible_and_only_for_strangers():
    made = SELECTORS.create(name(Static), {"size": "4"})
    assert isinstance(made, Static) and made.size == 4
    assert made == SELECTORS.create(name(Static), {"size": 4}) and repr(made) == "Static(size=4)"
    assert type(made).__name__ == "Static" and type(made).__doc__ == Static.__doc__
    assert type(SELECTORS.create("snapkv")).__mro__[0] is SELECTORS.load("snapkv")


# The command line


@pytest.fixture
def document(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "doc.txt"
    path.write_text("All the world is a stage, and all the men and women merely players. " * 8)
    return path


FIXED = ("--device", "cpu", "--budget", "16", "--max-new-tokens", "12", "--ignore-eos", "-q")


@pytest.mark.parametrize("wrong", [fail, leave])
@pytest.mark.parametrize("place", ["select", "observed", "ring"])
def test_what_was_done_before_it_failed_is_shown(document, checkpoint, capsys, place, wrong):
    DO[place] = wrong
    code = run_command_line(
        ["run", str(document), "--model", str(checkpoint), *FIXED, "--context", "60", "--compare",
         "--json", "--selector", name(Static)]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 1 and f"selector Static failed in {place}: " in err
    assert bool(out) == (place == "select")  # the others are asked before the plain pass
    if out:
        record = json.loads(out)
        assert f"selector Static failed in {place}" in record["error"]
        # Plain decoding had its first turn: the prefill's token and a block of 4.
        assert [len(row["token_ids"]) for row in record["baseline"]["rows"]] == [5]


@pytest.mark.parametrize("compare", [[], ["--compare"]])
def test_a_text_that_was_tampered_with_ends_with_4(document, checkpoint, capsys, compare):
    DO["choose"] = write_around
    fixed = ["run", str(document), "--model", str(checkpoint), *FIXED, "--context", "60"]
    assert run_command_line([*fixed, *compare, "--selector", name(Dynamic)]) == 4
    assert "selector Dynamic wrote into the keys" in capsys.readouterr().err
    DO.clear()
    assert run_command_line([*fixed, "--compare", "--json", "--selector", name(Dynamic)]) == 0
    assert json.loads(capsys.readouterr().out)["lossless"]["identical"]


@pytest.mark.parametrize("place", ["__init__", "observed", "ring", "select"])
def test_in_a_sweep_it_is_a_failed_cell(document, checkpoint, capsys, place):
    DO[place] = leave if place == "select" else fail
    code = run_command_line(
        ["profile", "record", str(document), "--model", str(checkpoint), *FIXED, "--context", "60",
         "--repeat", "1", "--selector", f"{name(Static)},streaming", "-o", "sweep.jsonl"]
    )  # fmt: skip
    assert code == 1 and "1 cell failed" in capsys.readouterr().err
    cells = {cell.key.selector: cell for cell in read_profile(Path("sweep.jsonl")).cells}
    assert cells["streaming"].status == "ok"
    assert cells[name(Static)].status == "failed"
    assert f"selector Static failed in {place}: " in cells[name(Static)].error


def test_a_draft_model_of_nan_is_a_failed_cell(document, checkpoint, tmp_path, capsys):
    from shutil import copytree

    broken = copytree(checkpoint, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"].fill_(torch.nan)
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    code = run_command_line(
        ["profile", "record", str(document), "--model", str(checkpoint), *FIXED, "--context", "60",
         "--repeat", "1", "--temperature", ".8", "--draft", f"{broken},self", "-o", "sweep.jsonl"]
    )  # fmt: skip
    capsys.readouterr()
    cells = {cell.key.draft: cell for cell in read_profile(Path("sweep.jsonl")).cells}
    assert code == 1 and cells["self"].status == "ok"
    (failed,) = (cell for draft, cell in cells.items() if draft != "self")
    assert failed.status == "failed" and failed.error


@pytest.mark.parametrize("late", [False, True])
def test_keys_cannot_be_freed_under_the_engine(document, checkpoint, capsys, late):
    """A kernel that reads freed keys ends the process."""
    calls = []

    def free(keys, *given):
        calls.append(keys)
        if len(calls) > (12 if late else 0):
            keys.untyped_storage().resize_(0)

    DO["choose"] = free
    code = run_command_line(
        ["run", str(document), "--model", str(checkpoint), *FIXED, "--context", "60", "--selector",
         name(Dynamic)]
    )  # fmt: skip
    err = capsys.readouterr().err
    assert code == 1 and "selector Dynamic failed in choose" in err and "not resizable" in err


@dataclass(frozen=True)
class Sparse(Static):
    """Positions that cannot be read like others."""

    def select(self, keys, queries, budget):
        return Static.select(self, keys, queries, budget).to_sparse()


def test_positions_of_a_layout_that_cannot_be_read_are_named(document, checkpoint, capsys):
    code = run_command_line(
        ["run", str(document), "--model", str(checkpoint), *FIXED, "--context", "60", "--selector",
         name(Sparse)]
    )  # fmt: skip
    assert code == 1 and "selector Sparse" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_fixed_keys_are_the_same_memory(dtype):
    keys = torch.zeros(2, 8, 4, dtype=dtype)[:, :5]
    shown = fixed(keys)
    assert shown.data_ptr() == keys.data_ptr() and shown.stride() == keys.stride()
    assert shown.dtype == dtype and shown.shape == keys.shape
    with pytest.raises(RuntimeError, match="not resizable"):
        shown.untyped_storage().resize_(0)


def narrow(*given):
    """So little that whatever is called next is one too deep."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    for limit in range(max(depth - 3, 1), depth + 60):
        try:
            sys.setrecursionlimit(limit)
        except RecursionError:
            continue
        deepen(100)


def deepen(levels):
    return levels and deepen(levels - 1)


class Leaving(Exception):
    def __str__(self):
        sys.exit(0)


def leave_while_shown(*given):
    raise Leaving


@pytest.mark.parametrize(
    ("kind", "place"), [(Static, "__init__"), (Static, "select"), (Dynamic, "choose")]
)
def test_what_a_selector_sets_for_the_whole_process_is_put_back(run, kind, place):
    plain = run(kind, gamma=0)
    before = torch.get_num_threads(), [f for f in warnings.filters if f[0] == "error"]

    def settings(*given):
        torch.set_default_dtype(torch.float64)
        if place == "__init__":  # in another place its own positions are there, too
            torch.set_default_device("meta")
        torch.set_num_threads(before[0] + 1)
        torch.set_float32_matmul_precision("medium")
        warnings.simplefilter("error")

    DO[place] = settings
    try:
        assert run(kind).tokens == plain.tokens
        raising = [f for f in warnings.filters if f[0] == "error"]
        assert (torch.get_num_threads(), raising) == before
        assert torch.get_default_dtype() is torch.float32
        assert torch.get_default_device().type == "cpu"
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("kind", "place"), [(Static, "select"), (Dynamic, "choose")])
def test_a_recursion_limit_that_a_selector_lowers_is_its_own_trouble(run, kind, place):
    """It ended the run with the plain pass lost: what says so called functions itself."""
    limit = sys.getrecursionlimit()
    DO[place] = narrow
    try:
        with pytest.raises(PluginError, match=f"selector {kind.__name__} failed in {place}: Rec"):
            run(kind)
        assert sys.getrecursionlimit() == limit
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("kind", [Static, Dynamic])
def test_an_error_that_cannot_be_shown_ends_no_process(run, kind):
    DO["select" if kind is Static else "choose"] = leave_while_shown
    with pytest.raises(PluginError, match="Leaving: its message cannot be shown"):
        run(kind)


@pytest.mark.parametrize("module", ["leaves", "narrows", "is_long"])
def test_a_module_that_misbehaves_while_it_is_imported(module, tmp_path, monkeypatch):
    (tmp_path / "leaves.py").write_text(
        "import sys\nclass E(Exception):\n    __str__ = lambda self: sys.exit(0)\nraise E"
    )
    (tmp_path / "narrows.py").write_text("import sys\n[sys.setrecursionlimit(900)]\nNone.no")
    (tmp_path / "is_long.py").write_text("raise ValueError('\\x1b[2J' + 'x' * 100_000)")
    monkeypatch.syspath_prepend(tmp_path)
    limit = sys.getrecursionlimit()
    try:
        with pytest.raises(ConfigError, match=f"cannot load KVSelector '{module}:S'") as found:
            SELECTORS.create(f"{module}:S")
        assert sys.getrecursionlimit() == limit
    finally:
        sys.setrecursionlimit(limit)
    assert len(str(found.value)) < 400
    assert str(found.value).isprintable()


@dataclass(frozen=True)
class Optional(Static):
    many: int | None = None


def test_an_option_whose_type_makes_nothing_of_a_text_is_named():
    with pytest.raises(ConfigError, match=r"Optional: many must be int \| None, got '7'"):
        SELECTORS.create(name(Optional), {"many": "7"})
    with pytest.raises(ConfigError, match=r"Static: size must be int, got '9{20,60}…$"):
        SELECTORS.create(name(Static), {"size": "9" * 5000})


def test_a_thread_that_a_stranger_leaves_behind_holds_no_process():
    """Python waits for it at the end; what was registered for the end is done all the same."""
    code = (
        "import atexit, sys, threading, time; from magicdec.cli.main import main\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "atexit.register(print, 'tidied', file=sys.stderr)\n"
        "main(['config', 'show', '--format', 'csv', '--nonsense'] if sys.argv[1:] else "
        "['terms'])"
    )
    for more, expected in ([], 0), (["x"], 2):
        ended = subprocess.run(
            [sys.executable, "-c", code, *more], capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert ended.returncode == expected
        assert ended.stderr.endswith("tidied\n")
        assert bool(ended.stdout) == (expected == 0)


def test_standard_output_that_a_stranger_closes_is_said_in_a_line():
    code = (
        "import sys; from magicdec.cli import main\n"
        "main._run = lambda arguments: sys.stdout.close()\nmain.main([])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "magicdec: cannot write to standard output: it was closed\n"


def test_what_a_stranger_prints_is_no_result(capsys):
    with Contained("it failed", "selector Loud"):
        print("hello")
        sys.stdout.close()
    print("result")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("result\n", "hello\n")


def test_a_stranger_that_raises_our_own_errors_is_named():
    with pytest.raises(AlteredError, match=r"^selector Sly: hehe$"), Contained("", "selector Sly"):
        raise AlteredError("hehe")
    with pytest.raises(AlteredError, match=r"^selector Sly wrote$"), Contained("", "selector Sly"):
        raise AlteredError("selector Sly wrote")


def test_kernels_ask_nobody_which_device_is_the_default():
    """A stranger may set it and then call the package's own index."""
    heads, dim = 3, 16
    keys = torch.randn(1, heads, 40, dim)
    rows = Candidates(0, (40,), keys.device)
    queries = torch.randn(1, heads, 2, dim)
    search = get_backend("native", keys.device).search
    wanted = search.best(search.mass(queries, keys, rows), rows, 8)
    torch.set_default_device("meta")
    try:
        rows = Candidates(0, (40,), keys.device)
        found = search.best(search.mass(queries, keys, rows), rows, 8)
    finally:
        torch.set_default_device(None)
    assert torch.equal(found, wanted)
