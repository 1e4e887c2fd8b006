"""A Slurm cluster: its controller at the head of a lab, slurmd on each node, `srun` and its kind at the head.

The packages are Debian's, unpacked. `TaskPlugin=task/affinity` binds tasks to cores, as clusters do: a task that asks
for one core gets one.
"""

from __future__ import annotations

from pathlib import Path

from bench.labs.machines import Lab, Machine, wait_for
from bench.labs.tools import Tools

PARTITION = "lab"
PROGRAMS = ("srun", "sinfo", "scancel", "squeue", "scontrol", "sbatch")
CORES, MEMORY_MB = 2, 8000
SLURMD_TIMEOUT_S, KILL_WAIT_S = 10, 3
CONFIGURATION = """
ClusterName=lab
SlurmctldHost={head.name}({head.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={log}/slurmctld
SlurmdLogFile={log}/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=5,bf_interval=5,sched_min_interval=0
ReturnToService=2
SlurmdTimeout={timeout}
KillWait={kill_wait}
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PropagateResourceLimits=NONE
"""
NODE = (
    "NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address} CPUs={cores} Sockets=1 "
    "CoresPerSocket={cores} ThreadsPerCore=1 RealMemory={memory}\n"
)


def start(lab: Lab) -> None:
    """Start munge, the controller and a slurmd on each node; wait until all nodes are idle."""
    tools = Tools("slurm")
    folder, log = lab.folder / "slurm", lab.folder / "log"
    for part in ("", "state", *(f"spool.{node.name}" for node in lab.nodes)):
        (folder / part).mkdir()
    installed = Path("/usr/lib").glob("*-linux-gnu/slurm-wlm")
    plugins = next(path for path in (*tools.libraries, *installed) if path.name == "slurm-wlm")
    text = CONFIGURATION.format(
        head=lab.head, folder=folder, log=log, plugins=plugins, timeout=SLURMD_TIMEOUT_S, kill_wait=KILL_WAIT_S
    )
    text += "".join(NODE.format(node=node, cores=CORES, memory=MEMORY_MB) for node in lab.nodes)
    text += f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n"
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    settings = {**tools.environment, "SLURM_CONF": str(folder / "slurm.conf")}
    lab.head.run(tools.program("mungekey"), "--create", f"--keyfile={folder}/munge.key", **settings)
    files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    own = [f"--{option}={folder}/{file}" for option, file in files.items()]
    lab.head.start(
        tools.program("munged"), "--foreground", "--force", *own, f"--log-file={log}/munged", log=log / "munged-said",
        **settings,
    )  # fmt: skip
    wait_for((folder / "munge.sock").exists, "munged")
    lab.head.start(_daemon(tools, "slurmctld"), "-D", log=log / "slurmctld-said", **settings)
    for node in lab.nodes:
        start_node(lab, node)
    for name in PROGRAMS:
        lab.program(name, tools.program(name), **settings, HOME=str(lab.home))
    wait_for(lambda: idle(lab), "all nodes of Slurm idle")


def start_node(lab: Lab, node: Machine) -> None:
    """Start slurmd on a node."""
    tools = Tools("slurm")
    settings = {**tools.environment, "SLURM_CONF": str(lab.folder / "slurm" / "slurm.conf")}
    words = [_daemon(tools, "slurmd"), "-D", "-N", node.name, "-d", _daemon(tools, "slurmstepd")]
    node.start(*words, log=lab.folder / "log" / f"slurmd-{node.name}-said", **settings)


def _daemon(tools: Tools, name: str) -> str:
    return tools.program(f"{name}-wlm" if (tools.folder / "usr" / "sbin" / f"{name}-wlm").exists() else name)


def idle(lab: Lab) -> bool:
    """Whether all nodes wait for work."""
    return lab.at_head("sinfo", "-h", "-N", "-o", "%N %t").split() == [
        word for node in lab.nodes for word in (node.name, "idle")
    ]
