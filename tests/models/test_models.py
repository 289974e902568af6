"""Every kind of model: its size, its two halves, its gradients, and stacks of clients."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from fedtide.models import MODELS, EmbedHead


class Case(NamedTuple):
    shape: tuple[int, ...]
    classes: int
    parameters: int
    feature: int
    vocabulary: int = 0
    outputs: int = 0  # 0: one per class


MNIST, CIFAR, VIDEO = (1, 28, 28), (3, 32, 32), (3, 32, 33)
CASES = {
    "char-lstm": Case((80,), 80, 819_920, 256, vocabulary=80),
    "cifar-cnn": Case(CIFAR, 10, 541_094, 500),
    "fashion-cnn": Case(MNIST, 10, 1_206_590, 128, outputs=62),
    "fasttext": Case((64,), 4, 9_157_804, 300, vocabulary=30_522),
    "fedagg-cifar-cnn": Case(CIFAR, 10, 553_514, 512),
    "feddyn-cnn": Case(CIFAR, 10, 797_962, 192),
    "har-cnn": Case((9, 128), 6, 274_822, 128),
    "lenet5": Case(MNIST, 26, 121_742, 84),
    "linear": Case(MNIST, 10, 7_850, 10),
    "mcmahan-cnn": Case(MNIST, 10, 1_663_370, 512),
    "mlp": Case(MNIST, 10, 199_210, 200),
    "mnist-cnn": Case(MNIST, 10, 28_938, 1_568),
    "resnet18": Case(CIFAR, 10, 11_573_066, 256),
    "resnet34": Case((3, 64, 64), 200, 21_730_056, 256),
    "squeezenet": Case(VIDEO, 100, 773_796, 1_024),
    "svhn-cnn": Case(CIFAR, 10, 667_178, 256),
    "svhn-cnn-small": Case(CIFAR, 10, 620_362, 256),
    "vgg11": Case(CIFAR, 100, 9_271_780, 512),
    "video-cnn": Case(VIDEO, 100, 1_026_772, 240),
    "video-fcn": Case(VIDEO, 100, 3_533_156, 256),
    "video-lstm": Case((10,), 100, 1_920_500, 300, vocabulary=100),
}
NOT_VMAPPABLE = {"char-lstm", "video-lstm"}


def build(kind: str, seed: int = 0) -> nn.Module:
    case = CASES[kind]
    torch.manual_seed(seed)
    return MODELS[kind]().build(case.shape, case.classes, case.vocabulary)


def examples(kind: str, *lead: int) -> tuple[Tensor, Tensor]:
    case = CASES[kind]
    generator = torch.Generator().manual_seed(1)
    if case.vocabulary:
        inputs = torch.randint(case.vocabulary, (*lead, *case.shape), generator=generator)
    else:
        inputs = torch.randn(*lead, *case.shape, generator=generator)
    return inputs, torch.randint(case.classes, lead, generator=generator)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(MODELS)


@pytest.mark.parametrize("kind", CASES)
def test_size_halves_and_gradients(kind: str) -> None:
    case = CASES[kind]
    model = build(kind)
    assert model.training
    assert count(model) == case.parameters

    model.eval()  # in training dropout hides parts, and biases before BatchNorm have no gradient
    inputs, targets = examples(kind, 4)
    features = model.embed(inputs)
    logits = model(inputs)
    assert features.shape == (4, case.feature)
    assert logits.shape == (4, case.outputs or case.classes)
    assert torch.equal(model.head(features), logits)

    cross_entropy(logits, targets).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", sorted(set(CASES) - {"resnet34"}))
def test_equal_seeds_build_equal_models(kind: str) -> None:
    one, two, other = (build(kind, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.portable
@pytest.mark.parametrize("kind", sorted(set(CASES) - NOT_VMAPPABLE - {"resnet34"}))
def test_stacked_clients_have_the_gradients_of_single_ones(kind: str) -> None:
    # double: in single precision rounding moves the winner of a pool or the sign before a ReLU
    models = [build(kind, seed).eval().double() for seed in (0, 1)]
    inputs, targets = examples(kind, 2, 2)
    inputs = inputs.double() if inputs.is_floating_point() else inputs

    def loss(parameters, buffers, inputs, targets):
        return cross_entropy(functional_call(models[0], (parameters, buffers), inputs), targets)

    parameters, buffers = stack_module_state(models)
    stacked = vmap(grad(loss))(parameters, buffers, inputs, targets)
    for client, model in enumerate(models):
        cross_entropy(model(inputs[client]), targets[client]).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                stacked[name][client], parameter.grad, rtol=1e-9, atol=1e-12, msg=name
            )


@pytest.mark.portable
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("svhn-cnn", {"dropout": 0.0}),
        ("resnet18", {}),
        ("resnet18", {"norm": "group"}),
        ("vgg11", {"norm": "batch"}),
    ],
)
def test_stacked_clients_train_with_their_own_statistics(kind: str, settings: dict) -> None:
    case = CASES[kind]
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(MODELS[kind](**settings).build(case.shape, case.classes).double())
    inputs = examples(kind, 2, 4)[0].double()

    def forward(parameters, buffers, inputs):
        return functional_call(models[0], (parameters, buffers), inputs), buffers

    parameters, buffers = stack_module_state(models)
    buffers = {name: buffer.clone() for name, buffer in buffers.items()}
    logits, buffers = vmap(forward)(parameters, buffers, inputs)
    assert bool(buffers) == (settings.get("norm") != "group")
    for client, model in enumerate(models):
        torch.testing.assert_close(logits[client], model(inputs[client]), rtol=1e-7, atol=1e-9)
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[name][client], buffer, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "mlp", "mcmahan-cnn", "mnist-cnn", "fashion-cnn"])
def test_digits_fit(kind: str) -> None:
    model = MODELS[kind]().build((1, 8, 8), 10)
    assert model(torch.zeros(3, 1, 8, 8)).shape[0] == 3


@pytest.mark.parametrize("kind", ["cifar-cnn", "fedagg-cifar-cnn", "svhn-cnn", "svhn-cnn-small"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 11, 20)])
def test_other_images_fit(kind: str, shape: tuple[int, ...]) -> None:
    model = MODELS[kind]().build(shape, 7)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("kind", "least"), [("lenet5", 12), ("feddyn-cnn", 16), ("vgg11", 32)])
def test_smallest_images_fit(kind: str, least: int) -> None:
    model = MODELS[kind]().build((1, least, least), 5)
    assert model(torch.zeros(2, 1, least, least)).shape == (2, 5)


def test_settings_change_the_model() -> None:
    mlp = MODELS["mlp"](hidden=(5,)).build((4,), 3)
    assert count(mlp) == 4 * 5 + 5 + 5 * 3 + 3
    ten = MODELS["fashion-cnn"](outputs=0).build(MNIST, 10)
    assert ten(torch.zeros(2, *MNIST)).shape == (2, 10)
    assert count(MODELS["fasttext"](embedding=2).build((6,), 3, 50)) == 50 * 2 + 2 * 3 + 3


def test_resnet18_for_cifar100() -> None:
    assert count(MODELS["resnet18"]().build(CIFAR, 100)) == 11_596_196


def test_building_leaves_statistics_alone() -> None:
    for name, buffer in build("svhn-cnn").named_buffers():
        assert torch.all(buffer == (1 if name.endswith("running_var") else 0)), name


def test_mean_embedding_by_hand() -> None:
    """Words 1 and 3 have vectors (1, 2) and (5, 6): their mean is (3, 4), without padding."""
    embed = MODELS["fasttext"](embedding=2).build((4,), 3, 4).embed
    with torch.no_grad():
        embed.tokens.weight.copy_(torch.tensor([[9.0, 9.0], [1.0, 2.0], [7.0, 7.0], [5.0, 6.0]]))
    means = embed(torch.tensor([[1, 3, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]]))
    assert means.tolist() == [[3.0, 4.0], [5.0, 6.0], [0.0, 0.0]]


def test_own_modules_compose() -> None:
    model = EmbedHead(nn.Linear(3, 2), nn.Linear(2, 4))
    assert model(torch.zeros(1, 3)).shape == (1, 4)


def test_payloads_of_the_video_task_are_in_the_published_order():
    kinds = ("squeezenet", "video-cnn", "video-lstm", "video-fcn")
    sizes = [CASES[kind].parameters for kind in kinds]
    assert sizes == sorted(sizes)
