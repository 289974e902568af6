"""Settings as people say them: `FedProx (mu = 0.1)` instead of `algorithm = fedprox, algorithm.mu = 0.1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedtide.record.folder import labelled, word

TITLES = {  # kinds whose name is written otherwise than in study files
    "afa-cd": "AFA-CD",
    "afa-cs": "AFA-CS",
    "ag-news": "AG News",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist-letters": "EMNIST letters",
    "fashion-mnist": "Fashion-MNIST",
    "fast": "FAST",
    "fedacg": "FedACG",
    "fedagg": "FedAgg",
    "fedamplify": "FedAmplify",
    "fedau": "FedAU",
    "fedavg": "FedAvg",
    "fedbabu": "FedBABU",
    "feddyn": "FedDyn",
    "fedgh": "FedGH",
    "fedlc": "FedLC",
    "fednova": "FedNova",
    "fedntd": "FedNTD",
    "fedprox": "FedProx",
    "fedvarp": "FedVARP",
    "geometric-median": "geometric median",
    "krum": "Krum",
    "m-afa-cd": "M-AFA-CD",
    "m-fedavg": "M-FedAvg",
    "m-feddisco": "M-FedDisco",
    "m-fednova": "M-FedNova",
    "m-fedprox": "M-FedProx",
    "mifa": "MIFA",
    "mnist": "MNIST",
    "moon": "MOON",
    "multi-krum": "Multi-Krum",
    "osafl": "OSAFL",
    "scaffold": "SCAFFOLD",
    "shakespeare": "Shakespeare",
    "svhn": "SVHN",
    "tinyimagenet": "Tiny ImageNet",
    "trimmed-mean": "trimmed mean",
    "uci-har": "UCI-HAR",
    "uci-har-people": "UCI-HAR people",
}
# Sections that pose the problem which methods are to solve; other settings belong to the methods.
PROBLEM = ("data", "task", "population", "network", "faults", "attack", "train.model")


def names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of these settings; where two would have the same, the settings in full."""
    keys = list(dict.fromkeys(key for one in settings for key in one))
    last = Counter(key.rpartition(".")[2] for key in keys)
    short = {key: tail if last[tail := key.rpartition(".")[2]] == 1 else key for key in keys}
    found = [_name(one, short) for one in settings]
    counts = Counter(found)
    pairs = zip(found, settings, strict=True)
    return [name if counts[name] == 1 else labelled(one) for name, one in pairs]


def _name(settings: Mapping[str, Any], short: Mapping[str, str]) -> str:
    """The words first, then the numbers in brackets."""
    words = [title(value) for value in settings.values() if _is_word(value)]
    rest = [f"{short[k]} = {word(v)}" for k, v in settings.items() if not _is_word(v)]
    if not words:
        return ", ".join(rest) or "all"
    told = " with ".join(filter(None, [words[0], " and ".join(words[1:])]))
    if len(words) == 1 and rest and told.endswith(")"):  # one pair of brackets
        return f"{told[:-1]}, {', '.join(rest)})"
    return f"{told} ({', '.join(rest)})" if rest else told


def said(value: Any) -> str:
    """The value of a setting in a table."""
    return title(value) if _is_word(value) else word(value)


def title(value: Any) -> str:
    """A kind with its settings, in the spelling of its paper: `FedProx (mu = 0.1)`."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{key} = {word(item)}" for key, item in value.items() if key != "kind")
        kind = title(str(value.get("kind", "")))
        return f"{kind} ({rest})" if kind and rest else kind or rest
    name = str(value).rpartition(":")[2]  # of `file.py:Class`, the class
    return TITLES.get(name, name)


def _is_word(value: Any) -> bool:
    """Does a value name itself, as kinds and names do and numbers do not?"""
    return isinstance(value, str) or (isinstance(value, Mapping) and "kind" in value)


def of_problem(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that pose the problem."""
    return {key: value for key, value in settings.items() if _poses(key)}


def of_method(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that belong to the method."""
    return {key: value for key, value in settings.items() if not _poses(key)}


def _poses(key: str) -> bool:
    return any(f"{key}.".startswith(f"{section}.") for section in PROBLEM)
