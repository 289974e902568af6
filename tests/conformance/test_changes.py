"""Clients leave, come and return while the model stays: what the server counts is what clients remember."""

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.afa import AfaCS
from fedtide.algorithms.base import Change
from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.fedau import FedAU
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fedvarp import FedVarp
from fedtide.algorithms.mifa import Mifa
from fedtide.algorithms.osafl import Osafl
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.errors import ConfigError
from fedtide.core.trees import leaves, rows
from fedtide.core.types import Walk
from fedtide.data.partition import Dirichlet
from fedtide.guard.attacks import SignFlip
from fedtide.guard.faults import Faults
from fedtide.population.arrivals import VisitTrace
from fedtide.population.live import Live
from fedtide.population.participation import Full, Participation, Uniform
from fedtide.population.sessions import Fixed, Pattern
from fedtide.record.checkpoint import Checkpointing, Checkpoints, Stopped
from fedtide.record.journal import Journal
from fedtide.starts.cold import Cold
from fedtide.starts.previous import Previous
from fedtide.starts.trigger import Turnover
from fedtide.training.optimisers import Sgd
from tests.conformance.table import TABLE
from tests.worlds import settings_of

STEPS, LR = 2, 0.1
# Three leave, others come, all but two change, everybody is back.
SESSIONS = ((0, 1, 2, 3, 4, 5), (0, 1, 2), (0, 1, 2, 6, 7), (3, 4, 5, 7), tuple(range(8)))
COUNTS = {  # algorithms whose server keeps a mean of what clients remember, and that mean
    "mifa": lambda server: server.g,
    "fedvarp": lambda server: server.y,
    "afa-cs": lambda server: server.g,
    "scaffold": lambda server: server.c,
    "feddyn": lambda server: server.h + (server.b if isinstance(server.b, torch.Tensor) else 0),
}
NO_START = Previous(trigger=Turnover(share=1.0))  # clients come and go, and no start is due
EVERY_TIME = Previous()  # a start at every change, and it chooses the model as it stands
HERE = Experiment(
    data=Data(name="digits", partition=Dirichlet(alpha=0.5)),
    population=Pattern(clients=8, sessions=SESSIONS, rounds=3),
    participation=Uniform(clients=2),
    train=Train(lr=LR, batch_size=16, steps=STEPS),
    start=NO_START,
    engine=settings_of(kind="loop", workers=1),
    seed=2,
)


class Observed(Checkpoints):
    """After every round: the state of the run, and a copy of what all clients remember."""

    def __init__(self):
        super().__init__()
        self.rounds = []

    def after(self, rounds, state, memory, journal):
        ids, kept = memory.kept(memory.clients)
        self.rounds.append((state, {int(c): rows(kept, u) for u, c in enumerate(ids)}))


def observed(e):
    seen = Observed()
    return run(e, checkpoints=seen), seen.rounds


def mean_row(algorithm, memories, present):
    """The mean of the rows of the clients that exist; a client never seen has a row of zeros."""
    found = [next(leaves(algorithm.row(memories[c].mine))) for c in present if c in memories]
    return torch.stack(found).double().sum(0) / len(present)


