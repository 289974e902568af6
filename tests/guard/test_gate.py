"""Faults, attacks, defences and privacy in whole runs."""

import math
from dataclasses import replace
from typing import NamedTuple

import dp_accounting
import numpy as np
import pytest
import torch

import fedtide.config as config
from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedavg import Upload as Average
from fedtide.algorithms.mifa import Mifa
from fedtide.algorithms.scaffold import Memory, Scaffold
from fedtide.core.errors import ConfigError
from fedtide.core.types import Nothing, Plan
from fedtide.data.partition import Dirichlet
from fedtide.guard.attacks import LabelFlip, SignFlip
from fedtide.guard.defences import Krum, Median, MultiKrum, TrimmedMean
from fedtide.guard.faults import Faults
from fedtide.guard.privacy import Privacy
from fedtide.guard.uploads import flat, refusals, shaped
from fedtide.measure.evaluation import Evaluation
from fedtide.measure.metrics import metrics
from fedtide.population.participation import Uniform
from fedtide.population.presence import Bernoulli
from fedtide.population.sessions import Fixed, Pattern
from fedtide.population.snapshot import Fast
from fedtide.record.checkpoint import Checkpoints
from fedtide.starts import Similarity
from fedtide.training.messages import Row
from tests.worlds import settings_of

SMALL = Experiment(
    data=Data(name="digits"),
    population=Fixed(clients=20, rounds=12),
    train=Train(lr=0.1, batch_size=32, steps=2),
    engine=settings_of(workers=1),
    seed=3,
)


def accuracy(experiment):
    return run(experiment).rounds[-1]["accuracy"]


def same(one, other):
    return torch.equal(one.model.x, other.model.x)


class Sent(NamedTuple):
    """An upload of two tensors."""

    delta: torch.Tensor
    c: torch.Tensor


def test_uploads_are_rows_and_back():
    stacked = Sent(torch.arange(6.0).view(2, 3), torch.arange(8.0).view(2, 2, 2))
    rows = flat(stacked)
    assert rows.tolist() == [[0, 1, 2, 0, 1, 2, 3], [3, 4, 5, 4, 5, 6, 7]]
    for mine, theirs in zip(shaped(rows, stacked), stacked, strict=True):
        assert torch.equal(mine, theirs)
    for mine, theirs in zip(shaped(rows[1], stacked), stacked, strict=True):
        assert torch.equal(mine, theirs[1])


def test_what_is_refused_and_why():
    rows = torch.tensor([[3.0, 4.0], [0.0, 1.0], [math.nan, 1.0], [1.0, 1.0]])
    up, apart = Average(rows), {3: Average(torch.ones(1))}
    why = refusals(up, apart, max_norm=2.0)
    assert list(why) == [0, 2, 3]
    assert "at most 2, got 5" in why[0]
    assert "numbers" in why[2]
    assert "shape" in why[3]
    assert refusals(up, {3: Average(torch.ones(2))}, math.inf).keys() == {2}
    huge = Average(torch.full((2, 4), 1e20))  # all of them numbers
    assert not refusals(huge, {1: Average(torch.full((4,), 3e38))}, math.inf)
    assert "at most 2, got 2e+20" in refusals(huge, {}, 2.0)[0]


def test_damaged_uploads_are_named_and_never_aggregated():
    faults = Faults(corrupt=0.15, truncate=0.15, lost_upload=0.1)
    broken = run(replace(SMALL, faults=faults))
    refused = [why for line in broken.rounds for why in line.get("refused", {}).values()]
    lost = sum(len(line.get("lost_uploads", [])) for line in broken.rounds)
    assert any("shape" in why for why in refused)
    assert any("numbers" in why for why in refused)
    assert lost > 0
    assert torch.isfinite(broken.model.x).all()
    for line in broken.rounds:
        gone = {int(c) for c in line.get("refused", {})} | set(line.get("lost_uploads", []))
        assert gone.isdisjoint(line["clients"])
        assert line["cohort"] + len(gone) == 20
    assert abs(broken.rounds[-1]["accuracy"] - accuracy(SMALL)) < 0.02


def test_rates_of_faults_are_the_ones_asked_for():
    ids = np.arange(2000)
    plan = Plan(np.ones(2000, int), np.ones(2000), np.zeros(2000), np.ones(2000, bool))
    after, hit = Faults(crash=0.05, slow=0.1, slow_factor=3).strike(plan, 7, ids, 1)
    assert 60 < len(hit["crashed"]) < 140
    assert 150 < len(hit["slow"]) < 250
    assert after.delivered.sum() == 2000 - len(hit["crashed"])
    assert sorted(set(after.seconds.tolist())) == [1.0, 3.0]
    late, _ = Faults(slow=0.1, slow_factor=3).strike(plan._replace(deadline=2.0), 7, ids, 1)
    assert (~late.delivered).sum() == len(hit["slow"])  # beyond the deadline


