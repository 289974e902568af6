"""Gradient rounds of a start: they pass faults, attacks and defences, and no client remembers them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide import Experiment, Faults, Fixed, Noise, Scaffold, Train
from fedtide.run.preparation import Preparation
from fedtide.run.state import first_state
from fedtide.run.world import World

SMALL = Experiment(
    population=Fixed(clients=6, rounds=2),
    algorithm=Scaffold(),
    train=Train(lr=0.1, batch_size=32, steps=2),
    engine="loop",
    seed=3,
)


def gradient_model(e, rounds=2):
    """The models before and after gradient rounds, their bill, and how many clients remember something."""
    with World.build(e) as world:
        session = e.population.at(0, e.seed)
        world.enter(session)
        ask = Preparation(e, world, session, 0, first_state(e, world))
        after = ask.gradient_rounds(world.initial, rounds)
        return world.initial.x, after.x, ask.bill, len(world.engine.memory)


def test_gradient_rounds_move_the_model_and_leave_no_memory():
    before, after, bill, remembered = gradient_model(SMALL)
    assert not torch.equal(before, after)
    assert (bill["gradient_rounds"], bill["gradient_uploads"], remembered) == (2, 12, 0)


def test_refused_uploads_of_gradient_rounds_do_not_move_the_model():
    before, after, bill, _ = gradient_model(replace(SMALL, faults=Faults(max_norm=1e-12)))
    assert torch.equal(before, after)
    assert bill["gradient_rounds"] == 2


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_hostile_clients_are_hostile_in_gradient_rounds_too(share):
    _, clean, _, _ = gradient_model(SMALL)
    _, after, _, _ = gradient_model(replace(SMALL, attack=Noise(share=share, scale=3.0)))
    assert torch.equal(clean, after) == (share == 0)


def test_noise_of_gradient_rounds_has_addresses_of_its_own():
    """Noise a hundred times as long as an update hides the others: the model's moves are uncorrelated."""
    still = replace(SMALL, attack=Noise(share=0.5, scale=100.0))
    start, one, _, _ = gradient_model(still, rounds=1)
    _, two, _, _ = gradient_model(still, rounds=2)
    first, second = (one - start).numpy(), (two - one).numpy()
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert abs(cosine) < 0.2
