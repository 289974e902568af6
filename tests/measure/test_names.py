"""Settings as people say them."""

import pytest

from fedtide.algorithms import ALGORITHMS
from fedtide.data.datasets import DATASETS
from fedtide.measure.names import TITLES, names, title
from fedtide.measure.results import Results
from fedtide.run.kinds import ROOMS
from tests.show.made import folder, run


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([{}], ["all"]),
        ([{"algorithm": "fedprox"}, {"algorithm": "scaffold"}], ["FedProx", "SCAFFOLD"]),
        ([{"algorithm.mu": 0.1}, {"algorithm.mu": 1}], ["mu = 0.1", "mu = 1"]),
        ([{"algorithm": {"kind": "fedprox", "mu": 0.1}}], ["FedProx (mu = 0.1)"]),
        ([{"algorithm": "own.py:Fade"}], ["Fade"]),
        (
            [{"algorithm": "fedavg", "start": {"kind": "similarity", "R": 10}, "train.lr": 0.1}],
            ["FedAvg with similarity (R = 10) (lr = 0.1)"],
        ),
        (
            [{"start.P": 1, "algorithm.P": 2}],
            ["start.P = 1, algorithm.P = 2"],
        ),
        (  # two kinds of the same name: settings in full
            [{"start": "average"}, {"defence": "average"}],
            ["start = average", "defence = average"],
        ),
    ],
)
def test_names(settings, expected):
    assert names(settings) == expected


def test_every_algorithm_and_dataset_has_a_title():
    plain = {"continuous", "label-smoothing", "digits", "blank", "video", "natural"}
    for name in [*ALGORITHMS.built_in, *DATASETS]:
        assert name in TITLES or name in plain, f"add {name} to TITLES in measure/names.py"


def test_every_title_belongs_to_a_kind():
    known = {name for room in ROOMS.values() for name in room} | set(DATASETS)
    assert set(TITLES) <= known
    for name, shown in TITLES.items():
        letters = shown.lower().replace(" ", "-")
        assert letters.replace("-", "") == name.replace("-", "")
        assert title(name) == shown


def over(tmp_path, cells, seeds=(1, 2, 3)):
    made = [
        (settings, {s: run([score + (s * 7919 % 5) / 1000 * k]) for s in seeds})
        for k, (settings, score) in enumerate(cells)
    ]
    return Results.read(folder(tmp_path, made, seeds=seeds))


def test_rows_are_compared_within_their_problem(tmp_path):
    cells = [
        ({"data.name": data, "algorithm": kind}, score)
        for data, scores in (("mnist", (0.9, 0.8)), ("svhn", (0.7, 0.5)), ("digits", (0.8, 0.75)))
        for kind, score in zip(("fedavg", "fedprox"), scores, strict=True)
    ]
    found = over(tmp_path, cells)
    assert [problem.name for problem in found.problems] == ["MNIST", "SVHN", "digits"]
    assert [(p.first, p.second) for p in found.pairs["accuracy"]] == [(0, 1), (2, 3), (4, 5)]
    assert found.ranks.ranks == {"FedAvg": 1.0, "FedProx": 2.0}
    summary = found.summary()
    assert summary["ranks"]["problems"] == 3
    assert summary["comparisons"]["accuracy"][0]["first"] == "MNIST with FedAvg"


def test_a_sweep_over_data_alone_is_one_problem(tmp_path):
    found = over(tmp_path, [({"data.partition.alpha": a}, a) for a in (0.1, 0.3, 0.5)])
    assert len(found.problems) == 1
    assert len(found.pairs["accuracy"]) == 3
    assert found.ranks is None


def test_many_rows_are_compared_with_the_best_one(tmp_path):
    found = over(tmp_path, [({"algorithm.mu": n}, n / 20) for n in range(14)])
    pairs = found.pairs["accuracy"]
    assert len(pairs) == 13
    assert all(pair.first == 13 for pair in pairs)
    assert min(pair.p_holm / pair.p for pair in pairs) > 13  # corrected for all 91 pairs