def test_no_faults_change_nothing():
    assert same(run(SMALL), run(replace(SMALL, faults=Faults(), attack=SignFlip(share=0.0))))


class Observed(Checkpoints):
    """The state of the run and the clients' memories after every round."""

    def after(self, rounds, state, memory, journal):
        self.state, self.memory = state, memory


@pytest.mark.parametrize("memories", ["discard", "keep"])
@pytest.mark.parametrize(
    "harm", [{"lost_upload": 0.3}, {"corrupt": 0.3}, {"max_norm": 0.6}], ids=str
)
@pytest.mark.parametrize("kind", ["loop", "compiled"])
def test_what_a_client_remembers_when_its_upload_is_not_counted(kind, harm, memories):
    """SCAFFOLD's server variate is the mean of the clients' only if those take back what was not counted."""
    seen = Observed()
    e = replace(SMALL, algorithm=Scaffold(), engine=settings_of(kind=kind))
    history = run(replace(e, faults=Faults(**harm, memories=memories)), checkpoints=seen)
    assert any("refused" in line or "lost_uploads" in line for line in history.rounds)
    server, fresh = seen.state.server, Row(Memory(torch.zeros(650)), Nothing(), {})
    c = seen.memory.take(np.arange(20), fresh).mine.c
    apart = float((c.mean(0) - server.c).norm() / server.c.norm())
    assert (apart < 1e-4) == (memories == "discard")


def test_robust_rules_withstand_what_breaks_the_mean():
    attack, trained = SignFlip(share=0.2, scale=5.0), replace(SMALL.train, lr=0.5)
    e = replace(SMALL, train=trained)
    clean, broken = accuracy(e), accuracy(replace(e, attack=attack))
    assert broken < clean - 0.1
    for defence in (Median(), TrimmedMean(share=0.2), MultiKrum(share=0.2)):
        assert accuracy(replace(e, attack=attack, defence=defence)) > clean - 0.05


NINE = replace(SMALL, population=Fixed(clients=9, rounds=4))


def test_a_defence_against_nobody_is_refused():
    """A share of 0.1 of nine clients is no client: the trimmed mean would be the mean."""
    with pytest.raises(ConfigError, match=r"0\.1 of 9 clients is less than one hostile client"):
        replace(NINE, defence=TrimmedMean(share=0.1))
    with pytest.raises(ConfigError, match="Krum needs at least 9, there are 8"):
        replace(NINE, participation=Uniform(clients=8), defence=Krum(share=0.4))
    attack = SignFlip(share=0.12, scale=100.0)
    lasting = Evaluation(diverged="warn")  # without a defence it does
    e = replace(NINE, population=Fixed(clients=9, rounds=12), attack=attack, evaluation=lasting)
    assert accuracy(replace(e, defence=TrimmedMean(share=0.12))) > 0.6 > accuracy(e)


def test_sessions_that_are_large_enough_may_have_small_ones_beside_them():
    """Refused where no session can be defended; else its rounds are counted, with one warning."""
    sessions = (tuple(range(3)), tuple(range(10)), (0, 1))
    e = replace(SMALL, population=Pattern(clients=10, rounds=2, sessions=sessions))
    with pytest.warns(RuntimeWarning, match="that it could not defend"):
        history = run(replace(e, defence=TrimmedMean(share=0.2)))
    assert [line["undefended"] for line in history.rounds] == [1, 1, 0, 0, 1, 1]
    assert history.metrics()["undefended_rounds"] == 4
    small = replace(e.population, sessions=sessions[::2])
    with pytest.raises(ConfigError, match="less than one hostile client"):
        replace(e, population=small, defence=TrimmedMean(share=0.2))


def test_rounds_too_small_to_be_defended_are_counted():
    """Bernoulli cohorts of 9 clients: a share of 0.2 of fewer than five is no client."""
    e = replace(SMALL, population=Fixed(clients=9, rounds=12))
    e = replace(e, participation=Bernoulli(rate=0.55), defence=TrimmedMean(share=0.2))
    with pytest.warns(RuntimeWarning, match="see `undefended` in the journal"):
        history = run(e)
    lines = history.rounds
    assert [line["undefended"] for line in lines] == [int(0 < n["cohort"] < 5) for n in lines]
    assert 0 < history.metrics()["undefended_rounds"] < 12
    for other in (Median(), TrimmedMean(share=0.2)):
        last = run(replace(NINE, defence=other)).rounds[-1]
        assert last.get("undefended", 0) == 0


