"""A device or precision that is unknown or not here: a clear line or a record, and never the CPU in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

USER_ERROR, USAGE, NOT_ALL_OK = 1, 2, 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "mlp", "--device", "foo"), ("unknown device 'foo'.", "cuda:0", "mps", "all")),
        (("run", "mlp", "--device", "cuda:"), ("unknown device 'cuda:'.",)),
        (("run", "mlp", "--device", "cuda:-1"), ("unknown device 'cuda:-1'.",)),
        (("run", "mlp", "--precision", "int3"), ("unknown precision 'int3'.", "bf16")),
        (("max-batch", "mlp", "--device", "foo"), ("unknown device 'foo'.",)),
        (("selftest", "--device", "foo"), ("unknown device 'foo'.", "mps")),
        (("selftest", "--device", "cuda:x"), ("unknown device 'cuda:x'.",)),
        (("selftest", "--device", "cpu,mps"), ("unknown device 'cpu,mps'.",)),
        (("selftest", "--device", "all"), ("one device at a time", "--device gpu")),
    ],
    ids=" ".join,
)
def test_a_device_or_precision_that_nobody_knows_is_answered_with_those_there_are(
    dyno: Dyno, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    line = dyno.refusal(*arguments, code=USAGE)
    assert [word for word in words if word not in line] == []
    assert not dyno.store.exists()


def test_devices_that_are_not_here_are_records_and_the_cpu_never_steps_in(dyno: Dyno) -> None:
    done = dyno("run", "mlp", "--device", "cuda:9,mps", "--mode", "infer", "--steps", "5", "--repeats", "1")
    assert done.code == NOT_ALL_OK
    found = {record.case.device: (record.status, record.reason) for record in dyno.records()}
    assert found == {name: ("unsupported", f"no device '{name}' here; torch sees cpu") for name in ("cuda:9", "mps")}
    assert all(not record.series for record in dyno.records())


def test_the_self_test_of_a_device_that_is_not_here_is_refused_with_those_that_are(dyno: Dyno) -> None:
    line = dyno.refusal("selftest", "--device", "cuda:9", code=USER_ERROR)
    assert "no device 'cuda:9' here; torch sees cpu." in line
    assert "mldyno doctor" in line


def test_a_result_file_that_can_not_be_written_is_told_before_anything_is_measured(dyno: Dyno) -> None:
    line = dyno.refusal("selftest", "--quick", "--export", "none/result.json", code=USER_ERROR)
    assert "none/result.json: No such file or directory; nothing was measured." in line
    line = dyno.refusal("selftest", "--quick", "--export", ".", code=USER_ERROR)
    assert ".: this is a folder" in line
    locked = dyno.folder / "locked"
    locked.mkdir(mode=0o500)
    dyno.bound = True
    line = dyno.refusal("selftest", "--quick", "--device", "gpu", "--export", "locked/result.json", code=USER_ERROR)
    assert "locked/result.json: Permission denied; nothing was measured." in line
