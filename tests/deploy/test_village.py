"""The server's loop and real ClientApps, with a mailbox in place of the network."""

import importlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedtide import config, run
from fedtide.algorithms import ALGORITHMS
from fedtide.core.errors import ConfigError, EngineError
from fedtide.core.trees import leaves
from fedtide.data.holdings import distribute
from fedtide.deploy import roster as roster_module
from fedtide.deploy.client import NodeState
from fedtide.deploy.events import Events
from fedtide.deploy.roster import Roster
from fedtide.deploy.server import deployed, going_on, serve
from fedtide.deploy.template import init
from fedtide.engines.kinds import FlowerSettings
from fedtide.population.process import Participation
from fedtide.record.checkpoint import Checkpoints
from fedtide.record.deployment import newest
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study
from tests.deploy.village import SHARE, Clock, Village

NODES = {70: {"partition-id": 2}, 71: {"partition-id": 0}, 72: {"partition-id": 1}}
CLIENT_1 = 72
EQUAL = ["fedavg", "scaffold", "moon"]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Deadlines pass by a clock of the test's own; training takes no time on it."""
    clock = Clock()
    monkeypatch.setattr(Village, "clock", clock)
    monkeypatch.setattr(roster_module, "monotonic", clock.monotonic)
    monkeypatch.setattr(roster_module, "sleep", clock.sleep)
    return clock


def written(
    folder,
    algorithm="scaffold",
    population='kind = "fixed"',
    rounds=4,
    work='model = "linear", steps = 3',
    train="",
    flower="deadline = 5",
    more="",
):
    """A small study for three clients, as a file in this folder."""
    (folder / "study.toml").write_text(f"""
data = {{ name = "digits", partition = {{ kind = "dirichlet", alpha = 0.5 }} }}
population = {{ {population}, clients = 3, rounds = {rounds} }}
algorithm = "{algorithm}"
train = {{ {work}, lr = 0.1{train} }}
engine = {{ kind = "loop", workers = 1, flower = {{ wait = 0.5, {flower} }} }}
{more}
""")
    return config.load(folder / "study.toml")


def experiment(study, village, hook=SHARE):
    """The study's one experiment with the clients of this village."""
    e = study.cells[0].experiment
    roster = Roster(village, e.engine.flower, 3)
    roster.gather(len(village.contexts) - len(village.absent | village.asleep))
    return deployed(0, e, roster, hook)


def in_round(t, action):
    """Do this when a letter of round t is posted, and undo nothing."""

    def before(message):
        about = message.content.config_records.get("config", {})
        if about.get("t") == t:
            action(message)

    return before


def models(folder):
    return {path.parts[-3]: path.read_bytes() for path in folder.glob("cells/*/*/*.safetensors")}


def test_three_clients_equal_the_loop_bit_for_bit(tmp_path):
    """FedAvg, SCAFFOLD and MOON, five rounds, clients numbered in another order than they connect."""
    study = written(tmp_path, rounds=5, more=f"[compare]\nalgorithm = {EQUAL}\nseed = [5]\n")
    real = serve(study, Village(tmp_path, NODES), SHARE, tmp_path / "real", 3)
    simulated, _ = run_study(study, tmp_path / "simulated", jobs=1)
    assert len(models(real)) == 3
    assert models(real) == models(simulated.path)
    journals = [cell.runs[5] for cell in StudyFolder(real).journals()]
    assert all(line["cohort"] == 3 and "lost" not in line for runs in journals for line in runs)


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHMS if kind not in EQUAL])
def test_every_other_algorithm_equals_the_loop(tmp_path, kind):
    """Whatever an algorithm sends down, up or remembers goes over the wire and comes back the same."""
    work = 'model = { kind = "mlp", hidden = [8] }, epochs = 1'
    study = written(tmp_path, kind, rounds=2, work=work)
    history = run(experiment(study, Village(tmp_path, NODES)))
    assert torch.equal(history.model.x, run(study.cells[0].experiment).model.x)


def test_what_a_client_carries_stays_in_its_node(tmp_path):
    """The state of a local optimiser with momentum: equal to the loop, and never in a reply."""
    study = written(
        tmp_path, "fedavg", train=', optimiser = { kind = "sgd", momentum = 0.9, carried = true }'
    )
    village = Village(tmp_path, NODES)
    history = run(experiment(study, village))
    assert torch.equal(history.model.x, run(study.cells[0].experiment).model.x)
    kept = [name for name in village.contexts[70].state if name.endswith("arrays")]
    assert len(kept) == 2  # after the last errand, and before it
    replies = [
        set(r.content.array_records["arrays"]) for r in village.replies if r.content.array_records
    ]
    assert all(names == {"up/delta"} for names in replies)


