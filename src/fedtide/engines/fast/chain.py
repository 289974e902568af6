"""Chains of linear layers (linear models, MLPs): their gradients in closed form, for many clients at once.

The arithmetic is that of autograd on the same module, written as batched matrix products, because a stack
of small networks spends most of autograd's time between the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fedtide.core.types import Batch, Outputs


class Layer(NamedTuple):
    """A linear layer, where its values lie in the vector, and whether a ReLU follows."""

    weight: slice
    bias: slice | None
    outputs: int
    inputs: int
    relu: bool
    is_head: bool  # are its inputs the model's features?

    def of(self, vectors: Tensor) -> Tensor:
        """This layer's weights, [U, outputs, inputs], in stacked vectors."""
        return vectors[:, self.weight].view(-1, self.outputs, self.inputs)


Chain = tuple[Layer, ...]


class Extra(NamedTuple):
    """The gradient of what is added to the loss: by the model, by its features and by its logits."""

    y: Tensor  # [U, dim]
    features: Tensor | None  # [U, B, ...]; None where the features are the inputs
    logits: Tensor  # [U, B, classes]


Addition = Callable[[Outputs], Extra]


def chain_of(module: nn.Module) -> Chain | None:
    """The module as a chain, if it is flatten, linear layers and ReLUs in a row, and nothing else."""
    parts = [part for part in _in_order(module) if type(part) is not nn.Identity]
    if parts and type(parts[0]) is nn.Flatten and parts[0].start_dim == 1:
        parts = parts[1:]
    kinds = [type(part) for part in parts]
    if not kinds or kinds[0] is not nn.Linear or set(kinds) - {nn.Linear, nn.ReLU}:
        return None
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return None
    named = {id(p): name for name, p in module.named_parameters()}
    places, head = _places(module), _head(module)
    if head and type(head[0]) is not nn.Linear:
        return None  # its features are not the inputs of a linear layer
    layers = []
    for part, then in zip(parts, [*kinds[1:], None], strict=True):
        if isinstance(part, nn.Linear):
            weight = places[named[id(part.weight)]]
            bias = None if part.bias is None else places[named[id(part.bias)]]
            shape = part.out_features, part.in_features
            layers.append(Layer(weight, bias, *shape, then is nn.ReLU, part in head[:1]))
    tied = sum(len(list(part.parameters())) for part in parts) != len(places)
    return None if tied or layers[-1].relu else tuple(layers)


def gradients(
    chain: Chain, y: Tensor, batch: Batch, added: Addition | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients [U, dim] of the mean cross entropy of each client's batch [U, B, ...] at its model.

    Also [U, 3]: the summed loss, the correct answers and the examples of each batch. Every example is a
    column, as in a textbook: a short and wide product is twice as fast as a tall and narrow one.
    What else is `added` to the loss is not part of the summed loss.
    """
    columns, error, seen, extra = _errors(chain, y, batch, added)
    gradient = torch.empty_like(y)
    for layer, entered, back in _backwards(chain, y, columns, error, extra):
        torch.bmm(back, entered.mT, out=layer.of(gradient))
        if layer.bias is not None:
            torch.sum(back, 2, out=gradient[:, layer.bias])
    return gradient if extra is None else gradient.add_(extra.y), seen


def descend(chain: Chain, y: Tensor, batch: Batch, lr: float) -> Tensor:
    """One step of plain SGD from y, in place: the step is part of the product. Returns [U, 3], as above."""
    columns, error, seen, _ = _errors(chain, y, batch)
    for layer, entered, back in _backwards(chain, y, columns, error):
        layer.of(y).baddbmm_(back, entered.mT, alpha=-lr)
        if layer.bias is not None:
            y[:, layer.bias].sub_(back.sum(2), alpha=lr)
    return seen


def _errors(
    chain: Chain, y: Tensor, batch: Batch, added: Addition | None = None
) -> tuple[list[Tensor], Tensor, Tensor, Extra | None]:
    """The inputs of each layer, the gradient of the logits [U, classes, B], tallies [U, 3], and the extra."""
    columns = outputs(chain, y, cast(Tensor, batch.inputs))
    logits, target = columns.pop(), batch.targets[:, None]
    right = logits.max(1).indices == batch.targets  # six times as fast as argmax over columns
    log_p = logits.log_softmax(1)
    each, mask = -log_p.gather(1, target)[:, 0], batch.mask
    seen = torch.stack([each * mask, right * mask, mask]).sum(2).mT
    back = log_p.exp_().scatter_add_(1, target, torch.full_like(target, -1, dtype=y.dtype))
    back *= (mask / seen[:, 2:].clamp(min=1))[:, None]
    if added is None:
        return columns, back, seen, None
    features = next((c for layer, c in zip(chain, columns, strict=True) if layer.is_head), logits)
    extra = added(Outputs(features.mT, logits.mT))
    back += extra.logits.mT
    if features is logits and extra.features is not None:  # the model is not split
        back += extra.features.mT
    return columns, back, seen, extra


def outputs(chain: Chain, y: Tensor, inputs: Tensor) -> list[Tensor]:
    """The inputs of each layer, [U, width, B], and at the end the logits [U, classes, B]."""
    columns = [inputs.flatten(2).mT]
    for layer in chain:
        weight = layer.of(y)
        if layer.bias is None:
            out = torch.bmm(weight, columns[-1])
        else:
            out = torch.baddbmm(y[:, layer.bias, None], weight, columns[-1])
        columns.append(out.relu_() if layer.relu else out)
    return columns


def _backwards(
    chain: Chain, y: Tensor, columns: list[Tensor], back: Tensor, extra: Extra | None = None
) -> Iterator[tuple[Layer, Tensor, Tensor]]:
    """Each layer from the last to the first, its inputs, and the gradient of its outputs [U, outputs, B].

    A layer's weights may be changed once it is here: what lies before it is already computed.
    """
    for number in reversed(range(len(chain))):
        layer, entered, left = chain[number], columns[number], back
        if number:
            back = torch.bmm(layer.of(y).mT, back)
            if extra is not None and extra.features is not None and layer.is_head:
                back += extra.features.mT
            if chain[number - 1].relu:
                back = torch.ops.aten.threshold_backward(back, entered, 0)
        yield layer, entered, left


def _head(module: nn.Module) -> list[nn.Module]:
    """The parts of the second half of a module that is split."""
    split = getattr(module, "is_split", False)
    parts = _in_order(module.get_submodule("head")) if split else iter(())
    return [part for part in parts if type(part) is not nn.Identity]


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The parts of a module in the order in which data pass through them."""
    if type(module) is nn.Sequential:
        for part in module:
            yield from _in_order(part)
    elif getattr(module, "is_split", False) and "embed" in dict(module.named_children()):
        yield from _in_order(module.get_submodule("embed"))
        yield from _in_order(module.get_submodule("head"))
    else:
        yield module


def _places(module: nn.Module) -> Mapping[str, slice]:
    """Where each parameter lies in the vector."""
    named = dict(module.named_parameters())
    ends = accumulate((p.numel() for p in named.values()), initial=0)
    return {name: slice(*ends) for name, ends in zip(named, pairwise(ends), strict=True)}
