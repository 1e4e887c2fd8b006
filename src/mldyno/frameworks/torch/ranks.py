"""Ranks that train together in PyTorch: their process groups, and a case on one rank.

DistributedDataParallel or fully_shard exchanges gradients over gloo, NCCL or XCCL. Ranks meet at a store that listens
on a socket of the launcher. Anyone who reaches its port, or one of gloo's, could write there. So ranks exchange tensors
only, and never objects, which would be unpickled.
"""

from __future__ import annotations

import copy
import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import rendezvous, system_queries, trees
from mldyno.frameworks import TOLERANCE, Steps, Unsupported
from mldyno.frameworks.program import BATCH_POOL, COMPARED_ITEMS, cores, first_items
from mldyno.frameworks.torch.program import TorchBackend, TorchProgram, dropout_modules
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Batch, Build

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}
MEETING_TIMEOUT = timedelta(minutes=10)  # until all ranks have joined
ORDER_TIMEOUT = timedelta(days=1)  # the parent limits the time of a case
LARGEST_RANK_DIFFERENCE = 1e-6  # of sums over parameters between ranks, relative
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INTERFACES = (rendezvous.INTERFACE, "NCCL_SOCKET_IFNAME")  # variables that name the interface of gloo and of NCCL
CHECK_SEED = SEED + 7919  # other batches than those of the training


def compute_cores() -> int:
    """Return the cores that PyTorch computes on by default: on a Mac the performance cores only."""
    return system_queries.kernel_number("hw.perflevel0.physicalcpu") or cores()


