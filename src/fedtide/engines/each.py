"""The outputs of many models at once, each for inputs of its own: stacked where the engine can."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from fedtide.core.trees import rows, width
from fedtide.core.types import Inputs, Model
from fedtide.engines.base import Engine
from fedtide.engines.fast.chain import outputs
from fedtide.engines.vectorised import Vectorised


def outputs_of_each(engine: Engine, models: Model, inputs: Inputs) -> Tensor:
    """Outputs [U, N, ...] of stacked models for inputs [U, N, ...], in evaluation mode."""
    chain, task = engine.chain, engine.task
    if isinstance(inputs, Tensor) and chain and chain[0].inputs * inputs.shape[1] == width(inputs):
        return outputs(chain, models.x, inputs)[-1].mT
    if isinstance(engine, Vectorised):

        def one(x: Tensor, buffers: Any, mine: Inputs) -> Tensor:
            return task.view(x, buffers, mine).logits

        found: Tensor = vmap(one)(models.x, models.buffers, inputs)
        return found
    places = range(len(models.x))
    each = engine.across(lambda u: engine.outputs(rows(models, u), rows(inputs, u)), places)
    return torch.stack(list(each))
