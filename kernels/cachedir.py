"""Where files that can be made again are kept."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

OVERRIDE = "MAGICDEC_CACHE_DIR"


def cache_root() -> Path:
    """The user's cache folder for this program, or $MAGICDEC_CACHE_DIR; it may not exist yet."""
    override = os.environ.get(OVERRIDE)
    if override:
        return Path(override).expanduser()
    return Path(platformdirs.user_cache_dir("magicdec", appauthor=False))
