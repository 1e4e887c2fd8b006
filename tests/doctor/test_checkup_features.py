"""Features tried in processes of their own: whatever one does to its process is its result, and the others come out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from mldyno.doctor import checkup
from mldyno.doctor.checkup import examine, feature_names, one_of_each_kind
from mldyno.doctor.symptoms import Tried
from mldyno.frameworks.fake import FRAMEWORK
from mldyno.records import Device
from mldyno.worker.client import WorkerProcess

Script = Callable[..., None]
QUICK = ["fp32", "fp16", "fp64", "svd"]


def examined(*wanted: str, device: str = "gpu") -> dict[str, Tried]:
    return {one.feature: one for one in examine(lambda: None, "fake", device, wanted or QUICK)}


def outcomes(found: dict[str, Tried]) -> dict[str, str]:
    return {name: one.outcome for name, one in found.items()}


def test_what_works_comes_with_its_error() -> None:
    found = examined()
    assert outcomes(found) == dict.fromkeys(QUICK, "works")
    assert found["fp16"] == Tried("fake", "gpu", "fp16", "works", "", 0.0, 1e-3)


@pytest.mark.parametrize(
    ("fail", "outcome", "reason"),
    [("exception", "unsupported", "RuntimeError: fake failure"),
     ("unsupported", "unsupported", "fake: this device can't do that"),
     ("oom", "failed", "fake: out of memory, tried to allocate 64 GiB"),
     ("kill", "crashed", "the worker was ended by SIGKILL"),
     ("segv", "crashed", "the worker was ended by SIGSEGV"),
     ("half", "crashed", "the worker's answer can't be read"),
     ("wrong", "wrong", ""), ("garbage", "works", "")],
)  # fmt: skip
def test_a_feature_that_goes_wrong_is_a_result_and_the_others_come_out(
    fail: str, outcome: str, reason: str, script: Script
) -> None:
    script({"match": "fp16/fake/gpu", "fail": fail})
    found = examined()
    assert outcomes(found) == {**dict.fromkeys(QUICK, "works"), "fp16": outcome}
    assert found["fp16"].reason.startswith(reason)
    if outcome == "wrong":
        assert (found["fp16"].error, found["fp16"].tolerance) == (0.5, 1e-3)


def test_a_feature_that_hangs_is_ended_and_the_others_come_out(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FRAMEWORK, "features", {**FRAMEWORK.features, "fp16": 1.0})
    script({"match": "fp16/fake/gpu", "fail": "hang"})
    found = examined()
    assert outcomes(found) == {**dict.fromkeys(QUICK, "works"), "fp16": "timeout"}
    assert found["fp16"].reason == "no end after 1.00 s"


def test_what_works_only_with_the_cpus_help_is_told_from_what_does_not_work(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script({"match": "svd/fake/gpu", "fail": "fallback"}, {"match": "fp64/fake/gpu", "fail": "unsupported"})
    monkeypatch.setenv("FAKE_ENABLE_FALLBACK", "1")  # the user's own setting must not hide it
    found = examined()
    assert outcomes(found) == {"fp32": "works", "fp16": "works", "fp64": "unsupported", "svd": "fallback"}
    assert found["svd"].reason == "fake::operator, only with FAKE_ENABLE_FALLBACK=1"
    assert os.environ["FAKE_ENABLE_FALLBACK"] == "1"


def test_where_the_plainest_feature_fails_nothing_more_is_tried(script: Script) -> None:
    script({"match": "fp32/fake/gpu", "fail": "segv"})
    assert outcomes(examined()) == {"fp32": "crashed"}


def test_one_process_serves_many_features_until_one_ends_it(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Counted(WorkerProcess):
        def start(self) -> None:
            started.append(self)
            super().start()

    monkeypatch.setattr(checkup, "WorkerProcess", Counted)
    examined()
    assert len(started) == 1
    script({"match": "fp16/fake/gpu", "fail": "segv"})
    examined()
    assert len(started) == 1 + 2


def test_after_an_error_that_spoils_the_process_a_fresh_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from mldyno.worker import examine as in_worker

    broken = False

    def spoiling(feature: str, device: str) -> Any:
        nonlocal broken
        broken = broken or feature == "fp64"
        if broken:
            raise RuntimeError("device-side assert triggered")
        return FRAMEWORK.__class__().try_feature(feature, device)

    monkeypatch.setattr(FRAMEWORK, "try_feature", spoiling)
    assert in_worker.try_feature("fake", "gpu", "fp16").fit is True
    spoiled = in_worker.try_feature("fake", "gpu", "fp64")
    assert (spoiled.result, spoiled.fit) == ("unsupported", False)


def test_an_error_alone_does_not_cost_a_process(script: Script) -> None:
    from mldyno.worker import examine as in_worker

    script({"match": "fp64/fake/gpu", "fail": "unsupported"})
    refused = in_worker.try_feature("fake", "gpu", "fp64")
    assert (refused.result, refused.fit) == ("unsupported", True)


def test_a_quick_look_leaves_away_what_takes_long() -> None:
    assert feature_names("fake", quick=True) == QUICK
    assert feature_names("fake", quick=False) == [*QUICK, "compile"]
    assert "compile" not in feature_names("torch", quick=True)
    assert "compile" in feature_names("torch", quick=False)


def test_of_cards_with_one_name_only_the_first_is_tried() -> None:
    cards = [Device("cpu", "torch", "CPU"), *(Device(f"cuda:{n}", "torch", "Tesla T4") for n in range(3)),
             Device("cuda:3", "torch", "A100")]  # fmt: skip
    assert [device.name for device in one_of_each_kind(cards)] == ["cpu", "cuda:0", "cuda:3"]