def environment(case: Case, available: int) -> dict[str, str]:
    """Share the cores between ranks, and listen on one interface: the loopback if there is only one machine."""
    threads = case.threads or max(1, available // max(1, (case.ranks or 1) // case.nodes))
    interface = os.environ.get(rendezvous.INTERFACE, LOOPBACK) if case.nodes > 1 else LOOPBACK
    return {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", **dict.fromkeys(INTERFACES, interface)}


class TorchTeam:
    """The ranks of a job; orders and gradients have separate process groups."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch, self.distributed = torch, torch.distributed
        self.rank, self.size, self.local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        self.distributed.init_process_group(
            "gloo", timeout=MEETING_TIMEOUT, store=self._store(), rank=self.rank, world_size=self.size
        )
        self.orders = self.distributed.new_group(backend="gloo", timeout=ORDER_TIMEOUT)

    def _store(self) -> Any:
        """Return the store where ranks meet; rank 0 serves it, on the socket that its launcher has bound."""
        host, _, port = os.environ[rendezvous.STORE].rpartition(":")
        bound = {"master_listen_fd": int(os.environ[rendezvous.STORE_SOCKET])} if self.leads else {}
        make = partial(
            self.distributed.TCPStore, host, int(port), self.size, self.leads, MEETING_TIMEOUT,
            wait_for_workers=False, **bound,
        )  # fmt: skip
        try:
            return make()
        except NotImplementedError:  # in 2.6 the usual kind of store takes no bound socket
            return make(use_libuv=False)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, text: str, source: int = 0) -> str:
        """Return the leader's text, or that of another rank, on every rank."""
        data = self.torch.tensor(list(text.encode()), dtype=self.torch.uint8)
        size = self.torch.tensor(len(data))
        self.distributed.broadcast(size, src=source, group=self.orders)
        data = data if self.rank == source else self.torch.zeros(int(size), dtype=self.torch.uint8)
        self.distributed.broadcast(data, src=source, group=self.orders)
        return bytes(data.tolist()).decode()

    def broadcast(self, order: int, argument: int) -> tuple[int, int]:
        both = self.torch.tensor((order, argument))
        self.distributed.broadcast(both, src=0, group=self.orders)
        order, argument = both.tolist()
        return order, argument

    def gather(self, number: float) -> list[float]:
        own = self.torch.tensor(number, dtype=self.torch.float64)
        every = [self.torch.zeros_like(own) for _ in range(self.size)] if self.leads else None
        self.distributed.gather(own, every, dst=0, group=self.orders)
        return [float(each) for each in every or ()]

    def nodes(self) -> list[str]:
        """Describe the machines of the job without their names, each by its first rank."""
        own = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores" if self.local_rank == 0 else ""
        return [node for rank in range(self.size) if (node := self.share(own, rank))]

    def leave(self) -> None:
        self.distributed.destroy_process_group()


class RankProgram(TorchProgram):
    """A case on one rank."""

    def __init__(self, framework: Any, case: Case, build: Build, data: Opened | None, team: TorchTeam) -> None:
        self.team, self.rank, self.size = team, team.rank, team.size
        kind, _, index = case.device.partition(":")
        if kind != "cpu":  # FSDP and NCCL take the process's current device, which is the first one in every rank
            framework.torch.accelerator.set_device_index(int(index or 0))
        self.group = team.distributed.new_group(backend=BACKENDS[kind], timeout=ORDER_TIMEOUT)  # exchanges gradients
        self.sharded = case.parallel == "fsdp"
        super().__init__(framework, case, build, data)
        self.noted |= {"nodes": "; ".join(team.nodes())} if case.nodes > 1 else {}
        self.alone = self.backend.with_loss(self.torch.compile(self.network) if case.compile else self.network)
        self.held: tuple[Any, ...] = ()

    def check_phases(self, phases: str) -> None:
        """Refuse phases: they have their own optimisers, which no wrapper sees."""
        if phases:
            raise Unsupported(f"a step of it is made of phases ({phases}), which ranks can't share")

    def together(self, network: Any) -> Any:
        if self.sharded:
            return self._shard(network)
        index = None if self.device.type == "cpu" else [self.device.index or 0]
        return self.torch.nn.parallel.DistributedDataParallel(network, device_ids=index, process_group=self.group)

    def _shard(self, network: Any) -> Any:
        """Shard each block of a transformer by itself, and then the rest."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(self.group, self.device.type)
        blocks = [module for module in network.modules() if isinstance(module, self.torch.nn.ModuleList)]
        if not blocks:
            raise Unsupported("fsdp shards a network by its blocks, and this one has none; take ddp")
        for block in itertools.chain.from_iterable(blocks):
            fully_shard(block, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    # -- ablations ---------------------------------------------------------------------------------

    @property
    def ablations(self) -> Mapping[str, Steps]:
        """Return steps without gradient exchange, without the wrapper, of the exchange only, and of the leader only."""
        if self.sharded or self.loads_ahead:  # loader workers would prefetch during one ablation for the next
            return {}
        works: dict[str, Callable[[int], None]] = {
            "compute": self._without_exchange, "bare": self._bare, "exchange": self._exchange,
        }  # fmt: skip
        if self.loader is None or not self.shares_batch:  # else one process would read different batches from disk
            works["alone"] = self._alone
            if self.device.type == "cpu":
                works["all_cores"] = self._alone_on_all_cores
        return {name: Ablation(work, self.synchronize) for name, work in works.items()}

    @property
    def shares_batch(self) -> bool:
        """Return whether the ranks share the batch that a single process would have."""
        return self.case.scaling == "strong"

    def _without_exchange(self, steps: int) -> None:
        with self.backend.forward.no_sync():
            self.run(steps)

    def _bare(self, steps: int) -> None:
        """Run steps without the wrapper."""
        with self._unwrapped():
            self.run(steps)

    def _alone(self, steps: int) -> None:
        """Run steps of a single process on the leader, while the other ranks wait."""
        if self.team.leads:
            with self._unwrapped():
                self.run_on(itertools.islice(self._whole_batches(), steps))

    def _alone_on_all_cores(self, steps: int) -> None:
        if self.team.leads:
            threads = self.torch.get_num_threads()
            self.torch.set_num_threads(compute_cores())
            try:
                self._alone(steps)
            finally:
                self.torch.set_num_threads(threads)

    @contextmanager
    def _unwrapped(self) -> Iterator[None]:
        """Train the network without its wrapper, whose hooks do nothing without its forward pass."""
        wrapped, self.backend.forward_loss = self.backend.forward_loss, self.alone
        try:
            yield
        finally:
            self.backend.forward_loss = wrapped

    def _whole_batches(self) -> Iterator[Batch]:
        """Return the batches of a single process: the rank's own, or joined ones if the ranks share a batch."""
        if not self.shares_batch:
            return self.batches
        if not hasattr(self, "_joined"):
            self._joined = itertools.cycle([self._join() for _ in range(BATCH_POOL)])
        return self._joined

    def _join(self) -> Batch:
        """Join the batches of all ranks."""
        parts = [next(self.batches) for _ in range(self.size)]
        tensors = zip(*(trees.leaves(part) for part in parts), strict=True)
        joined = (self.torch.cat(each) if self.torch.is_tensor(each[0]) else each[0] for each in tensors)
        batch: Batch = trees.mapped(lambda leaf: next(joined), parts[0])
        return batch

    def _exchange(self, steps: int) -> None:
        """All-reduce as many bytes as a step's gradients, in the same buckets, without computing."""
        if not hasattr(self, "_buckets"):
            dtype = next(self.network.parameters()).dtype
            self._buckets = [self.torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=self.device)
                             for size in self._bucket_sizes()]  # fmt: skip
        reduce = self.torch.distributed.all_reduce
        for _ in range(steps):
            for work in [reduce(bucket, group=self.group, async_op=True) for bucket in self._buckets]:
                work.wait()

    def hold_state(self) -> None:
        """Save all that training changes on the host: ablations let the ranks diverge."""
        optimiser, scaler = self.backend.optimiser, self.backend.scaler
        state = self.network.state_dict(), optimiser.state_dict(), scaler and scaler.state_dict()
        self.held = copy.deepcopy(self.backend.each(lambda tensor: tensor.detach().cpu(), state))

    def restore_state(self) -> None:
        network, optimiser, scaler = self.held
        self.network.load_state_dict(network)
        self.backend.optimiser.load_state_dict(optimiser)
        if self.backend.scaler is not None:
            self.backend.scaler.load_state_dict(scaler)
        self.held = ()

    # -- checks ------------------------------------------------------------------------------------

    def rank_flaw(self, thorough: bool) -> str:
        """Check that ranks have the same model; `thorough`: also that they have the gradient of all batches."""
        return self._apart() or (self._wrong_gradient() if thorough else "")

    def _apart(self) -> str:
        """Compare sums over all parameters and the loss of one batch; all ranks return the same result."""
        total = squares = 0.0
        for parameter in self.network.parameters():
            values = self._full(parameter.detach()).double()
            total, squares = total + float(values.sum()), squares + float(values.square().sum())
        own = self.torch.tensor([total, squares, self._loss_of_common_batch()], dtype=self.torch.float64)
        low, high, operation = own.clone(), own.clone(), self.torch.distributed.ReduceOp
        self.torch.distributed.all_reduce(low, operation.MIN)
        self.torch.distributed.all_reduce(high, operation.MAX)
        norm = float(high[1]) ** 0.5
        for name, least, most, size in zip(
            ("sums of parameters", "squares of parameters", "losses of one batch"), low.tolist(), high.tolist(),
            (norm, norm**2, float(high[2].abs())), strict=True,
        ):  # fmt: skip
            if not most - least <= LARGEST_RANK_DIFFERENCE * max(size, 1e-12):
                return f"ranks did not stay alike: {name} differ, from {least:.9g} to {most:.9g}"
        return ""

    def _full(self, tensor: Any) -> Any:
        """Return the whole of a tensor of which a rank may have only a shard."""
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

    def _loss_of_common_batch(self) -> float:
        """Return the loss without dropout of a batch that all ranks have."""
        self.torch.manual_seed(CHECK_SEED)
        inputs, targets = self.placed(self.recipe.draw())
        dropouts = dropout_modules(self.torch, self.network)
        for module in dropouts:
            module.eval()
        try:
            with self.policy.steps(), self.torch.no_grad():
                return float(self.backend.exact_loss(self.policy.around(self.network)(inputs), targets))
        finally:
            for module in dropouts:
                module.train(self.training)

    def _small_batch(self, rank: int) -> Batch:
        self.torch.manual_seed(CHECK_SEED + 1 + rank)
        return self.placed(first_items(self.recipe.draw(), COMPARED_ITEMS))

    def _wrong_gradient(self) -> str:
        """Compare gradients from fresh weights with those of one process on the batches of all ranks."""
        case = replace(self.case, compile=False)
        shared = TorchBackend(self.torch, case, self.make_recipe(case), False, self.together)
        with self.policy.steps():
            shared.forward_loss(*self._small_batch(self.rank))[1].backward()
        gradients = [self._full(each.grad).clone() for each in shared.network.parameters() if each.grad is not None]
        del shared
        own = TorchBackend(self.torch, case, self.make_recipe(case), dropout=False)
        with self.policy.steps():
            for rank in range(self.size):
                (own.forward_loss(*self._small_batch(rank))[1] / self.size).backward()
        expected = [each.grad for each in own.network.parameters() if each.grad is not None]
        largest = max(float(each.abs().max()) for each in expected)
        error = max(float((a - b).abs().max()) for a, b in zip(gradients, expected, strict=True)) / max(largest, 1e-12)
        if not error <= TOLERANCE[self.policy.precision]:
            return f"gradients of {self.size} ranks differ by {error:.2g} from those of one process on all batches"
        self.noted["gradient_error"] = error
        return ""

    # -- DDP's own log -----------------------------------------------------------------------------

    def _bucket_sizes(self) -> list[int]:
        """Return the sizes in B of the buckets of gradients, which DDP rebuilds in the first step."""
        log = self.backend.forward._get_ddp_logging_data()
        words = str(log.get("rebuilt_bucket_sizes") or log.get("bucket_sizes") or "").replace(",", " ").split()
        return [int(word) for word in words if word.isdecimal() and int(word)]

    @property
    def facts(self) -> dict[str, Any]:
        """Add DDP's buckets, and its mean times over the steps that it has sampled, in s."""
        facts = super().facts
        if self.sharded:
            return facts
        facts["ddp_buckets"] = ", ".join(map(str, self._bucket_sizes()))
        log = self.backend.forward._get_ddp_logging_data()
        for name in ("forward_compute", "backward_compute", "backward_comm", "backward_compute_comm_overlap"):
            time = log.get(f"avg_{name}_time")
            facts |= {f"ddp_{name}_time": int(time) / 1e9} if time else {}
        return facts


@dataclass
class Ablation:
    """A variant of a rank's step."""

    run: Callable[[int], None]
    synchronize: Callable[[], None]
