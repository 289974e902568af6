"""What a start knows when a session begins, made without any training."""

import numpy as np
import torch
from torch import nn

from fedtide.core.layout import Layout
from fedtide.core.types import Model, Session
from fedtide.starts.archive import Archive, Past
from fedtide.starts.base import Beginning

LAYOUT = Layout.of(nn.Linear(1, 2))  # weight [2, 1], bias [2]


def model(x, mean=0.0, count=0):
    buffers = {"mean": torch.tensor([mean]), "count": torch.tensor(count)}
    return Model(torch.tensor([x, -x, 0.0, 0.0]), buffers)


def session(number=3, clients=3, first=5, rounds=5):
    return Session(number, np.arange(clients), first, rounds)


INITIAL, LAST = model(0.0), model(9.0)
PAST = (Past(0, model(1.0, 3.0, 10)), Past(1, model(2.0, 5.0, 20)), Past(2, model(6.0, 7.0, 45)))


class GradientRounds:
    """Gradient rounds that change any model by the given gradients, one after the other."""

    def __init__(self, *gradients):
        self.gradients, self.asked = [torch.tensor(g) for g in gradients], []

    def __call__(self, model, rounds, clients=0, half=0, memories=False):
        self.asked.append((rounds, clients, half))
        return Model(model.x + self.gradients.pop(0), model.buffers)


def beginning(archive=PAST, number=None, gradient_rounds=None, pilot=None, losses=None, **changes):
    number = len(archive) if number is None else number
    archive = Archive(pilot or model(0.5), tuple(archive))
    ask = gradient_rounds, losses
    known = Beginning(number, session(number), INITIAL, LAST, LAYOUT, archive, *ask)
    return known._replace(**changes)
