"""A worker has the allocator that its case names, or the case says why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mldyno.frameworks import Unsupported
from mldyno.results import Results
from mldyno.worker import client
from mldyno.worker.client import settings_for

FakeRun = Callable[..., Results]


@pytest.fixture(autouse=True)
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.worker.client.sys.platform", "linux")
    monkeypatch.setattr("mldyno.worker.client.platform.libc_ver", lambda: ("glibc", "2.36"))


def test_the_systems_own_allocator_needs_no_setting() -> None:
    assert settings_for("system") == settings_for(None) == {}


def test_a_worker_is_started_with_the_settings_and_its_record_has_them(fake_run: FakeRun) -> None:
    (record,) = fake_run(mode="infer", allocator="steady", repeats=1).records
    assert record.status == "ok"
    assert record.case.id.endswith("/steady")
    assert {name: record.software.env[name] for name in client.KEEP_FREED_MEMORY} == client.KEEP_FREED_MEMORY


def test_an_allocator_that_is_not_installed_is_said_to_be_missing(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.worker.client.shared_library", lambda name: None)
    (record,) = fake_run(mode="infer", allocator="jemalloc", repeats=1).records
    assert (record.status, record.software.env) == ("unsupported", {})
    assert record.reason == "jemalloc is not installed; on Debian and Ubuntu: apt install libjemalloc2"


@pytest.mark.parametrize("name", ["steady", "tcmalloc"])
def test_elsewhere_than_on_linux_none_can_be_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.worker.client.sys.platform", "darwin")
    with pytest.raises(Unsupported, match="on Linux only"):
        settings_for(name)


def test_what_keeps_memory_is_glibcs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.worker.client.platform.libc_ver", lambda: ("musl", ""))
    with pytest.raises(Unsupported, match="another C library"):
        settings_for("steady")
