"""Epsilons that hold: who was drawn, who answered, what leaves without noise, where noise comes from."""

from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from torch import nn

from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.fedavg import FedAvg, Upload
from fedtide.algorithms.scaffold import Scaffold
from fedtide.algorithms.scaffold import Upload as Both
from fedtide.core.errors import ConfigError
from fedtide.core.rng import secret_normals
from fedtide.core.types import Cohort, Walk
from fedtide.data.stores import Arriving
from fedtide.engines.base import Result
from fedtide.guard.privacy import Privacy
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Fixed
from fedtide.run.execute import run_study
from fedtide.run.study import Cell, Study
from fedtide.show.terminal import result_table
from tests.worlds import settings_of

PRIVATE = Experiment(
    data=Data(name="digits"),
    population=Fixed(clients=100, rounds=20),
    participation=Uniform(clients=10),
    algorithm=FedAvg(weights="equal"),
    train=Train(lr=0.1, batch_size=32, steps=1),
    engine=settings_of(workers=1),
    privacy=Privacy(clip=0.5, noise=2.0, delta=1e-5),
    seed=3,
)
# Stores of 1 to 30 examples, filled to 5 %: most round down to nothing.
EMPTY = Data(name="digits", stores=Arriving(capacity=(1, 30), slots=0, initial=0.05))


def gaussian(noise, rounds):
    """The epsilon of a client that was drawn in so many rounds, without amplification, if it is replaced."""
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.GaussianDpEvent(noise / 2), rounds)
    return accountant.get_epsilon(1e-5)


def line(population, clients, missing=()):
    """A journal's line, as far as the accountant reads it."""
    known = {"population": population, "cohort": len(clients), "clients": clients}
    return known | ({"missing": list(missing)} if missing else {})


def test_no_amplification_where_clients_with_empty_stores_are_drawn():
    history = run(replace(PRIVATE, data=EMPTY))
    assert all(
        line["cohort"] + len(line["missing"]) == 10 and len(line["missing"]) == line["absent"]
        for line in history.rounds
    )
    often = np.bincount([c for line in history.rounds for c in line["clients"] + line["missing"]])
    assert history.rounds[-1]["simulated_epsilon"] == gaussian(2.0, int(often.max()))


def test_one_lost_client_ends_the_claim_of_amplification():
    """One of twenty rounds without client 0: it was drawn all the same."""
    full = [line(100, list(range(t, t + 10))) for t in range(20)]
    privacy = PRIVATE.privacy
    amplified = privacy.epsilon(full, is_uniform=True)
    assert amplified < privacy.epsilon(full, is_uniform=False) == gaussian(2.0, 10)
    lines = [line(100, list(range(1, 10)), missing=[0]), *full[1:]]
    assert privacy.epsilon(lines, is_uniform=True) == gaussian(2.0, 10)


def test_a_client_that_is_always_drawn_and_never_answers_counts():
    """Another in its place might have answered."""
    lines = [line(100, [t], missing=[99]) for t in range(7)]
    assert PRIVATE.privacy.epsilon(lines, is_uniform=True) == gaussian(2.0, 7)


def test_rounds_without_a_cohort_cost_nothing():
    privacy, full = PRIVATE.privacy, [line(100, list(range(10)))] * 3
    empty = [line(0, [])] * 5
    for is_uniform in (True, False):
        once = privacy.epsilon(full, is_uniform)
        assert privacy.epsilon([*full, *empty], is_uniform) == once > 0
        assert privacy.epsilon(empty, is_uniform) == 0


def aggregated(algorithm, uploads, drawn):
    """The server's state after a round with noise far too small to see."""
    privacy = Privacy(clip=100.0, noise=1e-9)
    gate = replace(PRIVATE, algorithm=algorithm, privacy=privacy).gate
    count = len(uploads[0])
    ids, one = drawn[:count], torch.ones(count)
    walk = Walk(one, one, one, one)
    cohort = Cohort(torch.from_numpy(ids), one / len(one), walk, 20, 0)
    server = algorithm.init(torch.zeros(1), None)
    result = Result(ids, uploads, {}, None, walk)
    return gate.aggregated(algorithm, server, result, cohort, drawn)


def test_the_divisor_is_the_number_of_clients_that_were_drawn():
    """Five drawn, two answer with 1 and 3: 4 / 5. SCAFFOLD's variate moves by their sum over N = 20."""
    moved = torch.tensor([[1.0], [3.0]])
    server = aggregated(FedAvg(weights="equal"), Upload(moved), np.arange(5))
    assert float(server.x) == pytest.approx(4 / 5)
    server = aggregated(Scaffold(), Both(moved, moved), np.arange(5))
    assert float(server.c) == pytest.approx(4 / 20)


def test_the_noise_tells_nobody_how_many_answered():
    """The published mean has noise of noise * clip / drawn, however many clients reply."""
    privacy, zero = Privacy(clip=2.0, noise=3.0), torch.zeros(40_000)
    for answered in (2, 5, 10):
        weights = torch.full((answered,), 1 / answered)
        noised = privacy.noised(zero, weights, drawn=10, t=0, seed=1)
        assert float(noised.std()) == pytest.approx(0.6, rel=0.02)


NORMED = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))


def test_buffers_that_leave_without_noise_are_refused(tmp_path):
    e = replace(PRIVATE, train=replace(PRIVATE.train, model=NORMED, batch_size=2))
    seen = []
    with pytest.raises(ConfigError, match=r"train\.buffers must be 'frozen' or 'local'"):
        run(e, watch=seen.append)
    plain = replace(e, privacy=Privacy())
    cells = (Cell({"privacy": "none"}, plain), Cell({"privacy": "noise"}, e))
    with pytest.raises(ConfigError, match=r"'1\.running_mean' would be published"):
        run_study(Study(name="normed", cells=cells, seeds=(1,)), tmp_path, jobs=1)
    assert not seen
    assert not list(tmp_path.iterdir())  # nothing was written


@pytest.mark.parametrize("policy", ["frozen", "local"])
def test_buffers_that_stay_are_fine(policy):
    train = replace(PRIVATE.train, model=NORMED, batch_size=2, buffers=policy)
    e = replace(PRIVATE, train=train, population=Fixed(clients=100, rounds=1))
    assert "simulated_epsilon" in run(e).rounds[-1]


def test_summary_and_terminal_call_it_simulated(tmp_path):
    e = replace(PRIVATE, population=Fixed(clients=100, rounds=2))
    study = Study(name="private", cells=(Cell({}, e),), seeds=(1,))
    outcome = run_study(study, tmp_path, jobs=1)
    told = outcome.summary["cells"][0]["metrics"]
    assert "simulated_epsilon" in told
    assert "epsilon" not in told
    titles = [column.header for column in result_table(outcome.results).columns]
    assert "simulated\nepsilon" in titles
    assert "epsilon" not in titles
    assert "privacy (simulated epsilon)" in (outcome.folder.path / "report.html").read_text()


def test_secret_noise_is_normal_and_never_the_same():
    draws = secret_normals(200_000)
    assert draws.shape == (200_000,)
    assert abs(draws.mean()) < 0.01
    assert draws.std() == pytest.approx(1.0, rel=0.01)
    assert (np.abs(draws) < 1).mean() == pytest.approx(0.6827, abs=0.005)
    assert not np.isin(secret_normals(1000), draws).any()
