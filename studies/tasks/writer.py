"""A small transformer that predicts the next letter."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention to earlier letters, then a layer for each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


class Writer(nn.Module):
    """Letters [B, T] -> the next ones' logits [B, T, 128]."""

    def __init__(self, width: int = 96, blocks: int = 2, heads: int = 4, places: int = 65) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(128, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.letters(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits
