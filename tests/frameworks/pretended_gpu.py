"""TensorFlow on a pretended GPU of a Mac: `python pretended_gpu.py tensorflow FOLDER` prints JSON.

TensorFlow has two CPUs here. The first is the default device, as a GPU is where there is one; the second has the place
of the device that a case asks for. It works asynchronously, and `sync_devices` does nothing, as on Metal.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from pathlib import Path
from typing import Any

import tensorflow as tf
from tests.frameworks.in_own_process import opened
from tests.workloads.user_models import own_models

from mldyno import plugins
from mldyno.frameworks import tensorflow as framework
from mldyno.records import Case
from mldyno.worker.checks import check_device

GPU = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")


def places_of_variables() -> set[str]:
    variables = [each for each in gc.get_objects() if isinstance(each, tf.Variable)]
    return {variable.device.rpartition("device:")[2] for variable in variables}


def checked(program: Any, device: str) -> str:
    """What the check of devices says after a step, and after the comparison with the CPU."""
    program.run(1)
    program.synchronize()
    flaws = []
    for _ in range(2):
        try:
            check_device(Case("mlp", device=device), program)
        except Exception as error:
            flaws.append(str(error))
        program.error_vs_reference()
    return "; ".join(flaws)


def places_of_products(device: str) -> list[str]:
    """Where the matmuls of the peaks and of the reference kernel ran."""
    results: list[Any] = []
    kernel: Any = plugins.framework("tensorflow").matmul(Case("mlp", framework="tensorflow", device=device), 8)
    issue = kernel.issue
    kernel.issue = lambda: results.append(issue())
    kernel.run(2)
    return [result.device.rpartition("device:")[2] for result in results]


def waited() -> list[bool]:
    """Whether work that was issued is done: when the call returned, and after a wait."""
    released, done = threading.Event(), threading.Event()

    def work(x: Any) -> Any:
        released.wait(60)
        done.set()
        return x

    case = Case("mlp", framework="tensorflow", device="mps")
    kernel = plugins.framework("tensorflow").matmul(case, 8)
    tf.config.experimental.set_synchronous_execution(False)
    with tf.device("/CPU:1"):
        tf.py_function(work, [tf.zeros(())], tf.float32)
    early = done.is_set()
    threading.Timer(0.2, released.set).start()
    kernel.synchronize()
    late = done.is_set()
    tf.config.experimental.set_synchronous_execution(True)
    return [early, late]


def main(folder: Path) -> dict[str, Any]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    its: Any = plugins.framework("tensorflow")
    its.start()
    source = own_models.described("tensorflow", folder, "plain", own_models.MODELS["tensorflow"]["plain"])
    listed, details = tf.config.list_physical_devices, tf.config.experimental.get_device_details
    tf.config.list_physical_devices = lambda kind=None: [GPU] if kind == "GPU" else listed(kind)
    tf.config.experimental.get_device_details = lambda device: {} if device is GPU else details(device)
    tf.test.experimental.sync_devices = lambda: None
    usual = framework.device_name
    framework.device_name = lambda tf, place: usual(tf, place.replace("CPU:1", "GPU:0"))
    framework.Tensorflow.device = lambda self, case: f"/CPU:{int(case.device != 'cpu')}"  # type: ignore[method-assign]
    learner = opened("tensorflow", "bert-tiny", "train", device="mps")
    facts: dict[str, Any] = {
        "devices": [device.name for device in its.devices()], "variables": sorted(places_of_variables()),
        "bert-tiny": checked(learner, "mps"),
    }  # fmt: skip
    facts |= {name: checked(opened("tensorflow", name, "infer", device="mps"), "mps") for name in ("mlp", "mnist-cnn")}
    facts["own model"] = checked(own_models.opened(source, "train", device="mps"), "mps")
    facts["products"] = {device: places_of_products(device) for device in ("cpu", "mps")}
    facts["waited"] = waited()
    return facts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[2]))))
