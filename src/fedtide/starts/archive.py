"""The models that earlier sessions ended with."""

from typing import NamedTuple

from fedtide.core.types import Model


class Past(NamedTuple):
    """A finished session."""

    session: int
    model: Model  # w^(s, T+1)


Archive = tuple[Past, ...]
