"""A run in pandas, Plotly and a notebook."""

import json
import sys

import pytest

import fedtide
from fedtide.core.errors import ConfigError
from fedtide.population.sessions import Alternating, Fixed
from fedtide.show.notebook import card, figure


@pytest.fixture(scope="module")
def history():
    return fedtide.run(
        fedtide.Experiment(
            population=Alternating(clients=3, sessions=3, rounds=2),
            train=fedtide.Train(steps=1),
            evaluation=fedtide.Evaluation(every=2),
        )
    )


def test_a_frame_has_a_row_per_round(history):
    frame = history.to_pandas()
    assert frame["t"].tolist() == [0, 1, 2, 3, 4, 5]
    assert frame["session"].tolist() == [0, 0, 1, 1, 2, 2]
    assert frame["accuracy"].isna().tolist() == [True, False] * 3
    assert frame["accuracy"][5] == history.rounds[5]["accuracy"]
    assert frame["seconds.train"][0] == history.rounds[0]["seconds"]["train"]
    assert frame["clients"][0] == history.rounds[0]["clients"]


def test_a_study_is_one_frame(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(
        "[population]\nkind = 'fixed'\nclients = 3\nrounds = 2\n[train]\nsteps = 1\n"
        "[compare]\ntrain.lr = [0.1, 0.2]\nseed = [1, 2]\n"
    )
    outcome = fedtide.run_study(fedtide.load(str(path)), str(tmp_path / "runs"), jobs=1)
    frame = outcome.to_pandas()
    assert list(frame.columns[:3]) == ["train.lr", "seed", "t"]
    assert frame.groupby(["train.lr", "seed"]).size().tolist() == [2, 2, 2, 2]
    folder, summary = outcome
    assert summary == json.loads((folder.path / "summary.json").read_text())


def test_without_pandas(history, monkeypatch):
    monkeypatch.setattr("fedtide.core.errors.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        history.to_pandas()
    assert str(caught.value) == (
        'to_pandas needs the package pandas. Got none installed. Run: pip install "fedtide[pandas]"'
    )


def test_importing_fedtide_leaves_pandas_alone():
    import subprocess

    code = "import fedtide, sys; assert not {'pandas', 'mlflow', 'wandb'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_figure_of_accuracy_and_loss(history):
    accuracy, loss = history.plot().data
    assert list(accuracy.x) == list(loss.x) == [2, 4, 6]
    assert list(accuracy.y) == [100 * line["accuracy"] for line in history.rounds[1::2]]
    assert list(loss.y) == [line["loss"] for line in history.rounds[1::2]]
    layout = history.plot().layout
    assert layout.xaxis.title.text == "round"
    assert layout.yaxis.title.text == "accuracy (%)"
    assert layout.yaxis2.title.text == "loss"
    assert [(band.x0, band.x1) for band in layout.shapes] == [(2.5, 4.5)]  # the second session


def test_one_session_has_no_bands():
    run = fedtide.Experiment(population=Fixed(clients=2, rounds=1), train=fedtide.Train(steps=1))
    assert not figure(fedtide.run(run).rounds).layout.shapes


def test_a_card_says_what_it_is(history):
    html = history._repr_html_()
    assert "FedAvg" in html
    assert f"{history.rounds[-1]['accuracy']:.1%}" in html
    assert html.count("<svg") == 1
    assert html.count(",") >= 3  # a point per test


def test_names_are_escaped():
    line = {"accuracy": None, "loss": None, "bytes_up": 0}
    html = card("<script>alert(1)</script>", "loop", [line])
    assert "<script>" not in html
    assert "not tested" in html
