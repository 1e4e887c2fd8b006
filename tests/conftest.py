"""Fixtures that every test may use: a store of its own, and runs of the fake framework."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from bench.labs import postgres, ray, slurm, ssh
from bench.labs.machines import Lab, machines
from tests import separate_process
from tests.warm_workers import WarmWorkers
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from mldyno import api, keys, sources
from mldyno.plan import Plan
from mldyno.records import Record
from mldyno.results import Results
from mldyno.runner.events import Listener
from mldyno.store import Store
from mldyno.worker import client
from mldyno.worker.client import WorkerProcess

OWN_SECRET = "0123456789abcdef" * 2
OWN_KEY = keys.fingerprint(keys.of_seed(OWN_SECRET).public)
SLOWEST_FIRST = (
    "test_program", "user_models/test_frameworks", "test_rank_faults", "test_nodes",
    "test_torch_ranks", "test_rank_ports", "test_results_notebook", "browser/test_newcomer", "test_catalogue",
    "test_tensorflow", "test_venv_ppo", "test_abilities", "test_every_workload",
    "test_parent_faults", "browser/test_report", "test_docs", "test_bench_self", "test_simulated_device",
    "test_measure_run_own", "test_cli_readme", "test_user_models_how_to", "test_measure_run_energy",
    "browser/test_site", "fuzz/test_files", "user_models", "test_bench", "callbacks", "tracking/test_process",
    "tracking_endings",
    "test_worker_faults", "test_contract_on_device", "test_bad_input", "test_hostile", "test_mutated_records",
    "test_torch_precision", "test_every_framework", "transformers", "test_forecast", "test_measure_crossover",
    "test_axes", "test_measure_quick", "test_pairing",
)  # fmt: skip


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in what a shell starts behind a &: it stays ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)

BY_FRAMEWORK = ("frameworks/test_program.py", "user_models/test_frameworks.py", "test_frameworks_foreign_models.py")
OWN_PROCESSES = ("torch", "jax", "mlx", "tensorflow", "onnxruntime", "openvino")


def _own_process(nodeid: str) -> str:
    """The framework that a test asks in a process of its own; empty for tests that ask none, or several."""
    file, _, test = nodeid.partition("::")
    values = test.partition("[")[2].rstrip("]").split("-")
    return next((name for name in OWN_PROCESSES if name in values), "") if file.endswith(BY_FRAMEWORK) else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first: the short ones then fill up all processes to the end."""
    places = {name: place for place, name in enumerate(SLOWEST_FIRST)}

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        if file.endswith(BY_FRAMEWORK) and not _own_process(item.nodeid):
            return len(places)  # when what they compare is known
        return next((places[name] for name in SLOWEST_FIRST if name in file), len(places))

    items.sort(key=place)
    asked_for = os.environ.get("LABS", "ssh slurm ray postgres").split()

    def omitted(item: pytest.Item) -> bool:
        names = getattr(item, "fixturenames", ())
        by_engine = item.callspec.params.get("fleet", "") if hasattr(item, "callspec") else ""
        labs = {*(name[:-4] for name in names if name.endswith("_lab")), *str(by_engine).split("-")} - {""}
        return not labs <= {*asked_for} or ("lab" in names and not asked_for)

    if without := [item for item in items if omitted(item)]:
        items[0].config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


