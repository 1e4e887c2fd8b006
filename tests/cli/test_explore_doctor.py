"""`mldyno doctor` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mldyno.doctor.checkup import feature_names

Script = Callable[..., None]
Mldyno = Callable[..., tuple[int, str, str]]
REHEARSAL = ("doctor", "--quick", "--framework", "fake")


def test_every_feature_really_runs_on_the_cpu_and_gives_the_right_numbers(mldyno: Mldyno) -> None:
    code, out, _ = mldyno("doctor", "--quick", "--json")
    found = json.loads(out)
    assert code == 0
    tried = [one for one in found["features"] if one["device"] == "cpu"]
    assert [one["feature"] for one in tried] == feature_names("torch", quick=True)
    assert [one for one in tried if one["outcome"] != "works"] == []
    assert all(one["error"] <= one["tolerance"] for one in tried)
    exact = {one["feature"] for one in tried if one["error"] == 0}
    assert exact <= {"int8", "fp64"}, "numbers that do not differ at all were not computed in their type"
    assert found["frameworks"]["torch"]["versions"]["torch"].startswith("2.")
    assert found["devices"][0]["name"] == "cpu"
    assert 0 < found["facts"]["free_cores"] <= found["facts"]["cores"]
    assert (found["threads"], found["noise"]) == (None, None)


def test_the_report_has_facts_features_and_findings_within_80_columns(mldyno: Mldyno, script: Script) -> None:
    script({"match": "svd/fake/gpu", "fail": "segv"}, {"match": "fp64/fake/gpu", "fail": "unsupported"},
           {"match": "fp16/fake/gpu", "fail": "wrong"})  # fmt: skip
    code, out, err = mldyno(*REHEARSAL)
    assert code == 0, "a report with findings is a report"
    assert all(len(line) <= 80 or len(line.split()) <= 2 for line in out.splitlines()), "only a path may be longer"
    for words in ("test bench", "fake on gpu", "[crashes]", "[wrong-numbers]", "fake accelerator", "Cure: "):
        assert words in out
    assert "not supported  fp64: fake: this device can't do that" in out
    assert "left)" in err


def test_noise_is_listened_for_as_long_as_it_is_asked_for(mldyno: Mldyno) -> None:
    code, out, _ = mldyno(*REHEARSAL, "--noise", "300ms", "--json")
    noise = json.loads(out)["noise"]
    assert code == 0
    assert noise["seconds"] == 0.3
    assert noise["verdict"] in ("quiet", "noisy", "very noisy")


def test_a_store_that_can_not_be_read_is_a_finding(mldyno: Mldyno, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is no database at all, whatever its name says" * 20)
    code, out, _ = mldyno(*REHEARSAL, "--store", str(broken), "--json")
    found = json.loads(out)
    assert code == 0
    (finding,) = [one for one in found["findings"] if one["code"] == "store-unreadable"]
    assert str(broken) in finding["message"]
    assert found["store"]["path"] == str(broken)


def test_a_framework_that_is_unknown_and_a_time_that_is_none_are_one_line(mldyno: Mldyno) -> None:
    code, out, err = mldyno("doctor", "--framework", "torhc")
    assert (code, out) == (2, "")
    assert "Did you mean 'torch'?" in err
    code, out, err = mldyno(*REHEARSAL, "--noise", "long")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
