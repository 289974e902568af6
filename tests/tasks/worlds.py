"""Small data and models of every kind of task, with inputs as one tensor or by name."""

import torch
from torch import nn

import fedtide
from fedtide.core.types import Dataset

N, TEST, WORDS, PLACES = 96, 40, 11, 6


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(seed, *shape):
    return torch.randint(0, WORDS, shape, generator=torch.Generator().manual_seed(seed))


class Tokenwise(nn.Module):
    """A small model of tokens with a mask; its outputs are a mapping, as those of Hugging Face."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, 8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, WORDS)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].to(self.mix.weight.dtype)
        features = self.embed_tokens(input_ids) * mask
        seen = features.cumsum(1) / mask.cumsum(1).clamp(min=1)
        return {"logits": self.out(torch.tanh(self.mix(seen)))}


def dense(outputs):
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs))


def of(kind):
    """The dataset of a task, and a model for it."""
    torch.manual_seed(1)
    x, test = numbers(1, N, 5), numbers(2, TEST, 5)
    planes = numbers(3, 5, 3)
    if kind == "tokens":
        parts = []
        for count, seed in ((N, 4), (TEST, 5)):
            ids = tokens(seed, count, PLACES)
            mask = (torch.arange(PLACES) < 3 + ids[:, :1] % 4).long()
            targets = torch.where(mask.bool(), ids.roll(-1, 1), -100)
            parts.append(({"input_ids": ids, "attention_mask": mask}, targets))
        return fedtide.from_tensors(*parts, keys=range(N)), Tokenwise()
    if kind == "regression":
        pairs = [(each, (each @ planes)[:, :2] + 0.1 * each[:, :1]) for each in (x, test)]
    elif kind == "multilabel":
        pairs = [(each, (each @ planes > 0).long()) for each in (x, test)]
    else:
        pairs = [(each, ((each @ planes)[:, 0] > 0.8).long()) for each in (x, test)]
    outputs = {"regression": 2, "multilabel": 3, "binary": 1, "classification": 2}
    dataset: Dataset = fedtide.from_tensors(*pairs, keys=[k % 12 for k in range(N)])
    return dataset, dense(outputs[kind])