@dataclass(frozen=True, kw_only=True)
class Without(Participation):
    """Everybody, but client 1 not in round 2."""

    def draw(self, who, t, session, seed):
        return session.clients[session.clients != 1] if t == 2 else session.clients


def test_a_reply_after_the_deadline_leaves_no_trace(tmp_path, clock):
    """Client 1 trains in round 2, too late: dropped, counted when it comes, and its memory is the one
    before, so that the run is the one in which it did not take part."""
    study = written(tmp_path, flower="deadline = 1.0, misses = 2")
    village = Village(tmp_path, NODES)

    def slow(message):
        t = message.content.config_records["config"]["t"]
        village.slow = {CLIENT_1: 1.2} if t == 2 else {}
        if t == 3:
            clock.sleep(0.3)  # by now the late reply is there

    village.before = lambda message: slow(message) if message.content.config_records else None
    history = run(experiment(study, village))
    assert [line["cohort"] for line in history.rounds] == [3, 3, 2, 3]
    assert [line.get("lost", 0) for line in history.rounds] == [0, 0, 1, 0]
    assert [line.get("late", 0) for line in history.rounds] == [0, 0, 0, 1]
    assert history.rounds[2]["clients"] == [0, 2]
    simulated = run(replace(study.cells[0].experiment, participation=Without()))
    assert torch.equal(history.model.x, simulated.model.x)


def test_arrivals_and_departures_are_sessions_and_bring_a_new_start(tmp_path):
    """Client 2 is late, client 1 sleeps from round 4 on and returns: DIMC's start acts on what is seen."""
    more = 'start = { kind = "similarity", P = 1, trigger = "always" }'
    study = written(
        tmp_path, "fedprox", 'kind = "live"', rounds=10, flower="deadline = 0.7", more=more
    )
    village = Village(tmp_path, NODES)
    village.absent = {70}

    def news(message):
        t = message.content.config_records.get("config", {}).get("t")
        if t == 1:
            village.absent = set()
        if t in (4, 7):
            village.asleep = {CLIENT_1} if t == 4 else set()

    village.before = news
    lines = run(experiment(study, village)).rounds
    arrived = {line["t"]: line["arrived"]["ids"] for line in lines if "arrived" in line}
    left = {line["t"]: line["left"]["ids"] for line in lines if "left" in line}
    assert arrived[0] == "0-1"
    assert "2" in arrived.values()
    assert left[5] == "1"
    assert [t for t, who in arrived.items() if who == "1" and t > 5]
    assert lines[4]["lost"] == 1
    assert lines[-1]["session"] == len(arrived) - 1 == 3
    starts = [line for line in lines if "start" in line]
    assert [line["t"] for line in starts] == list(arrived)
    assert "start_weights" in starts[-1]
    assert starts[-1]["gradient_rounds"] == 1


