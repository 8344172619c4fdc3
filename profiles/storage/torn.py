"""What a killed writer leaves at the end of a file of JSON lines."""

from __future__ import annotations

import json
import os
from pathlib import Path


def cut_torn_line(path: Path) -> None:
    """Removes what follows the last line that is whole, and gives that one its line end."""
    data = path.read_bytes()
    body = data.rstrip()
    last = body[body.rfind(b"\n") + 1 :]
    try:
        json.loads(last)
        keep = body + b"\n"
    except ValueError:
        keep = body[: len(body) - len(last)]
    if keep != data:
        with path.open("r+b") as file:
            if data.startswith(keep):
                file.truncate(len(keep))
            else:
                file.seek(len(body))
                file.write(b"\n")
                file.truncate()
            os.fsync(file.fileno())
