"""Clients in Ray actors, on a cluster of two machines as far as Ray can tell."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
import torch

from fedtide import Experiment, Train, config, run
from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.algorithms.mifa import Mifa
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.errors import ConfigError, EngineError, TrainingError
from fedtide.core.trees import leaves
from fedtide.core.types import Cohort, Examples, Model
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Fifo, Pace, Static
from fedtide.guard.faults import Faults
from fedtide.measure.evaluation import Evaluation
from fedtide.population.sessions import Alternating, Fixed, Pattern
from fedtide.record.checkpoint import Checkpoints, Stopped
from fedtide.record.journal import Journal, read
from fedtide.run.execute import run_study
from fedtide.run.tune import tune_study
from fedtide.starts.previous import Previous
from fedtide.starts.similarity import Similarity
from fedtide.starts.soup import Soup
from fedtide.starts.trigger import Turnover
from fedtide.training.optimisers import Sgd
from tests.conformance.arena import CLIENTS, COHORTS, LR, RULES, World, assert_same, drive
from tests.conformance.table import TABLE
from tests.worlds import settings_of, train_cohort

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

import fedtide.engines.ray.engine as engine_module  # noqa: E402
import fedtide.engines.ray.pool as cluster_module  # noqa: E402
from fedtide.engines.ray.actor import StoredRows  # noqa: E402
from fedtide.engines.ray.memory import STALE, RemoteMemory  # noqa: E402
from fedtide.engines.ray.pool import connected  # noqa: E402
from fedtide.run.cluster import put_back, read_files, write_files  # noqa: E402

FIVE = (*COHORTS, (1, 2, 7, 8), (0, 3, 5, 6, 7))  # rounds
MARK = "FEDTIDE_TEST_OF_RAY"
# Ray gives a node 30 seconds to start, and no setting changes that: let it count them slowly.
PATIENT = """
import time
from types import SimpleNamespace
import ray._private.node

slowly = {"monotonic": lambda: time.monotonic() / 20}
ray._private.node.time = SimpleNamespace(**vars(time) | slowly)
"""


@pytest.fixture(scope="module", autouse=True)
def _own_folder():
    """Not /tmp/ray, where another user's cluster may be found. Names of sockets must be short."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-") as own:
        patch.setenv("RAY_TMPDIR", own)
        patch.setattr(
            "fedtide.engines.ray.engine.PATIENCE", 1800.0
        )  # a busy machine starts actors slowly
        yield


