"""Networks for text.

`char-lstm` predicts the next character of Shakespeare: Caldas et al., "LEAF: A Benchmark for
Federated Settings" (2018), used by FAST (Li et al.). `fasttext` classifies AG News: Joulin
et al., "Bag of Tricks for Efficient Text Classification" (2017), without its n-grams, as used by
Chang et al., "Communication-Efficient Federated Learning under Dynamic Device Arrival and
Departure".
"""

from dataclasses import dataclass

from torch import Tensor, nn

from fedtide.models.base import (
    EmbedHead,
    ModelSpec,
    Shape,
    check_dropout,
    check_tokens,
    check_widths,
    dropout,
)

PAD = 0  # the padding token, as in the vocabulary of BERT


class LastStep(nn.Module):
    """An LSTM over embedded tokens, of which only the last step's output is kept."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        steps: Tensor = self.lstm(self.tokens(inputs))[0]
        return steps[:, -1]


class MeanEmbedding(nn.Module):
    """The mean of the embedded tokens without padding; zero for a text that is all padding."""

    def __init__(self, vocabulary: int, embedding: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)

    def forward(self, inputs: Tensor) -> Tensor:
        rows: Tensor = self.tokens(inputs)
        real = (inputs != PAD).unsqueeze(-1).to(rows.dtype)
        return (rows * real).sum(1) / real.sum(1).clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class CharLstm(ModelSpec):
    """Two LSTM layers of 256 over characters; 819,920 parameters with 80 characters.

    torch.func.vmap has no rule for `nn.LSTM`, so the vectorised engine refuses this model.
    """

    embedding: int = 8
    hidden: int = 256
    layers: int = 2
    dropout: float = 0.5  # before the last layer

    def __post_init__(self) -> None:
        check_widths("embedding", self.embedding)
        check_widths("hidden", self.hidden)
        check_widths("layers", self.layers)
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_tokens("char-lstm", shape, vocabulary)
        embed = LastStep(vocabulary, self.embedding, self.hidden, self.layers)
        return EmbedHead(
            embed, nn.Sequential(dropout(self.dropout), nn.Linear(self.hidden, classes))
        )


@dataclass(frozen=True, kw_only=True)
class FastText(ModelSpec):
    """The mean of word vectors, then a linear layer; 9,157,804 parameters on AG News."""

    embedding: int = 300

    def __post_init__(self) -> None:
        check_widths("embedding", self.embedding)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_tokens("fasttext", shape, vocabulary)
        embed = MeanEmbedding(vocabulary, self.embedding)
        return EmbedHead(embed, nn.Linear(self.embedding, classes))
