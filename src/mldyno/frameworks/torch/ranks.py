"""Ranks that train together in PyTorch: how they are started, how they talk, and a case on one of them.

DistributedDataParallel or fully_shard exchanges gradients, gloo, NCCL or XCCL carries them. Ranks find each other by a
store that listens on a socket of the launcher's. Whoever reaches its port, or one of gloo's, could write there: ranks
pass tensors to each other, and never objects, which are unpickled.
"""

from __future__ import annotations

import copy
import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import rendezvous, trees
from mldyno.frameworks import TOLERANCE, Steps, Unsupported
from mldyno.frameworks.program import BATCH_POOL, COMPARED_ITEMS, cores
from mldyno.frameworks.torch.program import TorchProgram, first_items
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Batch, Build

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}
LONGEST_MEETING = timedelta(minutes=10)  # until all ranks are there
LONGEST_WAIT = timedelta(days=1)  # for an order: how long a case may take is the parent's to say
SAME_MODEL = 1e-6  # by which sums over parameters may differ between ranks, relative
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INTERFACES = (rendezvous.INTERFACE, "NCCL_SOCKET_IFNAME")  # from which gloo and NCCL take where to listen
GRADIENT_SEED = 7919  # apart from those of batches that are trained on


def environment(case: Case, available: int) -> dict[str, str]:
    """Share the cores between ranks, and set the interface to listen on: the loopback, if there is one machine."""
    threads = case.threads or max(1, available // max(1, (case.ranks or 1) // case.nodes))
    interface = os.environ.get(rendezvous.INTERFACE, LOOPBACK) if case.nodes > 1 else LOOPBACK
    return {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", **dict.fromkeys(INTERFACES, interface)}


class TorchTeam:
    """The ranks of a job; their messages have another process group than gradients."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch, self.distributed = torch, torch.distributed
        self.rank, self.size, self.local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        self.distributed.init_process_group(
            "gloo", timeout=LONGEST_MEETING, store=self._store(), rank=self.rank, world_size=self.size
        )
        self.orders = self.distributed.new_group(backend="gloo", timeout=LONGEST_WAIT)

    def _store(self) -> Any:
        """Return the store where ranks find each other; rank 0 serves it, on the socket that its launcher has bound."""
        host, _, port = os.environ[rendezvous.STORE].rpartition(":")
        bound = {"master_listen_fd": int(os.environ[rendezvous.STORE_SOCKET])} if self.leads else {}
        return self.distributed.TCPStore(
            host, int(port), self.size, self.leads, LONGEST_MEETING, wait_for_workers=False, **bound
        )

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
        """Describe the machines of the job without their names; the first rank of each reports it."""
        own = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores" if self.local_rank == 0 else ""
        return [node for rank in range(self.size) if (node := self.share(own, rank))]

    def group_for(self, device: str) -> Any:
        """Return the group that exchanges gradients on a kind of device."""
        return self.distributed.new_group(backend=BACKENDS[device], timeout=LONGEST_WAIT)

    def leave(self) -> None:
        """Destroy all groups."""
        self.distributed.destroy_process_group()


class RankProgram(TorchProgram):
    """A case on one rank."""

    def __init__(self, torch: ModuleType, case: Case, build: Build, data: Opened | None, team: TorchTeam) -> None:
        self.team, self.rank, self.size = team, team.rank, team.size
        self.group = team.group_for(torch.device(case.device).type)
        self.sharded = case.parallel == "fsdp"
        super().__init__(torch, case, build, data)
        self.noted |= {"nodes": "; ".join(team.nodes())} if case.nodes > 1 else {}
        self.alone = self._forward_loss(self._compiled(self.network))
        self.held: tuple[Any, ...] = ()

    def _check_phases(self) -> None:
        """Refuse phases: they have their own optimisers, which no wrapper sees."""
        if self.recipe.phases:
            names = ", ".join(self.recipe.phases)
            raise Unsupported(f"a step of it is made of phases ({names}), which ranks can't share")

    def _together(self, network: Any) -> Any:
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
        """Return steps without exchange of gradients, without the wrapper, the exchange alone, and the leader alone."""
        if self.sharded or self.loads_ahead:  # what a loader's workers load meanwhile would be free for the next
            return {}
        works: dict[str, Callable[[int], None]] = {
            "compute": self._without_exchange, "bare": self._bare, "exchange": self._exchange,
        }  # fmt: skip
        if self.loader is None or not self.shares_batch:  # else one process would read other batches from disk
            works["alone"] = self._alone
            if self.device.type == "cpu":
                works["all_cores"] = self._alone_on_all_cores
        return {name: Ablation(self, work) for name, work in works.items()}

    @property
    def shares_batch(self) -> bool:
        """Return whether the ranks have parts of one batch, which a single process would have as a whole."""
        return self.case.scaling == "strong"

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
        """Run the network itself; the wrapper's hooks stay, and do nothing without its forward pass."""
        wrapped, self.forward_loss = self.forward_loss, self.alone
        try:
            yield
        finally:
            self.forward_loss = wrapped

    def _whole_batches(self) -> Iterator[Batch]:
        """Give what one process would take in a step: a rank's own batches, or those of all where they share one."""
        if not self.shares_batch:
            return self.batches
        if not hasattr(self, "_joined"):
            self._joined = itertools.cycle([self._join() for _ in range(BATCH_POOL)])
        return self._joined

    def _join(self) -> Batch:
        parts = [next(self.batches) for _ in range(self.size)]
        tensors = zip(*(trees.leaves(part) for part in parts), strict=True)
        joined = (self.torch.cat(each) if self.torch.is_tensor(each[0]) else each[0] for each in tensors)
        batch: Batch = trees.mapped(lambda leaf: next(joined), parts[0])
        return batch

    def _exchange(self, steps: int) -> None:
        """All-reduce as much as a step's gradients, in the same parts, with nothing else to do meanwhile."""
        if not hasattr(self, "_buckets"):
            dtype = next(self.network.parameters()).dtype
            self._buckets = [self.torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=self.device)
                             for size in self._bucket_sizes()]  # fmt: skip
        reduce = self.torch.distributed.all_reduce
        for _ in range(steps):
            for work in [reduce(bucket, group=self.group, async_op=True) for bucket in self._buckets]:
                work.wait()

    def hold_state(self) -> None:
        """Save all that training changes, on the host: ablations let the ranks drift apart."""
        state = self.network.state_dict(), self.optimiser.state_dict(), self.scaler and self.scaler.state_dict()
        self.held = copy.deepcopy(self._on_host(state))

    def restore_state(self) -> None:
        network, optimiser, scaler = self.held
        self.network.load_state_dict(network)
        self.optimiser.load_state_dict(optimiser)
        if self.scaler is not None:
            self.scaler.load_state_dict(scaler)
        self.held = ()

    def _on_host(self, state: Any) -> Any:
        if self.torch.is_tensor(state):
            return state.detach().cpu()
        if isinstance(state, dict):
            return {name: self._on_host(part) for name, part in state.items()}
        return type(state)(map(self._on_host, state)) if isinstance(state, list | tuple) else state

    # -- proofs ------------------------------------------------------------------------------------

    def rank_flaw(self, thorough: bool) -> str:
        """Check that ranks have the same model; `thorough`: and that they find the gradient of what all of them saw."""
        return self._apart() or (self._wrong_gradient() if thorough else "")

    def _apart(self) -> str:
        """Compare sums over all parameters, and the loss of one batch; all ranks come to the same verdict."""
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
            if not most - least <= SAME_MODEL * max(size, 1e-12):
                return f"ranks did not stay alike: {name} differ, from {least:.9g} to {most:.9g}"
        return ""

    def _full(self, tensor: Any) -> Any:
        """Return all of a tensor, of which a rank may have a part only."""
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

    def _loss_of_common_batch(self) -> float:
        """Return the loss of a batch that is the same on every rank, without dropout."""
        self.torch.manual_seed(SEED + GRADIENT_SEED)
        inputs, targets = self._placed(self.recipe.draw())
        with self._no_dropout(self.network), self.policy.steps(), self.torch.no_grad():
            return float(self._check_loss(self.policy.around(self.network)(inputs), targets))

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
        return self._placed(first_items(self.torch, self.recipe.draw(), COMPARED_ITEMS))

    def _wrong_gradient(self) -> str:
        """Compare the gradient of a step from fresh weights with that of one process over the batches of all ranks."""
        network = self._on_device(self._fresh().network)
        together = self._together(network)
        with self._no_dropout(network), self.policy.steps():
            self._forward_loss(together)(*self._small_batch(self.rank))[1].backward()
        gradients = [self._full(each.grad).clone() for each in network.parameters() if each.grad is not None]
        del together, network
        own = self._on_device(self._fresh().network)
        with self._no_dropout(own), self.policy.steps():
            for rank in range(self.size):
                (self._forward_loss(own)(*self._small_batch(rank))[1] / self.size).backward()
        expected = [each.grad for each in own.parameters() if each.grad is not None]
        largest = max(float(each.abs().max()) for each in expected)
        error = max(float((a - b).abs().max()) for a, b in zip(gradients, expected, strict=True)) / max(largest, 1e-12)
        if not error <= TOLERANCE[self.policy.precision]:
            return f"gradients of {self.size} ranks differ by {error:.2g} from those of one process on all they saw"
        self.noted["gradient_error"] = error
        return ""

    # -- what the wrapper says of itself -----------------------------------------------------------

    @property
    def _logged(self) -> Mapping[str, Any]:
        data: Mapping[str, Any] = self.forward._get_ddp_logging_data()
        return data

    def _bucket_sizes(self) -> list[int]:
        """Return the sizes in B in which gradients are exchanged: those that were rebuilt after the first step."""
        logged = self._logged
        words = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "").replace(",", " ").split()
        return [int(word) for word in words if word.isdecimal() and int(word)]

    @property
    def facts(self) -> dict[str, Any]:
        """Add what DDP reports; its times are averages over steps that it has sampled, in s."""
        facts = super().facts
        if self.sharded:
            return facts
        facts["ddp_buckets"] = ", ".join(map(str, self._bucket_sizes()))
        for name in ("forward_compute", "backward_compute", "backward_comm", "backward_compute_comm_overlap"):
            time = self._logged.get(f"avg_{name}_time")
            facts |= {f"ddp_{name}_time": int(time) / 1e9} if time else {}
        return facts


class Ablation:
    """A variant of a rank's step."""

    def __init__(self, program: RankProgram, work: Callable[[int], None]) -> None:
        self.run, self.synchronize = work, program.synchronize