@pytest.fixture(scope="module")
def cluster():
    """A cluster that is there already; actors of one test are passed on to the next."""
    exec(PATIENT, {})
    before, mark = dict(os.environ), uuid.uuid4().hex
    os.environ |= {MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"}
    machines = Cluster(initialize_head=True, head_node_args=small(2))
    try:
        machines.add_node(**small(1))
        os.environ["RAY_ADDRESS"] = machines.address
        with connected(0):
            assert len(ray.nodes()) == 2
            yield
        assert not ray.is_initialized()
    finally:
        machines.shutdown()
        os.environ.clear()
        os.environ.update(before)
    assert_nobody_left(mark)


def small(cpus):
    return {"num_cpus": cpus, "object_store_memory": 80 << 20, "include_dashboard": False}


def assert_nobody_left(mark, patience=600):
    """Every process started with this mark in its environment has ended, but for this one."""
    end = time.monotonic() + patience
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def marked(mark):
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    found.pop(os.getpid(), None)
    return found


def on_ray(algorithm, rule="sgd", world=World(), cohorts=FIVE, adds=False, **settings):  # noqa: B008
    return drive(world.engine("ray", **settings), algorithm, RULES[rule], cohorts, adds=adds)


def on_loop(algorithm, rule="sgd", world=World(), cohorts=FIVE):  # noqa: B008
    return drive(world.engine("loop"), algorithm, RULES[rule], cohorts)


def losses_on(kind, ids=(0, 2, 3, 7), before=lambda engine: None):
    engine = World().engine(kind, **({"actors": 2} if kind == "ray" else {}))
    with closing(engine):
        x, buffers = engine.task.initial
        models = [Model(x, buffers), Model(2 * x, buffers)]
        mixes = torch.tensor([[1.0, 0.0], [0.3, 0.7]])
        before(engine)
        return engine.losses(models, mixes, np.array(ids), t=1)


@pytest.mark.usefixtures("cluster")
def test_losses_are_those_of_the_loop_bit_for_bit():
    for mine, loop in zip(losses_on("ray"), losses_on("loop"), strict=True):
        assert np.array_equal(mine, loop)


@pytest.mark.usefixtures("cluster")
def test_losses_survive_the_death_of_an_actor():
    def kill(engine):
        engine._connect()
        ray.kill(engine._actors[0])

    for mine, loop in zip(losses_on("ray", before=kill), losses_on("loop"), strict=True):
        assert np.array_equal(mine, loop)


@pytest.mark.usefixtures("cluster")
def test_a_run_with_a_soup_is_that_of_the_loop_bit_for_bit():
    e = Experiment(
        population=Alternating(clients=4, sessions=4, rounds=2),
        train=Train(lr=0.1, steps=2),
        algorithm=Mifa(),
        start=Soup(),
        engine=settings_of("loop", workers=1),
    )
    loop, mine = run(e), run(replace(e, engine=settings_of("ray", of="loop", actors=2)))
    assert torch.equal(loop.model.x, mine.model.x)
    assert [line.get("start_losses") for line in mine.rounds] == [
        line.get("start_losses") for line in loop.rounds
    ]


# The same numbers


@pytest.mark.parametrize("actors", [1, 2, 3])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_every_bit_is_that_of_the_loop(cluster, name, actors):
    """Server, buffers, memories and what every client saw, with convolutions and BatchNorm."""
    algorithm, world = TABLE[name].algorithm, World("conv")
    rule = "carried" if name == "fedavg" else "momentum"
    ray_ = on_ray(algorithm, rule, world, of="loop", actors=actors)
    assert_same(ray_, on_loop(algorithm, rule, world), atol=0)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_vectorised_inside_is_equal_up_to_rounding(cluster, name):
    algorithm = TABLE[name].algorithm
    assert_same(on_ray(algorithm, of="vectorised"), on_loop(algorithm), atol=1e-5)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_compiled_inside_is_equal_up_to_rounding(cluster, name):
    algorithm, world = TABLE[name].algorithm, World("chain")
    assert_same(
        on_ray(algorithm, world=world, of="compiled"), on_loop(algorithm, world=world), 1e-5
    )


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fednova"])
def test_sums_are_equal_up_to_rounding(cluster, name):
    algorithm = TABLE[name].algorithm
    assert_same(on_ray(algorithm, of="loop", adds=True), on_loop(algorithm), atol=1e-5)


def test_dropout_and_local_buffers_and_surveys(cluster):
    for world in (World("dropout"), World(policy="local")):
        on = on_ray(Scaffold(), world=world, of="loop")
        assert_same(on, on_loop(Scaffold(), world=world), atol=0)
    fedagg = TABLE["fedagg"].algorithm
    assert_same(on_ray(fedagg, of="loop"), on_loop(fedagg), atol=0)


def test_a_run_with_sessions_and_rehearsals_is_that_of_the_loop(cluster):
    """Memories are forgotten at each start, and those of gradient rounds are kept aside."""
    histories = [
        run(
            Experiment(
                population=Alternating(clients=4, sessions=3, rounds=2),
                algorithm=Scaffold(),
                start=Similarity(V=2),
                train=Train(steps=2, batch_size=16),
                engine=settings_of(kind=kind, of="loop"),
            )
        )
        for kind in ("loop", "ray")
    ]
    loop, ray_ = histories
    assert torch.equal(loop.model.x, ray_.model.x)
    assert ray_.engine == "ray: 2 actors, each loop: as the study asks"
    for line in (*loop.rounds, *ray_.rounds):
        del line["seconds"]
    assert loop.rounds == ray_.rounds


# Actors die


@dataclass(frozen=True, kw_only=True)
class Fragile(Scaffold):
    """The first client to find the fuse removes it and ends its process."""

    fuse: str
    parent: int

    def report(self, y, walk, down, mine):
        with suppress(FileNotFoundError):
            if os.getpid() != self.parent:
                os.remove(self.fuse)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().report(y, walk, down, mine)


@pytest.fixture
def fuse(tmp_path):
    return tmp_path / "fuse"


def fragile(fuse):
    return Fragile(fuse=str(fuse), parent=os.getpid())


def armed(cohorts, fuse, at):
    """The cohorts, with a fuse laid before one of them."""
    for t, cohort in enumerate(cohorts):
        if t == at:
            fuse.touch()
        yield cohort


def test_work_of_a_dead_actor_is_redone(cluster, fuse):
    """The new actor has the memories that its clients had before the round: every bit is right."""
    algorithm = fragile(fuse)
    ray_ = on_ray(algorithm, cohorts=armed(FIVE, fuse, at=3), of="loop", lost="redo")
    assert not fuse.exists()
    assert_same(ray_, on_loop(algorithm), atol=0)


def test_work_of_a_dead_actor_is_counted_as_lost(cluster, fuse):
    """As if its clients had not taken part in that round, and nothing had happened to them."""
    algorithm = fragile(fuse)
    ray_ = on_ray(algorithm, cohorts=armed(FIVE, fuse, at=2), of="loop", lost="count")
    back = tuple(sorted(ray_.training[2]))
    assert not fuse.exists()
    assert 0 < len(back) < len(FIVE[2])
    assert_same(ray_, on_loop(algorithm, cohorts=(*FIVE[:2], back, *FIVE[3:])), atol=0)


def test_a_round_without_any_answer_leaves_the_model_as_it_is(cluster, fuse):
    def watch(line):
        if line["t"] == 0:
            fuse.touch()

    engine = settings_of(kind="ray", of="loop", actors=1, lost="count")
    history = run(
        Experiment(
            population=Fixed(clients=6, rounds=3),
            algorithm=fragile(fuse),
            train=Train(steps=2, batch_size=16),
            engine=engine,
        ),
        watch=watch,
    )
    first, second, third = history.rounds
    assert (second["lost"], second["cohort"], second["clients"], second["bytes_up"]) == (
        6,
        0,
        [],
        0,
    )
    assert second["accuracy"] == first["accuracy"]
    assert third["cohort"] == 6
    assert "lost" not in third
    assert third["loss"] != second["loss"]


def test_work_that_kills_every_actor_is_given_up(cluster, fuse, monkeypatch):
    monkeypatch.setattr(engine_module, "ATTEMPTS", 1)
    fuse.touch()
    with pytest.raises(EngineError, match=r"round 0: an actor must survive .* Got 1 deaths"):
        on_ray(fragile(fuse), of="loop", actors=1)


def test_errors_in_an_actor_are_those_of_any_engine(cluster):
    engine = World("plain").engine("ray", of="loop")
    x, buffers = engine.task.initial
    ids = np.arange(4)
    steps = engine.data.steps(0, ids)
    with (
        closing(engine),
        pytest.raises(TrainingError, match=r"round 0, client .* smaller train\.lr"),
    ):
        train_cohort(engine, FedAvg(), Sgd(), float("inf"), Down(x), buffers, ids, steps, 0)


# Memories


@pytest.mark.parametrize("name", ["scaffold", "mifa", "osafl"])
def test_clients_leave_and_return_as_on_the_loop(cluster, name):
    """And some uploads are refused: what clients remember, and what the server counts, to the last bit."""
    sessions = ((0, 1, 2, 3, 4, 5), (0, 1, 2), (2, 6, 7), (3, 4, 5, 7), tuple(range(8)))
    e = Experiment(
        population=Pattern(clients=8, sessions=sessions, rounds=2),
        algorithm=TABLE[name].algorithm,
        train=Train(lr=0.1, batch_size=16, steps=2),
        start=Previous(trigger=Turnover(share=1.0)),
        faults=Faults(corrupt=0.2),
        engine=settings_of(kind="loop", workers=1),
        seed=4,
    )
    far = replace(e, engine=settings_of(kind="ray", of="loop", actors=2, workers=1))
    (here, mine), (there, theirs) = (
        (run(each, checkpoints=w), w) for each, w in ((e, Watching()), (far, Watching()))
    )
    assert any("refused" in line for line in here.rounds)
    assert torch.equal(here.model.x, there.model.x)
    assert len(mine.seen) == len(theirs.seen) == 10
    for one, other in zip(mine.seen, theirs.seen, strict=True):
        assert all(map(torch.equal, leaves(one), leaves(other)))


class Watching(Checkpoints):
    """After every round: what the server knows, and what all clients remember."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def after(self, rounds, state, memory, journal):
        _, kept = memory.kept(np.sort(memory.clients))
        self.seen.append((state.server, kept))


def stored(ids, memories):
    return ray.put(StoredRows(ids, np.array([memories[client] for client in ids.tolist()])))


def test_copies_do_not_pile_up(cluster):
    """Of twelve clients with one actor two take part in each round: at most STALE + 1 copies of each."""
    copies = RemoteMemory(np.zeros(12, dtype=np.int64), itertools.count(), WeakSet())
    memories = {}
    for t in range(60):
        ids = np.array([t % 12, (t + 5) % 12])
        whole, before = copies.is_stale(0), np.array(sorted(memories), dtype=np.int64)
        old = dict(memories)
        memories |= {int(client): 100.0 * t + client for client in ids}
        everyone = stored(before, old) if whole else None
        copies.note(0, ids, stored(ids, memories), everyone)
        assert sum(len(note.ids) for note in copies.of(0)) <= (STALE + 1) * 12
    assert len(copies) == 12
    taken = copies.take(np.arange(12), torch.zeros(()))
    assert taken.tolist() == [memories[client] for client in range(12)]


def test_memories_may_be_taken_out_and_put_back(cluster):
    """As a checkpoint does: a new engine with the old memories goes on as if nothing had happened."""
    algorithm, world = Scaffold(), World()
    whole = on_loop(algorithm, cohorts=FIVE[:2])
    first, second = (world.engine("ray", of="loop") for _ in range(2))
    x, buffers = first.task.initial
    server = algorithm.init(x, None)
    for t, engine in enumerate((first, second)):
        if engine is second:
            second.memory.put(*first.memory.kept())
        ids = np.array(FIVE[t])
        with closing(engine):
            steps = engine.data.steps(t, ids)
            result = train_cohort(
                engine, algorithm, RULES["sgd"], LR, server, buffers, ids, steps, t
            )
            engine.keep(result, ids)
        sizes = engine.data.holdings.sizes(t, ids)
        share = torch.from_numpy(sizes / sizes.sum()).to(x)
        buffers = Train(epochs=1).next_buffers(buffers, result.buffers, share)
        cohort = Cohort(torch.from_numpy(ids), share, result.walk, CLIENTS, t)
        server = algorithm.aggregate(server, result.up, cohort)
    assert torch.equal(server.x, whole.server.x)
    for client, row in whole.memories.items():
        kept = second.memory.take(np.array([client]), row)
        assert torch.equal(kept.mine.c[0], row.mine.c)


def test_a_run_goes_on_from_its_checkpoint(cluster, tmp_path):
    """Memories of clients in actors come into a checkpoint and back."""
    choice = settings_of(kind="ray", of="loop", actors=2)
    e = Experiment(
        algorithm=Scaffold(),
        population=Alternating(clients=3, sessions=2, rounds=3),
        start=Similarity(),
        engine=choice,
    )
    whole = run(replace(e, engine=settings_of(kind="loop")))
    for stop in (2, 5, None):
        journal = Journal(tmp_path / "journal.jsonl", fresh=False)
        checkpoints = Checkpoints(
            tmp_path / "checkpoints",
            stop=lambda journal=journal, stop=stop: len(journal.lines) == stop,
        )
        with closing(journal), suppress(Stopped):
            resumed = run(e, journal, checkpoints=checkpoints)
    assert torch.equal(resumed.model.x, whole.model.x)


# Shares of the data


def test_an_actor_gets_the_examples_of_its_clients_and_no_others():
    engine = World().engine("ray", actors=3)
    data, owners = engine.data, engine._owners
    everybody = np.arange(9)
    held = [data.share(np.flatnonzero(owners == actor)) for actor in range(3)]
    assert sum(len(share.examples) for share in held) == len(data.examples)
    counts = [int(data.holdings.sizes(0, np.flatnonzero(owners == a)).sum()) for a in range(3)]
    assert max(counts) - min(counts) <= 8  # of 78 examples; the largest client has 15
    for actor, share in enumerate(held):
        ids = np.flatnonzero(owners == actor)
        steps = data.steps(4, ids)
        mine, all_ = (each.picks(4, ids, steps, "batch") for each in (share, data))
        assert np.array_equal(mine.mask, all_.mask)
        one, other = (
            d.examples.inputs[torch.from_numpy(p.places)] for d, p in ((share, mine), (data, all_))
        )
        real = torch.from_numpy(all_.mask)
        assert torch.equal(one[real], other[real])
        strangers = np.setdiff1d(everybody, ids)
        assert share.holdings.sizes(0, strangers).sum() == 0
    engine.close()


def test_shares_of_stores_that_change_and_of_inputs_that_are_shared():
    rng, clients = np.random.default_rng(0), 6
    stream = Static.of_owners(np.repeat(np.arange(clients), 20), clients)
    pace = Pace(np.full(clients, 8), np.arange(clients), np.full(clients, 4), np.full(clients, 0.5))
    inputs, rows = torch.from_numpy(rng.normal(size=(15, 3))), torch.arange(120) % 15
    examples = Examples(inputs, torch.arange(120) % 7, rows=rows)
    data = ClientData(examples, Fifo(stream, pace, 3), Batching(batch_size=4, epochs=1), 5)
    ids = np.array([4, 1])
    share = data.share(ids)
    assert len(share.examples) == 40
    for t in (0, 3, 9):
        one, other = (each.picks(t, ids, each.steps(t, ids), "batch") for each in (share, data))
        assert np.array_equal(one.mask, other.mask)
        mine, theirs = (
            each.examples.take(torch.from_numpy(picks.places[picks.mask]))
            for each, picks in ((share, one), (data, other))
        )
        assert all(map(torch.equal, mine, theirs))


# What is refused


def test_settings_that_cannot_be():
    with pytest.raises(ConfigError, match=r"engine\.uploads must be 'stacked' unless"):
        settings_of(kind="ray", uploads="sums", lost="count")
    with pytest.raises(ConfigError, match=r"engine\.device must be 'auto' or 'cpu'"):
        settings_of(kind="ray", device="cuda")
    with pytest.raises(ConfigError, match=r"engine\.actors must be at least 1"):
        settings_of(kind="ray", actors=0)
    sums = settings_of(kind="ray", uploads="sums")
    with pytest.raises(ConfigError, match=r"engine\.uploads must be 'stacked' with Mifa"):
        Experiment(engine=sums, algorithm=Mifa())
    with pytest.raises(ConfigError, match=r"evaluation\.probes must be without probes that need"):
        Experiment(engine=sums, evaluation=Evaluation(probes=("drift",)))


def test_a_cluster_that_is_too_small_is_not_waited_for(cluster):
    with pytest.raises(EngineError, match=r"30 actors with 1 CPU each\. Got a cluster with 3"):
        on_ray(FedAvg(), actors=30)
    with pytest.raises(EngineError, match=r"2 actors with 1 GPU each\. Got a cluster with 0"):
        on_ray(FedAvg(), gpus=1.0)


def test_an_address_where_nobody_answers_is_named(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, but nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(EngineError, match=r"Got from RAY_ADDRESS = '127\.0\.0\.1:"):
            cluster_module._start(1)


def test_without_ray_the_way_out_is_named(monkeypatch):
    for name in ("engine", "pool", "memory"):
        monkeypatch.delitem(sys.modules, f"fedtide.engines.ray.{name}")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"pip install fedtide\[ray\]"):
        World().engine("ray")


# Many runs


GRID = """
population = { kind = "fixed", clients = 4, rounds = 3 }
train = { steps = 2 }

[compare]
algorithm = ["fedavg", "scaffold"]
"""


def test_runs_of_a_grid_are_spread_over_the_cluster(cluster, tmp_path):
    """Stopped at once, then gone on with: the same files as on this machine."""
    study, told = config.study("grid", tomllib.loads(GRID), GRID), []
    here = run_study(study, tmp_path / "here", jobs=1).folder.path
    with pytest.raises(Stopped):
        run_study(study, tmp_path, stop=lambda: True, over_ray=True)
    there = run_study(study, tmp_path, watch=told.append, resume=True, over_ray=True).folder.path
    assert sorted((news.cell, news.line["t"]) for news in told) == [
        (cell, t) for cell in range(2) for t in range(3)
    ]
    names = [sorted(file.relative_to(f) for file in f.rglob("*")) for f in (here, there)]
    assert names[0] == names[1]
    for name in names[0]:
        one, other = here / name, there / name
        if name.name == "journal.jsonl":
            assert list(map(untimed, read(one))) == list(map(untimed, read(other)))
        elif name.name == "model.safetensors":
            assert one.read_bytes() == other.read_bytes()


SEARCH = """
population = { kind = "fixed", clients = 4, rounds = 4 }
train = { steps = 1 }
tune = { trials = 5, at_once = 3, train.lr = { low = 0.01, high = 1, log = true } }
"""


def test_a_search_over_the_cluster_makes_the_same_choices(cluster, tmp_path):
    study = config.study("search", tomllib.loads(SEARCH), SEARCH)
    here = tune_study(study, tmp_path / "here", jobs=1).searches[0].trials
    there = tune_study(study, tmp_path, over_ray=True)
    for one, other in zip(here, there.searches[0].trials, strict=True):
        assert one._replace(seconds=0.0) == other._replace(seconds=0.0)
    assert len(list(there.folder.glob("trials/01-all/*/seed-1/journal.jsonl"))) == 5


def test_files_come_back_in_the_place_of_those_that_went(tmp_path):
    there = {
        "runs/a/journal.jsonl": b"1",
        "runs/a/checkpoints/1": b"2",
        "runs/b/journal.jsonl": b"3",
    }
    write_files(tmp_path, there)
    assert read_files(tmp_path, "runs/a") == {name: there[name] for name in list(there)[1::-1]}
    back = {"runs/a/run.json": b"4", "runs/a/journal.jsonl": b"12"}
    put_back(tmp_path, "runs/a", back)
    assert read_files(tmp_path, "runs/a") == back
    assert not (tmp_path / "runs/a/checkpoints").exists()
    assert read_files(tmp_path, "runs/b") == {"runs/b/journal.jsonl": b"3"}


def untimed(line):
    return {key: value for key, value in line.items() if key != "seconds"}


def test_clients_and_runs_are_not_both_spread():
    study = config.study("grid", tomllib.loads(STUDY), STUDY)
    with pytest.raises(
        ConfigError, match=r"engine\.kind must be another one than 'ray' with --ray"
    ):
        run_study(study, "nowhere", over_ray=True)
    assert not Path("nowhere").exists()


# On this machine, for a while


STUDY = """
population = { kind = "fixed", clients = 4, rounds = 2 }
engine = { kind = "ray", actors = 2 }
train = { steps = 2 }

[compare]
algorithm = ["fedavg", "scaffold"]
"""


def test_a_study_starts_ray_and_leaves_nobody_behind(tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    code, mark = f"{PATIENT}\nfrom fedtide.cli import main; main()", uuid.uuid4().hex
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "run", "small.toml", "--quiet"],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        | {MARK: mark},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    (one, two) = (tmp_path / "runs").rglob("run.json")
    assert "ray: 2 actors, each vectorised" in one.read_text()
    assert "ray: 2 actors, each vectorised" in two.read_text()
    assert_nobody_left(mark)
