"""Models after a run: as modules again, and as files of other tools."""

import json
import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from huggingface_hub import PyTorchModelHubMixin
from safetensors.torch import load_file, save_file
from torch import nn

import fedtide
from fedtide.core.errors import ConfigError, OutputError
from fedtide.record.model import read_model
from fedtide.run.study import Cell, Study
from tests.cli.command import fedtide as command

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, hidden=4):
        super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 10))
"""
STUDY = """
[data]
normalise = "standard"
[population]
kind = "fixed"
clients = 4
rounds = 2
[train]
steps = 3
[compare]
train.model = [{ kind = "mlp", hidden = [8] }, { kind = "net.py:Net", hidden = 5 }]
"""


class Hub(nn.Module, PyTorchModelHubMixin):
    """A module that writes and reads Hugging Face folders."""

    def __init__(self, hidden: int = 3):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))

    def forward(self, inputs):
        return self.net(inputs)


def experiment(model):
    train = fedtide.Train(model=model, steps=2)
    return fedtide.Experiment(population=fedtide.Fixed(clients=4, rounds=1), train=train)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    (home / "net.py").write_text(NET)
    (home / "tide.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        outcome = fedtide.run_study(fedtide.load("tide.toml"), "runs", jobs=1)
    return home / outcome.folder.path


def accuracy(module, normalise="standard"):
    """Of a module on the test digits, without FedTide's evaluation."""
    inputs, targets = fedtide.Data(normalise=normalise).load().test.between(0, 10_000)
    with torch.no_grad():
        return float((module(inputs).argmax(1) == targets).double().mean())


@pytest.mark.parametrize("cell", ["01-*", "02-*"])
def test_a_model_is_loaded_with_its_weights(done, cell):
    """It classifies the test set as the run's last line says."""
    folder = next(done.glob(f"cells/{cell}/seed-0"))
    module = fedtide.load_model(folder)
    last = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])
    assert not module.training
    assert accuracy(module) == pytest.approx(last["accuracy"], abs=1e-12)
    values, about = read_model(folder / "model.safetensors")
    assert about["score"] == {"name": "accuracy", "value": last["accuracy"]}
    assert about["study"] == "tide"
    assert about["inputs"] == {
        "dtype": "float32",
        "pixels": "[0, 1]",
        "mean": [0.3054],
        "std": [0.3753],
    }
    assert {*about["layout"]["parameters"], *about["layout"]["buffers"]} == set(values)


def test_the_history_has_the_same_module():
    history = fedtide.run(experiment(fedtide.Mlp(hidden=(6,))))
    module = history.module()
    assert accuracy(module, "unit") == pytest.approx(history.rounds[-1]["accuracy"], abs=1e-12)
    packed = history.layout.pack(dict(module.named_parameters()))
    assert torch.equal(packed, history.model.x)


def test_the_user_s_own_module_stays_as_it_was():
    own = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    before = own[1].weight.detach().clone()
    history = fedtide.run(experiment(own))
    assert torch.equal(own[1].weight, before)
    assert not torch.equal(history.module()[1].weight, before)


def test_what_is_missing_is_said(done, tmp_path, monkeypatch):
    with pytest.raises(OutputError, match=r"must hold one model. Got 2: name one of .*seed-0"):
        fedtide.load_model(done)
    with pytest.raises(OutputError, match="must be the folder of a run that has ended"):
        fedtide.load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no model at all")
    with pytest.raises(OutputError, match="must be a model that FedTide wrote, in safetensors"):
        fedtide.load_model(tmp_path)
    file = shutil.copy(
        next(done.glob("cells/02-*/seed-0/model.safetensors")), tmp_path / "lone.safetensors"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no net.py here .* load_model\(path, module="):
        fedtide.load_model(file)
    save_file(load_file(file), tmp_path / "old.safetensors")
    with pytest.raises(ConfigError, match=r"FedTide 0.2 or older.* module="):
        fedtide.load_model(tmp_path / "old.safetensors")


def test_a_model_that_python_gave_needs_its_module(tmp_path):
    cell = Cell({}, experiment(Hub(hidden=3)))
    outcome = fedtide.run_study(Study(name="own", cells=(cell,), seeds=(0,)), tmp_path, jobs=1)
    with pytest.raises(ConfigError, match="Got an object of Hub, which was given from Python"):
        fedtide.load_model(outcome.folder.path)
    module = fedtide.load_model(outcome.folder.path, Hub(hidden=3))
    assert 0 < accuracy(module, "unit") < 1
    with pytest.raises(
        ConfigError, match=r"'net.1.weight' must have the shape \[3, 64\]. Got \[4, 64\] in Hub"
    ):
        fedtide.load_model(outcome.folder.path, Hub(hidden=4))
    with pytest.raises(ConfigError, match="Got 4 tensors that it does not have for Linear"):
        fedtide.load_model(outcome.folder.path, nn.Linear(64, 10))
    from fedtide.record.export import to_huggingface

    to_huggingface(module, tmp_path / "hub")
    inputs = torch.rand(3, 1, 8, 8)
    assert torch.equal(Hub.from_pretrained(tmp_path / "hub").eval()(inputs), module(inputs))


def test_exported_files_compute_the_same(done, tmp_path):
    folder = next(done.glob("cells/01-*/seed-0"))
    module, inputs = fedtide.load_model(folder), torch.rand(5, 1, 8, 8)
    for name, ending in (("state-dict", "pt"), ("onnx", "onnx")):
        told = command(
            "export", folder, "--format", name, "--out", tmp_path / f"m.{ending}", cwd=tmp_path
        )
        assert told.returncode == 0, told.stderr
        assert f"m.{ending}" in told.stdout
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(None, {"inputs": inputs.numpy()})[0]
    np.testing.assert_allclose(found, module(inputs).detach().numpy(), atol=1e-6)
    refused = command("export", folder, "--format", "huggingface", cwd=tmp_path)
    assert refused.returncode == 2
    assert "only a Hugging Face model, one with save_pretrained" in refused.stderr
