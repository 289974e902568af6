"""The model of an earlier run, of which all, its head, or LoRA's matrices are trained."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

import fedtide


def whole(base: str) -> nn.Module:
    """All parameters of the model in the folder `base`."""
    return fedtide.load_model(base)


def head(base: str) -> nn.Module:
    """The last layer."""
    model = fedtide.load_model(base).requires_grad_(False)
    model.get_submodule("head").requires_grad_(True)
    return model


def lora(base: str, rank: int = 8) -> nn.Module:
    """Low-rank changes of every linear layer."""
    layers = ["qkv", "out", "wide", "narrow", "head"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return get_peft_model(fedtide.load_model(base), LoraConfig(r=rank, target_modules=layers))
