"""What trains the nets of `venv-ppo`: the virtual environment, and a policy in it, an epoch at a time.

It reads from the device what such programs read: before each PPO update how far the drawn densities have moved
since the rollout (KL), and after each epoch the losses for the log. Where such programs stop an epoch by the KL,
here an update that finds it too high is made at a rate of zero: it changes nothing, yet every step does the same work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from mldyno.workloads._venv_ppo_data import ACTED, OBSERVED, Transitions

ACTING, JUDGING = 4e-5, 6e-4  # rates of Adam: of imitator, transition and policy; of discriminator and critic
CLIP = 0.2  # share by which a density may change before PPO stops pushing it
FAR = 0.1  # KL beyond which an update changes nothing
LIMIT = 4.0  # observations in the data are within ±3.5; the virtual environment ends here

ROLLOUT = 10  # steps of a rollout of the generator
FADING = 0.9  # weight of the next step's reward, for the generator
DISCRIMINATOR_UPDATES, GENERATOR_UPDATES = 4, 4  # in an epoch

ENVIRONMENTS, HORIZON = 256, 100  # rollouts side by side, and steps of each, for the policy
PATIENCE, TRACE = 0.9, 0.9  # weight of the next step's reward, for the policy; lambda of its advantages (GAE)
POLICY_UPDATES = 32  # in an epoch, each of as many rows as there are environments
EFFORT = 0.5  # weight of the action in the cost


def cost(rows: Transitions) -> Any:
    """What the policy is to lower: mean square of where an action led, and that of the action itself."""
    return rows.following.square().mean(-1) + EFFORT * rows.action.square().mean(-1)


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
        observation = following.clamp(-LIMIT, LIMIT)


def told(torch: ModuleType, discriminator: Any, rows: Transitions, real: bool) -> Any:
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
        self.discriminator = self._optimiser([{"params": network.discriminator.parameters(), "rate": JUDGING}])
        self.policy = self._optimiser(self._rates(network.policy))
        self.critic = self._optimiser([{"params": network.critic.parameters(), "rate": JUDGING}])

    @staticmethod
    def _rates(net: Any) -> list[dict[str, Any]]:
        """Spreads at the higher rate: a single number would stand still at a rate meant for weights, which add up."""
        return [{"params": net.layers.parameters(), "rate": ACTING}, {"params": [net.log_spread], "rate": JUDGING}]

    def _optimiser(self, groups: list[dict[str, Any]]) -> Any:
        return self.torch.optim.Adam([group | {"lr": group["rate"]} for group in groups])

    def learn_environment(self) -> Any:
        """An epoch of phase 1, the discriminator against the generator; gives where the rollouts ended."""
        drawn = self._drawn(self.network.imitator, self.batch, ROLLOUT)
        rows = drawn.each(lambda part: part.flatten(0, 1))
        for _ in range(DISCRIMINATOR_UPDATES):
            entropy = self._tell(rows)
        gains = self._deceit(drawn).flatten()
        for _ in range(GENERATOR_UPDATES):
            loss = self._generate(rows, gains)
        self.log |= {"discriminator": float(entropy), "generator": float(loss)}
        return drawn.following[-1]

    def learn_policy(self) -> Any:
        """An epoch of phase 2, PPO in the virtual environment; gives each rollout's mean cost a step."""
        drawn = self._drawn(self.network.policy, ENVIRONMENTS, HORIZON)
        costs = cost(drawn)
        gains, returns = self._advantages(drawn, costs)
        rows = drawn.each(lambda part: part.flatten(0, 1))
        for _ in range(POLICY_UPDATES):
            loss, missed = self._improve(rows, gains, returns)
        self.log |= {"policy": float(loss), "critic": float(missed), "cost": float(costs.mean())}
        return costs.mean(0)

    def _drawn(self, policy: Any, rollouts: int, steps: int) -> Transitions:
        """Rollouts from observations in the data, as (step, rollout, ...)."""
        torch = self.torch
        sizes = ((rollouts, ACTED), (rollouts, OBSERVED))
        with torch.no_grad():
            noises = ([torch.randn(size, **self.place) for size in sizes] for _ in range(steps))
            starts = self.real.observation[self._some(self.real.observation, rollouts)]
            found = [vars(step) for step in imagine(torch, policy, self.network.transition, starts, noises)]
            return Transitions(**{name: torch.stack([step[name] for step in found]) for name in found[0]})

    def _some(self, rows: Any, count: int) -> Any:
        """Numbers of as many rows, by chance."""
        return self.torch.randint(len(rows), (count,), device=self.place["device"])

    def _half(self, rows: Transitions) -> Transitions:
        """Rows for half of a batch, by chance."""
        which = self._some(rows.observation, self.batch // 2)
        return rows.each(lambda part: part[which])

    def _tell(self, drawn: Transitions) -> Any:
        """One update of the discriminator on a batch, half real and half drawn; gives the cross-entropy."""
        torch, net = self.torch, self.network.discriminator
        entropy = told(torch, net, self._half(self.real), True) + told(torch, net, self._half(drawn), False)
        return self._update(entropy.mean() / 2, self.discriminator)

    def _deceit(self, drawn: Transitions) -> Any:
        """How much more than others at the same step a rollout deceives the discriminator from there on."""
        torch = self.torch
        with torch.no_grad():
            sums: list[Any] = []
            for at in reversed(range(ROLLOUT)):
                step = drawn.each(lambda part, at=at: part[at])  # type: ignore[misc]
                reward = told(torch, self.network.discriminator, step, False)
                sums.append(reward + FADING * sums[-1] if sums else reward)
            found = torch.stack(sums[::-1])
            return (found - found.mean(1, keepdim=True)) / (found.std(1, keepdim=True) + 1e-6)

    def _generate(self, drawn: Transitions, gains: Any) -> Any:
        """One update of the generator on a batch, PPO on the drawn half, likelihood on the real; gives the loss."""
        which = self._some(gains, self.batch // 2)
        rows = drawn.each(lambda part: part[which])
        loss, moved = self._surrogate(self._log_density(rows) - rows.acting - rows.moving, gains[which])
        return self._update(loss - self._log_density(self._half(self.real)).mean(), self.generator, moved)

    def _log_density(self, rows: Transitions) -> Any:
        """Logarithm of the generator's density of action and next observation together."""
        acting = self.network.imitator.log_density(rows.observation, rows.action)
        return acting + self.network.transition.log_density(situation(self.torch, rows), rows.following)

    def _advantages(self, drawn: Transitions, costs: Any) -> tuple[Any, Any]:
        """Generalised advantages of each row, normalised, and the returns that the critic is to learn."""
        torch = self.torch
        with torch.no_grad():
            seen = (*drawn.observation, drawn.following[-1].clamp(-LIMIT, LIMIT))
            values = [self.network.critic(observation).squeeze(-1) for observation in seen]
            gains, gain = [], torch.zeros_like(values[0])
            for at in reversed(range(HORIZON)):
                surprise = PATIENCE * values[at + 1] - values[at] - (1 - PATIENCE) * costs[at]
                gain = surprise + PATIENCE * TRACE * gain
                gains.append(gain)
            found = torch.stack(gains[::-1]).flatten()
            return (found - found.mean()) / (found.std() + 1e-6), found + torch.stack(values[:-1]).flatten()

    def _improve(self, drawn: Transitions, gains: Any, returns: Any) -> tuple[Any, Any]:
        """One update of policy and critic; gives the loss of each."""
        which = self._some(gains, ENVIRONMENTS)
        observation = drawn.observation[which]
        change = self.network.policy.log_density(observation, drawn.action[which]) - drawn.acting[which]
        loss, moved = self._surrogate(change, gains[which])
        missed = (self.network.critic(observation).squeeze(-1) - returns[which]).square().mean()
        return self._update(loss, self.policy, moved), self._update(missed, self.critic)

    def _surrogate(self, change: Any, gains: Any) -> tuple[Any, Any]:
        """PPO's clipped loss from changes of log-densities, and the KL that these amount to."""
        ratio = change.exp()
        loss = -self.torch.minimum(ratio * gains, ratio.clamp(1 - CLIP, 1 + CLIP) * gains).mean()
        return loss, (ratio - 1 - change).mean()

    @staticmethod
    def _update(loss: Any, optimiser: Any, moved: Any = None) -> Any:
        """Backward and the optimiser's step, which changes nothing where the KL is too high; gives the loss."""
        rests = moved is not None and float(moved.detach()) > FAR
        for group in optimiser.param_groups:
            group["lr"] = 0.0 if rests else group["rate"]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()