SOUP = 'start = { kind = "soup", margin = 0.0 }'
NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
"""
TURNS = 'kind = "pattern", sessions = [[0, 1], [2], [0, 1], [2], [0, 1, 2]]'


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_a_soup_tested_by_real_clients_equals_the_loop(tmp_path, buffers):
    """Models travel once: the second message of a test has weights only."""
    (tmp_path / "own.py").write_text(NET)
    study = written(
        tmp_path,
        "moon",
        TURNS,
        rounds=2,
        work='model = "own.py:Net", steps = 3',
        train=f', buffers = "{buffers}"',
        more=SOUP,
    )
    village = Village(tmp_path, NODES)
    history, simulated = run(experiment(study, village)), run(study.cells[0].experiment)
    assert torch.equal(history.model.x, simulated.model.x)
    for mine, loop in zip(history.rounds, simulated.rounds, strict=True):
        assert mine.get("start_losses") == loop.get("start_losses")
        assert mine.get("start_weights") == loop.get("start_weights")
    assert sum("start_losses" in line for line in history.rounds) == 3
    tests = [m for m in village.messages if m.metadata.message_type == "evaluate.losses"]
    brought = [any("models" in name for name in m.content.array_records["arrays"]) for m in tests]
    assert brought == [True, True, False, False, True, False, *[True] * 3, *[False] * 3]


def test_a_federation_that_is_started_again_finds_its_models(tmp_path):
    """The second run's first start has the models of the first run's sessions; the folder then has all."""
    study = written(tmp_path, "fedavg", TURNS, rounds=1, more=SOUP)
    kept = tmp_path / "models"

    def serve_again(number):
        going = going_on(study, str(kept))
        village, out = Village(tmp_path, NODES), tmp_path / f"real {number}"
        folder = StudyFolder(serve(going, village, SHARE, out, 3, str(kept)))
        (lines,) = [lines for cell in folder.journals() for lines in cell.runs.values()]
        return [line["start"] for line in lines if "start" in line], lines

    assert serve_again(1)[0] == [0, 1, 2, 3, 4]
    numbers, lines = serve_again(2)
    assert numbers == [5, 6, 7, 8, 9]
    assert set(lines[0]["start_from"]) <= {0, 1, 2, 3, 4}
    told = json.loads((kept / "archive.json").read_text())
    assert told["number"] == 9
    assert [path.name for path in kept.glob("current-*")] == ["current-0009.safetensors"]


def test_a_client_that_lost_the_models_is_left_out(tmp_path):
    study = written(tmp_path, "fedavg", TURNS, rounds=2, more=SOUP)
    village = Village(tmp_path, NODES)

    def forget(message):
        state = village.contexts[CLIENT_1].state
        names = message.content.array_records.get("arrays", {})
        if message.metadata.message_type == "evaluate.losses" and "models/0/x" not in names:
            for name in [name for name in state if name.startswith("candidates")]:
                del state[name]

    village.before = forget
    lines = run(experiment(study, village)).rounds
    answers = [line["test_answers"] for line in lines if "test_answers" in line]
    assert answers == [3, 2, 5]


def test_losses_that_make_no_sense(tmp_path):
    study = written(tmp_path, "fedavg", TURNS, rounds=2, more=SOUP)
    village = Village(tmp_path, NODES)
    plain = village.app

    def spoiled(message, context):
        reply = plain(message, context)
        if message.metadata.message_type == "evaluate.losses" and context.node_id == CLIENT_1:
            reply.content["losses"] = MetricRecord({"losses": [1.0], "examples": -1.0})
        return reply

    village.app = spoiled
    history = run(experiment(study, village))
    assert history.rounds[4]["test_answers"] == 2  # client 0, twice


def test_enough_replies_end_a_round(tmp_path, clock):
    """Over-selection: two of three are enough; the third comes later and is counted."""
    study = written(tmp_path, "fedavg", rounds=4, flower="deadline = 20, enough = 0.6")
    village = Village(tmp_path, NODES)
    village.slow = {CLIENT_1: 0.3}
    village.before = lambda message: clock.sleep(0.15)  # three to a round: by then it is there
    lines = run(experiment(study, village)).rounds
    assert clock.now < 15  # no round waited for its deadline
    assert [line["cohort"] for line in lines] == [2, 2, 2, 2]
    assert sum(line.get("late", 0) for line in lines) >= 1


def test_too_few_replies_change_nothing(tmp_path):
    study = written(tmp_path, rounds=2, flower="deadline = 0.6, minimum = 3")
    village = Village(tmp_path, NODES)
    village.before = in_round(1, lambda message: village.asleep.add(CLIENT_1))
    history = run(experiment(study, village))
    one = run(
        replace(
            study.cells[0].experiment,
            population=replace(study.cells[0].experiment.population, rounds=1),
        )
    )
    assert torch.equal(history.model.x, one.model.x)
    assert (history.rounds[1]["cohort"], history.rounds[1]["lost"]) == (0, 3)


def test_a_client_that_fails_and_one_that_sends_nonsense(tmp_path):
    """An exception on a client, and an update that is not a number: counted, and the run goes on."""
    study = written(tmp_path, "fedavg", rounds=3)
    village = Village(tmp_path, NODES)

    def spoil(message: Message):
        if message.metadata.dst_node_id == CLIENT_1:
            arrays = message.content.array_records["arrays"]
            bad = {k: np.full_like(a.numpy(), np.nan) for k, a in arrays.items()}
            message.content["arrays"] = ArrayRecord(
                {k: ArrayRecord([v])["0"] for k, v in bad.items()}
            )

    village.before = in_round(1, spoil)
    lines = run(experiment(study, village)).rounds
    assert [line["cohort"] for line in lines] == [3, 2, 3]
    assert lines[1]["failed"] == 1


def test_a_node_that_lost_its_state_is_noticed(tmp_path):
    study = written(tmp_path, rounds=3)
    village = Village(tmp_path, NODES)
    village.before = in_round(2, lambda message: village.contexts[CLIENT_1].state.clear())
    lines = run(experiment(study, village)).rounds
    assert [line.get("forgot", 0) for line in lines] == [0, 0, 1]


class Known(Checkpoints):
    """After every round: the server's state, and what the server knows of every client's memory."""

    def __init__(self):
        super().__init__()
        self.rounds = []

    def after(self, rounds, state, memory, journal):
        ids, kept = memory.kept(memory.clients)
        self.rounds.append((state, ids, kept))


CHANGES = 'kind = "pattern", sessions = [[0, 1, 2], [0, 1], [1, 2], [0, 2], [0, 1, 2]]'
GOES_ON = 'start = { kind = "previous", trigger = { kind = "turnover", share = 1.0 } }'
MEANS = {"mifa": "g", "fedvarp": "y", "afa-cs": "g", "scaffold": "c"}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("loses", [False, True], ids=["", "and client 1 loses its memory"])
def test_the_server_counts_the_clients_that_exist(tmp_path, name, loses):
    """Its mean is that of what it knows clients remember, which is what they do remember."""
    study = written(tmp_path, name, CHANGES, rounds=2, more=GOES_ON)
    village, known = Village(tmp_path, NODES), Known()
    if loses:  # its last stay begins in round 8
        village.before = in_round(8, lambda m: village.contexts[CLIENT_1].state.clear())
    e = experiment(study, village)
    history = run(e, checkpoints=known)
    if not loses:
        simulated = run(study.cells[0].experiment).model.x
        assert (history.model.x - simulated).norm() < 1e-6 * simulated.norm()
    assert sum(line.get("forgot", 0) for line in history.rounds) == loses
    for now, ids, kept in known.rounds:
        rows = next(leaves(kept.row))[np.isin(ids, now.members.present)]
        mean = rows.double().sum(0) / len(now.members.present)
        counted = getattr(now.server, MEANS[name]).double()
        assert (counted - mean).norm() < 1e-5 * mean.norm() + 1e-7
    told = unpacked_row(village, e.algorithm)
    own = next(leaves(kept.row))[ids.tolist().index(1)]
    assert (own - told).norm() < 1e-5 * told.norm()


def unpacked_row(village, algorithm):
    """What client 1 truly remembers: the row of its newest note."""
    state = village.contexts[CLIENT_1].state
    newest = max(
        int(n.split()[1]) for n in state if n.startswith("batch ") and n.endswith("arrays")
    )
    row = NodeState(state, "batch").read(newest)
    return next(leaves(algorithm.row(row.mine)))[0]


def own_data(folder, test):
    """A hook whose clients hold what the study's partition gives them, as their own tensors."""
    e = config.load(folder / "study.toml").cells[0].experiment
    dataset = e.data.load()
    held = distribute(dataset, e.data.partition, e.population.groups(10), e.seed)

    def of_client(settings):
        mine = torch.from_numpy(held.held(0, np.array([settings["partition-id"]])))
        pair = (dataset.train.inputs[mine], dataset.train.targets[mine])
        return pair, pair

    def of_server():
        return (dataset.test.inputs, dataset.test.targets) if test else None

    return SimpleNamespace(
        OWN=True, CLASSES=10, VOCABULARY=0, of_client=of_client, of_server=of_server
    )


