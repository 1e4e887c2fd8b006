"""TensorFlow's devices: their names, where variables are, the wait, memory; on a pretended GPU of a Mac."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.separate_process import facts_of

from mldyno.frameworks import tensorflow

SCRIPT = Path(__file__).with_name("pretended_gpu.py")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


class NotCounted(Exception):
    """An error of TensorFlow's own."""


def made_up(built_for: str = "", memory: Callable[[str], dict[str, int]] = lambda device: {}) -> Any:
    """A TensorFlow that was built for a platform, and counts the memory of devices."""
    test = SimpleNamespace(
        is_built_with_cuda=lambda: built_for == "cuda", is_built_with_rocm=lambda: built_for == "rocm"
    )
    config = SimpleNamespace(experimental=SimpleNamespace(get_memory_info=memory))
    return SimpleNamespace(test=test, config=config, errors=SimpleNamespace(OpError=NotCounted))


@pytest.mark.parametrize(
    ("built_for", "on", "mode"),
    [("cuda", True, "tf32"), ("cuda", False, "fp32"), ("rocm", False, "fp32"), ("", False, None)],
)
def test_the_setting_of_tf32_is_read_back(built_for: str, on: bool, mode: str | None) -> None:
    backend = object.__new__(tensorflow.TensorflowBackend)
    backend.tf, backend.device = made_up(built_for), "/device:GPU:0"
    backend.tf.config.experimental.tensor_float_32_execution_enabled = lambda: on
    assert backend.fp32_mode() == mode


def facts() -> dict[str, Any]:
    return facts_of(SCRIPT, "tensorflow")


@pytest.mark.parametrize(
    ("built_for", "place", "name"),
    [("cuda", "/job:localhost/replica:0/task:0/device:GPU:1", "cuda:1"), ("rocm", "/device:GPU:0", "cuda:0"),
     ("", "/physical_device:GPU:0", "mps"), ("", "/job:localhost/replica:0/task:0/device:GPU:1", "mps:1"),
     ("", "/job:localhost/replica:0/task:0/device:CPU:0", "cpu"), ("cuda", "/device:CPU:1", "CPU:1")],
)  # fmt: skip
def test_a_gpu_is_named_by_what_tensorflow_was_built_for(built_for: str, place: str, name: str) -> None:
    assert tensorflow.device_name(made_up(built_for), place) == name


def test_the_gpu_of_a_mac_is_listed_as_mps() -> None:
    assert facts()["devices"] == ["cpu", "mps"]


@pytest.mark.parametrize("case", ["bert-tiny", "mlp", "mnist-cnn", "own model"])
def test_a_case_on_the_gpu_of_a_mac_is_on_the_device_it_asks_for(case: str) -> None:
    assert facts()[case] == ""


def test_every_variable_is_on_the_cases_device_whatever_the_default_is() -> None:
    assert facts()["variables"] == ["CPU:1"]


def test_the_products_of_peaks_run_on_the_cases_device() -> None:
    assert facts()["products"] == {"cpu": ["CPU:0"] * 2, "mps": ["CPU:1"] * 2}


def test_a_wait_ends_after_all_work_where_sync_devices_does_nothing() -> None:
    assert facts()["waited"] == [False, True]


def test_memory_that_a_plug_in_does_not_count_is_unknown() -> None:
    def raises(error: Exception) -> Callable[[str], dict[str, int]]:
        def memory(device: str) -> dict[str, int]:
            raise error

        return memory

    for error in (ValueError("No matching devices found for 'GPU:0'"), NotCounted("no statistics")):
        assert tensorflow.peak_memory(made_up(memory=raises(error)), "/GPU:0") is None
    assert tensorflow.peak_memory(made_up(), "/GPU:0") is None
    for device in ("/GPU:0", "/device:GPU:0"):
        counted = made_up(memory=lambda name: {"peak": 5} if name == "GPU:0" else {})
        assert tensorflow.peak_memory(counted, device) == 5


def test_the_extra_leaves_a_build_for_gpus_as_it_is() -> None:
    """The packages `tensorflow` and `tensorflow-cpu` write the same files."""
    extras = re.findall(r"^(tensorflow\S*) = (.*)$", PYPROJECT.read_text(), re.MULTILINE)
    packages = {name: set(re.findall(r'"([a-z-]+)>=', requirements)) for name, requirements in extras}
    assert packages == {
        "tensorflow": {"tensorflow", "keras"}, "tensorflow-cpu": {"tensorflow-cpu", "tensorflow", "keras"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("built", "gpus", "platforms"),
    [({"is_cuda_build": True, "cuda_version": "12.5.1"}, 0, {"cuda": "12.5.1", "rocm": False, "mps": False}),
     ({"is_cuda_build": False, "is_rocm_build": False}, 0, {"cuda": False, "rocm": False, "mps": False}),
     ({}, 1, {"cuda": False, "rocm": False, "mps": True})],
)  # fmt: skip
def test_it_says_which_gpus_it_is_built_for(built: dict[str, Any], gpus: int, platforms: dict[str, Any]) -> None:
    framework, tf = tensorflow.Tensorflow(), made_up()
    tf.sysconfig = SimpleNamespace(get_build_info=lambda: built)
    tf.config.list_physical_devices = lambda kind: [SimpleNamespace(name="/physical_device:GPU:0")] * gpus
    tf.config.experimental.get_device_details = lambda gpu: {}
    framework.tf = tf
    assert framework.support() == platforms
