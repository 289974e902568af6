"""Where a session's first model comes from."""

import numpy as np
import pytest
import torch

from fedtide.core.errors import ConfigError
from fedtide.starts import STARTS, ArchiveAverage, Cold, Previous, Similarity
from fedtide.starts.archive import Archive, Last, Past
from tests.starts.stage import INITIAL, LAST, LAYOUT, PAST, beginning, model

BASELINES = (Cold, Previous, ArchiveAverage)


@pytest.mark.parametrize("start", BASELINES)
def test_everybody_begins_untrained(start):
    assert start().begin(beginning((), number=0)).model is INITIAL


def test_cold_forgets():
    assert Cold().begin(beginning()).model is INITIAL


def test_previous_goes_on():
    assert Previous().begin(beginning()).model is LAST


def test_average_mixes_vectors_and_buffers():
    """x = (1 + 2 + 6) / 3 = 3, mean = (3 + 5 + 7) / 3 = 5, count = 75 / 3 = 25."""
    begun = ArchiveAverage().begin(beginning())
    torch.testing.assert_close(begun.model.x, torch.tensor([3.0, -3.0, 0.0, 0.0]))
    torch.testing.assert_close(begun.model.buffers["mean"], torch.tensor([5.0]))
    assert begun.model.buffers["count"].tolist() == 25
    assert begun.model.buffers["count"].dtype == torch.int64
    assert np.allclose(begun.facts["start_weights"], [1 / 3] * 3)


@pytest.mark.parametrize("start", [Previous, ArchiveAverage])
def test_the_session_after_the_pilot(start):
    """P = 2: sessions 1 and 2 continue; with `reset = true` session 2 begins with the untrained model."""
    assert start(P=2).begin(beginning((), number=1)).model is LAST
    assert start(P=2).begin(beginning((), number=2)).model is LAST
    assert start(P=2, reset=True).begin(beginning((), number=1)).model is LAST
    assert start(P=2, reset=True).begin(beginning((), number=2)).model is INITIAL


def test_average_keeps_no_pilot_session():
    start, archive = ArchiveAverage(P=1), Archive()
    for past in PAST:
        archive = start.store(archive, past, LAYOUT)
    assert [past.session for past in archive.past] == [1, 2]


def test_average_of_the_last_two():
    start, archive = ArchiveAverage(keep=Last(H=2)), Archive()
    for past in PAST:
        archive = start.store(archive, past, LAYOUT)
    begun = start.begin(beginning(archive.past))
    assert begun.model.x[0] == 4  # (2 + 6) / 2
    # two models of 4 parameters and 2 numbers of buffers, and the stage's pilot model
    assert begun.facts["stored_floats"] == 3 * 6


def test_who_needs_no_archive_keeps_none():
    for start in (Cold(), Previous()):
        assert start.store(Archive(), PAST[0], LAYOUT) == Archive()


@pytest.mark.parametrize("start", [*(s() for s in BASELINES), Similarity(R=0)])
def test_the_archive_stays_as_it_is(start):
    before = [(past.model.x.clone(), past.model.buffers["mean"].clone()) for past in PAST]
    gradients = [Past(p.session, p.model, torch.ones(4)) for p in PAST]
    start.begin(beginning(gradients, gradient_rounds=lambda model, *_: model))
    for past, (x, mean) in zip(PAST, before, strict=True):
        assert torch.equal(past.model.x, x)
        assert torch.equal(past.model.buffers["mean"], mean)


@pytest.mark.parametrize("start", [ArchiveAverage(), Similarity()])
def test_an_archive_from_another_model(start):
    other = model(1.0)._replace(x=torch.ones(7))
    past = Past(0, other, torch.ones(4))
    with pytest.raises(ConfigError) as caught:
        start.begin(beginning((past,), gradient_rounds=lambda model, *_: model))
    assert str(caught.value) == (
        "start: the archive must hold models of this run's shape, 4 parameters. "
        "Got 7 from session 0. Start a new archive when the model changes."
    )


def test_the_names_of_the_starts():
    assert list(STARTS) == ["cold", "previous", "average", "similarity", "soup"]