@pytest.mark.parametrize("test", [True, False])
def test_data_of_the_clients_own(tmp_path, test):
    """The same examples from the clients' hooks: the same bits; who has test examples tests."""
    study = written(tmp_path, rounds=3)
    hook = own_data(tmp_path, test)
    history = run(experiment(study, Village(tmp_path, NODES, hook), hook))
    simulated = run(study.cells[0].experiment)
    assert torch.equal(history.model.x, simulated.model.x)
    assert "holdings" not in history.rounds[0]
    here = [line["accuracy"] for line in history.rounds]
    there = [line["accuracy"] for line in simulated.rounds]
    assert (here == there) == test
    assert all(0 < accuracy < 1 for accuracy in here)


def test_nobody_answers_the_test(tmp_path):
    study = written(tmp_path, rounds=2, flower='deadline = 0.5, tests = "clients"')
    village = Village(tmp_path, NODES)
    village.before = lambda m: (
        village.asleep.update(NODES) if m.metadata.message_type == "evaluate" else None
    )
    lines = run(experiment(study, village)).rounds
    assert [line["accuracy"] for line in lines] == [None, None]


def test_who_must_test(tmp_path):
    study = written(tmp_path, flower='deadline = 5, tests = "server"')
    hook = own_data(tmp_path, test=False)
    with pytest.raises(ConfigError, match=r"engine.flower.tests must be 'clients' or 'auto'"):
        experiment(study, Village(tmp_path, NODES, hook), hook)


