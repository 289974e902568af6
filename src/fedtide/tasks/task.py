"""A task: a model as a function of its flat vector, and a loss."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fedtide.core.errors import ConfigError
from fedtide.core.layout import Layout
from fedtide.core.types import Buffers, Inputs, Model, Outputs, Vector
from fedtide.tasks.kinds import Classification
from fedtide.tasks.objective import Objective

Parameters = Vector | Mapping[str, Tensor]  # all in one, or by name


class _Both(nn.Module):
    """Returns features and outputs of a model; unless the model `is_split`, its features are its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.splits = bool(getattr(model, "is_split", False))

    def forward(self, inputs: Inputs) -> Outputs:
        if self.splits:
            model = cast(Any, self.model)
            features = _called(model.embed, inputs)
            return Outputs(features, model.head(features))
        found = _called(self.model, inputs)
        logits = found if isinstance(found, Tensor) else _logits(found)
        return Outputs(logits, logits)


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of named tensors; empty if there are none."""
    found = blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found.update(content.numpy().data)
    return found.hexdigest() if tensors else ""


def unsaved(module: nn.Module) -> Iterator[str]:
    """The names of buffers that are not part of the module's state, such as the numbers of places."""
    for path, part in module.named_modules(remove_duplicate=False):
        yield from (f"{path}.{name}".lstrip(".") for name in part._non_persistent_buffers_set)


def _called(module: Callable[..., Any], inputs: Inputs) -> Any:
    """What a module returns; named inputs are keyword arguments, as of models of Hugging Face."""
    return module(inputs) if isinstance(inputs, Tensor) else module(**inputs)


def _logits(found: Any) -> Any:
    """The field `logits` of what a model returned, which is a mapping or an object; else what it returned."""
    return (
        found.get("logits", found)
        if isinstance(found, Mapping)
        else getattr(found, "logits", found)
    )


class Task:
    """A module as a function of a vector of its trained parameters, and what it learns.

    Frozen parameters, those that do not require gradients, and constants, buffers that are not saved with the
    module, are held once and shared; of the other values the task keeps copies.
    """

    def __init__(self, module: nn.Module, objective: Objective | None = None) -> None:
        parameters = dict(module.named_parameters())
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        if len({(p.dtype, p.device) for p in trained.values()}) != 1:
            raise ConfigError(
                "train.model must be a module whose trained parameters have one dtype and one device. "
                f"Got {type(module).__name__} with {len(trained)} parameters of several or none. "
                "Convert them with module.float() before the run; frozen ones may have another dtype."
            )
        constants, buffers = set(unsaved(module)), dict(module.named_buffers())
        self.frozen = {n: p.detach() for n, p in parameters.items() if n not in trained}
        self.constants = {n: buffers.pop(n).detach() for n in constants & buffers.keys()}
        self.name = type(module).__name__
        self.objective = objective or Classification()
        self.layout = Layout.of(module)
        self.initial = Model(
            self.layout.pack(trained), {n: b.detach().clone() for n, b in buffers.items()}
        )
        self.has_convolutions = any(
            isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in module.modules()
        )
        self.has_dropout = any(isinstance(part, _DropoutNd) for part in module.modules())
        self.has_batch_norm = any(isinstance(part, _BatchNorm) for part in module.modules())
        # functional_call swaps values in and out of the module, so each thread needs a copy of its
        # own; on the meta device a copy is structure without storage. All is copied in one call: tied
        # parameters would come apart otherwise.
        shells: dict[int, Tensor] = {id(b): b.detach().to("meta") for b in module.buffers()}
        shells |= {
            id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad)
            for p in parameters.values()
        }
        self._structure: nn.Module = copy.deepcopy(_Both(module), shells)
        self._copies = threading.local()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example: [B]."""
        return self.objective.losses(outputs, targets)

    def weights(self, targets: Tensor) -> Tensor | None:
        """How much each example counts, [B]; None: all the same."""
        return self.objective.weight(targets) if self.objective.is_weighted else None

    def total(self, targets: Tensor, mask: Tensor) -> Tensor:
        """How much the examples with mask 1 count together; 1 where they do not count, to divide by it."""
        weights = self.weights(targets)
        if weights is None:
            return mask.sum().clamp(min=1)
        total = (weights * mask).sum()
        return torch.where(total > 0, total, 1)

    @property
    def has_features(self) -> bool:
        """Does the model say what its features are? Otherwise its outputs stand for them."""
        return cast(_Both, self._structure).splits

    @property
    def structure(self) -> nn.Module:
        """The user's module without values: its tensors are on the meta device."""
        return cast(_Both, self._structure).model

    @property
    def is_whole(self) -> bool:
        """Are all parameters trained, and all buffers saved?"""
        return not (self.frozen or self.constants)

    def holding(self, frozen: Mapping[str, Tensor], constants: Mapping[str, Tensor]) -> Task:
        """The same task with these frozen parameters and constants."""
        other = copy.copy(self)
        other.frozen, other.constants = dict(frozen), dict(constants)
        other._copies = threading.local()
        return other

    def rewritten(self, rewrite: Callable[[nn.Module], nn.Module]) -> Task:
        """The same task with a module that `rewrite` has changed; it must compute the same numbers."""
        other = copy.copy(self)
        other._structure, other._copies = rewrite(copy.deepcopy(self._structure)), threading.local()
        return other

    def train(self, x: Parameters, buffers: Buffers, inputs: Inputs) -> tuple[Outputs, Buffers]:
        """Outputs in training mode, and the buffers after this batch."""
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        out = self._call("trainer", x, buffers, inputs)
        return out, {name: buffer.detach() for name, buffer in buffers.items()}

    def view(self, x: Vector, buffers: Buffers, inputs: Inputs) -> Outputs:
        """Outputs in evaluation mode."""
        return self._call("viewer", x, buffers, inputs)

    def arranged(self, images: Inputs) -> Inputs:
        """Images with channels last in memory, the fastest order for convolutions on a CPU.

        Made with `empty`, because one channel is last already and torch would leave its strides as they are.
        """
        if (
            not isinstance(images, Tensor)
            or images.dim() != 4
            or not self.has_convolutions
            or images.device.type != "cpu"
        ):
            return images
        return torch.empty_like(images, memory_format=torch.channels_last).copy_(images)

    def _call(self, mode: str, x: Parameters, buffers: Buffers, inputs: Inputs) -> Outputs:
        if not hasattr(self._copies, mode):
            self._copies.trainer = copy.deepcopy(self._structure).train()
            self._copies.viewer = copy.deepcopy(self._structure).eval()
        named = self.layout.unpack(x) if isinstance(x, Tensor) else x
        parts = (named, buffers, self.frozen, self.constants)
        values = {f"model.{name}": value for part in parts for name, value in part.items()}
        return cast(Outputs, functional_call(getattr(self._copies, mode), values, (inputs,)))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_copies"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._copies = threading.local()
