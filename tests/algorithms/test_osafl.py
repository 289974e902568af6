"""OSAFL and its baselines on parabolas, by hand; see quadratic.py for the setting.

Client i pulls towards a_i; with the learning rate 1/2 a step goes half of the way.
"""

import sys
from pathlib import Path

import pytest
import torch

from fedtide.algorithms.base import Context, Survey
from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.algorithms.modified import (
    Described,
    Labels,
    ModifiedAfaCD,
    ModifiedFedAvg,
    ModifiedFedDisco,
    ModifiedFedNova,
    ModifiedFedProx,
)
from fedtide.algorithms.osafl import Osafl, Upload
from fedtide.algorithms.parts.table import empty
from fedtide.core.errors import ConfigError
from fedtide.core.layout import Layout
from fedtide.core.types import Cohort, Nothing, Outputs, Walk
from tests.algorithms.quadratic import Parabolas

sys.path.append(str(Path(__file__).parents[2] / "studies" / "papers"))
from osafl.variants import OsaflAsPrinted

kinds = pytest.mark.parametrize("kind", ["loop", "vectorised"])


def close(*values):
    return pytest.approx(list(values), abs=1e-7)


@kinds
def test_osafl(kind):
    """a = 1, 4, -2, 0; U = 4, the last never seen; server_lr = 3, chi = 3, so the step is 3/2 / 4 = 0.375.

    Round 1, clients 0, 1 (K = 2), 2: y = 0.5, 3, -1; d = -1, -3, 2; their sum is -2
      cosines 1, 1, -1; scores 1, 1, 1/2; x = 0.375 (1 + 3 - 1) = 1.125
    Round 2, client 0: y = 1.0625, d_0 = 0.125; the sum is -0.875
      cosines -1, 1, -1; scores 1/2, 1, 1/2; x = 1.125 + 0.375 (-0.0625 + 3 - 1) = 1.8515625
    """
    game = Parabolas(Osafl(server_lr=3, chi=3), [1, 4, -2, 0], kind=kind)
    done = game.round([2, 0, 1], [1, 1, 2])
    assert done.up.d[:, 0].tolist() == close(2, -1, -3)
    assert game.server.x.tolist() == close(1.125)
    assert game.server.last.ids.tolist() == [0, 1, 2]
    game.round([0], [1])
    assert game.server.last.rows.d[:, 0].tolist() == close(0.125, -3, 2)
    assert game.server.x.tolist() == close(1.8515625)


def test_scores_of_one_count_all_alike():
    """A very large chi makes every score 1: with server_lr = eta this is M-AFA-CD."""
    osafl = Parabolas(Osafl(server_lr=0.8, chi=1e12), [1, 4, -2, 0])
    plain = Parabolas(ModifiedAfaCD(server_lr=0.4), [1, 4, -2, 0])
    for cohort in ([0, 1, 2], [1], [0, 2]):
        osafl.round(cohort, [1] * len(cohort))
        plain.round(cohort, [1] * len(cohort))
    assert osafl.server.x.tolist() == close(*plain.server.x.tolist())


def test_opposite_gradients_count_nothing_with_chi_one():
    """d = -1, -3, 2 and scores 1, 1, 0: x = 0.375 * 4."""
    game = Parabolas(Osafl(server_lr=3, chi=1), [1, 4, -2, 0])
    game.round([0, 1, 2], [1, 2, 1])
    assert game.server.x.tolist() == close(1.5)


