"""Learns a virtual environment from recorded trajectories, then a policy in it by PPO: tiny kernels, many syncs.

Our open stand-in for the run of a proprietary SDK in the published m1-chips comparison: the same sizes, other
code and other data, so that its times are no reproduction of the published ones. Here GPUs tend to lose.

The data: 100 trajectories of 30 steps, 6 numbers observed and 4 acted; 20 are held out. `bench/make_trajectories.py`
makes them. Their file holds, for each, 31 times 6 observations, then 30 times 4 actions, as little-endian whole
numbers of 16 bits that count 1/4096.

| net | from | to | layers |
|---|---|---|---|
| `imitator` | observation | mean of the action | residual 4 x 256 |
| `transition` | observation, action | mean of the next observation, as a change of this one | residual 4 x 256 |
| `discriminator` | observation, action, next observation | logit of being real | 4 x 256 |
| `policy` | observation | mean of the action | 4 x 256 |
| `critic` | observation | return | 4 x 256 |

The generator is imitator and transition together. A net that gives a mean draws around it, with a learned spread for
each number, the same everywhere. Means of actions are within ±1, as actions in the data are.

A step is a tenth of the run of 50 + 20 epochs, in two phases:

- `environment`, 5 epochs. Each: the generator rolls out 10 steps from `batch` observations of the data;
  4 updates of the discriminator, real against drawn; rewards from it, as discounted sums, normalised among the
  rollouts at each step; 4 updates of the generator, by PPO on drawn transitions and by likelihood on real ones.
  A batch of an update is half real and half drawn.
- `policy`, 2 epochs. Each: 256 rollouts side by side over 100 steps in the virtual environment, critic and GAE;
  32 updates of policy and critic by PPO, of 256 rows each. The cost of a step is the mean square of the
  observation that it led to, and that of the action; the reward is its negative.

Adam: 4e-5 for what acts (imitator, transition, policy), 6e-4 for what judges (discriminator, critic) and for the
learned spreads. An item is a transition that is drawn in a rollout, of either phase. The two phases read 30 and 70
numbers from the device, as such programs do: before each PPO update how far the drawn densities have moved since the
rollout (KL), and after each epoch the losses for the log. Where such programs stop an epoch by the KL, here an update
that finds it too high is made at a rate of zero: it changes nothing, yet every step does the same work.

What must fall: the error of predicted observations on held-out trajectories, and the policy's cost, as a share of the
untrained policy's in the same virtual environment, since that changes meanwhile. One step is enough for both from a
batch of 256 on; with one of 16 the policy may need three, as its environment is a poor one until then.
The discriminator learns as well, but what it can tell on held-out trajectories need not grow: the generator gets
better, and beyond the 50 epochs the discriminator knows its own data by heart.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Phase, Recipe, Workload

FILE = Path(__file__).parent.parent / "data" / "trajectories.int16"
TRAJECTORIES, STEPS = 100, 30
OBSERVED, ACTED = 6, 4  # numbers in an observation and in an action
FRACTION = 4096
TRAINING = 80

LAYERS, WIDTH = 4, 256
ACTION_SPREAD, TRANSITION_SPREAD = 0.5, 0.1  # standard deviations at the start

SHAPES = {  # inputs and outputs of each net
    "imitator": (OBSERVED, ACTED),
    "transition": (OBSERVED + ACTED, OBSERVED),
    "discriminator": (OBSERVED + ACTED + OBSERVED, 1),
    "policy": (OBSERVED, ACTED),
    "critic": (OBSERVED, 1),
}


@dataclass(frozen=True)
class Transitions:
    """Observation, action and next observation of each row; where drawn, also the logarithms of their densities."""

    observation: Any
    action: Any
    following: Any
    acting: Any = None  # of the action
    moving: Any = None  # of the next observation

    def each(self, change: Callable[[Any], Any]) -> Transitions:
        """Return the same with all parts changed that are there."""
        return Transitions(*(None if part is None else change(part) for part in vars(self).values()))


def read(torch: ModuleType) -> tuple[Transitions, Transitions]:
    """Return the transitions for training and those held out, in rows, on the CPU."""
    observations, actions = (STEPS + 1) * OBSERVED, STEPS * ACTED
    numbers = struct.unpack(f"<{TRAJECTORIES * (observations + actions)}h", FILE.read_bytes())
    values = torch.tensor(numbers, dtype=torch.float32, device="cpu").div(FRACTION).view(TRAJECTORIES, -1)
    observation = values[:, :observations].unflatten(1, (-1, OBSERVED))
    action = values[:, observations:].unflatten(1, (-1, ACTED))
    whole = Transitions(observation[:, :-1], action, observation[:, 1:])
    parts = (slice(TRAINING), slice(TRAINING, None))
    training, held = (whole.each(lambda part, of=of: part[of].flatten(0, 1)) for of in parts)  # type: ignore[misc]
    return training, held


def forward_flops(*nets: str) -> int:
    """Return the floating-point operations of one row's forward pass through the nets."""
    return sum(2 * WIDTH * (SHAPES[net][0] + (LAYERS - 1) * WIDTH + SHAPES[net][1]) for net in nets)


