"""What models refuse, and the sentence they say."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedtide.core.errors import ConfigError
from fedtide.models import MODELS

IMAGES = {
    "cifar-cnn": 8,
    "fashion-cnn": 6,
    "fedagg-cifar-cnn": 8,
    "feddyn-cnn": 16,
    "lenet5": 12,
    "mcmahan-cnn": 4,
    "mnist-cnn": 4,
    "resnet18": 8,
    "resnet34": 8,
    "svhn-cnn": 8,
    "svhn-cnn-small": 8,
    "vgg11": 32,
}


@pytest.mark.parametrize(("kind", "least"), IMAGES.items())
def test_images_of_the_wrong_shape(kind: str, least: int) -> None:
    must = f"train.model '{kind}' must be given images \\[C, H, W\\] of at least {least} x {least}"
    for shape in [(64,), (1, least, least - 1), (1, 2, 40, 40)]:
        with pytest.raises(ConfigError, match=must):
            MODELS[kind]().build(shape, 10)


@pytest.mark.parametrize("kind", sorted(set(MODELS) - {"char-lstm", "fasttext", "video-lstm"}))
def test_tokens_for_a_model_of_numbers(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}' must be given numbers.*vocabulary of 80"):
        MODELS[kind]().build((80,), 80, 80)


@pytest.mark.parametrize("kind", ["char-lstm", "fasttext", "video-lstm"])
@pytest.mark.parametrize(("shape", "vocabulary"), [((80,), 0), ((1, 8, 8), 80)])
def test_numbers_for_a_model_of_tokens(kind: str, shape: tuple[int, ...], vocabulary: int) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}' must be given tokens"):
        MODELS[kind]().build(shape, 10, vocabulary)


def test_series_of_the_wrong_shape() -> None:
    for shape in [(561,), (9, 3), (1, 28, 28)]:
        with pytest.raises(ConfigError, match=r"'har-cnn' must be given series \[C, T\]"):
            MODELS["har-cnn"]().build(shape, 6)


def test_fewer_outputs_than_classes() -> None:
    with pytest.raises(ConfigError, match=r"at least the number of classes, 10\. Got 5"):
        MODELS["fashion-cnn"](outputs=5).build((1, 28, 28), 10)


def backbone_file(folder: Path, *, counts: bool = True) -> tuple[Path, dict[str, torch.Tensor]]:
    """A resnet18 as timm and torchvision name it, classifier included."""
    torch.manual_seed(7)
    state = MODELS["resnet18"]().build((3, 32, 32), 10).embed.backbone.state_dict()
    if not counts:
        state = {name: it for name, it in state.items() if not name.endswith("tracked")}
    file = folder / "resnet18.safetensors"
    save_file(state | {"fc.weight": torch.zeros(9, 512), "fc.bias": torch.zeros(9)}, file)
    return file, state


@pytest.mark.parametrize("counts", [True, False])
def test_weights_fill_the_backbone(tmp_path: Path, counts: bool) -> None:
    file, state = backbone_file(tmp_path, counts=counts)
    assert {"conv1.weight", "bn1.running_mean", "layer2.0.downsample.1.bias"} < state.keys()
    torch.manual_seed(8)
    loaded = MODELS["resnet18"](weights=str(file)).build((3, 32, 32), 4)
    now = loaded.embed.backbone.state_dict()
    assert all(torch.equal(now[name], state[name]) for name in state)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    file, _ = backbone_file(tmp_path)
    fits = "train.model.weights must be the weights of a resnet.*tensors do not fit, the first is"
    for kind, settings, shape in [
        ("resnet34", {}, (3, 32, 32)),
        ("resnet18", {"norm": "group"}, (3, 32, 32)),
        ("resnet18", {}, (1, 32, 32)),
    ]:
        with pytest.raises(ConfigError, match=fits):
            MODELS[kind](weights=str(file), **settings).build(shape, 10)


def test_weights_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"not a safetensors file")
    for file in [broken, tmp_path / "missing.safetensors", tmp_path]:
        with pytest.raises(ConfigError, match=r"train.model.weights must be a safetensors file"):
            MODELS["resnet18"](weights=str(file)).build((3, 32, 32), 10)
