"""A model of the Hugging Face hub, kept in the hub's own cache on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.checkpoint import Progress
from magicdec.engine.loading.files import one_line
from magicdec.engine.loading.quiet import quiet_hub

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt"]
_UNWANTED = ["*/*", "consolidated*"]  # other formats of the same weights


def is_hub_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def fetch(name: str, progress: Progress) -> Path:
    """The local folder of hub model `name`; downloads what is missing, works offline when cached.

    Raises ModelError when it cannot be had.
    """
    import huggingface_hub as hub
    from huggingface_hub import errors

    what = f"downloading {name}"
    progress(what, None)
    try:
        with quiet_hub():
            folder = hub.snapshot_download(
                name,
                allow_patterns=_WANTED,
                ignore_patterns=_UNWANTED,
                tqdm_class=_reporter(what, progress),
            )
    except errors.GatedRepoError:
        raise ModelError(
            f"{name} is gated; accept its terms at https://huggingface.co/{name} and log in with "
            "`hf auth login`, or give a local folder"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"{name} does not exist on Hugging Face, or is private; check the id, give a local "
            "folder or an alias of `magicdec models list`"
        ) from None
    # What is left is the network, the disk and the hub's own errors, which share no base class.
    except Exception as error:
        raise ModelError(
            f"{name} cannot be downloaded from Hugging Face ({_cause(error)}) and is not in its "
            "cache; give a local folder or an alias of `magicdec models list`"
        ) from None
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        raise ModelError(
            f"{name} publishes no safetensors weights at its top level; choose another model, "
            "or download a .gguf file and give its path"
        )
    return path


def _cause(error: BaseException) -> str:
    """The hub wraps the network's error, sometimes twice; the innermost says what happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error, limit=120)


def _reporter(what: str, progress: Progress) -> type[Any]:
    """A progress bar that shows nothing and reports the bytes done to `progress`.

    The total grows while files are being opened, so the share may step back in the first second.
    """
    from huggingface_hub.utils import tqdm

    class Reporter(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"disable": True}))
            self._counts_bytes = kwargs.get("unit") == "B"  # another bar counts files
            self.total = kwargs.get("total")
            self.n = kwargs.get("initial", 0)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._counts_bytes and self.total:
                progress(what, min(1.0, self.n / self.total))

    return Reporter
