"""Accuracy by how often clients took part: by hand, in a whole run and in its report."""

import numpy as np
import pytest

from fedtide.config import study
from fedtide.measure.fairness import by_shares, participations
from fedtide.measure.fairness import fairness as fairness_of
from fedtide.run.execute import run_study
from fedtide.run.loop import run


def fairness(counts, labels, by_label):
    """The view by the proxy."""
    return fairness_of(counts, by_shares(labels, by_label), by_label)


def test_participations():
    counts = participations([[0, 2], [2], [], [2, 3]], 5)
    assert counts.tolist() == [1, 0, 3, 1, 0]
    assert participations([[], []], 3).tolist() == [0, 0, 0]


def test_groups_by_hand():
    """Counts 4, 1, 0, 3: the mean is 2. Labels 0 and 1 with accuracies 0.9 and 0.5; label 2 is not tested.

    Client 0: (3 * 0.9 + 1 * 0.5) / 4 = 0.8 and client 3: 0.9 came often, mean 0.85
    Client 1: 0.5 came rarely; client 2: 0.9 / 2 + 0.5 / 2 = 0.7 never (its label 2 is left out)
    """
    labels = np.array([[3, 1, 0], [0, 2, 0], [1, 1, 7], [5, 0, 0]])
    view = fairness(np.array([4, 1, 0, 3]), labels, {0: 0.9, 1: 0.5})
    groups = view["groups"]
    assert {name: group["clients"] for name, group in groups.items()} == {
        "often": 2, "rarely": 1, "never": 1, "all": 4
    }  # fmt: skip
    accuracies = [groups[name]["accuracy"] for name in ("often", "rarely", "never", "all")]
    assert accuracies == pytest.approx([0.85, 0.5, 0.7, 0.725])
    assert groups["all"]["worst"] == pytest.approx(0.5)  # the worst tenth: one of four
    assert view["labels"] == {"0": 0.9, "1": 0.5}
    assert view["histogram"] == {"rounds": [0, 1, 2, 3, 4], "clients": [1, 1, 0, 1, 1]}


def test_an_empty_group_has_no_accuracy():
    view = fairness(np.array([2, 2]), np.array([[1], [1]]), {0: 0.5})
    assert view["groups"]["never"] == {"clients": 0, "accuracy": None, "worst": None}
    assert view["groups"]["often"]["clients"] == 2


def test_clients_without_a_tested_label_are_left_out():
    view = fairness(np.array([1, 3]), np.array([[0, 4], [2, 0]]), {0: 0.5})
    assert view["groups"]["all"] == {"clients": 1, "accuracy": 0.5, "worst": 0.5}


def test_nobody_ever_came():
    view = fairness(np.zeros(3, dtype=int), np.ones((3, 1), dtype=int), {0: 0.5})
    assert [view["groups"][g]["clients"] for g in ("often", "rarely", "never")] == [0, 0, 3]


def test_a_long_histogram_has_few_bins():
    view = fairness(np.arange(1000), np.ones((1000, 1), dtype=int), {0: 0.5})
    assert view["histogram"]["rounds"] == list(range(0, 1000, 50))
    assert view["histogram"]["clients"] == [50] * 20


TABLE = {
    "data": {"name": "digits", "partition": "sorted"},
    "population": {"kind": "fixed", "clients": 20, "rounds": 12},
    "train": {"steps": 3},
    "evaluation": {"every": 4, "fairness": True},
    "participation": {"kind": "fast", "of": {"kind": "beta", "rate": 0.2}, "q": 0.3},
}


def test_in_a_run():
    """The last line has the view; the mean over labels by their examples is the accuracy itself."""
    history = run(study("test", TABLE).runs[0].experiment)
    assert all("fairness" not in line for line in history.rounds[:-1])
    view = history.rounds[-1]["fairness"]
    counts = np.zeros(20, dtype=int)
    for line in history.rounds:
        counts[line["clients"]] += 1
    assert view["groups"]["never"]["clients"] == (counts == 0).sum()
    assert sum(view["histogram"]["clients"]) == 20
    assert all(isinstance(line["snapshot"], bool) for line in history.rounds)
    share = np.mean([line["snapshot"] for line in history.rounds])
    assert history.metrics()["snapshot_share"] == share > 0
    some = view["groups"]["all"]["accuracy"]
    assert some == pytest.approx(history.rounds[-1]["accuracy"], abs=0.02)  # sorted: equal labels


def test_in_the_report(tmp_path):
    folder, summary = run_study(study("test", TABLE), tmp_path, jobs=1)
    title, page = "Accuracy of clients by how often they took part", folder.path / "report.html"
    assert title in page.read_text()
    assert "How often clients took part" in page.read_text()
    assert "snapshot_share" in summary["cells"][0]["metrics"]
    plain = TABLE | {"evaluation": {"every": 4}, "participation": "full"}
    folder, summary = run_study(study("plain", plain), tmp_path, jobs=1)
    assert title not in (folder.path / "report.html").read_text()
    assert "snapshot_share" not in summary["cells"][0]["metrics"]
