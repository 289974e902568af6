"""Mistakes that were made once, and what became of them."""

import pytest
import torch
from torch import nn

from fedtide import Data, Experiment, Train, config, from_tensors, run
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.errors import ConfigError, OutputError
from fedtide.population.sessions import Fixed
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study

SMALL = {"population": {"kind": "fixed", "clients": 4, "rounds": 2}, "train": {"steps": 1}}


class Between(nn.Module):
    """Has an `embed` and a `head`, and something between them."""

    def __init__(self):
        super().__init__()
        self.embed, self.mid, self.head = nn.Linear(64, 8), nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, inputs):
        return self.head(torch.relu(self.mid(self.embed(inputs.flatten(1)))))


def test_a_module_of_ones_own_runs_its_own_forward():
    module = Between()
    before = module.mid.weight.clone()
    history = run(
        Experiment(
            population=Fixed(clients=3, rounds=2), train=Train(model=module, steps=2, lr=0.5)
        )
    )
    after = history.layout.unpack(history.model.x)["mid.weight"]
    assert not torch.equal(before, after)


def test_frozen_parameters_stay_as_they_are():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    module[1].bias.requires_grad_(False)
    before = module[1].bias.clone()
    history = run(
        Experiment(
            population=Fixed(clients=3, rounds=2), train=Train(model=module, steps=2, lr=0.5)
        )
    )
    assert history.layout.names == ("1.weight",)
    assert torch.equal(history.module()[1].bias, before)


def test_servers_that_mirror_their_clients_do_not_keep_memories():
    with pytest.raises(
        ConfigError, match=r"train.memories must be 'carry' or 'reset' with Scaffold"
    ):
        Experiment(algorithm=Scaffold(), train=Train(steps=1, memories="keep"))


def test_a_batch_larger_than_everything_is_everything():
    inputs, targets = torch.rand(30, 2), torch.arange(30) % 2
    data = Data(name=from_tensors((inputs, targets), (inputs, targets)))
    history = run(
        Experiment(
            data=data,
            population=Fixed(clients=3, rounds=1),
            train=Train(epochs=1, batch_size=10**12),
        )
    )
    assert history.rounds[0]["steps"] == 3


def test_set_cannot_be_lost_in_the_grid(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('[train]\nsteps = 1\n[compare]\nstart = ["cold", "previous"]\n')
    for change in ("start.bogus=5", "start=cold"):
        with pytest.raises(ConfigError, match="the grid of the study decides this"):
            config.load(path, [change])
    assert len(config.load(path, ["compare.start=['cold']"]).cells) == 1


def test_what_only_a_draw_would_show_is_found_before_anything_is_written(tmp_path):
    table = {
        **SMALL,
        "population": {
            "kind": "pattern",
            "clients": 4,
            "sessions": [[0, 1, 2, 3], [0, 1]],
            "rounds": 1,
        },
        "participation": {"kind": "uniform", "clients": 3},
    }
    with pytest.raises(ConfigError, match="2 clients that exist in session 1"):
        run_study(config.study("late", table), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_unknown_datasets_and_folders(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'cifar10'"):
        config.study("s", {**SMALL, "data": {"name": "cifer10"}})
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="must be the folder of a study"):
        StudyFolder(tmp_path / "file").journals()
