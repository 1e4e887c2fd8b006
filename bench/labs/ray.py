"""A Ray cluster: its head, which runs nothing, at the head of a lab, and two CPUs on each node."""

from __future__ import annotations

from bench.labs.machines import Lab, Machine, wait_for
from bench.labs.tools import ray_python

PORT = 6399
CPUS = 2
STORE_B = 80_000_000
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_DOCKER_CPU_WARNING": "1", "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000", "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_failure_threshold": "8",
}  # fmt: skip  # a node that is gone is dead after some 10 s instead of 60

NAMES = """
import ray
ray.init(address="auto", log_to_driver=False, logging_level="CRITICAL", configure_logging=False)
print(*sorted(n["NodeManagerHostname"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")))
"""


def start(lab: Lab, niceness: int = 0) -> None:
    """Start the cluster; `ray_python` is then the interpreter of a user at `login` who has Ray."""
    lab.program("ray-python", ray_python(), HOME=str(lab.home), RAY_ADDRESS=f"{lab.head.address}:{PORT}")
    place = lab.folder / "r"  # short, for the names of sockets; seen by a user at `login` who is not in the lab
    place.mkdir()
    _start(lab.head, lab, niceness, "--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false",
           f"--temp-dir={place}")  # fmt: skip
    for node in lab.nodes:
        node.run("mount", "-t", "tmpfs", "none", str(place))
        start_node(lab, node, niceness)


def start_node(lab: Lab, node: Machine, niceness: int = 0) -> None:
    """Start Ray on a node; its workers run at that niceness."""
    _start(node, lab, niceness, f"--address={lab.head.address}:{PORT}", f"--num-cpus={CPUS}")


def stop_node(node: Machine) -> None:
    """End all of Ray on a node by kill -9."""
    while there := node.processes("ray"):
        for process in there:
            process.kill()
        wait_for(lambda: not any(process.is_running() for process in there), f"the end of Ray on {node.name}")


def heal(lab: Lab) -> None:
    """Wait until all nodes are in the cluster, each once; start those anew that the head has given up."""

    def there() -> list[str]:
        return lab.at_head("ray-python", "-c", NAMES).split()

    names = [node.name for node in lab.nodes]
    for node in lab.nodes:
        if node.name not in there() or not node.processes("raylet/raylet"):
            stop_node(node)
            start_node(lab, node)
    wait_for(lambda: there() == names, "all nodes of Ray, each once")


def _start(machine: Machine, lab: Lab, niceness: int, *words: str) -> None:
    ray = ray_python().removesuffix("python") + "ray"
    common = [f"--node-ip-address={machine.address}", f"--object-store-memory={STORE_B}", "--disable-usage-stats"]
    settings = {**SETTINGS, "RAY_worker_niceness": f"{niceness}"}
    said = machine.run(ray, "start", *words, *common, **settings)
    (lab.folder / "log" / f"ray-{machine.name}").write_text(said, encoding="utf-8")
