"""Models of Hugging Face by their names: from a cache, or fetched from a hub that this test plays.

Workers look for them, since the packages read their surroundings when they are imported.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mldyno import api, sources
from mldyno.errors import MldynoError

COMMIT = "1" * 40


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's cache, or a real hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_KNOWN", {})


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a tiny model."""
    import transformers

    transformers.logging.disable_progress_bar()
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(**sizes, vocab_size=100, max_position_embeddings=64)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


class Hub(ThreadingHTTPServer):
    """As much of huggingface.co as a download needs: one model, some/tiny."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.folder, self.fetched = folder, list[str]()


class Requests(BaseHTTPRequestHandler):
    """Answers of the hub."""

    server: Hub

    def do_GET(self) -> None:
        folder, path = self.server.folder, self.path.partition("?")[0]
        name = path.rpartition("/")[2]
        files = sorted(folder.iterdir())
        if path.startswith(f"/some/tiny/resolve/{COMMIT}/"):
            self._send((folder / name).read_bytes())
            self.server.fetched += [name] if self.command == "GET" else []
        elif path.startswith("/api/models/some/tiny/tree/"):
            tree = [{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0" * 40} for file in files]
            self._send(json.dumps(tree).encode())
        elif path.startswith("/api/models/some/tiny"):
            siblings = [{"rfilename": file.name} for file in files]
            self._send(json.dumps({"id": "some/tiny", "sha": COMMIT, "siblings": siblings}).encode())
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", hashlib.sha256(content).hexdigest())
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def hub(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, which the packages are told of."""
    hub = Hub(tiny)
    thread = Thread(target=hub.serve_forever)
    thread.start()
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
    yield hub
    hub.shutdown()
    thread.join()
    hub.server_close()


def workloads_of(word: str, weights: bool = False, download: bool = False) -> set[str]:
    """The workloads of a plan."""
    return {case.workload for case in api.make_plan([word], {}, {"weights": weights, "download": download}).cases}


def test_a_model_is_fetched_only_where_that_is_asked_for_and_without_its_weights(hub: Hub) -> None:
    with pytest.raises(MldynoError, match="hf:some/tiny is not in the local cache"):
        workloads_of("hf:some/tiny")
    assert hub.fetched == []
    fetched = workloads_of("hf:some/tiny", download=True)
    assert hub.fetched == ["config.json"]
    assert workloads_of("hf:some/tiny") == fetched  # from the cache, now that it is there
    assert hub.fetched == ["config.json"]


def test_weights_are_fetched_where_both_are_asked_for(hub: Hub) -> None:
    assert workloads_of("hf:some/tiny", download=True, weights=True) == workloads_of("hf:some/tiny", weights=True)
    assert sorted(hub.fetched) == ["config.json", "model.safetensors"]


def test_a_model_that_the_hub_does_not_have_is_a_line(hub: Hub) -> None:
    with pytest.raises(MldynoError, match=r"there is no model some/other at huggingface\.co, or it is private"):
        workloads_of("hf:some/other", download=True)


def put_into_cache(folder: Path, cache: Path, name: str, leave_out: tuple[str, ...] = ()) -> None:
    """A model as the cache has it: snapshots of links to files that are named by their content."""
    model = cache / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    for path in folder.iterdir():
        if path.name not in leave_out:
            shutil.copy(path, snapshot / path.name)


def test_a_model_in_the_cache_is_found_by_its_name(tiny: Path, tmp_path: Path) -> None:
    put_into_cache(tiny, tmp_path / "cache", "some/tiny", leave_out=("model.safetensors",))
    plan = api.make_plan(["hf:some/tiny"], {})
    assert {case.workload.partition("@")[0] for case in plan.cases} == {"hf:some:tiny"}
    assert {case.mode for case in plan.cases} == {"train", "infer"}
    with pytest.raises(MldynoError, match="the weights of hf:some/tiny are not in the local cache; fetch with --weigh"):
        api.make_plan(["hf:some/tiny"], {}, {"weights": True})


def test_a_model_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MldynoError) as error:
        api.make_plan(["hf:gpt2"], {})
    assert str(error.value) == ("hf:gpt2 is not in the local cache; fetch with --download, or: hf download gpt2.")
    with pytest.raises(MldynoError, match="hf:gpt2 can't be fetched, since HF_HUB_OFFLINE is set; unset it"):
        api.make_plan(["hf:gpt2"], {}, {"download": True})
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(MldynoError, match=r"can't be fetched: huggingface.co can't be reached \(Connection refused\)"):
        api.make_plan(["hf:gpt2"], {}, {"download": True})
    with pytest.raises(MldynoError, match="'a b' is no folder here, and can't be a model's name"):
        api.make_plan(["hf:a b"], {})
