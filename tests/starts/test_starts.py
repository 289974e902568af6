"""Where a session's first model comes from."""

import numpy as np
import torch

from fedtide.core.types import Model, Session
from fedtide.starts import STARTS, Average, Cold, Previous
from fedtide.starts.archive import Past
from fedtide.starts.base import Beginning


def model(x, mean, count):
    buffers = {"mean": torch.tensor([mean]), "count": torch.tensor(count)}
    return Model(torch.tensor([x, -x]), buffers)


INITIAL = model(0.0, 0.0, 0)
ARCHIVE = (Past(0, model(1.0, 3.0, 10)), Past(1, model(2.0, 5.0, 20)), Past(2, model(6.0, 7.0, 45)))


def begin(start, archive=ARCHIVE):
    known = Beginning(Session(len(archive), np.arange(3), 5, 5), INITIAL, archive)
    return start.begin(known)


def test_everybody_begins_untrained():
    for start in (Cold(), Previous(), Average()):
        assert begin(start, ()).model is INITIAL


def test_cold_forgets():
    assert begin(Cold()).model is INITIAL


def test_previous_goes_on():
    assert begin(Previous()).model is ARCHIVE[-1].model
    assert begin(Previous(), ARCHIVE[:1]).model is ARCHIVE[0].model


def test_average_mixes_vectors_and_buffers():
    """x = (1 + 2 + 6) / 3 = 3, mean = (3 + 5 + 7) / 3 = 5, count = 75 / 3 = 25."""
    begun = begin(Average())
    torch.testing.assert_close(begun.model.x, torch.tensor([3.0, -3.0]))
    torch.testing.assert_close(begun.model.buffers["mean"], torch.tensor([5.0]))
    assert begun.model.buffers["count"].tolist() == 25
    assert begun.model.buffers["count"].dtype == torch.int64
    assert np.allclose(begun.facts["start_weights"], [1 / 3] * 3)


def test_the_archive_stays_as_it_is():
    before = [(past.model.x.clone(), past.model.buffers["mean"].clone()) for past in ARCHIVE]
    for start in (Cold(), Previous(), Average()):
        begin(start)
    for past, (x, mean) in zip(ARCHIVE, before, strict=True):
        assert torch.equal(past.model.x, x)
        assert torch.equal(past.model.buffers["mean"], mean)


def test_the_names_of_the_starts():
    assert {"cold": Cold, "previous": Previous, "average": Average}.items() <= STARTS.items()