def test_numbers_of_clients(tmp_path):
    """Without a number the lowest free one; a restarted client takes its number over; too high is refused."""
    written(tmp_path)
    village = Village(tmp_path, {1: {"partition-id": 1}, 2: {}, 3: {}, 4: {"partition-id": 9}})
    roster = Roster(village, FlowerSettings(wait=0.2), 3)
    assert roster.gather(3).tolist() == [0, 1, 2]
    assert roster.cards[1].node == 1
    village.contexts[5] = village.contexts.pop(1)
    roster.look()
    assert sorted(roster.cards) == [0, 2]
    assert roster.gather(3).tolist() == [0, 1, 2]
    assert roster.cards[1].node == 5


def test_two_nodes_with_one_number(tmp_path):
    """The one that introduces itself last has it, once and for all."""
    written(tmp_path)
    village = Village(tmp_path, {1: {"partition-id": 0}})
    roster = Roster(village, FlowerSettings(wait=0.2), 3)
    roster.gather(1)
    village.contexts[2] = village.contexts[1]
    for _ in range(4):
        roster.look()
    assert {client: card.node for client, card in roster.cards.items()} == {0: 2}


def test_introductions_and_tests_that_make_no_sense(tmp_path):
    """Whoever answers with something else is left out; the server goes on."""
    study = written(tmp_path, rounds=1, flower='deadline = 3, tests = "clients"')
    village = Village(tmp_path, NODES)
    spoiled = {70: "query", CLIENT_1: "evaluate"}
    answer = village._answer

    def spoil(message):
        reply, about = answer(message), message.metadata
        is_spoiled = spoiled.get(about.dst_node_id) == about.message_type
        return Message(RecordDict(), reply_to=message) if is_spoiled else reply

    village._answer = spoil
    (line,) = run(experiment(study, village)).rounds
    assert line["clients"] == [0, 1]
    assert 0 < line["accuracy"] < 1


def test_noise_for_real_clients_cannot_be_computed_again(tmp_path):
    """From the operating system: two runs differ, epsilon is the real one, no amplification is claimed."""
    privacy = (
        "privacy = { clip = 0.5, noise = 2.0 }\nparticipation = { kind = 'uniform', clients = 2 }"
    )
    study = written(tmp_path, rounds=3, more=privacy)
    first, second = (run(experiment(study, Village(tmp_path, NODES))) for _ in range(2))
    assert not torch.equal(first.model.x, second.model.x)
    last = first.rounds[-1]
    often = max(sum(client in line["clients"] for line in first.rounds) for client in range(3))
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    accountant.compose(dp_accounting.GaussianDpEvent(1.0), often)
    assert last["epsilon"] == accountant.get_epsilon(1e-5)
    assert "simulated_epsilon" not in last


def test_nobody_comes(tmp_path, clock):
    study = written(tmp_path)
    with pytest.raises(EngineError, match="Start the SuperNodes"):
        serve(study, Village(tmp_path, {}), SHARE, tmp_path / "out")
    assert clock.now < 5
    with pytest.raises(EngineError, match="Got 30 seconds without one"):
        serve(study, Village(tmp_path, {}), SHARE, tmp_path / "out", wait=30)
    assert 30 < clock.now < 35


def broken(where):
    """A hook whose data.py fails, as a module of an app."""

    def of_client(settings):
        if settings["partition-id"] in where:
            raise KeyError("the column 'age'\nfedtide: done: elsewhere")
        return own

    examples = (np.zeros((20, 64), np.float32), np.arange(20) % 10)
    own = (examples, examples)
    return SimpleNamespace(
        OWN=True, CLASSES=10, VOCABULARY=0, of_client=of_client, of_server=lambda: None
    )