class ByFileAndFramework(LoadFileScheduling):  # type: ignore[misc]
    """Gives each file to one process; of files in which each framework has a process of its own, each framework."""

    def _split_scope(self, nodeid: str) -> str:
        return f"{nodeid.partition('::')[0]} {_own_process(nodeid)}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share what takes long run in one process, with `--dist loadfile`."""
    return ByFileAndFramework(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What is imported stays: the collector of garbage need not walk through PyTorch again and again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def warm_workers() -> Iterator[WarmWorkers]:
    """Fork workers from processes that have imported their modules; tests of real starts use `real_workers`."""
    warm, start = WarmWorkers(client.SCRIPT), WorkerProcess.start

    def start_warm(worker: WorkerProcess) -> None:
        warm.framework = None if worker._case is None else worker._case.framework
        start(worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "subprocess", warm.as_subprocess)
        patch.setattr(WorkerProcess, "start", start_warm)
        yield warm
    warm.close()


@pytest.fixture(autouse=True, scope="session")
def facts_are_shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes of one run of the tests share what separate processes have told them."""
    own = tmp_path_factory.getbasetemp()
    separate_process.shared[:] = [own.parent if "PYTEST_XDIST_WORKER" in os.environ else own]


@pytest.fixture
def left_behind(warm_workers: WarmWorkers) -> Callable[[], set[psutil.Process]]:
    """The processes that this test has started and that still live; a browser of other tests does not count."""
    process = psutil.Process()
    before = set(process.children(recursive=True))

    def left() -> set[psutil.Process]:
        after = set(process.children(recursive=True)) - before
        return {each for each in after if each.pid not in warm_workers.processes}

    return left


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's store or settings."""
    for name in ("MLDYNO_FAKE", "MLDYNO_MEMORY_LIMIT", "MLDYNO_DEBUG", "MLDYNO_PLAIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sources, "_KNOWN", {})
    monkeypatch.setenv("MLDYNO_STORE", str(tmp_path / "records.sqlite"))
    monkeypatch.setenv("MLDYNO_LOCK", str(tmp_path / "measuring.lock"))
    monkeypatch.setenv("MLDYNO_MACHINE", "test bench")
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", OWN_SECRET)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "records.sqlite")


Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Scripts the fake framework: script({"match": "*", "step": 0.002}, ...)."""

    def set_rules(*rules: dict[str, Any]) -> None:
        monkeypatch.setenv("MLDYNO_FAKE", json.dumps(rules))

    return set_rules


@pytest.fixture
def fake_run(store: Store) -> Callable[..., Results]:
    """Runs workloads on the fake framework into the test's store, in one round if nothing else is asked for."""

    def run(*targets: str, **options: Any) -> Results:
        options.setdefault("repeats", 1)
        return api.run(*(targets or ("mlp",)), framework="fake", store=store, **options)

    return run


@pytest.fixture
def cut_short(store: Store) -> Callable[[Plan, int], None]:
    """Runs a plan into the test's store until so many cases have ended, then drops it in the middle."""

    class Cut(Exception):
        pass

    class CutAfter(Listener):
        def __init__(self, most: int) -> None:
            self.left = most

        def case_ended(self, record: Record) -> None:
            self.left -= 1
            if self.left == 0:
                raise Cut

    def run(plan: Plan, most: int) -> None:
        with pytest.raises(Cut):
            api.run_plan(plan, store, CutAfter(most))
        store.close()

    return run


# -- labs: machines of a network of their own, once for all tests of a process --------------------------


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Machines `login`, `node1` and `node2`, without any service; see bench/labs."""
    with machines() as made:
        yield made


@pytest.fixture(scope="session")
def ssh_lab(lab: Lab) -> Lab:
    """The machines with sshd; `ssh node1` works with `at_login`."""
    ssh.start(lab)
    return lab


@pytest.fixture(scope="session")
def slurm_lab(lab: Lab) -> Lab:
    """The machines as a Slurm cluster; `srun -w node1` works with `at_login`."""
    slurm.start(lab)
    return lab


@pytest.fixture(scope="session")
def ray_lab(lab: Lab) -> Lab:
    """The machines as a Ray cluster; `ray-python` is the interpreter of its users, with `at_login`."""
    ray.start(lab)
    return lab


@pytest.fixture(scope="session")
def postgres_lab() -> Iterator[postgres.Server]:
    """A PostgreSQL server; each test makes a database of its own, or a schema."""
    with postgres.postgres() as server:
        yield server


@pytest.fixture
def at_login(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """What this process starts finds the programs of a user at `login`, and no home but theirs."""
    monkeypatch.setenv("PATH", f"{lab.programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(lab.home))
    return lab


# -- a machine that is another ---------------------------------------------------------------------

Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a system tool into the PATH, ahead of what is there: tool("sysctl", "cat FILE")."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def put(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at the platform sees macOS; psutil has looked before."""
    import psutil  # noqa: F401

    monkeypatch.setattr("sys.platform", "darwin")