def training_flops(*nets: str) -> int:
    """Return those of one row's forward and backward pass, without a gradient of the inputs."""
    return 3 * forward_flops(*nets) - sum(2 * WIDTH * SHAPES[net][0] for net in nets)


def network(torch: ModuleType) -> Any:
    """Make all nets; called, they return the mean of the next observation from observation and action."""
    nn = torch.nn

    class Layers(nn.Module):  # type: ignore[name-defined,misc]
        """Four layers of 256 with ReLU, with or without skips from one to the next, and a linear one."""

        def __init__(self, net: str, skips: bool = False) -> None:
            super().__init__()
            inputs, outputs = SHAPES[net]
            self.skips = skips
            self.first = nn.Linear(inputs, WIDTH)
            self.others = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS - 1))
            self.last = nn.Linear(WIDTH, outputs)
            for layer in (self.first, *self.others):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
            nn.init.zeros_(self.last.weight)  # at first nothing changes, no action is meant, nothing is distinguished
            nn.init.zeros_(self.last.bias)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.first(x))
            for layer in self.others:
                y = torch.relu(layer(x))
                x = x + y if self.skips else y
            return self.last(x)

    class Gaussian(nn.Module):  # type: ignore[name-defined,misc]
        """Normal distributions around the means that a subclass gives."""

        def __init__(self, net: str, spread: float, skips: bool) -> None:
            super().__init__()
            self.layers = Layers(net, skips)
            self.log_spread = nn.Parameter(torch.full((SHAPES[net][1],), math.log(spread)))

        def draw(self, x: Any, noise: Any) -> tuple[Any, Any]:
            """Return a value for each row, from standard normal numbers, and the logarithm of its density."""
            return self(x) + self.log_spread.exp() * noise, self._log_density(noise)

        def log_density(self, x: Any, value: Any) -> Any:
            """Return the logarithm of the density at a value, for each row."""
            return self._log_density((value - self(x)) / self.log_spread.exp())

        def _log_density(self, apart: Any) -> Any:
            return (-0.5 * apart.square() - self.log_spread - 0.5 * math.log(2 * math.pi)).sum(-1)

    class Policy(Gaussian):
        """From observations to actions."""

        def forward(self, observation: Any) -> Any:
            return torch.tanh(self.layers(observation))

    class Transition(Gaussian):
        """From observations and actions to the next observations."""

        def forward(self, inputs: Any) -> Any:
            return inputs[:, :OBSERVED] + self.layers(inputs)

    class Nets(nn.Module):  # type: ignore[name-defined,misc]
        """The nets by their names."""

        def __init__(self) -> None:
            super().__init__()
            self.imitator = Policy("imitator", ACTION_SPREAD, skips=True)
            self.transition = Transition("transition", TRANSITION_SPREAD, skips=True)
            self.discriminator = Layers("discriminator")
            self.policy = Policy("policy", ACTION_SPREAD, skips=False)
            self.critic = Layers("critic")

        def forward(self, inputs: Any) -> Any:
            return self.transition(inputs)

    return Nets()


# -- what trains the nets, an epoch at a time ------------------------------------------------------

ACTOR_RATE, CRITIC_RATE = 4e-5, 6e-4  # of Adam: for imitator, transition and policy; for discriminator and critic
CLIP = 0.2  # epsilon of PPO: share by which a density may change before it stops pushing
MAX_KL = 0.1  # beyond which an update changes nothing
OBSERVATION_LIMIT = 4.0  # observations in the data are within ±3.5; the virtual environment ends here

ROLLOUT = 10  # steps of a rollout of the generator
GENERATOR_GAMMA = 0.9  # discount factor of the generator
DISCRIMINATOR_UPDATES, GENERATOR_UPDATES = 4, 4  # in an epoch

