"""The largest batch that fits is found by bisection, each in a process of its own, and nothing is brought down."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from mldyno import api, plugins
from mldyno.cli import cli
from mldyno.errors import MldynoError, UsageError
from mldyno.frameworks.fake import Fake, FakeProgram
from mldyno.records import Case
from mldyno.runner.probing import Attempt, Search
from mldyno.worker import examine

Script = Callable[..., None]


def searched(limit: int, start: int, most: int = 1 << 40) -> Search:
    """A search where all batches up to a limit fit."""
    search = Search(Case("mlp", batch=start))
    while (batch := search.next(most)) is not None:
        search.attempts.append(Attempt(batch, batch <= limit))
    return search


@pytest.mark.parametrize("limit", [1, 2, 3, 47, 63])
@pytest.mark.parametrize("start", [1, 4, 128])
def test_it_is_exact_for_small_batches(limit: int, start: int) -> None:
    found = searched(limit, start).fits
    assert found is not None
    assert found.batch == limit


@pytest.mark.parametrize("limit", [65, 1000, 123_457])
def test_it_is_found_within_two_percent_for_large_ones_in_few_attempts(limit: int) -> None:
    search = searched(limit, 32)
    assert search.fits is not None
    assert limit / 1.02 <= search.fits.batch <= limit
    assert len(search.attempts) < 24


def test_nothing_fits_where_not_even_one_does() -> None:
    search = searched(0, 8)
    assert search.fits is None
    assert search.too_large is not None
    assert search.too_large.batch == 1


def test_it_looks_no_further_than_asked() -> None:
    found = searched(1 << 30, 32, most=100).fits
    assert found is not None
    assert found.batch == 100


def test_it_is_found_in_both_modes_and_told(script: Script) -> None:
    rules = [{"match": f"mlp/{mode}/*/b{batch}/*", "fail": "oom"} for mode, limit in (("train", 5), ("infer", 9))
             for batch in range(limit + 1, 130)]  # fmt: skip
    script(*rules)
    words = ["max-batch", "mlp", "--framework", "fake", "--device", "gpu"]
    found = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)["max_batch"]
    assert (found["train"]["batch"], found["infer"]["batch"]) == (5, 9)
    assert found["train"]["peak"] == 5000
    said = CliRunner().invoke(cli, [*words, "--mode", "train"])
    assert "mlp train: batch 128 does not fit (oom: fake: out of memory" in said.output
    assert " 5   4.88 KiB   6: oom: fake" in said.output


def test_a_workload_with_one_mode_is_searched_in_that_one(script: Script) -> None:
    script({"match": "*/b64/*", "fail": "oom"})
    found = api.max_batch("matmul", framework="fake", batch=32, most=64)
    assert list(found) == ["infer"]


def test_several_values_of_an_axis_are_refused_before_anything_is_tried() -> None:
    tried: list[Attempt] = []
    with pytest.raises(UsageError, match="one value for each axis but mode"):
        api.max_batch("mlp", framework="fake", device=["cpu", "gpu"], tell=lambda mode, one: tried.append(one))
    assert tried == []


def test_a_batch_that_fails_for_another_reason_is_one_clear_line(script: Script) -> None:
    script({"match": "*", "fail": "exception"})
    with pytest.raises(MldynoError, match="failed: RuntimeError: fake failure"):
        api.max_batch("mlp", framework="fake")


def test_a_library_that_fails_at_a_larger_batch_means_that_it_does_not_fit(script: Script) -> None:
    script(*({"match": f"*/b{batch}/*", "fail": "exception"} for batch in range(5, 9)))
    found = api.max_batch("mlp", modes=["infer"], framework="fake", device="gpu", batch=1, most=8)["infer"]
    assert found.fits is not None
    assert found.fits.batch == 4
    assert found.too_large is not None
    assert found.too_large.reason == "failed: RuntimeError: fake failure"


def test_results_that_are_no_numbers_mean_that_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropped(Fake):
        """A device that drops work for which it has no memory."""

        def build_program(self, case: Case, build: Any, data: Any) -> FakeProgram:
            made = super().build_program(case, build, data)
            made.losses = lambda: {"loss": math.nan}  # type: ignore[method-assign]
            return made

    monkeypatch.setattr(plugins, "framework", lambda name: Dropped())
    with pytest.raises(MemoryError, match="its results are no numbers"):
        examine.try_steps(Case("mlp", framework="fake", device="gpu", batch=2), 2, None)


def test_the_memory_of_the_host_never_stands_for_that_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProgram, "device_peak", lambda program: None)
    assert examine.try_steps(Case("mlp", framework="fake", device="gpu", batch=2), 2, None).peak is None
    assert examine.try_steps(Case("mlp", framework="fake", batch=2), 2, None).peak


def test_on_the_cpu_a_process_may_only_take_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MEMORY_LIMIT", "1GiB")
    monkeypatch.setattr("mldyno.runner.probing.EXACT_BATCH", 2)  # how near it comes is tried above, without processes
    found = api.max_batch("mlp", modes=["infer"], batch=32768)["infer"]
    assert found.fits is not None
    assert found.too_large is not None
    assert found.too_large.reason.startswith("oom")
    assert found.fits.batch * 1024 * 4 < 1 << 30
