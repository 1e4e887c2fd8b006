"""The virtual environment, the discriminator and the policy of `venv-ppo` learn, each by its own phase."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from bench import make_trajectories
from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import Recipe, venv_ppo
from mldyno.workloads.venv_ppo import FILE, Transitions, read

WORKLOAD = plugins.workload("venv-ppo")
ENVIRONMENT, POLICY = {"imitator", "transition", "discriminator"}, {"policy", "critic"}
STEPS = 10  # of 5 + 2 epochs: the run of 50 + 20
QUICK, FEW = 128, 64  # batch, and rollouts for the policy: as many epochs and updates, and the same bounds hold
CHANCE = math.log(2)  # cross-entropy in nat of one who can't tell


def built(batch: int, seed: int = 1) -> Recipe:
    torch.manual_seed(seed)
    return WORKLOAD.build["torch"](torch, Case("venv-ppo", batch=batch))


def step(recipe: Recipe) -> None:
    for phase in recipe.phases.values():
        phase.run(recipe.network, None, None)


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Adds up PyTorch's own counts; its FlopCounterMode follows modules too, and takes longer than the step."""

    flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else each operation goes through the compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if formula := flop_registry.get(func.overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=result)
        return result


def counted(recipe: Recipe, phase: str) -> int:
    """Operations of a phase, as torch counts them."""
    with Counter() as counter:
        recipe.phases[phase].run(recipe.network, None, None)
    return int(counter.flops)


def changed(recipe: Recipe, run: Callable[[], Any]) -> set[str]:
    """The nets of which all parameters differ after that; of no other does any."""
    before = {name: value.clone() for name, value in recipe.network.state_dict().items()}
    run()
    after = recipe.network.state_dict()
    same = {name.split(".")[0] for name in before if torch.equal(before[name], after[name])}
    other = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert not same & other
    return other


def cross_entropy(discriminator: Any, generator: Any) -> float:
    """In nat, of a discriminator that is to tell held-out transitions from what a generator draws."""
    _, held = read(torch)
    chance = torch.Generator().manual_seed(2)
    noises = [torch.randn(len(held.action), numbers, generator=chance) for numbers in (4, 6)]
    with torch.no_grad():
        (drawn,) = venv_ppo.imagine(torch, generator.imitator, generator.transition, held.observation, [noises])
        entropies = [venv_ppo.discriminator_loss(torch, discriminator, rows, rows is held) for rows in (held, drawn)]
        return float(torch.cat(entropies).mean())


@dataclass(frozen=True)
class Run:
    """What the whole run came to."""

    start: dict[str, float]
    first: dict[str, float]
    """After one step."""
    end: dict[str, float]
    told: tuple[float, float, float]
    """Cross-entropy of the discriminator at the start, and at the end against the generator as it was and as it is."""


@pytest.fixture(scope="module")
def whole() -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(venv_ppo, "ENVIRONMENTS", FEW)
        return run_of(built(QUICK))


def run_of(recipe: Recipe) -> Run:
    assert recipe.checks is not None

    def checks() -> dict[str, float]:
        return dict(recipe.checks(recipe.network))  # type: ignore[misc]

    fresh, start = copy.deepcopy(recipe.network), checks()
    step(recipe)
    first = checks()
    for _ in range(STEPS - 1):
        step(recipe)
    pairs = ((fresh, fresh), (recipe.network, fresh), (recipe.network, recipe.network))
    before, untrained, own = (cross_entropy(ours.discriminator, theirs) for ours, theirs in pairs)
    return Run(start, first, checks(), (before, untrained, own))


def test_one_step_already_lowers_all_that_must_fall(whole: Run) -> None:
    assert set(whole.start) == {"environment", "policy"}
    assert all(0 <= value < math.inf for found in (whole.start, whole.first, whole.end) for value in found.values())
    assert whole.first["environment"] < 0.9 * whole.start["environment"]
    assert whole.first["policy"] < 0.995 * whole.start["policy"]


def test_the_virtual_environment_learns_to_predict_trajectories_that_it_never_saw(whole: Run) -> None:
    assert whole.end["environment"] < whole.start["environment"] / 10


def test_the_discriminator_learns_to_tell_trajectories_that_it_never_saw_from_drawn_ones(whole: Run) -> None:
    before, untrained, own = whole.told
    assert before == pytest.approx(CHANCE)
    assert untrained < 0.75 * CHANCE
    assert own < 0.98 * CHANCE


def test_the_policy_costs_a_fraction_of_the_untrained_one_in_the_virtual_environment(whole: Run) -> None:
    assert whole.start["policy"] == pytest.approx(1)
    assert whole.end["policy"] < 0.5


def test_its_stated_operations_are_those_that_torch_counts() -> None:
    of_policy = counted(built(QUICK), "policy")
    for batch in (7, QUICK, WORKLOAD.batch):  # on which the policy's phase does not depend
        counts = counted(built(batch), "environment") + of_policy
        assert counts == WORKLOAD.flops(Case("venv-ppo", batch=batch))
    assert WORKLOAD.flops(Case("venv-ppo")) == WORKLOAD.flops(Case("venv-ppo", batch=1024))