ENVIRONMENTS, HORIZON = 256, 100  # rollouts side by side, and steps of each, for the policy
GAMMA, LAMBDA = 0.9, 0.9  # of the policy: discount factor, and lambda of its advantages (GAE)
POLICY_UPDATES = 32  # in an epoch, each of as many rows as there are environments


def cost(rows: Transitions) -> Any:
    """Return what the policy must lower: mean squares of the action and of the observation that it led to."""
    return rows.following.square().mean(-1) + rows.action.square().mean(-1)


def situation(torch: ModuleType, rows: Transitions) -> Any:
    """Return what a transition starts from: observation and action side by side."""
    return torch.cat((rows.observation, rows.action), -1)


def imagine(
    torch: ModuleType, policy: Any, transition: Any, observation: Any, noises: Iterable[Sequence[Any]]
) -> Iterator[Transitions]:
    """Yield rollouts of a policy in the virtual environment, a step for each pair of noises."""
    for of_action, of_observation in noises:
        action, acting = policy.draw(observation, of_action)
        following, moving = transition.draw(torch.cat((observation, action), -1), of_observation)
        yield Transitions(observation, action, following, acting, moving)
        observation = following.clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)


def discriminator_loss(torch: ModuleType, discriminator: Any, rows: Transitions, real: bool) -> Any:
    """Return the cross-entropy in nat of each row that is real, or that is not."""
    logit = discriminator(torch.cat((rows.observation, rows.action, rows.following), -1)).squeeze(-1)
    return torch.nn.functional.softplus(-logit if real else logit)


