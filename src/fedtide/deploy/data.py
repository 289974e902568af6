"""The data of a deployment: a share of the study's own, to try it out, or data on the clients' machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.types import Dataset, Examples, Ids, Inputs
from fedtide.data.holdings import Holdings
from fedtide.data.own import Pair, from_tensors
from fedtide.data.source import Groups, Source
from fedtide.deploy.roster import Roster

Settings = Mapping[str, Any]  # what a machine was started with: --node-config


class Hook(Protocol):
    """The module `data.py` of an app, which its user edits."""

    OWN: bool  # True: use the functions below; False: each client takes a share of the study's data
    CLASSES: int  # how many labels there are; 0 where targets are not labels
    VOCABULARY: int  # how many tokens there are; 0 where inputs are not tokens

    def of_client(self, settings: Settings) -> tuple[Pair, Pair | None]:
        """Training examples of a client and, if it has any, test examples; called on its machine."""

    def of_server(self) -> Pair | None:
        """Test examples of the server, or None; called on the server's machine."""


def imported(hook: Hook | str) -> Hook:
    """The app's module `data.py`; a name is imported now, so that its errors can be reported."""
    return cast(Hook, import_module(hook)) if isinstance(hook, str) else hook


@dataclass(frozen=True, kw_only=True)
class Own(Source):
    """Examples that are divided already."""

    dataset: Dataset
    holdings: Holdings
    title = "own"
    is_here = True

    def deal(self, groups: Groups, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        return self.dataset, self.holdings


class Alone(Holdings):
    """All examples on this machine belong to its one client, whatever its number."""

    clients = 1

    def __init__(self, examples: int) -> None:
        self._examples = examples

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return np.full(len(ids), self._examples)

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        return np.bincount(targets, minlength=classes)[None]

    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return np.arange(self._examples)


class Elsewhere(Holdings):
    """Examples that only clients have; the server knows how many each client holds."""

    here = False

    def __init__(self, roster: Roster, classes: int) -> None:
        self._roster, self._classes = roster, classes

    @property
    def clients(self) -> int:
        return self._roster.clients

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        sizes = self._roster.examples
        return np.array([sizes.get(client, 0) for client in ids.tolist()], dtype=np.int64)

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        raise NotImplementedError("no example is on the server")

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        return np.zeros((self.clients, classes), dtype=np.int64)

    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return np.arange(max(self._classes, 1))  # of the placeholder below: every label may occur


def written(examples: Examples) -> str:
    """The shapes and dtypes of an input, or of several by name, and of a target, as JSON."""

    def form(each: Inputs) -> Any:
        if isinstance(each, Tensor):
            return [str(each.dtype).removeprefix("torch."), *each.shape[1:]]
        return {name: form(leaf) for name, leaf in each.items()}

    return json.dumps([form(examples.inputs), form(examples.targets)])


def zeros(form: str, count: int) -> tuple[Inputs, Inputs]:
    """So many inputs and targets of this form."""

    def made(each: Any) -> Inputs:
        if isinstance(each, Mapping):
            return {name: cast(Tensor, made(leaf)) for name, leaf in each.items()}
        return torch.zeros(count, *each[1:], dtype=getattr(torch, each[0]))

    inputs, targets = json.loads(form)
    return made(inputs), made(targets)


def of_client(hook: Hook, settings: Settings) -> Own:
    """The data of a client, on its own machine."""
    train, test = hook.of_client(settings)
    dataset = from_tensors(train, test or train, hook.CLASSES)
    dataset = replace(dataset, vocabulary=hook.VOCABULARY)
    return Own(dataset=dataset, holdings=Alone(len(dataset.train)))


def of_server(hook: Hook, roster: Roster) -> tuple[Own, bool]:
    """The server's dataset, and whether it has test examples; its training inputs are placeholders."""
    card = next(iter(roster.cards.values()))
    inputs, targets = zeros(card.form, max(hook.CLASSES, 1))
    train = (inputs, torch.arange(hook.CLASSES) if hook.CLASSES else targets)
    test = hook.of_server()
    dataset = from_tensors(train, test or train, hook.CLASSES)
    dataset = replace(dataset, vocabulary=hook.VOCABULARY)
    return Own(dataset=dataset, holdings=Elsewhere(roster, hook.CLASSES)), test is not None
