"""`fedtide new`: a study that runs, in an editor's schema, from options or from questions."""

import json
import os
import pty
import sys
import tomllib

import jsonschema
import pytest

from fedtide import config
from fedtide.config.template import MODELS, POPULATIONS, Answers, new_study
from fedtide.data.datasets import DATASETS
from fedtide.run.kinds import ROOMS
from tests.cli.command import fedtide


def test_a_new_study_runs(tmp_path):
    done = fedtide("new", "mine.toml", "--population", "alternating", "--clients", 4, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Next: fedtide check mine.toml, then fedtide run mine.toml" in done.stdout
    text = (tmp_path / "mine.toml").read_text()
    assert text.startswith("#:schema fedtide.schema.json\n")
    assert max(map(len, text.splitlines())) <= 100
    schema = json.loads((tmp_path / "fedtide.schema.json").read_text())
    jsonschema.validate(tomllib.loads(text), schema)
    done = fedtide("run", "mine.toml", "--jobs", 1, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "soup" in done.stdout


@pytest.mark.parametrize("population", POPULATIONS)
def test_every_dataset_and_population(population):
    for data in DATASETS:
        study = config.study("x", tomllib.loads(new_study("x.toml", Answers(data, population))))
        assert len(study.runs) == 9
    assert set(MODELS.values()) <= set(ROOMS["models"])


def test_methods_that_work_in_epochs_get_epochs():
    text = new_study("x.toml", Answers(compare=["fedagg", "fedavg"]))
    assert 'question = "Which algorithm is best on digits: FedAgg or FedAvg?"' in text
    assert config.study("x", tomllib.loads(text)).cells[0].experiment.train.epochs == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "minst"), "--data: 'minst' is not known. Did you mean 'mnist'?"),
        (("--compare", "fedavgg"), "is no algorithm and no start. Did you mean 'fedavg'?"),
        (("--compare", "fedavg", "--compare", "soup"), "algorithms only, or starts only"),
        (("--clients", 1), "--clients must be at least 2. Got 1."),
        (("--population", "tide"), "--population: 'tide' is not known."),
    ],
)
def test_wrong_answers_are_refused(tmp_path, options, message):
    done = fedtide("new", "mine.toml", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "mine.toml").write_text("precious")
    done = fedtide("new", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Got mine.toml, which exists" in done.stderr
    assert (tmp_path / "mine.toml").read_text() == "precious"
    assert "Write mine.toml" in fedtide("new", "mine", cwd=tmp_path).stderr


def test_questions_at_a_terminal(tmp_path):
    """Answers are typed into a terminal; Enter takes the default."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = "from fedtide.cli import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", command, "new", "asked.toml"])
    os.write(terminal, b"\nalternating\n6\n\nsoup, previous\n2\n")
    said = b""
    try:
        while part := os.read(terminal, 4096):
            said += part
    except OSError:  # the end of a terminal
        pass
    assert os.waitpid(pid, 0)[1] == 0, said.decode()
    assert b"Do clients come and go?" in said
    study = config.load(tmp_path / "asked.toml")
    assert [cell.label for cell in study.cells] == ["start = soup", "start = previous"]
    assert study.seeds == (1, 2)
    assert study.cells[0].experiment.population.clients == 6