class Learner:
    """One network with its optimisers, and the real transitions on its device."""

    def __init__(self, torch: ModuleType, network: Any, real: Transitions, batch: int) -> None:
        self.torch, self.network, self.batch = torch, network, batch
        like = next(network.parameters())
        self.place = {"device": like.device, "dtype": like.dtype}
        self.real = real.each(lambda part: part.to(**self.place))
        self.log: dict[str, float] = {}  # the results of the last epoch of each kind
        self.generator = self._optimiser(self._rates(network.imitator) + self._rates(network.transition))
        self.discriminator = self._optimiser([{"params": network.discriminator.parameters(), "rate": CRITIC_RATE}])
        self.policy = self._optimiser(self._rates(network.policy))
        self.critic = self._optimiser([{"params": network.critic.parameters(), "rate": CRITIC_RATE}])

    @staticmethod
    def _rates(net: Any) -> list[dict[str, Any]]:
        """Return the groups of a net; its spread, a single number, needs the higher rate."""
        return [
            {"params": net.layers.parameters(), "rate": ACTOR_RATE},
            {"params": [net.log_spread], "rate": CRITIC_RATE},
        ]

    def _optimiser(self, groups: list[dict[str, Any]]) -> Any:
        return self.torch.optim.Adam([group | {"lr": group["rate"]} for group in groups])

    def learn_environment(self) -> Any:
        """Train an epoch of phase 1, the discriminator against the generator; return where the rollouts ended."""
        drawn = self._rollouts(self.network.imitator, self.batch, ROLLOUT)
        rows = drawn.each(lambda part: part.flatten(0, 1))
        for _ in range(DISCRIMINATOR_UPDATES):
            entropy = self._update_discriminator(rows)
        advantages = self._generator_advantages(drawn).flatten()
        for _ in range(GENERATOR_UPDATES):
            loss = self._update_generator(rows, advantages)
        self.log |= {"discriminator": float(entropy), "generator": float(loss)}
        return drawn.following[-1]

    def learn_policy(self) -> Any:
        """Train an epoch of phase 2, PPO in the virtual environment; return each rollout's mean cost a step."""
        drawn = self._rollouts(self.network.policy, ENVIRONMENTS, HORIZON)
        costs = cost(drawn)
        advantages, returns = self._advantages(drawn, costs)
        rows = drawn.each(lambda part: part.flatten(0, 1))
        for _ in range(POLICY_UPDATES):
            loss, critic_loss = self._update_policy(rows, advantages, returns)
        self.log |= {"policy": float(loss), "critic": float(critic_loss), "cost": float(costs.mean())}
        return costs.mean(0)

    def _rollouts(self, policy: Any, rollouts: int, steps: int) -> Transitions:
        """Return rollouts from observations in the data, as (step, rollout, ...)."""
        torch = self.torch
        sizes = ((rollouts, ACTED), (rollouts, OBSERVED))
        with torch.no_grad():
            noises = ([torch.randn(size, **self.place) for size in sizes] for _ in range(steps))
            starts = self.real.observation[self._random_rows(self.real.observation, rollouts)]
            rollout = [vars(step) for step in imagine(torch, policy, self.network.transition, starts, noises)]
            return Transitions(**{name: torch.stack([step[name] for step in rollout]) for name in rollout[0]})

    def _random_rows(self, rows: Any, count: int) -> Any:
        return self.torch.randint(len(rows), (count,), device=self.place["device"])

    def _half_batch(self, rows: Transitions) -> Transitions:
        which = self._random_rows(rows.observation, self.batch // 2)
        return rows.each(lambda part: part[which])

    def _update_discriminator(self, drawn: Transitions) -> Any:
        """Update the discriminator on a batch, half real and half drawn; return the cross-entropy."""
        torch, net = self.torch, self.network.discriminator
        entropy = discriminator_loss(torch, net, self._half_batch(self.real), True) + discriminator_loss(
            torch, net, self._half_batch(drawn), False
        )
        return self._update(entropy.mean() / 2, self.discriminator)

    def _generator_advantages(self, drawn: Transitions) -> Any:
        """Return how much more than the average at the same step a rollout deceives the discriminator from there on."""
        torch = self.torch
        with torch.no_grad():
            sums: list[Any] = []
            for at in reversed(range(ROLLOUT)):
                step = drawn.each(lambda part, at=at: part[at])  # type: ignore[misc]
                reward = discriminator_loss(torch, self.network.discriminator, step, False)
                sums.append(reward + GENERATOR_GAMMA * sums[-1] if sums else reward)
            returns = torch.stack(sums[::-1])
            return (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + 1e-6)

    def _update_generator(self, drawn: Transitions, advantages: Any) -> Any:
        """Update the generator on a batch, by PPO on the drawn half, by likelihood on the real; return the loss."""
        which = self._random_rows(advantages, self.batch // 2)
        rows = drawn.each(lambda part: part[which])
        loss, kl = self._surrogate(self._log_density(rows) - rows.acting - rows.moving, advantages[which])
        return self._update(loss - self._log_density(self._half_batch(self.real)).mean(), self.generator, kl)

    def _log_density(self, rows: Transitions) -> Any:
        """Return the logarithm of the generator's density of action and next observation together."""
        acting = self.network.imitator.log_density(rows.observation, rows.action)
        return acting + self.network.transition.log_density(situation(self.torch, rows), rows.following)

    def _advantages(self, drawn: Transitions, costs: Any) -> tuple[Any, Any]:
        """Return the generalised advantages of each row, normalised, and the returns that the critic must learn."""
        torch = self.torch
        with torch.no_grad():
            observations = (*drawn.observation, drawn.following[-1].clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT))
            values = [self.network.critic(observation).squeeze(-1) for observation in observations]
            advantages, advantage = [], torch.zeros_like(values[0])
            for at in reversed(range(HORIZON)):
                delta = GAMMA * values[at + 1] - values[at] - (1 - GAMMA) * costs[at]
                advantage = delta + GAMMA * LAMBDA * advantage
                advantages.append(advantage)
            flat = torch.stack(advantages[::-1]).flatten()
            return (flat - flat.mean()) / (flat.std() + 1e-6), flat + torch.stack(values[:-1]).flatten()

    def _update_policy(self, drawn: Transitions, advantages: Any, returns: Any) -> tuple[Any, Any]:
        """Update policy and critic; return the loss of each."""
        which = self._random_rows(advantages, ENVIRONMENTS)
        observation = drawn.observation[which]
        change = self.network.policy.log_density(observation, drawn.action[which]) - drawn.acting[which]
        loss, kl = self._surrogate(change, advantages[which])
        critic_loss = (self.network.critic(observation).squeeze(-1) - returns[which]).square().mean()
        return self._update(loss, self.policy, kl), self._update(critic_loss, self.critic)

    def _surrogate(self, change: Any, advantages: Any) -> tuple[Any, Any]:
        """Return PPO's clipped loss from changes of log-densities, and their KL."""
        ratio = change.exp()
        loss = -self.torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        return loss, (ratio - 1 - change).mean()

    @staticmethod
    def _update(loss: Any, optimiser: Any, kl: Any = None) -> Any:
        """Run backward and the optimiser's step, which changes nothing where the KL is too high; return the loss."""
        skipped = kl is not None and float(kl.detach()) > MAX_KL
        for group in optimiser.param_groups:
            group["lr"] = 0.0 if skipped else group["rate"]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()


# -- the workload ----------------------------------------------------------------------------------

ENVIRONMENT_EPOCHS, POLICY_EPOCHS = 5, 2  # in a step
CHECK_SEED, CHECK_ROLLOUTS = 7, 128  # with which a policy's cost is found


def torch(torch: ModuleType, case: Case) -> Recipe:
    """Build the recipe for PyTorch."""
    batch = case.batch or WORKLOAD.batch
    if batch < 2:
        raise NotImplementedError("venv-ppo compares rollouts with each other; a batch of 1 is too small")
    training, held = read(torch)
    nets = network(torch)
    fresh = copy.deepcopy(nets.policy)

    @cache
    def learner_of(network: Any) -> Learner:
        """Return what trains that network, made at its first use: by then it is on its device."""
        return Learner(torch, network, training, batch)

    def draw() -> tuple[Any, Any]:
        which = torch.randint(len(training.action), (batch,), device="cpu")
        rows = training.each(lambda part: part[which])
        return situation(torch, rows), rows.following

    def environment(network: Any, inputs: Any, previous: Any) -> Any:
        return [learner_of(network).learn_environment() for _ in range(ENVIRONMENT_EPOCHS)][-1]

    def policy(network: Any, inputs: Any, previous: Any) -> Any:
        return [learner_of(network).learn_policy() for _ in range(POLICY_EPOCHS)][-1]

    return Recipe(
        network=nets,
        draw=draw,
        loss=torch.nn.functional.mse_loss,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=ACTOR_RATE),
        phases={"environment": Phase(environment, environment_items(batch)), "policy": Phase(policy, POLICY_ITEMS)},
        checks=lambda network: checks(torch, network, fresh, held),
    )


