"""What the process of a client keeps between messages: the study, the client's data, and worlds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedtide import config
from fedtide.deploy.data import Hook, Own, imported, of_client
from fedtide.engines.kinds import LoopSettings, VectorisedSettings
from fedtide.guard.attacks import Attack
from fedtide.run.experiment import Experiment
from fedtide.run.study import Study
from fedtide.run.world import World


class RunKey(NamedTuple):
    """A run of the study."""

    cell: int
    seed: int


@dataclass(eq=False)
class Prepared:
    """Loads each part once per process; a process that forks for each message passes them on.

    A world is used for one message. `wanted` names those that had to be built for it.
    """

    file: Path
    source: Hook | str  # the module `data.py` of the app, or its name
    wanted: set[RunKey] = field(default_factory=set)
    _data: dict[str, Own] = field(default_factory=dict)
    _worlds: dict[tuple[str, RunKey], World] = field(default_factory=dict)

    @cached_property
    def study(self) -> Study:
        """The study, as the server has it."""
        return config.load(self.file)

    @cached_property
    def hook(self) -> Hook:
        """The app's module with the client's data; it is imported when it is first needed."""
        return imported(self.source)

    def data(self, settings: Mapping[str, Any]) -> Own | None:
        """The data of the client with these settings; None if it takes a share of the study's."""
        if not self.hook.OWN:
            return None
        name = _name(settings)
        if name not in self._data:
            self._data[name] = of_client(self.hook, settings)
        return self._data[name]

    def experiment(self, run: RunKey) -> Experiment:
        """The experiment of a run."""
        return replace(self.study.cells[run.cell].experiment, seed=run.seed)

    def world(self, settings: Mapping[str, Any], run: RunKey) -> World:
        """A world for one message of this run."""
        world = self._worlds.pop((_name(settings), run), None)
        if world is None:
            self.wanted.add(run)
            world = self._built(settings, run)
        return world

    def build(self, settings: Mapping[str, Any], run: RunKey) -> None:
        """Have a world ready for the next message of this run."""
        self._worlds[_name(settings), run] = self._built(settings, run)

    def is_on_cpu(self) -> bool:
        """Do all experiments of the study compute on the CPU?"""
        return all(cell.experiment.engine.place().type == "cpu" for cell in self.study.cells)

    def _built(self, settings: Mapping[str, Any], run: RunKey) -> World:
        e = self.experiment(run)
        stacks = isinstance(e.engine, VectorisedSettings)
        engine = (VectorisedSettings if stacks else LoopSettings)(workers=1, device=e.engine.device)
        data = self.data(settings) or e.data
        return World.build(replace(e, data=data, engine=engine, attack=Attack()))


def _name(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True, default=str)
