"""Where the time went, added up from journals."""

import json

import pytest

from fedtide import config
from fedtide.measure.profile import PHASES, profile
from fedtide.run.execute import run_study
from fedtide.show.terminal import where_time_went

SMALL = """
[data]
name = "digits"
[population]
kind = "fixed"
clients = 4
rounds = 3
[train]
steps = 1
"""


def test_phases_are_added_up_over_rounds_and_runs():
    """Two runs of 2 and 1 rounds: 3 s of training and 1 s of evaluation, so 3/4 and 1/4."""
    one = [{"seconds": {"train": 1.0}}, {"seconds": {"train": 0.5, "evaluate": 1.0}}]
    phases = {phase.name: phase for phase in profile([one, [{"seconds": {"train": 1.5}}]])}
    training = phases[PHASES["train"]]
    assert training[1:] == (3.0, 0.75, 1000.0)
    assert phases[PHASES["evaluate"]].share == 0.25
    assert phases[PHASES["record"]].seconds == 0


def test_a_study_without_rounds_has_no_times():
    assert all(phase.seconds == phase.share == 0 for phase in profile([]))


def test_it_is_kept_in_the_studys_folder(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    folder, _ = run_study(config.load(path), tmp_path, jobs=1)
    table = where_time_went(folder)
    kept = json.loads((folder.path / "profile.json").read_text())
    assert [phase["name"] for phase in kept] == list(PHASES.values())
    assert table.row_count == len(PHASES)
    assert sum(phase["share"] for phase in kept) == pytest.approx(1)
    booked = {phase["name"]: phase["seconds"] for phase in kept}
    for phase in ("gather", "train", "evaluate", "record"):
        assert booked[PHASES[phase]] > 0, phase