def test_its_items_are_the_transitions_of_its_rollouts() -> None:
    phases = built(64).phases
    assert {name: phase.items for name, phase in phases.items()} == {"environment": 5 * 64 * 10, "policy": 2 * 25_600}
    assert WORKLOAD.items(Case("venv-ppo", batch=64)) == sum(phase.items for phase in phases.values())
    assert WORKLOAD.items(Case("venv-ppo")) == 5 * 10_240 + 2 * 25_600


def test_the_parameters_stated_are_those_of_all_nets() -> None:
    network = built(2).network
    sizes = {name: sum(p.numel() for p in net.parameters()) for name, net in network.named_children()}
    assert set(sizes) == ENVIRONMENT | POLICY
    assert sum(sizes.values()) == WORKLOAD.params == 1_003_550


def test_each_phase_trains_its_own_nets_and_no_other() -> None:
    recipe = built(16)
    network, ends = recipe.network, {}

    def run(name: str) -> None:
        ends[name] = recipe.phases[name].run(network, None, None)

    assert changed(recipe, lambda: run("environment")) == ENVIRONMENT
    assert changed(recipe, lambda: run("policy")) == POLICY
    assert ends["environment"].shape == (16, 6)
    assert ends["policy"].shape == (256,)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_copy_trains_by_itself_and_does_as_the_first_does() -> None:
    recipe = built(16)
    twin = copy.deepcopy(recipe.network)
    phase = recipe.phases["environment"]
    found = []
    for network in (recipe.network, twin):
        torch.manual_seed(5)
        phase.run(network, None, None)
        found.append([parameter.detach().clone() for parameter in network.parameters()])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))
    phase.run(twin, None, None)
    now = [parameter.detach() for parameter in recipe.network.parameters()]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(now, found[0], strict=True))


def test_an_update_that_has_moved_too_far_changes_nothing_yet_does_the_work() -> None:
    training, _ = read(torch)
    recipe = built(16)
    weights = recipe.network.critic.last.bias
    optimiser = venv_ppo.Learner(torch, recipe.network, training, 16).critic

    def updated(moved: float) -> float:
        loss = (weights - 1).square().sum()
        venv_ppo.Learner._update(loss, optimiser, torch.tensor(moved))
        return float(weights.detach())

    assert updated(2 * venv_ppo.MAX_KL) == 0.0
    assert optimiser.state[weights]["step"] == 1
    assert updated(venv_ppo.MAX_KL / 2) > 0.0


def test_advantages_are_those_of_the_definition() -> None:
    training, _ = read(torch)
    taught = venv_ppo.Learner(torch, built(16).network, training, 16)  # its critic says 0 as yet
    shape = (venv_ppo.HORIZON, venv_ppo.ENVIRONMENTS)
    drawn = Transitions(torch.randn(*shape, 6), torch.randn(*shape, 4), torch.randn(*shape, 6))
    costs = venv_ppo.cost(drawn)
    gains, returns = taught._advantages(drawn, costs)
    fading = venv_ppo.GAMMA * venv_ppo.LAMBDA
    weights = [fading ** max(at - 60, 0) * (at >= 60) for at in range(venv_ppo.HORIZON)]
    expected = -(1 - venv_ppo.GAMMA) * sum(weight * costs[at] for at, weight in enumerate(weights))
    assert torch.allclose(returns.view(shape)[60], expected, rtol=1e-4)
    assert float(gains.mean()) == pytest.approx(0, abs=1e-4)
    assert float(gains.std()) == pytest.approx(1, abs=1e-3)


def test_proofs_are_the_same_twice() -> None:
    recipe = built(16)
    assert recipe.checks is not None
    recipe.phases["environment"].run(recipe.network, None, None)
    assert recipe.checks(recipe.network) == recipe.checks(recipe.network)


def test_the_data_set_is_what_its_maker_makes() -> None:
    assert FILE.read_bytes() == make_trajectories.made()


def test_transitions_follow_the_system_that_made_them_but_for_its_noise() -> None:
    training, held = read(torch)
    assert (len(training.action), len(held.action)) == (80 * 30, 20 * 30)
    for row in range(0, len(held.action), 37):
        places, speeds = held.observation[row].tolist()[:3], held.observation[row].tolist()[3:]
        later, faster = make_trajectories.moved(places, speeds, held.action[row].tolist())
        apart = held.following[row] - torch.tensor([*later, *faster])
        assert float(apart.abs().max()) < make_trajectories.SHAKE + 0.001
    assert float(training.observation.abs().max()) < venv_ppo.OBSERVATION_LIMIT
    assert float(training.action.abs().max()) <= 1


def test_a_batch_of_one_is_unsupported() -> None:
    with pytest.raises(NotImplementedError, match="batch of 1"):
        built(1)
