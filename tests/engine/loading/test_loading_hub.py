"""Hugging Face ids, against a small server that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.loading.open import is_hub_id

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STATUS = {"org/gated": (403, "GatedRepo"), "org/absent": (404, "RepoNotFound")}

OPEN = """
import json, sys
from magicdec.engine.errors import ModelError
from magicdec.engine.loading.open import open_checkpoint
heard = []
for name in sys.argv[1:]:
    try:
        checkpoint = open_checkpoint(name, lambda what, share: heard.append((what, share)))
        said = sum(tensor.sum().item() for tensor in checkpoint.weights.values())
    except ModelError as error:
        said = str(error)
    print(json.dumps([said, heard]))
"""


class Hub(ThreadingHTTPServer):
    """Serves `folder` as org/model, its pickle as org/pickle, and refuses what STATUS lists."""

    folder: Path
    served: list[str]

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder, self.served = folder, []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        for name, (status, code) in STATUS.items():
            if name in path:
                return self.reply(status, b"", {"X-Error-Code": code})
        files = sorted(file for file in self.server.folder.rglob("*") if file.is_file())
        if "org/pickle" in path:
            files = [file for file in files if file.suffix in (".bin", ".json")]
        if "/tree/" in path:
            listing = [
                {
                    "type": "file",
                    "path": str(file.relative_to(self.server.folder)),
                    "size": file.stat().st_size,
                    "oid": hashlib.sha1(file.read_bytes()).hexdigest(),
                }
                for file in files
            ]
            return self.reply(200, json.dumps(listing).encode(), {})
        if match := re.fullmatch(r"/org/\w+/resolve/\w+/(.+)", path):
            content = (self.server.folder / match[1]).read_bytes()
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            if self.command == "GET":
                self.server.served.append(match[1])
            return self.reply(200, content, {"ETag": etag, "X-Repo-Commit": COMMIT})
        info = {"id": "org/model", "sha": COMMIT, "siblings": []}
        return self.reply(200, json.dumps(info).encode(), {})

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Keeps the test output clean."""


@pytest.fixture
def hub(save: Callable[..., Path]) -> Iterator[Hub]:
    folder = save(max_shard_size="20KB")
    for extra in ("pytorch_model.bin", "original/other.safetensors", "consolidated.safetensors"):
        (folder / extra).parent.mkdir(exist_ok=True)
        (folder / extra).write_bytes(b"not wanted")
    server = Hub(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def ask(hub: Hub, tmp_path: Path) -> Callable[..., Any]:
    """Opens a model in a process of its own: the hub's address is read at import."""

    def run(*names: str, **environment: str) -> Any:
        process = subprocess.run(
            [sys.executable, "-c", OPEN, *names],
            capture_output=True,
            text=True,
            env=os.environ
            | {
                "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
                "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_DISABLE_XET": "1",
                "NO_PROXY": "127.0.0.1",
            }
            | environment,
        )
        assert process.returncode == 0, process.stderr
        assert process.stderr == ""  # no progress bars or warnings of the libraries
        return [json.loads(line) for line in process.stdout.splitlines()]

    return run


def test_download_then_offline(ask: Callable[..., Any], hub: Hub, tiny: Any) -> None:
    ((total, heard),) = ask("org/model")
    expected = sum(tensor.sum().item() for tensor in tiny().state_dict().values())
    assert total == pytest.approx(expected, rel=1e-4)
    assert {what for what, _ in heard} == {"downloading org/model"}
    assert heard[0][1] is None
    assert heard[-1][1] == 1.0
    assert "tokenizer.json" in hub.served
    assert not {"pytorch_model.bin", "consolidated.safetensors"} & set(hub.served)
    assert not any("original" in file for file in hub.served)

    hub.served.clear()
    ((again, _),) = ask("org/model", HF_ENDPOINT="http://127.0.0.1:9")
    assert again == total
    assert hub.served == []


def test_refusals(ask: Callable[..., Any], hub: Hub) -> None:
    names = ["org/gated", "org/absent", "org/pickle"]
    said = [message for message, _ in ask(*names)]
    assert "is gated; accept its terms" in said[0] and "`hf auth login`" in said[0]
    assert "does not exist on Hugging Face, or is private" in said[1]
    assert "publishes no safetensors weights" in said[2]

    names.append("org/model")
    said += [message for message, _ in ask("org/model", HF_ENDPOINT="http://127.0.0.1:9")]
    assert "cannot be downloaded" in said[3] and "is not in its cache" in said[3]
    for name, message in zip(names, said, strict=True):
        assert message.startswith(name)
        assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        ("org/model", True),
        ("Qwen/Qwen3-0.6B", True),
        ("model", False),
        ("a/b/c", False),
        ("./model", False),
        ("/model", False),
        ("org/", False),
        ("../model", False),
    ],
)
def test_what_looks_like_an_id(name: str, is_id: bool) -> None:
    assert is_hub_id(name) == is_id
