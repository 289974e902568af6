"""A frozen base with a small trained adapter, as a study file names it; its weights may come from a file."""

import os
from pathlib import Path

import torch
from torch import nn


class Adapted(nn.Module):
    """A linear layer in another type that stays as it is, and its low-rank change."""

    def __init__(self, rank=2):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.base = nn.Linear(64, 32).to(torch.bfloat16).requires_grad_(False)
            self.down, self.up = nn.Linear(64, rank, bias=False), nn.Linear(rank, 32, bias=False)
            self.head = nn.Linear(32, 10)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        weights = Path(os.environ.get("ADAPTED_BASE", ""))
        if weights.is_file():
            self.base.load_state_dict(torch.load(weights, weights_only=True))

    def forward(self, inputs):
        x = inputs.flatten(1)
        hidden = self.base(x.to(self.base.weight.dtype)).to(x.dtype) + self.scale * self.up(
            self.down(x)
        )
        return self.head(torch.tanh(hidden))


def adapted(rank=2):
    """The same by a function."""
    return Adapted(rank)


def lora(rank=2):
    """LoRA by peft on two linear layers; the first of its two matrices begins at random."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        return get_peft_model(layers, LoraConfig(r=rank, target_modules=["1", "3"]))
