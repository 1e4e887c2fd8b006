"""Learns a virtual environment from recorded trajectories, then a policy in it by PPO: tiny kernels, many syncs.

Our open stand-in for the run of a proprietary SDK in the published m1-chips comparison: the same sizes, other
code and other data, so that its times are no reproduction of the published ones. Here GPUs tend to lose.

The data: 100 trajectories of 30 steps, 6 numbers observed and 4 acted (`_venv_ppo_nets.py`); 20 are held out.
The nets are in `_venv_ppo_nets.py`, what trains them in `_venv_ppo_learner.py`. A step is a tenth of the run of
50 + 20 epochs, in two phases:

- `environment`, 5 epochs. Each: the generator rolls out 10 steps from `batch` observations of the data;
  4 updates of the discriminator, real against drawn; rewards from it, as discounted sums, normalised among the
  rollouts at each step; 4 updates of the generator, by PPO on drawn transitions and by likelihood on real ones.
  A batch of an update is half real and half drawn.
- `policy`, 2 epochs. Each: 256 rollouts side by side over 100 steps in the virtual environment, critic and GAE;
  32 updates of policy and critic by PPO, of 256 rows each. The cost of a step is the mean square of the
  observation that it led to, and that of the action; the reward is its negative.

Adam: 4e-5 for what acts (imitator, transition, policy), 6e-4 for what judges (discriminator, critic) and for the
learned spreads. An item is a transition that is drawn in a rollout, of either phase. The two phases read 30 and 70
numbers from the device: the KL of each PPO update, and an epoch's losses.

What must fall: the error of predicted observations on held-out trajectories, and the policy's cost, as a share of the
untrained policy's in the same virtual environment, since that changes meanwhile. One step is enough for both from a
batch of 256 on; with one of 16 the policy may need three, as its environment is a poor one until then.
The discriminator learns as well, but what it can tell on held-out trajectories need not grow: the generator gets
better, and beyond the 50 epochs the discriminator knows its own data by heart.
"""

from __future__ import annotations

import copy
from functools import cache
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Phase, Recipe, Workload
from mldyno.workloads import _venv_ppo_learner as learner
from mldyno.workloads._venv_ppo_nets import (
    ACTED,
    OBSERVED,
    STEPS,
    Transitions,
    forward_flops,
    network,
    read,
    training_flops,
)

ENVIRONMENT_EPOCHS, POLICY_EPOCHS = 5, 2  # in a step
CHECK_SEED, CHECK_ROLLOUTS = 7, 128  # with which a policy's cost is found


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    batch = case.batch or WORKLOAD.batch
    if batch < 2:
        raise NotImplementedError("venv-ppo compares rollouts with each other; a batch of 1 is too small")
    training, held = read(torch)
    nets = network(torch)
    fresh = copy.deepcopy(nets.policy)

    @cache
    def learner_of(network: Any) -> learner.Learner:
        """What trains that network, made when it is first asked for: by then it is on its device."""
        return learner.Learner(torch, network, training, batch)

    def draw() -> tuple[Any, Any]:
        which = torch.randint(len(training.action), (batch,), device="cpu")
        rows = training.each(lambda part: part[which])
        return learner.situation(torch, rows), rows.following

    def environment(network: Any, inputs: Any, carried: Any) -> Any:
        return [learner_of(network).learn_environment() for _ in range(ENVIRONMENT_EPOCHS)][-1]

    def policy(network: Any, inputs: Any, carried: Any) -> Any:
        return [learner_of(network).learn_policy() for _ in range(POLICY_EPOCHS)][-1]

    return Recipe(
        network=nets,
        draw=draw,
        loss=torch.nn.functional.mse_loss,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=learner.ACTOR_RATE),
        phases={"environment": Phase(environment, environment_items(batch)), "policy": Phase(policy, POLICY_ITEMS)},
        checks=lambda network: checks(torch, network, fresh, held),
    )


def checks(torch: ModuleType, network: Any, fresh: Any, held: Transitions) -> dict[str, float]:
    """What must fall: error of prediction on held-out rows; cost of the policy over as many steps as were recorded,
    with that of a fresh policy as 1: over more, an environment that has learnt little yet would have the say.
    """
    like = next(network.parameters())
    generator = torch.Generator().manual_seed(CHECK_SEED)  # on the CPU: the same numbers on every device
    sizes = ((CHECK_ROLLOUTS, ACTED), (CHECK_ROLLOUTS, OBSERVED))
    noises = [[torch.randn(size, generator=generator).to(like) for size in sizes] for _ in range(STEPS)]
    real = held.each(lambda part: part.to(like))
    starts = real.observation[:: len(real.observation) // CHECK_ROLLOUTS][:CHECK_ROLLOUTS]

    def cost(policy: Any) -> Any:
        steps = learner.imagine(torch, policy, network.transition, starts, noises)
        return sum(learner.cost(step).mean() for step in steps)

    with torch.no_grad():
        error = (network(learner.situation(torch, real)) - real.following).square().mean()
        share = cost(network.policy) / cost(copy.deepcopy(fresh).to(like))
        return {"environment": float(error), "policy": float(share)}


def environment_items(batch: int) -> int:
    """Transitions that are drawn in the first phase."""
    return ENVIRONMENT_EPOCHS * batch * learner.ROLLOUT


POLICY_ITEMS = POLICY_EPOCHS * learner.ENVIRONMENTS * learner.HORIZON
"""Transitions that are drawn in the second phase."""


def items(case: Case) -> int:
    """Transitions that are drawn in a step."""
    return environment_items(case.batch or WORKLOAD.batch) + POLICY_ITEMS


def flops(case: Case) -> float:
    """Each net's, forward for rows that are drawn or judged, and back as well for those that it is trained on."""
    batch = case.batch or WORKLOAD.batch
    updated = batch // 2 * 2
    first = batch * learner.ROLLOUT * forward_flops("imitator", "transition", "discriminator") + updated * (
        learner.DISCRIMINATOR_UPDATES * training_flops("discriminator")
        + learner.GENERATOR_UPDATES * training_flops("imitator", "transition")
    )
    second = learner.ENVIRONMENTS * (
        learner.HORIZON * forward_flops("policy", "transition", "critic")
        + forward_flops("critic")  # of where the rollouts end
        + learner.POLICY_UPDATES * training_flops("policy", "critic")
    )
    return float(ENVIRONMENT_EPOCHS * first + POLICY_EPOCHS * second)


WORKLOAD = Workload(
    name="venv-ppo", title="PPO in a learned environment", version=1, item="transition", batch=1024, params=1_003_550,
    flops=flops, build={"torch": torch}, modes=("train",), count=items,
)  # fmt: skip
