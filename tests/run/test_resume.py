"""A resumed run is the same run: every algorithm, every start, every participation, bit for bit."""

import itertools
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedtide import config
from fedtide.algorithms import ALGORITHMS
from fedtide.population.participation import PARTICIPATION
from fedtide.record.checkpoint import Checkpointing, Checkpoints, Stopped
from fedtide.record.journal import Journal, read
from fedtide.run.loop import run
from fedtide.starts import STARTS

TRACE = "client,minute,available\n" + "".join(
    f"{client},{minute},{(client + minute // 10) % 3 != 0:d}\n"
    for client in range(8)
    for minute in range(60)
)
SETTINGS = {
    "uniform": {"clients": 2},
    "regularised": {"clients": 2},
    "bernoulli": {"rate": 0.6},
    "markov": {"rate": 0.6},
    "cyclic": {"groups": 2},
    "diurnal": {"round_minutes": 120.0, "day": 0.5},
    "fast": {"adaptive": True, "clients": 2, "of": {"kind": "markov", "rate": 0.6}},
}


def triples():
    """Every algorithm, every start and every participation at least once; all triples if asked for."""
    rooms = (ALGORITHMS, STARTS, PARTICIPATION)
    if os.environ.get("FEDTIDE_RESUME") == "all":
        return list(itertools.product(*rooms))
    count = max(map(len, rooms))
    turns = zip(*(itertools.cycle(room) for room in rooms), strict=True)
    stateful = [("scaffold", start, "fast") for start in STARTS]
    return [*itertools.islice(turns, count), *stateful]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text(TRACE)
    phones = path.with_name("phones.csv")
    lines = ["user,timestamp,plugged,battery,wifi"]
    for user in range(2):
        for minute in range(0, 1440, 5):
            state = "ac" if (minute // 60 + user) % 2 else "no"
            lines.append(f"{user},{60 * minute},{state},unknown,reachable_via_wifi")
    phones.write_text("\n".join(lines) + "\n")
    return {"trace": {"file": str(path)}, "phones": {"file": str(phones)}}


def experiment(algorithm, start, participation, recording, **changes):
    table = {
        "population": {"kind": "alternating", "clients": 4, "sessions": 3, "rounds": 2},
        "algorithm": algorithm,
        "start": start,
        "participation": {
            "kind": participation,
            **SETTINGS.get(participation, {}),
            **recording.get(participation, {}),
        },
        "train": {
            "epochs": 1,
            "model": {"kind": "mlp", "hidden": [8]},
            "batch_size": 64,
            "optimiser": {"kind": "sgd", "momentum": 0.5},
        },
        "evaluation": {"fairness": True},
    }
    return config.study("resumed", {**table, **changes}).cells[0].experiment


def in_pieces(e, folder, stops, **pace):
    """The run, stopped after these numbers of rounds and resumed each time."""
    for stop in (*stops, None):
        journal = Journal(folder / "journal.jsonl", fresh=False)
        checkpoints = Checkpoints(
            folder / "checkpoints",
            Checkpointing(**pace),
            lambda journal=journal, stop=stop: len(journal.lines) == stop,
        )
        try:
            return run(e, journal, checkpoints=checkpoints)
        except Stopped:
            assert stop is not None
        finally:
            journal.close()
    raise AssertionError("it never came to its end")


def same(one, other):
    assert [without_seconds(line) for line in one.rounds] == [
        without_seconds(line) for line in other.rounds
    ]
    assert torch.equal(one.model.x, other.model.x)
    assert one.model.buffers.keys() == other.model.buffers.keys()
    for name, buffer in one.model.buffers.items():
        assert torch.equal(buffer, other.model.buffers[name])


def without_seconds(line):
    return {key: value for key, value in line.items() if key != "seconds"}


@pytest.mark.parametrize(("algorithm", "start", "participation"), triples())
def test_stopped_and_resumed(algorithm, start, participation, recording, tmp_path):
    e = experiment(algorithm, start, participation, recording)
    resumed = in_pieces(e, tmp_path, [1, 4])
    same(run(e), resumed)
    assert read(tmp_path / "journal.jsonl") == resumed.rounds


def test_optimisers_that_clients_carry(recording, tmp_path):
    train = {"steps": 2, "optimiser": {"kind": "adam", "carried": True}, "memories": "keep"}
    e = experiment("moon", "similarity", "markov", recording, train=train)
    same(run(e), in_pieces(e, tmp_path, [2, 5], rounds=1))


def test_clocks_and_batteries(recording, tmp_path):
    network = {
        "kind": "wireless",
        "deadline_seconds": 1.0,
        "channel": {"kind": "umi", "place": "moving", "shadow": "path", "fading": "block"},
        "computing": {"kind": "flops", "per_parameter": 2.0},
        "fleet": {"battery_joules": [1e-6, 1e-4], "charging_watts": 1e-5},
    }
    e = experiment("fedavg", "similarity", "fast", recording, network=network)
    whole = run(e)
    same(whole, in_pieces(e, tmp_path, [2, 5], rounds=1))
    assert any(line["stragglers"] for line in whole.rounds)


def test_buffers_that_clients_keep(recording, tmp_path):
    e = experiment("scaffold", "average", "uniform", recording)
    torch.manual_seed(0)
    parts = (nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    own = replace(e.train, model=nn.Sequential(*parts), buffers="local", steps=2, epochs=0)
    e = replace(e, train=own)
    same(run(e), in_pieces(e, tmp_path, [1, 3], rounds=2))


def test_a_crash_between_two_checkpoints_costs_only_the_rounds_since(recording, tmp_path):
    e = experiment("scaffold", "similarity", "fast", recording)
    journal = Journal(tmp_path / "journal.jsonl")

    def crash(line):
        if line["t"] == 4:
            raise RuntimeError("out of power")

    with pytest.raises(RuntimeError):
        run(e, journal, crash, Checkpoints(tmp_path / "checkpoints", Checkpointing(rounds=2)))
    journal.close()
    assert len(read(tmp_path / "journal.jsonl")) == 5  # the last checkpoint knows four
    seen = []
    journal = Journal(tmp_path / "journal.jsonl", fresh=False)
    resumed = run(e, journal, seen.append, Checkpoints(tmp_path / "checkpoints"))
    journal.close()
    same(run(e), resumed)
    assert seen == resumed.rounds  # whoever watches sees every line


def test_faults_attackers_privacy_stores_and_batteries(recording, tmp_path):
    """What else may change from round to round, all at once."""
    e = experiment(
        "scaffold",
        "similarity",
        "fast",
        recording,
        data={"stores": {"kind": "fifo", "capacity": [40, 80], "slots": 8}},
        network={
            "kind": "wireless",
            "fleet": {"battery_joules": 0.002, "charging_watts": 1e-5},
            "pause_seconds": 10.0,
        },
        faults={"crash": 0.1, "lost_upload": 0.2, "corrupt": 0.1},
        defence="median",
    )
    same(run(e), in_pieces(e, tmp_path, [1, 3, 4]))
