"""Shards and merged folders: the results of one undivided study."""

import json
from dataclasses import replace

import pytest

from fedtide import config
from fedtide.core.errors import ConfigError
from fedtide.measure.across import Across
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study
from fedtide.run.merge import merge
from fedtide.run.study import Shard
from fedtide.show.across import headlines, results_tables

TABLE = {
    "population": {"kind": "fixed", "clients": 4, "rounds": 3},
    "train": {"steps": 2, "lr": 0.2, "model": "linear"},
}


def study(seeds=(1, 2, 3), shard=None, algorithm=("fedavg", "scaffold"), name="tide", **more):
    compare = {"algorithm": list(algorithm), "seed": list(seeds)}
    plan = config.study(name, {**TABLE, "compare": compare, **more})
    return replace(plan, shard=shard)


def numbers(outcome):
    return [
        {seed: {**run, "wall_seconds": 0} for seed, run in row.metrics.items()}
        for row in outcome.results.rows
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_study(study(), tmp_path_factory.mktemp("whole"), jobs=1)


@pytest.mark.parametrize("parts", [2, 4])
def test_shards_together_are_the_study(whole, tmp_path, parts):
    made = [
        run_study(study(shard=Shard(n + 1, parts)), tmp_path, jobs=1, name=f"shard {n + 1}").folder
        for n in range(parts)
    ]
    counts = [len(list(folder.path.rglob("run.json"))) for folder in made]
    assert sum(counts) == 6
    assert max(counts) - min(counts) <= 1
    merged = merge(made, tmp_path, "all of it")
    assert merged.folder.path.name == f"{parts + 1}-all-of-it"
    assert numbers(merged) == numbers(whole)
    assert merged.results.pairs.keys() == whole.results.pairs.keys()
    assert "shard" not in merged.results.about
    assert merged.folder.is_finished


def test_other_seeds_and_cells_are_joined(whole, tmp_path):
    one = run_study(study(seeds=[1, 2]), tmp_path, jobs=1).folder
    two = run_study(study(seeds=[3], algorithm=["scaffold", "fedavg"]), tmp_path, jobs=1).folder
    merged = merge([one, two], tmp_path)
    assert numbers(merged) == numbers(whole)


def test_what_is_missing_is_said(tmp_path):
    made = run_study(study(shard=Shard(1, 3)), tmp_path, jobs=1).folder
    other = run_study(study(shard=Shard(2, 3)), tmp_path, jobs=1).folder
    merged = merge([made, other], tmp_path)
    assert [len(row.finished) for row in merged.results.rows] == [2, 2]
    assert "of 6 runs, 4 finished" in (merged.folder.path / "report.html").read_text()


def test_a_shard_resumes_as_that_shard(tmp_path):
    first = run_study(study(shard=Shard(1, 2)), tmp_path, jobs=1).folder
    again = run_study(study(shard=Shard(1, 2)), tmp_path, jobs=1, resume=True).folder
    assert again.path == first.path
    other = run_study(study(shard=Shard(2, 2)), tmp_path, jobs=1, resume=True).folder
    assert other.path != first.path


def test_folders_that_do_not_fit_are_refused(whole, tmp_path):
    other = run_study(study(train={**TABLE["train"], "lr": 0.1}), tmp_path, jobs=1).folder
    with pytest.raises(ConfigError, match="must have the same settings in all folders"):
        merge([whole.folder, other], tmp_path)
    named = run_study(study(name="wave"), tmp_path, jobs=1).folder
    with pytest.raises(ConfigError, match="must have the same study"):
        merge([whole.folder, named], tmp_path)


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/x", "-1/2"])
def test_shards_that_are_none(text):
    with pytest.raises(ConfigError, match="--shard"):
        Shard.read(text)


def test_runs_of_different_code_are_a_caution(whole, tmp_path):
    one = run_study(study(seeds=[1]), tmp_path, jobs=1).folder
    for file in one.path.rglob("identity.json"):
        identity = json.loads(file.read_text())
        identity["origin"] |= {"fedtide": "9.9", "key": "other"}
        file.write_text(json.dumps(identity))
    two = run_study(study(seeds=[2]), tmp_path, jobs=1, reuse=False).folder
    (said,) = [c for c in merge([one, two], tmp_path).results.cautions if "not all made" in c]
    assert "fedtide 9.9 and" in said


def test_compare_by_hand(tmp_path):
    fast = run_study(study(train={**TABLE["train"], "lr": 0.5}), tmp_path, jobs=1, name="fast")
    slow = run_study(study(train={**TABLE["train"], "lr": 0.1}), tmp_path, jobs=1)
    found = Across.read([StudyFolder.newest(tmp_path / "tide/fast"), slow.folder])
    assert [side.title for side in found.sides] == ["tide/1-fast", "tide/2"]
    assert found.differences == {"train.lr": ["0.5", "0.1"]}
    ((group, (pair,)), _) = found.pairs("accuracy")
    assert group.name == "FedAvg"
    gaps = [
        fast.results.rows[0].metrics[s]["accuracy"] - slow.results.rows[0].metrics[s]["accuracy"]
        for s in (1, 2, 3)
    ]
    assert (pair.first, pair.second) == (0, 1)
    assert pair.difference == pytest.approx(sum(gaps) / 3)
    assert headlines(found)[0].startswith("FedAvg: ")
    assert len(list(results_tables(found))) == 1
    assert found.as_json()["results"]["accuracy"][0]["setting"] == "FedAvg"


def test_compare_studies_without_a_common_setting(whole, tmp_path):
    other = run_study(study(algorithm=["fedprox"], name="wave"), tmp_path, jobs=1)
    found = Across.read([whole.folder, other.folder])
    (group,) = found.groups
    assert group.name == "the best setting of each"
    assert len(found.pairs("accuracy")[0][1]) == 1
