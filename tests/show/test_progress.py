"""Progress in a notebook, and classes that are defined there; in a real one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedtide.show.progress import followed, in_notebook

CELLS = [
    """
from dataclasses import dataclass
import fedtide
from fedtide.extend import FedAvg
from fedtide.show import progress

progress.SECONDS = 0.0  # a picture for each round

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    def aggregate(self, server, up, cohort):
        return self.follow(server, up.delta.median(0).values)

crowd = fedtide.Fixed(clients=4, rounds=3)
e = fedtide.Experiment(algorithm=Mine(), population=crowd, train=fedtide.Train(steps=1))
study = fedtide.Study(name="own", cells=(fedtide.Cell({}, e),), seeds=(1, 2))
""",
    "history = fedtide.run(e)\nhistory",
    "fedtide.run_study(study, jobs=2)",
    """
kept = fedtide.run_study(study)
print(kept.folder.path.name, kept.results.rows[0].numbers["loss"].mean)
""",
    # The class is changed, as people do in notebooks: nothing of the first run may be taken over.
    """
@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    def aggregate(self, server, up, cohort):
        return self.follow(server, 0 * up.delta.sum(0))

from dataclasses import replace
still = replace(study, cells=(fedtide.Cell({}, replace(e, algorithm=Mine())),))
other = fedtide.run_study(still)
print(other.folder.path.name, other.results.rows[0].numbers["loss"].mean)
""",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("notebook_of.py"), folder],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_shows_its_progress_and_then_a_card(outputs):
    bar, card = outputs[1]
    assert bar["output_type"] == "display_data"
    assert bar["data"]["text/html"] == ""  # removed in the end
    assert "<th style='text-align:left'>algorithm</th>" in card["data"]["text/html"]


def test_other_processes_cannot_import_from_a_notebook(outputs):
    (error,) = outputs[2]
    assert error["ename"] == "ConfigError"
    assert error["evalue"] == (
        "jobs must be 1 with Mine, which other processes cannot import: it is defined in a notebook or "
        "inside of a function. Got 2. Move it to a file beside this one and import it "
        "from there, or use over_ray=True."
    )


def test_results_of_a_changed_class_are_computed_anew(outputs):
    first, second = (outputs[place][-1]["text"].split() for place in (3, 4))
    assert (first[0], second[0]) == ("1", "2")
    assert first[1] != second[1]


def test_outside_of_a_notebook_nothing_is_shown(capsys):
    assert not in_notebook()
    with followed(None, 3) as tell:
        tell({"accuracy": 0.5})
    assert capsys.readouterr().out == ""
    told = []
    with followed(told.append, 3) as tell:
        tell(1)
    assert told == [1]
