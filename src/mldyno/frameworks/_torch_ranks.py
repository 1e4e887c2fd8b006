"""Ranks that train together in PyTorch: how they are started, how they talk, and a case on one of them.

Everything is PyTorch's own: torchrun starts the ranks and ends them all when one fails, DistributedDataParallel or
fully_shard exchanges gradients, gloo, NCCL or XCCL carries them.
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import rendezvous
from mldyno.frameworks import TOLERANCE, Steps, Unsupported
from mldyno.frameworks._portable import cores
from mldyno.frameworks._torch_program import COMPARED_ITEMS, SEED, TorchProgram
from mldyno.rendezvous import leads

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Batch, Build

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}
LONGEST_WAIT = timedelta(days=1)  # for an order: how long a case may take is the parent's to say
SAME_MODEL = 1e-6  # by which sums over parameters may differ between ranks, relative
LONGEST_MEETING = timedelta(minutes=10)  # until all ranks are there
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
GRADIENT_SEED = 7919  # apart from those of batches that are trained on


def launcher(case: Case) -> tuple[str, ...]:
    """torchrun: on one machine it finds a free port by itself; a rank that fails ends the job."""
    nodes, meeting = case.nodes or 1, rendezvous.from_environment()
    ranks = (case.ranks or 1) // nodes
    where: tuple[str, ...] = ("--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
    if nodes > 1 and meeting is not None:
        settings = f"is_host={int(meeting.first)},join_timeout={LONGEST_MEETING.total_seconds():.0f}"
        where = (f"--rdzv-endpoint={meeting.address}", f"--local-addr={rendezvous.own_address(meeting)}",
                 f"--rdzv-id={meeting.token}", f"--rdzv-conf={settings}")  # fmt: skip
    return (
        "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
        *where, "--max-restarts=0", "--monitor-interval=0.2",
    )  # fmt: skip


def environment(case: Case, available: int) -> dict[str, str]:
    """Threads that do not fight, and the interface to use: gloo goes by the host's name, which not all resolve."""
    threads = case.threads or max(1, available // max(1, (case.ranks or 1) // (case.nodes or 1)))
    named = {} if rendezvous.INTERFACE in os.environ else {rendezvous.INTERFACE: LOOPBACK}
    return {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", **named}


class TorchTeam:
    """The ranks of a job; what they say to each other has a group of its own, beside that of gradients."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch, self.distributed = torch, torch.distributed
        self.distributed.init_process_group("gloo", timeout=LONGEST_MEETING)
        self.orders = self.distributed.new_group(backend="gloo", timeout=LONGEST_WAIT)
        self.rank, self.size = self.distributed.get_rank(), self.distributed.get_world_size()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        place = torch.tensor(self.rank if leads(os.environ) else 0)
        self.distributed.all_reduce(place)
        self.leader = int(place)
        """Which rank is a child of the command: between nodes, ranks are numbered by their addresses."""

    def share(self, text: str) -> str:
        """The leader's text, on every rank."""
        shared = [text]
        self.distributed.broadcast_object_list(shared, src=self.leader, group=self.orders)
        return shared[0]

    def pass_on(self, order: int, argument: int) -> tuple[int, int]:
        """The leader's order, on every rank."""
        both = self.torch.tensor((order, argument))
        self.distributed.broadcast(both, src=self.leader, group=self.orders)
        order, argument = both.tolist()
        return order, argument

    def gather(self, number: float) -> list[float]:
        """The numbers of all ranks, where the leader is."""
        own = self.torch.tensor(number, dtype=self.torch.float64)
        every = [self.torch.zeros_like(own) for _ in range(self.size)] if self.leads else None
        self.distributed.gather(own, every, dst=self.leader, group=self.orders)
        return [float(each) for each in every or ()]

    @property
    def leads(self) -> bool:
        """Whether this is the leader."""
        return bool(self.rank == self.leader)

    def nodes(self) -> list[str]:
        """The machines of the job, each once."""
        own = f"{platform.node()}: {platform.machine()}, {os.cpu_count()} cores"
        every = [None] * self.size
        self.distributed.all_gather_object(every, own)
        return list(dict.fromkeys(map(str, every)))

    def group_for(self, device: str) -> Any:
        """The group that exchanges gradients on a kind of device."""
        return self.distributed.new_group(backend=BACKENDS[device], timeout=LONGEST_WAIT)

    def leave(self) -> None:
        """Destroy all groups."""
        self.distributed.destroy_process_group()


class RankProgram(TorchProgram):
    """A case on one rank."""

    def __init__(
        self, torch: ModuleType, case: Case, build: Build, data: Opened | None, team: TorchTeam, whole: int
    ) -> None:
        """`whole` is the batch that one process alone would take."""
        self.team, self.rank, self.size, self.whole = team, team.rank, team.size, whole
        self.group = team.group_for(torch.device(case.device).type)
        self.sharded = case.parallel == "fsdp"
        super().__init__(torch, case, build, data)
        self.noted |= {"nodes": "; ".join(team.nodes())} if (case.nodes or 1) > 1 else {}
        self.alone = self._forward_loss(self._compiled(self.network))

    def _check_phases(self) -> None:
        """Phases have optimisers of their own, which no wrapper sees."""
        if self.recipe.phases:
            names = ", ".join(self.recipe.phases)
            raise Unsupported(f"a step of it is made of phases ({names}), which ranks can't share")

    def _together(self, network: Any) -> Any:
        """The network as all ranks train it."""
        if self.sharded:
            return self._shard(network)
        index = None if self.device.type == "cpu" else [self.device.index or 0]
        return self.torch.nn.parallel.DistributedDataParallel(network, device_ids=index, process_group=self.group)

    def _shard(self, network: Any) -> Any:
        """Each block of a transformer by itself, and then the rest."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(self.group, self.device.type)
        blocks = [module for module in network.modules() if isinstance(module, self.torch.nn.ModuleList)]
        if not blocks:
            raise Unsupported("fsdp shards a network by its blocks, and this one has none; take ddp")
        for block in itertools.chain.from_iterable(blocks):
            fully_shard(block, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    # -- steps beside its own ----------------------------------------------------------------------

    @property
    def beside(self) -> Mapping[str, Steps]:
        """Without an exchange of gradients; without the wrapper; the exchange alone; and rank 0 by itself."""
        if self.sharded:
            return {}
        on_cpu = {"all_cores": Beside(self, self._alone_on_all_cores)} if self.device.type == "cpu" else {}
        return {
            "compute": Beside(self, self._without_exchange), "bare": Beside(self, self._bare),
            "exchange": Beside(self, self._exchange), "alone": Beside(self, self._alone), **on_cpu,
        }  # fmt: skip

    def _without_exchange(self, steps: int) -> None:
        with self.forward.no_sync():
            self.run(steps)

    def _bare(self, steps: int) -> None:
        with self._unwrapped():
            self.run(steps)

    def _alone(self, steps: int) -> None:
        if self.team.leads:
            with self._unwrapped():
                self._run_on(itertools.islice(self._whole_batches(), steps))

    def _alone_on_all_cores(self, steps: int) -> None:
        if self.team.leads:
            threads = self.torch.get_num_threads()
            self.torch.set_num_threads(cores())
            try:
                self._alone(steps)
            finally:
                self.torch.set_num_threads(threads)

    @contextmanager
    def _unwrapped(self) -> Iterator[None]:
        """Steps by the network itself, to which nothing is attached."""
        wrapped, self.forward_loss = self.forward_loss, self.alone
        try:
            yield
        finally:
            self.forward_loss = wrapped

    def _whole_batches(self) -> Iterator[Batch]:
        """What one process would take in a step: a rank's own batches, or those of all where they share one."""
        if self.whole == self.case.batch:
            return self.batches
        if not hasattr(self, "_joined"):
            parts = [next(self.batches) for _ in range(self.size)]
            self._joined = tuple(self.torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return itertools.repeat(self._joined)

    def _exchange(self, steps: int) -> None:
        """All-reduce as much as a step's gradients, in the same parts, with nothing else to do meanwhile."""
        if not hasattr(self, "_buckets"):
            sizes = _whole_numbers(self._logged, "rebuilt_bucket_sizes") or _whole_numbers(self._logged, "bucket_sizes")
            dtype = next(self.network.parameters()).dtype
            self._buckets = [self.torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=self.device)
                             for size in sizes]  # fmt: skip
        reduce = self.torch.distributed.all_reduce
        for _ in range(steps):
            for work in [reduce(bucket, group=self.group, async_op=True) for bucket in self._buckets]:
                work.wait()

    def settle(self) -> None:
        """Every rank takes over what the leader has: steps beside its own let them drift apart."""
        if self.sharded:
            return
        state = [value for values in self.optimiser.state.values() for value in values.values()]
        tensors = [*self.network.parameters(), *self.network.buffers(), *filter(self.torch.is_tensor, state)]
        with self.torch.no_grad():
            for tensor in tensors:
                if self.device.type != "cpu" and tensor.device.type == "cpu":
                    continue  # a counter, alike everywhere
                self.torch.distributed.broadcast(tensor, src=self.team.leader, group=self.group)

    # -- proofs ------------------------------------------------------------------------------------

    def rank_flaw(self) -> str:
        """Ranks must have the same model, and the gradient of what all of them saw."""
        return self._apart() or ("" if self.sharded else self._wrong_gradient())

    def _apart(self) -> str:
        """By sums over all parameters, and by the loss of one batch."""
        flat = [self._full(parameter).detach().double().flatten() for parameter in self.network.parameters()]
        sums = [sum(float(each.sum()) for each in flat), sum(float(each.square().sum()) for each in flat)]
        loss = self._loss_of_common_batch()
        for name, number in (("parameters", sums[0]), ("parameters", sums[1]), ("the loss of one batch", loss)):
            every = self.torch.tensor([number], dtype=self.torch.float64)
            low, high = every.clone(), every.clone()
            self.torch.distributed.all_reduce(low, self.torch.distributed.ReduceOp.MIN)
            self.torch.distributed.all_reduce(high, self.torch.distributed.ReduceOp.MAX)
            size = max(abs(float(low)), abs(float(high)), 1e-12)
            if not float(high - low) <= SAME_MODEL * max(size, sums[1] ** 0.5 if name == "parameters" else size):
                return f"ranks did not stay alike: {name} differ from {float(low):.9g} to {float(high):.9g}"
        return ""

    def _full(self, parameter: Any) -> Any:
        """All of a parameter, of which a rank may have a part only."""
        return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter

    def _loss_of_common_batch(self) -> float:
        """Of a batch that is the same on every rank, without dropout."""
        self.torch.manual_seed(SEED + GRADIENT_SEED)
        inputs, targets = self._placed(self.recipe.draw())
        network = self.forward if self.sharded else self.network
        with self._no_dropout(self.network), self.policy.steps(), self.torch.no_grad():
            return float(self._check_loss(self.policy.around(network)(inputs), targets))

    @contextmanager
    def _no_dropout(self, network: Any) -> Iterator[None]:
        dropouts = [each for each in network.modules() if isinstance(each, self.torch.nn.modules.dropout._DropoutNd)]
        for each in dropouts:
            each.eval()
        try:
            yield
        finally:
            for each in dropouts:
                each.train(self.training)

    def _small_batch(self, rank: int) -> Batch:
        self.torch.manual_seed(SEED + GRADIENT_SEED + 1 + rank)
        inputs, targets = self.recipe.draw()
        return self._placed((inputs[:COMPARED_ITEMS], targets[:COMPARED_ITEMS]))

    def _wrong_gradient(self) -> str:
        """The gradient of one step from fresh weights, against that of one process over the batches of all ranks."""
        network = self._on_device(self._fresh().network)
        wrapped = self._together(network)
        with self._no_dropout(network), self.policy.steps():
            self._forward_loss(wrapped)(*self._small_batch(self.rank))[1].backward()
        gradients = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        del wrapped
        own = self._on_device(self._fresh().network)
        with self._no_dropout(own), self.policy.steps():
            for rank in range(self.size):
                (self._forward_loss(own)(*self._small_batch(rank))[1] / self.size).backward()
        expected = [parameter.grad for parameter in own.parameters() if parameter.grad is not None]
        largest = max(float(each.abs().max()) for each in expected)
        error = max(float((a - b).abs().max()) for a, b in zip(gradients, expected, strict=True)) / max(largest, 1e-12)
        tolerance = TOLERANCE[self.policy.precision]
        if not error <= tolerance:
            return f"gradients of {self.size} ranks differ by {error:.2g} from those of one process on all they saw"
        self.noted["gradient_error"] = error
        return ""

    @property
    def _logged(self) -> Mapping[str, Any]:
        data: Mapping[str, Any] = self.forward._get_ddp_logging_data()
        return data

    @property
    def facts(self) -> dict[str, Any]:
        """What DDP says of itself; its times are averages over steps that it has sampled, in s."""
        facts = super().facts
        if self.sharded:
            return facts
        logged = self._logged
        sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes")
        facts |= {"ddp_buckets": str(sizes)} if sizes else {}
        for name in ("forward_compute", "backward_compute", "backward_comm", "backward_compute_comm_overlap"):
            time = logged.get(f"avg_{name}_time")
            facts |= {f"ddp_{name}_time": int(time) / 1e9} if time else {}
        return facts


def _whole_numbers(logged: Mapping[str, Any], name: str) -> list[int]:
    words = str(logged.get(name) or "").replace(",", " ").split()
    return [int(word) for word in words if word.isdecimal() and int(word)]


class Beside:
    """Steps of a rank beside its own."""

    def __init__(self, program: RankProgram, work: Callable[[int], None]) -> None:
        self.program, self.work = program, work

    def run(self, steps: int) -> None:
        """Issue them."""
        self.work(steps)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.program.synchronize()