@pytest.mark.parametrize("name", TABLE)
def test_a_row_changes_by_what_is_sent(name):
    """row(after) = row(before) + sent(up), and the row of a newcomer is zero."""
    algorithm, generator = TABLE[name].algorithm, torch.Generator().manual_seed(1)
    assert algorithm.has_own("row") == algorithm.has_own("sent")
    if not algorithm.has_own("row"):
        return
    x = torch.randn(650, generator=generator)
    down = algorithm.broadcast(algorithm.init(x, None))
    mine, walk = algorithm.memory(down), Walk(*torch.tensor([3.0, 0.1, 3.0, 2.0]))
    assert not any(leaf.any() for leaf in leaves(algorithm.row(mine)))
    for _ in range(3):
        before, y = algorithm.row(mine), x + torch.randn(650, generator=generator)
        up, mine = algorithm.report(y, walk, down, mine)
        sums = zip(*map(leaves, (before, algorithm.sent(up), algorithm.row(mine))), strict=True)
        for old, sent, new in sums:
            torch.testing.assert_close(old + sent, new, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("kind", ["loop", "vectorised", "compiled"])
@pytest.mark.parametrize("start", [NO_START, EVERY_TIME], ids=["no start", "starts"])
def test_the_servers_mean_is_that_of_the_clients_that_exist(name, kind, start):
    algorithm = TABLE[name].algorithm
    engine = settings_of(kind=kind, workers=1)
    _, rounds = observed(replace(HERE, algorithm=algorithm, engine=engine, start=start))
    check_means(name, algorithm, rounds)


def check_means(name, algorithm, rounds):
    for t, (now, memories) in enumerate(rounds):
        present = SESSIONS[t // 3]
        assert now.members.present.tolist() == list(present)
        expected = mean_row(algorithm, memories, present)
        kept = COUNTS[name](now.server).double()
        assert (kept - expected).norm() < 1e-5 * expected.norm() + 1e-7, t


@pytest.mark.parametrize("name", COUNTS)
def test_departed_clients_take_their_rows_along_and_bring_them_back(name):
    """The memory of a client that was away is the one it left with."""
    e = replace(HERE, algorithm=TABLE[name].algorithm, participation=Full())
    _, rounds = observed(e)
    left_with, returns_with = rounds[2][1][5], rounds[8][1][5]  # client 5 is away in rounds 3 to 8
    assert all(map(torch.equal, leaves(left_with), leaves(returns_with)))


def equal_weight_rivals():
    return {
        "mifa": Mifa(),
        "fedvarp": FedVarp(),
        "afa-cs": AfaCS(server_lr=STEPS * LR),
        "fedau": FedAU(cutoff=2),
    }


@pytest.mark.parametrize("name", equal_weight_rivals())
@pytest.mark.parametrize("kind", ["loop", "vectorised", "compiled"])
@pytest.mark.parametrize("start", [NO_START, EVERY_TIME], ids=["no start", "starts"])
def test_with_full_participation_tables_are_fedavg(name, kind, start):
    engine = settings_of(kind=kind, workers=1)
    e = replace(HERE, participation=Full(), engine=engine, start=start)
    plain = run(replace(e, algorithm=FedAvg(weights="equal"))).model.x
    own = run(replace(e, algorithm=equal_weight_rivals()[name])).model.x
    assert (own - plain).norm() < 1e-6 * plain.norm()


def test_many_changes_do_not_drift():
    """A thousand arrivals and departures, one or a few at a time, in single precision."""
    rng, dim, clients = np.random.default_rng(0), 50, 40
    table = torch.randn(clients, dim, generator=torch.Generator().manual_seed(1))
    here = set(range(clients))
    mean = table.mean(0)
    for _ in range(1000):
        out = {int(c) for c in rng.choice(clients, 3, replace=False)}
        after = (here ^ out) or here
        left, came = (sorted(part) for part in (here - after, after - here))
        sums = (table[part].double().sum(0) for part in (left, came))
        change = Change(torch.tensor(sorted(after)), len(here), *sums, False)
        mean, here = change.mean(mean, change.left, change.came), after
    expected = table[sorted(here)].double().mean(0)
    assert (mean - expected).norm() < 1e-5 * expected.norm()


def test_momentum_of_clients_does_not_make_control_variates_explode():
    """y - x counts a gradient up to 1 / (1 - rho) times: c_i is divided by that, not by the steps."""
    optimisers = [Sgd(momentum=0.9), Sgd(momentum=0.9, carried=True)]
    fixed = replace(HERE, population=Fixed(clients=8, rounds=60), participation=Full())
    fixed = replace(
        fixed, engine=settings_of(kind="vectorised", workers=1)
    )  # 60 rounds: the quicker one
    for optimiser in optimisers:
        e = replace(fixed, train=Train(lr=0.05, batch_size=16, steps=5, optimiser=optimiser))
        for algorithm in (Scaffold(), AfaCS(server_lr=0.25)):
            line = run(replace(e, algorithm=algorithm)).rounds[-1]
            assert line["loss"] < 2.0, (optimiser, algorithm)


# A server that remembers every client, rounds without anybody, wrappers, and what begins anew


def test_a_table_at_the_server_counts_those_who_exist():
    e = replace(HERE, algorithm=Osafl(), participation=Full())
    _, rounds = observed(e)
    for t, (now, _) in enumerate(rounds):
        table = now.server.last
        assert table.ids[table.here].tolist() == list(SESSIONS[t // 3])
        assert len(table.rows.d) == len(SESSIONS[t // 3])
    assert now.server.last.ids.tolist() == list(range(8))


def test_newcomers_do_not_weigh_more():
    """FedAU: a client that comes in round 60 was not away since round 0."""
    sessions = (*[tuple(range(6))] * 6, tuple(range(8)))
    late = replace(HERE, population=Pattern(clients=8, sessions=sessions, rounds=10))
    e = replace(late, algorithm=FedAU(cutoff=50), participation=Full())
    history, (*_, (_, memories)) = observed(e)
    assert history.rounds[-1]["cohort"] == 8
    assert all(float(memories[c].mine.total / memories[c].mine.made) == 1 for c in range(8))


def test_the_teacher_is_the_model_of_the_last_start():
    """Not that of session 0 for ever, where server and memories are carried on."""
    algorithm = Continuous(of=Scaffold(), weight=0.5)
    _, every = observed(replace(HERE, algorithm=algorithm, start=EVERY_TIME))
    _, never = observed(replace(HERE, algorithm=algorithm, start=NO_START))
    for t in (3, 6, 9, 12):
        assert torch.equal(every[t][0].server.teacher, every[t - 1][0].model.x)
        assert torch.equal(never[t][0].server.teacher, never[0][0].server.teacher)


@pytest.mark.parametrize(
    "guard",
    [{"attack": SignFlip(share=0.2)}, {"faults": Faults(lost_upload=0.2, memories="keep")}],
    ids=["attack", "keep"],
)
def test_where_the_mean_is_no_sum_of_rows_both_begin_anew(guard):
    e = replace(HERE, algorithm=Scaffold(), participation=Full(), **guard)
    history, rounds = observed(e)
    anew = [line["t"] for line in history.rounds if line.get("memories") == "anew"]
    assert anew == [3, 6, 9, 12]
    assert sorted(rounds[3][1]) == [0, 1, 2]
    plain = run(replace(HERE, algorithm=Scaffold(), participation=Full()))
    assert not any("memories" in line for line in plain.rounds)


def test_memories_begin_anew_where_another_model_is_installed():
    """`carry` goes with the model: at the cold start of every session nothing is left."""
    e = replace(HERE, algorithm=Scaffold(), participation=Full(), start=Cold())
    _, rounds = observed(e)
    assert sorted(rounds[3][1]) == [0, 1, 2]
    reset = replace(e, train=replace(e.train, memories="reset"))
    assert torch.equal(run(e).model.x, run(reset).model.x)


def test_a_round_without_clients_keeps_the_mean():
    stays = ((0, 0, 3), (1, 0, 3), (0, 5, 9), (2, 6, 9))
    e = replace(HERE, population=VisitTrace(stays=stays, clients=3, rounds=9), algorithm=Scaffold())
    _, rounds = observed(replace(e, participation=Full()))
    for t, present in ((2, [0, 1]), (4, [0, 1]), (5, [0]), (8, [0, 2])):
        now, memories = rounds[t]
        assert now.members.present.tolist() == present
        expected = mean_row(e.algorithm, memories, present)
        assert (now.server.c.double() - expected).norm() < 1e-5 * expected.norm() + 1e-7
    assert rounds[8][0].members.since.tolist() == [3, 4]  # aggregations before each of them came


def test_feddyn_goes_on_after_departures():
    """h, and with it x, must not jump when clients leave: what they remember moves into an offset."""
    e = replace(HERE, algorithm=FedDyn(alpha=0.1), participation=Full())
    _, rounds = observed(replace(e, population=replace(e.population, rounds=20)))
    x = [now.model.x for now, _ in rounds]
    for t in (20, 40, 60, 80):
        assert (x[t] - x[t - 1]).norm() < 3 * (x[t - 1] - x[t - 2]).norm() + 0.1


@pytest.mark.parametrize("name", COUNTS)
def test_most_clients_leave_at_once(name):
    """What is left of the mean of 40 clients must not be the rounding of what they had."""
    sessions = (tuple(range(40)), (3, 17))
    e = replace(HERE, population=Pattern(clients=40, sessions=sessions, rounds=3))
    algorithm = TABLE[name].algorithm
    _, rounds = observed(replace(e, algorithm=algorithm, participation=Uniform(clients=2)))
    now, memories = rounds[3]
    expected = mean_row(algorithm, memories, (3, 17))
    kept = COUNTS[name](now.server).double()
    assert (kept - expected).norm() < 1e-6 * expected.norm() + 1e-8


def test_fedau_counts_rounds_in_which_the_server_aggregates():
    """Client 1 comes in round 4; in rounds 5 to 9 nobody takes part: its second interval is 1, not 6."""
    stays = ((0, 0, 14), (1, 4, 14))
    some = Listed(rounds=(0, 1, 2, 3, 4, 10, 11, 12))
    two = VisitTrace(stays=stays, clients=2, rounds=14)
    _, rounds = observed(replace(HERE, population=two, participation=some, algorithm=FedAU()))
    now, memories = rounds[-1]
    assert float(memories[1].mine.total) == float(memories[1].mine.made) == 4
    assert now.members.made == 8


@dataclass(frozen=True, kw_only=True)
class Listed(Participation):
    """All clients in some rounds, none in the others."""

    rounds: tuple[int, ...] = ()

    def draw(self, who, t, session, seed):
        return session.clients if t in self.rounds else session.clients[:0]


@dataclass(frozen=True, kw_only=True)
class Strangers(Participation):
    """Draws a client that has left."""

    def draw(self, who, t, session, seed):
        return np.array([0, 5])


def test_only_clients_that_exist_may_take_part():
    e = replace(HERE, participation=Strangers())
    with pytest.raises(ConfigError, match=r"round 3: participation must be .* Got \[5\]"):
        run(e)


@pytest.mark.parametrize("later", [[0, 1, 2], [0, 1, 2, 3, 4, 6, 7]], ids=["left", "came"])
def test_clients_change_while_a_live_run_is_stopped(tmp_path, later):
    """A server that is restarted finds others connected than before."""
    algorithm = Scaffold()
    e = replace(HERE, algorithm=algorithm, participation=Full(), checkpoint=Checkpointing(rounds=1))

    def part(who, seen, stop):
        population = Live(clients=8, rounds=8, who=lambda t: np.array(who))
        journal = Journal(tmp_path / "journal.jsonl", fresh=not seen.rounds)
        kept = Checkpoints(tmp_path / "checkpoints", e.checkpoint, stop=stop)
        after = kept.after

        def observed_after(rounds, state, memory, journal):
            Observed.after(seen, rounds, state, memory, journal)
            after(rounds, state, memory, journal)

        kept.after = observed_after
        with closing(journal):
            run(replace(e, population=population), journal, checkpoints=kept)

    seen = Observed()
    with pytest.raises(Stopped):
        part([0, 1, 2, 3, 4], seen, lambda: len(seen.rounds) == 4)
    part(later, seen, lambda: False)
    for now, memories in seen.rounds[4:]:
        assert now.members.present.tolist() == later
        expected = mean_row(algorithm, memories, later)
        assert (now.server.c.double() - expected).norm() < 1e-5 * expected.norm() + 1e-7