def checks(torch: ModuleType, network: Any, fresh: Any, held: Transitions) -> dict[str, float]:
    """Return what must fall: the error of prediction on held-out rows, and the cost of the policy.

    The cost is relative to that of a fresh policy, over as many steps as were recorded: over more, an environment that
    has learnt little would dominate.
    """
    like = next(network.parameters())
    generator = torch.Generator().manual_seed(CHECK_SEED)  # on the CPU: the same numbers on every device
    sizes = ((CHECK_ROLLOUTS, ACTED), (CHECK_ROLLOUTS, OBSERVED))
    noises = [[torch.randn(size, generator=generator).to(like) for size in sizes] for _ in range(STEPS)]
    real = held.each(lambda part: part.to(like))
    starts = real.observation[:: len(real.observation) // CHECK_ROLLOUTS][:CHECK_ROLLOUTS]

    def total_cost(policy: Any) -> Any:
        steps = imagine(torch, policy, network.transition, starts, noises)
        return sum(cost(step).mean() for step in steps)

    with torch.no_grad():
        error = (network(situation(torch, real)) - real.following).square().mean()
        share = total_cost(network.policy) / total_cost(copy.deepcopy(fresh).to(like))
        return {"environment": float(error), "policy": float(share)}


def environment_items(batch: int) -> int:
    """Return the transitions that are drawn in the first phase."""
    return ENVIRONMENT_EPOCHS * batch * ROLLOUT


POLICY_ITEMS = POLICY_EPOCHS * ENVIRONMENTS * HORIZON  # transitions that are drawn in the second phase


def items(case: Case) -> int:
    """Return the transitions that are drawn in a step."""
    return environment_items(case.batch or WORKLOAD.batch) + POLICY_ITEMS


def flops(case: Case) -> float:
    """Count each net forward for rows that are drawn or judged, and back as well for those that it is trained on."""
    batch = case.batch or WORKLOAD.batch
    updated = batch // 2 * 2
    first = batch * ROLLOUT * forward_flops("imitator", "transition", "discriminator") + updated * (
        DISCRIMINATOR_UPDATES * training_flops("discriminator")
        + GENERATOR_UPDATES * training_flops("imitator", "transition")
    )
    second = ENVIRONMENTS * (
        HORIZON * forward_flops("policy", "transition", "critic")
        + forward_flops("critic")  # of where the rollouts end
        + POLICY_UPDATES * training_flops("policy", "critic")
    )
    return float(ENVIRONMENT_EPOCHS * first + POLICY_EPOCHS * second)


WORKLOAD = Workload(
    name="venv-ppo", title="PPO in a learned environment", version=1, item="transition", batch=1024, params=1_003_550,
    flops=flops, build={"torch": torch}, modes=("train",), count=items,
)  # fmt: skip
