"""What a tracked loop knows of its process: name, device, ranks. However the process ends, there is a record."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.tracking.programs import environment, ran, stored, written

from mldyno.store import Store
from mldyno.tracking import process


def test_a_program_that_ends_has_its_record(store: Store, tmp_path: Path) -> None:
    done = ran(str(written(tmp_path, """
        loader = [None] * 50
        t = mldyno.track(loader)
        for epoch in range(2):
            for batch in t:
                step()
        print("done")
    """)))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("mldyno: train.py: ")
    assert done.stderr.count("\n") == 1
    (record,) = stored(store)
    assert record.case.id == "train.py/tracked/cpu"
    assert (record.fact("epochs"), record.fact("ended")) == (2, "end")
    assert str(tmp_path) not in record.text


def test_an_error_that_ends_a_program_is_named_in_its_record(store: Store, tmp_path: Path) -> None:
    done = ran(str(written(tmp_path, """
        numbers = (place for place in range(100))
        for place, batch in enumerate(mldyno.track(numbers)):
            step()
            if place == 60:
                raise LookupError("nothing there")
    """)))  # fmt: skip
    assert done.returncode == 1
    assert "LookupError: nothing there" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("mldyno: train.py: ")
    assert [record.fact("ended") for record in stored(store)] == ["LookupError"]


def test_ctrl_c_ends_a_loop_with_its_record(store: Store, tmp_path: Path) -> None:
    script = written(tmp_path, """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever started the tests may ignore
        numbers = (place for place in range(10_000_000))
        for place, batch in enumerate(mldyno.track(numbers)):
            step()
            if place == 50:
                print("under way", flush=True)
    """)  # fmt: skip
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment()) as loop:  # fmt: skip
        assert loop.stdout is not None
        assert loop.stdout.readline() == "under way\n"
        loop.send_signal(signal.SIGINT)
        _, said = loop.communicate(timeout=100)
    assert "KeyboardInterrupt" in said
    assert "mldyno: train.py: " in said
    assert [record.fact("ended") for record in stored(store)] == ["KeyboardInterrupt"]


def test_a_loop_that_an_error_leaves_says_so_at_once_where_nobody_holds_its_loader(
    store: Store, tmp_path: Path
) -> None:
    done = ran(str(written(tmp_path, """
        try:
            for place in mldyno.track(iter(range(100))):
                step()
                if place == 60:
                    raise LookupError("nothing there")
        except LookupError:
            pass
        print("goes on")
    """)))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert [record.fact("ended") for record in stored(store)] == ["left"]


def test_a_module_is_called_by_its_name_and_a_second_loop_by_its_number(store: Store, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    written(tmp_path / "project", """
        loaders = [list(range(40)), list(range(40))]
        trackers = [mldyno.track(loader) for loader in loaders]
        for tracker in trackers:
            for batch in tracker:
                step()
    """)  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "project.train"], cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == 0
    assert sorted(record.case.workload for record in stored(store)) == ["project.train", "project.train#2"]


def test_importing_track_imports_no_framework(tmp_path: Path) -> None:
    script = written(tmp_path, """
        import sys
        for batch in mldyno.track([1, 2, 3]):
            pass
        print([name for name in ("torch", "numpy", "tensorflow", "jax", "rich") if name in sys.modules])
    """)  # fmt: skip
    assert ran(str(script)).stdout == "[]\n"


def test_workers_of_a_loader_report_nothing_and_its_order_stays(store: Store, tmp_path: Path) -> None:
    script = written(tmp_path, """
        import sys
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(5)
        loader = DataLoader(TensorDataset(torch.arange(400)), batch_size=4, shuffle=True, num_workers=2)
        batches = mldyno.track(loader) if sys.argv[1] == "tracked" else loader
        for epoch in range(2):
            for (batch,) in batches:
                step()
                print(batch.tolist())
    """)  # fmt: skip
    tracked, plain = (ran(str(script), word) for word in ("tracked", "plain"))
    assert tracked.returncode == 0, tracked.stderr
    assert tracked.stdout == plain.stdout
    assert tracked.stdout.count("\n") == 200
    assert tracked.stderr.count("mldyno: ") == 1
    (record,) = stored(store)
    assert (record.fact("items_per_step"), record.fact("epochs")) == (4, 2)
    assert record.software.versions["torch"].startswith("2.")
    assert record.software.threads


RANKS = """
    import sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    loader = [torch.ones(8 + dist.get_rank(), 2)] * 60
    for batch in mldyno.track(loader, name="ranks"):
        step()
        dist.all_reduce(batch.sum())
    if sys.argv[1] == "tidy":
        dist.destroy_process_group()