def test_an_error_in_data_py_is_named_at_once(tmp_path):
    """Type, file and line; what it says only if the client shares it, on one line."""
    study = written(tmp_path)
    shared = {70: {"partition-id": 0, "share_errors": True}, 71: {"partition-id": 1}}
    village = Village(tmp_path, shared, broken({0, 1}))
    with pytest.raises(EngineError, match="must introduce itself") as caught:
        serve(study, village, broken({0, 1}), tmp_path / "out", 2)
    place = r"client [01]: KeyError at test_village.py:\d+, in of_client"
    said = str(caught.value)
    assert len(re.findall(place, said)) == 2
    assert said.count("the column") == 1
    assert "\n" not in said
    _, state = newest(tmp_path / "out")
    assert state.ended == "failed"
    assert len([words for words in state.news if "cannot take part: client" in words]) == 2


def test_a_client_that_fails_does_not_stop_the_others(tmp_path):
    study = written(tmp_path, rounds=1, flower='deadline = 5, tests = "clients"')
    hook = broken({1})
    serve(study, Village(tmp_path, NODES, hook), hook, tmp_path / "out", 3)
    _, state = newest(tmp_path / "out")
    assert state.ended == "done"
    assert {client for client, about in state.clients.items() if about.here} == {0, 2}
    assert any("client 1: KeyError" in words for words in state.news)


def test_more_clients_than_the_population(tmp_path):
    study = written(tmp_path)
    with pytest.raises(ConfigError, match=r"at most 3, the population of the study\. Got 4"):
        serve(study, Village(tmp_path, NODES), SHARE, tmp_path / "out", 4)


def test_a_client_that_leaves_is_not_waited_for(tmp_path, clock):
    """It says goodbye in the middle of a round: the round ends long before its deadline."""
    study = written(tmp_path, "fedavg", rounds=2, flower="deadline = 1000, misses = 9")
    village = Village(tmp_path, NODES)
    village.before = in_round(1, lambda message: village.absent.add(CLIENT_1))
    lines = run(experiment(study, village)).rounds
    assert [line["cohort"] for line in lines] == [3, 2]
    assert clock.now < 10


def test_waits_are_mentioned(tmp_path, clock, monkeypatch):
    """What is waited for is said every few seconds."""
    monkeypatch.setattr("fedtide.deploy.events.monotonic", clock.monotonic)
    study = written(tmp_path, rounds=1, flower="deadline = 30, minimum = 1").cells[0].experiment
    village = Village(tmp_path, NODES)
    village.before = in_round(0, lambda message: village.asleep.add(CLIENT_1))
    said = []
    roster = Roster(village, study.engine.flower, 3, Events(say=said.append))
    roster.gather(3)
    run(deployed(0, study, roster, SHARE))
    waits = [words for words in said if "waiting for clients [1]" in words]
    assert 7 <= len(waits) <= 10
    assert said[-1] == "client 1 has left: it was silent until the deadline"


def test_a_broadcast_is_packed_once(tmp_path):
    """The messages of a round share the arrays of the broadcast."""
    study = written(tmp_path, rounds=1)
    village = Village(tmp_path, NODES)
    sent, push = [], village.push_messages

    def noted(messages):
        sent.append([m.content for m in messages])
        return push(messages)

    village.push_messages = noted
    run(experiment(study, village))
    rounds = [each for each in sent if each and "arrays" in each[0]]
    assert all(content["arrays"] is each[0]["arrays"] for each in rounds for content in each)
    assert {content["config"]["client"] for content in rounds[0]} == {0, 1, 2}


CLINICS = Path(__file__).parents[2] / "examples" / "three_clinics"


def test_the_example_with_csv_files(tmp_path, monkeypatch):
    """Three clients with files of their own, as a newcomer would copy them."""
    init(CLINICS / "clinics.toml", tmp_path / "app", CLINICS / "data.py")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    hook = importlib.import_module("clinics_app.data")
    nodes = {
        70 + n: {"partition-id": n, "file": str(CLINICS / f"clinic-{n}.csv")} for n in range(3)
    }
    shutil.copy(CLINICS / "clinics.toml", tmp_path / "study.toml")
    study = config.load(tmp_path / "study.toml")
    folder = serve(study, Village(tmp_path, nodes, hook), hook, tmp_path / "out", 3)
    (lines,) = (lines for cell in StudyFolder(folder).journals() for lines in cell.runs.values())
    assert len(lines) == 20
    assert lines[-1]["accuracy"] > 0.88
    _, state = newest(tmp_path / "out")
    assert [state.clients[n].examples for n in range(3)] == [120, 144, 191]