@kinds
def test_m_fedavg(kind):
    """a = 1, 4, 2, 0, the last never seen.

    Round 1, clients 0 and 1 (K = 2): w = 0.5, 3; x = (0.5 + 3 + 0 + 0) / 4 = 0.875
    Round 2, clients 1 and 2: w = 2.4375, 1.4375; x = (0.5 + 2.4375 + 1.4375 + 0.875) / 4 = 1.3125
    """
    game = Parabolas(ModifiedFedAvg(), [1, 4, 2, 0], sizes=[1, 3, 2, 1], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(0.875)
    game.round([1, 2], [1, 1])
    assert game.server.x.tolist() == close(1.3125)


def test_m_fedavg_with_everybody_is_fedavg():
    modified, plain = (
        Parabolas(algorithm, [1, 4, 2], sizes=[1, 3, 2])
        for algorithm in (ModifiedFedAvg(), FedAvg(weights="equal"))
    )
    for _ in range(3):
        modified.round([0, 1, 2], [1, 3, 2])
        plain.round([0, 1, 2], [1, 3, 2])
    assert modified.server.x.tolist() == close(*plain.server.x.tolist())


@kinds
def test_m_fedprox(kind):
    """mu = 1. Client 1: y = 2, then 2 - (2 - 4 + 2) / 2 = 2; client 0: 0.5; x = 2.5 / 4."""
    game = Parabolas(ModifiedFedProx(mu=1), [1, 4, 2, 0], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(0.625)


@kinds
def test_m_fednova(kind):
    """Shares 1/4, 3/4 of a cohort of 2 among 4: p = 1/8, 3/8; y - x = 0.5, 3; slowdown 1/2.

    x = (0.5 / 8 + 9 / 8) / 2 = 0.59375; then client 2: y - x = (2 - 0.59375) / 2 = 0.703125. With sizes 1, 3,
    2, whose mean is 2, p = 1/8, 3/8, 1/4: x = 0.59375 + (0.5 / 8 + 9 / 8 + 0.703125 / 4) / 2
    """
    game = Parabolas(ModifiedFedNova(slowdown=0.5), [1, 4, 2, 0], sizes=[1, 3, 2, 1], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(0.59375)
    game.round([2], [1])
    assert game.server.x.tolist() == close(1.275390625)


@kinds
def test_m_fednova_that_remembers_nothing(kind):
    """The same, but in the second round only client 2 counts, p = 1/4: x = 0.59375 + 0.703125 / 8."""
    algorithm = ModifiedFedNova(slowdown=0.5, remembers=False)
    game = Parabolas(algorithm, [1, 4, 2, 0], sizes=[1, 3, 2, 1], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(0.59375)
    game.round([2], [1])
    assert game.server.x.tolist() == close(0.681640625)


@kinds
def test_m_afa_cd(kind):
    """d = -1, -3; mean over 4: -1; x = 0.4. Then client 1: y = 2.2, d = -3.6: x = 0.4 + 0.4 * 4.6 / 4."""
    game = Parabolas(ModifiedAfaCD(server_lr=0.4), [1, 4, 2, 0], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(0.4)
    game.round([1], [1])
    assert game.server.x.tolist() == close(0.86)


def cohort_of(ids, population):
    one = torch.ones(len(ids), dtype=torch.float64)
    return Cohort(torch.tensor(ids), one / len(ids), Walk(one, one, one, one), population, 0)


@pytest.mark.parametrize(("population", "x"), [(2, 2.375), (4, 2.15)])
def test_m_feddisco(population, x):
    """w = 1, 3; D = 1, 3; KL = 0.2, 0.6; a = 0.4, b = 0.1; the server stands at 2.

    Two clients: p = d = 1/4, 3/4; weights 0.25, 0.55; x = (0.25 + 1.65) / 0.8
    Four: p = d = 1/8, 3/8; weights 0.175, 0.325, the unseen 0.25 each: x = 0.175 + 0.975 + 0.5 * 2
    """
    algorithm, start = ModifiedFedDisco(a=0.4, b=0.1), torch.tensor([2.0]).double()
    server = algorithm.init(start, Context(Layout((), ()), population))
    said = Labels(torch.tensor([1.0, 3]).double(), torch.tensor([0.2, 0.6]).double())
    up = Described(torch.tensor([[1.0], [3.0]]).double(), said)
    after = algorithm.aggregate(server, up, cohort_of([0, 1], population))
    assert after.x.tolist() == close(x)


def test_m_feddisco_without_positive_weights_is_a_mean():
    algorithm, start = ModifiedFedDisco(a=9, b=0), torch.tensor([2.0]).double()
    server = algorithm.init(start, Context(Layout((), ()), 2))
    said = Labels(torch.ones(2).double(), torch.ones(2).double())
    up = Described(torch.tensor([[1.0], [5.0]]).double(), said)
    assert algorithm.aggregate(server, up, cohort_of([0, 1], 2)).x.tolist() == close(3)


def test_discrepancy():
    """Labels 0, 0, 1 of 4, one row only fills: KL = 2/3 ln(4 * 2/3) + 1/3 ln(4/3) = 0.749780."""
    targets, mask = torch.tensor([0, 0, 1, 3]), torch.tensor([1.0, 1, 1, 0]).double()

    def outputs(y):
        return Outputs(torch.zeros(4, 4), torch.zeros(4, 4))

    look = Survey(torch.empty_like, outputs, targets, mask, Layout((), ()), 0, True)
    x = torch.zeros(1).double()
    said = ModifiedFedDisco().survey(x, torch.tensor(1), look, Down(x), Nothing())
    assert said.size == 3
    assert float(said.kl) == pytest.approx(0.749780, abs=1e-6)


def test_a_table_keeps_the_last_upload_of_everybody():
    table = empty(Upload(torch.zeros(2)))
    table = table.with_rows(torch.tensor([7, 2]), Upload(torch.tensor([[7.0, 7], [2, 2]])))
    later = table.with_rows(torch.tensor([4, 7]), Upload(torch.tensor([[4.0, 4], [8, 8]])))
    assert later.ids.tolist() == [2, 4, 7]
    assert later.rows.d[:, 0].tolist() == [2, 4, 8]
    assert table.rows.d[:, 0].tolist() == [2, 7]  # the old one is as it was
    left = later.among(torch.tensor([2, 7, 9]))
    assert left.rows.d[:, 0].tolist() == [2, 8]  # client 4 has left ...
    assert left.among(torch.tensor([4])).rows.d[:, 0].tolist() == [4]  # ... and is back


def test_the_printed_buffer_explodes():
    """Half of the clients missing, server_lr = 35: the model is multiplied by about 1 - 35/2 a round."""
    ours, printed = (
        Parabolas(kind(server_lr=35), [1.0] * 4, lr=0.01) for kind in (Osafl, OsaflAsPrinted)
    )
    for _ in range(6):
        ours.round([0, 1], [1, 1])
        printed.round([0, 1], [1, 1])
    assert 0 < float(ours.server.x) < 1
    assert abs(float(printed.server.x)) > 1e4


def test_with_everybody_there_the_printed_buffer_is_ours():
    ours, printed = (Parabolas(kind(), [1.0, 3.0]) for kind in (Osafl, OsaflAsPrinted))
    for _ in range(3):
        ours.round([0, 1], [1, 2])
        printed.round([0, 1], [1, 2])
    assert printed.server.x.tolist() == close(*ours.server.x.tolist())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Osafl, {"server_lr": 0}),
        (Osafl, {"chi": 0.5}),
        (ModifiedFedProx, {"mu": -1}),
        (ModifiedFedNova, {"slowdown": 0}),
        (ModifiedAfaCD, {"server_lr": -1}),
        (ModifiedFedDisco, {"a": -1}),
        (ModifiedFedDisco, {"b": -1}),
    ],
)
def test_impossible_settings(kind, settings):
    with pytest.raises(ConfigError, match=f"algorithm.{next(iter(settings))} must be"):
        kind(**settings)