"""


@pytest.mark.parametrize("ending", ["tidy", "untidy"])
def test_two_ranks_make_one_record(store: Store, tmp_path: Path, ending: str) -> None:
    script = written(tmp_path, RANKS)
    done = ran("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script), ending,
               OMP_NUM_THREADS="1")  # fmt: skip
    # A thread of gloo now and then aborts a process that keeps its group to the end, without mldyno too.
    aborted = ending == "untidy" and "terminate called without an active exception" in done.stderr
    assert done.returncode == 0 or aborted, done.stderr
    assert done.stderr.count("mldyno: ranks: ") == 1
    (record,) = stored(store)
    assert record.case.id == "ranks/tracked/cpu/r2"
    assert record.fact("items_per_step") == 17
    assert record.values("step_time", "rank-0")
    assert record.values("step_time", "rank-1")


def test_the_device_that_nobody_has_begun_to_use_is_the_cpu() -> None:
    assert process.place().device == "cpu"


def test_mlx_is_waited_for_on_the_cpu_too(tmp_path: Path, store: Store) -> None:
    script = written(tmp_path, """
        import mlx.core as mx
        from mldyno.tracking import process
        mx.eval(mx.ones(3) + 1)
        wait, waited = mx.synchronize, []
        mx.synchronize = lambda stream: (waited.append(stream), wait(stream))
        process.place().wait()
        print(waited == [mx.default_stream(mx.cpu)])
        for batch in mldyno.track([mx.ones((16, 2))] * 40):
            step()
    """)  # fmt: skip
    done = ran(str(script))
    assert done.stdout == "True\n", done.stderr
    (record,) = stored(store)
    assert record.fact("items_per_step") == 16
    assert "mlx" in record.software.versions


def test_jax_is_asked_for_its_arrays_once_it_is_used(tmp_path: Path, store: Store) -> None:
    script = written(tmp_path, """
        import jax
        from mldyno.tracking import process
        print(process.place().wait)
        x = jax.numpy.ones((16, 2)) + 1
        process.place().wait()
        print(process.place().device)
    """)  # fmt: skip
    assert ran(str(script)).stdout == "None\ncpu\n"


def made_up_tensorflow(built_for: str, peak: int | None, read: list[str]) -> dict[str, Any]:
    """TensorFlow with one GPU, built for CUDA or for nothing, and its context; `read` gets the devices read from."""
    scopes: list[str] = []

    @contextmanager
    def device(name: str) -> Iterator[None]:
        scopes.append(name)
        yield
        scopes.pop()

    def memory(name: str) -> dict[str, int]:
        if peak is None:
            raise ValueError("no statistics")
        return {"peak": peak}

    nothing = SimpleNamespace(sync_devices=lambda: None)
    value = SimpleNamespace(numpy=lambda: read.append(scopes[-1]))
    tensorflow = SimpleNamespace(
        device=device, ones=lambda shape: value, add=lambda a, b: value, errors=SimpleNamespace(OpError=KeyError),
        test=SimpleNamespace(
            is_built_with_cuda=lambda: built_for == "cuda", is_built_with_rocm=lambda: False, experimental=nothing
        ),
        config=SimpleNamespace(experimental=SimpleNamespace(get_memory_info=memory)),
    )  # fmt: skip
    gpus = [SimpleNamespace(name="/device:GPU:0")]
    context = SimpleNamespace(_initialized=True, list_logical_devices=lambda kind: gpus)
    return {"tensorflow": tensorflow, "tensorflow.python.eager.context": SimpleNamespace(context=lambda: context)}


@pytest.mark.parametrize(("built_for", "peak", "name"), [("cuda", 4, "cuda:0"), ("", 4, "mps"), ("", None, "mps")])
def test_a_loop_on_a_gpu_of_tensorflow_reads_back_and_is_named_by_the_build(
    built_for: str, peak: int | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    for module, made in made_up_tensorflow(built_for, peak, read).items():
        monkeypatch.setitem(sys.modules, module, made)
    place = process.place()
    assert place.device == name
    assert place.wait is not None
    assert read == []
    place.wait()
    assert read == ["/device:GPU:0"]


def test_a_gpu_of_tensorflow_with_nothing_in_its_memory_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, made in made_up_tensorflow("cuda", 0, []).items():
        monkeypatch.setitem(sys.modules, module, made)
    assert process.place() == process.Place()


@pytest.mark.parametrize(("tensors", "name"), [(0, "cpu"), (1024, "mps")])
def test_a_loop_of_a_mac_is_on_mps_only_if_it_has_tensors_there(
    tensors: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mps = SimpleNamespace(current_allocated_memory=lambda: tensors, driver_allocated_memory=lambda: 1 << 24)
    accelerator = SimpleNamespace(
        is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="mps"),
        current_device_index=lambda: 0, synchronize=lambda: None,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(accelerator=accelerator, mps=mps))
    assert process.place().device == name


@pytest.mark.parametrize(
    ("platform", "name"), [("mps", "mps"), ("METAL", "mps"), ("gpu", "cuda:0"), ("rocm", "cuda:0"), ("cpu", "cpu")]
)
def test_a_loop_in_jax_has_the_name_of_its_device(platform: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(platform=platform, local_hardware_id=0, id=0)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda: [device]))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(_backends={platform: object()}))
    assert process.place().device == name
