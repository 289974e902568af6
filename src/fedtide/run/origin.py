"""What made a result: settings, code, data and machine, and the key by which equal results are recognised."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedtide
from fedtide.core.machine import processor
from fedtide.models.base import MadeFor, OwnModule
from fedtide.record.settings import HOME, plain
from fedtide.run.experiment import Experiment
from fedtide.tasks.task import checksum as checksum_of
from fedtide.training.train import made_for

# Settings that leave every result as it is.
NO_MATTER = frozenset({"checkpoint", "engine.memory", "engine.workers", "seed"})
LENGTH = frozenset({"population.rounds", "population.sessions"})  # of which a run may get more
PATIENCE = 10  # seconds for git

Origin = dict[str, Any]
_KNOWN_WEIGHTS: dict[str, str] = {}  # by a checksum of what decides them


def origin(e: Experiment, transition_rounds: int) -> Origin:
    """What decides the results of a run, as its folder records it.

    Runs with the same `key` have the same results. Those with the same `stem` differ at most in length. Both
    are empty if the run uses code that is in no file.
    """
    code = {
        "fedtide": version("fedtide"),
        "source": source_checksum(),
        "own_files": _own_files(e),
        "named_files": _files_checksum(sorted(set(_named_files(e)))),
        "torch": torch.__version__,
        "numba": _version("numba"),
        "processor": processor(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
        "data": e.data.checksum(),
        "weights": _weights(e),
        "seed": e.seed,
        "transition_rounds": transition_rounds,
    }
    settings, stem = plain(e, NO_MATTER), plain(e, NO_MATTER | LENGTH)
    known = not any(
        map(_has_no_file, _own(e))
    )  # the code of a notebook may change between two runs
    return {
        **code,
        "settings": checksum(settings),
        "key": checksum({**code, "settings": settings}) if known else "",
        "stem": checksum({**code, "settings": stem}) if known else "",
    }


def _weights(e: Experiment) -> str:
    """A checksum of the weights that a user's own model begins with: they may come from outside of its file.

    Empty for models of FedTide, whose weights are drawn, and for objects, which the settings describe.
    """
    spec = e.train.model
    is_known = type(spec).__module__.startswith(HOME) and not isinstance(spec, OwnModule)
    if is_known or isinstance(spec, nn.Module):
        return ""
    key = checksum([plain(spec), plain(e.data), plain(e.task), e.seed])
    if key not in _KNOWN_WEIGHTS:
        made = MadeFor((), 0)
        if not isinstance(spec, OwnModule):
            dataset, _ = e.data.deal(e.population.groups, e.population.length, e.seed)
            made = made_for(dataset, e.task)
        module = e.train.module(made, e.seed)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        _KNOWN_WEIGHTS[key] = checksum_of(tensors)
    return _KNOWN_WEIGHTS[key]


def tied_here(e: Experiment) -> list[str]:
    """The classes and functions of an experiment that other processes cannot import."""
    return [
        thing.__qualname__
        for thing in _own(e)
        if _has_no_file(thing) or "<" in thing.__qualname__  # a lambda, or inside of a function
    ]


def checksum(value: Any) -> str:
    """A checksum of a value of JSON."""
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


@cache
def source_checksum() -> str:
    """A checksum of FedTide's own source files."""
    return _files_checksum(sorted(_home().rglob("*.py")))


@cache
def is_dirty() -> bool:
    """Do FedTide's source files differ from the commit that they belong to? False outside of git."""
    command = ["git", "-C", str(_home()), "status", "--porcelain", "--", "."]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def _home() -> Path:
    return Path(fedtide.__file__).parent


def _files_checksum(paths: list[Path]) -> str:
    found = blake2b(digest_size=16)
    for path in paths:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _own_files(e: Experiment) -> str:
    """A checksum of the user's files that the experiment uses, and of what they import beside them."""
    homes = {str(Path(_file(thing)).parent) for thing in _own(e) if _file(thing)}
    files = {
        file
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and str(Path(file).parent) in homes
    }
    return _files_checksum([Path(file) for file in sorted(files)]) if files else ""


def _named_files(e: Experiment) -> Iterator[Path]:
    """The files that settings name: traces, pilot models, archives."""
    for text in _values(e):
        path = Path(text).expanduser() if isinstance(text, str) and text else None
        if path and path.suffix and isfile(path):
            yield path
        elif path and isdir(path):  # an archive of models
            yield from (file for file in path.iterdir() if file.suffix in (".json", ".safetensors"))


def _own(e: Experiment) -> Iterator[Any]:
    """The classes and functions of an experiment that belong to no installed package."""
    for value in _values(e):
        if hasattr(value, "__module__") or callable(value):
            yield from _if_own(value if hasattr(value, "__qualname__") else type(value))


def _values(value: Any) -> Iterator[Any]:
    """The value of every setting, and every object that holds settings."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _values(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    else:
        yield value
        if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield from _values(getattr(value, field.name))


def _if_own(thing: Any) -> Iterator[Any]:
    name = str(getattr(thing, "__module__", ""))
    if name in sys.modules and not f"{name}.".startswith(HOME) and not _is_installed(name):
        yield thing


def _file(thing: Any) -> str:
    """The file that defines a class or function; empty where it was typed in, as in a notebook."""
    return getattr(sys.modules[thing.__module__], "__file__", None) or ""


def _has_no_file(thing: Any) -> bool:
    return not _file(thing)


def _is_installed(module: str) -> bool:
    """Does a module belong to Python or to an installed package, whose version does not change by itself?"""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if top == "__main__":
        return False
    spec = find_spec(top)
    return bool(spec and spec.origin and "site-packages" in spec.origin)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
