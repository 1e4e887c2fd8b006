"""What trains the nets of `venv-ppo`: the virtual environment, and a policy in it, an epoch at a time.

It reads from the device what such programs read: before each PPO update how far the drawn densities have kl
since the rollout (KL), and after each epoch the losses for the log. Where such programs stop an epoch by the KL,
here an update that finds it too high is made at a rate of zero: it changes nothing, yet every step does the same work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from mldyno.workloads._venv_ppo_nets import ACTED, OBSERVED, Transitions

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
    """What the policy is to lower: mean square of the observation that an action led to, and that of the action."""
    return rows.following.square().mean(-1) + rows.action.square().mean(-1)


def situation(torch: ModuleType, rows: Transitions) -> Any:
    """What a transition starts from: observation and action side by side."""
    return torch.cat((rows.observation, rows.action), -1)


def imagine(
    torch: ModuleType, policy: Any, transition: Any, observation: Any, noises: Iterable[Sequence[Any]]
) -> Iterator[Transitions]:
    """Rollouts of a policy in the virtual environment: a step for each pair of noises, of action and observation."""
    for of_action, of_observation in noises:
        action, acting = policy.draw(observation, of_action)
        following, moving = transition.draw(torch.cat((observation, action), -1), of_observation)
        yield Transitions(observation, action, following, acting, moving)
        observation = following.clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)


def discriminator_loss(torch: ModuleType, discriminator: Any, rows: Transitions, real: bool) -> Any:
    """Cross-entropy in nat of each row that is real, or that is not."""
    logit = discriminator(torch.cat((rows.observation, rows.action, rows.following), -1)).squeeze(-1)
    return torch.nn.functional.softplus(-logit if real else logit)


class Learner:
    """One network with its optimisers, and the real transitions on its device."""

    def __init__(self, torch: ModuleType, network: Any, real: Transitions, batch: int) -> None:
        self.torch, self.network, self.batch = torch, network, batch
        like = next(network.parameters())
        self.place = {"device": like.device, "dtype": like.dtype}
        self.real = real.each(lambda part: part.to(**self.place))
        self.log: dict[str, float] = {}
        """What the last epoch of each kind came to."""
        self.generator = self._optimiser(self._rates(network.imitator) + self._rates(network.transition))
        self.discriminator = self._optimiser([{"params": network.discriminator.parameters(), "rate": CRITIC_RATE}])
        self.policy = self._optimiser(self._rates(network.policy))
        self.critic = self._optimiser([{"params": network.critic.parameters(), "rate": CRITIC_RATE}])

    @staticmethod
    def _rates(net: Any) -> list[dict[str, Any]]:
        """Spreads at the higher rate: a single number would stand still at a rate meant for weights, which add up."""
        return [
            {"params": net.layers.parameters(), "rate": ACTOR_RATE},
            {"params": [net.log_spread], "rate": CRITIC_RATE},
        ]

    def _optimiser(self, groups: list[dict[str, Any]]) -> Any:
        return self.torch.optim.Adam([group | {"lr": group["rate"]} for group in groups])

    def learn_environment(self) -> Any:
        """An epoch of phase 1, the discriminator against the generator; gives where the rollouts ended."""
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
        """An epoch of phase 2, PPO in the virtual environment; gives each rollout's mean cost a step."""
        drawn = self._rollouts(self.network.policy, ENVIRONMENTS, HORIZON)
        costs = cost(drawn)
        advantages, returns = self._advantages(drawn, costs)
        rows = drawn.each(lambda part: part.flatten(0, 1))
        for _ in range(POLICY_UPDATES):
            loss, critic_loss = self._update_policy(rows, advantages, returns)
        self.log |= {"policy": float(loss), "critic": float(critic_loss), "cost": float(costs.mean())}
        return costs.mean(0)

    def _rollouts(self, policy: Any, rollouts: int, steps: int) -> Transitions:
        """Rollouts from observations in the data, as (step, rollout, ...)."""
        torch = self.torch
        sizes = ((rollouts, ACTED), (rollouts, OBSERVED))
        with torch.no_grad():
            noises = ([torch.randn(size, **self.place) for size in sizes] for _ in range(steps))
            starts = self.real.observation[self._random_rows(self.real.observation, rollouts)]
            rollout = [vars(step) for step in imagine(torch, policy, self.network.transition, starts, noises)]
            return Transitions(**{name: torch.stack([step[name] for step in rollout]) for name in rollout[0]})

    def _random_rows(self, rows: Any, count: int) -> Any:
        """Numbers of as many rows, by chance."""
        return self.torch.randint(len(rows), (count,), device=self.place["device"])

    def _half_batch(self, rows: Transitions) -> Transitions:
        """Rows for half of a batch, by chance."""
        which = self._random_rows(rows.observation, self.batch // 2)
        return rows.each(lambda part: part[which])

    def _update_discriminator(self, drawn: Transitions) -> Any:
        """One update of the discriminator on a batch, half real and half drawn; gives the cross-entropy."""
        torch, net = self.torch, self.network.discriminator
        entropy = discriminator_loss(torch, net, self._half_batch(self.real), True) + discriminator_loss(
            torch, net, self._half_batch(drawn), False
        )
        return self._update(entropy.mean() / 2, self.discriminator)

    def _generator_advantages(self, drawn: Transitions) -> Any:
        """How much more than others at the same step a rollout deceives the discriminator from there on."""
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
        """One update of the generator on a batch, PPO on the drawn half, likelihood on the real; gives the loss."""
        which = self._random_rows(advantages, self.batch // 2)
        rows = drawn.each(lambda part: part[which])
        loss, kl = self._surrogate(self._log_density(rows) - rows.acting - rows.moving, advantages[which])
        return self._update(loss - self._log_density(self._half_batch(self.real)).mean(), self.generator, kl)

    def _log_density(self, rows: Transitions) -> Any:
        """Logarithm of the generator's density of action and next observation together."""
        acting = self.network.imitator.log_density(rows.observation, rows.action)
        return acting + self.network.transition.log_density(situation(self.torch, rows), rows.following)

    def _advantages(self, drawn: Transitions, costs: Any) -> tuple[Any, Any]:
        """Generalised advantages of each row, normalised, and the returns that the critic is to learn."""
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
        """One update of policy and critic; gives the loss of each."""
        which = self._random_rows(advantages, ENVIRONMENTS)
        observation = drawn.observation[which]
        change = self.network.policy.log_density(observation, drawn.action[which]) - drawn.acting[which]
        loss, kl = self._surrogate(change, advantages[which])
        critic_loss = (self.network.critic(observation).squeeze(-1) - returns[which]).square().mean()
        return self._update(loss, self.policy, kl), self._update(critic_loss, self.critic)

    def _surrogate(self, change: Any, advantages: Any) -> tuple[Any, Any]:
        """PPO's clipped loss from changes of log-densities, and the KL that these amount to."""
        ratio = change.exp()
        loss = -self.torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        return loss, (ratio - 1 - change).mean()

    @staticmethod
    def _update(loss: Any, optimiser: Any, kl: Any = None) -> Any:
        """Backward and the optimiser's step, which changes nothing where the KL is too high; gives the loss."""
        skipped = kl is not None and float(kl.detach()) > MAX_KL
        for group in optimiser.param_groups:
            group["lr"] = 0.0 if skipped else group["rate"]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()
