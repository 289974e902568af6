"""What the server keeps, and where."""

import torch

from fedtide.starts.archive import All, Archive, Diverse, Last, Past, on_disk
from tests.starts.stage import PAST, model


def number(value):
    return Past(int(value), model(float(value)), torch.tensor([float(value)]))


def between(one, other):
    return float((one.gradient - other.gradient).abs())


def kept(keep, values):
    past = ()
    for value in values:
        past = keep.added(past, number(value), between)
    return [p.session for p in past]


def test_storage_is_two_models_per_session():
    """Z = 4 parameters + 2 buffer numbers per model, G_s has 4: the paper's 2Z, and Z for the pilot."""
    past = tuple(p._replace(gradient=torch.ones(4)) for p in PAST)
    assert Archive(model(0.0), past).floats == 6 + 3 * (6 + 4)
    assert Archive().floats == 0


def test_all_and_last():
    assert kept(All(), range(5)) == [0, 1, 2, 3, 4]
    assert kept(Last(H=2), range(5)) == [3, 4]


def test_diverse_is_greedy_from_the_newest():
    """Of 0, 5, 6 the two most diverse, newest first: 6 and 0. Then of 0, 6, 1: 1 and 6."""
    assert kept(Diverse(H=2), [0, 5, 6]) == [0, 6]
    assert kept(Diverse(H=2), [0, 6, 1]) == [1, 6]
    assert kept(Diverse(H=3), [0, 10, 4, 5]) == [0, 5, 10]


def test_large_archives_lie_on_disk():
    tensor = torch.arange(6.0).reshape(2, 3)
    held = on_disk(tensor)
    assert torch.equal(held, tensor)
    in_memory, away = All().added((), PAST[0], between), All(memory=0).added((), PAST[0], between)
    assert in_memory[0].model.x is PAST[0].model.x
    assert away[0].model.x is not PAST[0].model.x
    assert torch.equal(away[0].model.x, PAST[0].model.x)
    assert torch.equal(away[0].model.buffers["count"], PAST[0].model.buffers["count"])