def test_flipped_labels_belong_to_hostile_clients_only():
    attack = LabelFlip(share=0.4)
    assert accuracy(replace(SMALL, attack=attack)) < accuracy(SMALL) - 0.02
    assert same(run(SMALL), run(replace(SMALL, attack=LabelFlip(share=0.0))))


def test_a_defence_needs_an_algorithm_that_takes_a_mean():
    with pytest.raises(ConfigError, match="server needs only the mean"):
        replace(SMALL, algorithm=Mifa(), defence=Median())


def test_without_noise_and_clipping_privacy_is_the_plain_run():
    plain = run(SMALL)
    assert same(plain, run(replace(SMALL, privacy=Privacy())))
    assert same(plain, run(replace(SMALL, privacy=Privacy(clip=1e30))))


PRIVATE = replace(
    SMALL,
    algorithm=FedAvg(weights="equal"),
    participation=Uniform(clients=5),
    privacy=Privacy(clip=0.5, noise=1.0, delta=1e-5),
)


def test_epsilon_is_the_accountants_own():
    """Uniform cohorts of 5 of 20: sampling without replacement, one client replaced."""
    last = run(PRIVATE).rounds[-1]
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    round_ = dp_accounting.SampledWithoutReplacementDpEvent(
        20, 5, dp_accounting.GaussianDpEvent(0.5)
    )
    accountant.compose(dp_accounting.SelfComposedDpEvent(round_, 12))
    assert last["simulated_epsilon"] == accountant.get_epsilon(1e-5)
    assert "epsilon" not in last  # the noise can be computed from the seed
    told = metrics([{**last, "seconds": {}}])  # for the report
    assert told["simulated_epsilon"] == last["simulated_epsilon"]


def test_no_amplification_is_claimed_where_sampling_is_not_uniform():
    """The client that was drawn most often decides: here in all 12 rounds."""
    e = replace(PRIVATE, participation=Fast(of=Uniform(clients=20), q=0.0))
    history = run(e)
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    accountant.compose(dp_accounting.GaussianDpEvent(0.5), 12)
    assert history.rounds[-1]["simulated_epsilon"] == accountant.get_epsilon(1e-5)


def test_the_noise_has_the_deviation_it_claims():
    """clip 2, noise 3, 10 clients: 2 * 3 / 10 on each number of the mean."""
    privacy, zero, weights = (
        Privacy(clip=2.0, noise=3.0),
        torch.zeros(40_000),
        torch.full((10,), 0.1),
    )
    for seed in (1, None):  # by address, and from the operating system
        noised = privacy.noised(zero, weights, drawn=10, t=0, seed=seed)
        assert float(noised.std()) == pytest.approx(0.6, rel=0.02)
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    cut = Privacy(clip=1.0).clipped(rows)
    assert cut.tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.3, 0.4])]


def test_what_privacy_cannot_hide_is_refused():
    with pytest.raises(ConfigError, match="'equal'"):
        run(
            replace(
                PRIVATE,
                algorithm=FedAvg(),
                data=Data(name="digits", partition=Dirichlet(alpha=0.3)),
            )
        )
    with pytest.raises(ConfigError, match=r"privacy\.noise must be 0"):
        replace(PRIVATE, start=Similarity())
    with pytest.raises(ConfigError, match=r"privacy\.noise must be 0"):
        replace(PRIVATE, participation=Fast(of=Uniform(clients=5), adaptive=True))
    with pytest.raises(ConfigError, match="defence"):
        replace(PRIVATE, defence=Median())
    with pytest.raises(ConfigError, match=r"privacy\.clip"):
        Privacy(noise=1.0)


def test_all_of_it_in_a_study_file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("""
[data]
name = "digits"
[population]
kind = "fixed"
clients = 10
rounds = 2
[faults]
crash = 0.05
lost_upload = 0.02
corrupt = 0.01
slow = 0.1
[attack]
kind = "alie"
share = 0.2
[compare]
defence = ["mean", "krum", { kind = "trimmed-mean", share = 0.2 }]
""")
    study = config.load(path)
    assert len(study.cells) == 3
    for each in study.runs:
        assert len(run(each.experiment).rounds) == 2
    with pytest.raises(ConfigError, match="crush"):
        config.load(path, ["faults.crush=0.1"])
