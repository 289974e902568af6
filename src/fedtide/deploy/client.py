"""What runs on a client's machine: it says who it is, trains a round, tests a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtide import config
from fedtide.core.trees import rows
from fedtide.core.types import Ids, Nothing, Session
from fedtide.deploy.data import Hook, Settings, of_client, written
from fedtide.deploy.engine import NEVER
from fedtide.deploy.frozen import FROZEN, LacksFrozen, lacking, settled
from fedtide.deploy.records import packed, unpacked
from fedtide.deploy.roster import NO_NUMBER
from fedtide.engines.kinds import LoopSettings, VectorisedSettings
from fedtide.guard.attacks import Attack
from fedtide.run.experiment import Experiment
from fedtide.run.study import Study
from fedtide.run.world import World
from fedtide.training.memory import Memory
from fedtide.training.messages import Broadcast, Report


def client_app(file: Path, hook: Hook) -> ClientApp:
    """The ClientApp of the study in this file."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        return Message(introduced(hook, context.node_config), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = Client(config.load(file), hook, context)
        return Message(answered(client.train, message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = Client(config.load(file), hook, context)
        return Message(answered(client.test, message.content), reply_to=message)

    @app.evaluate("losses")
    def losses(message: Message, context: Context) -> Message:
        client = Client(config.load(file), hook, context)
        return Message(answered(client.losses, message.content), reply_to=message)

    return app


def answered(work: Callable[[RecordDict], RecordDict], letter: RecordDict) -> RecordDict:
    """The reply to a message; a client that lacks the model's frozen parameters asks for them."""
    try:
        return work(letter)
    except LacksFrozen as error:
        return lacking(str(error))


def introduced(hook: Hook, settings: Settings) -> RecordDict:
    """A client's first message: its number and, of its data, only count, shapes and dtypes of examples."""
    about: dict[str, Any] = {"client": int(str(settings.get("partition-id", NO_NUMBER)))}
    about |= {"examples": 0, "form": ""}
    if hook.OWN:
        dataset = of_client(hook, settings).dataset
        about["examples"] = len(dataset.train)
        about["form"] = written(dataset.train)
    return RecordDict({"config": ConfigRecord(about)})


@dataclass
class Client:
    """One client, for as long as it takes to answer one message."""

    study: Study
    hook: Hook
    context: Context

    def train(self, letter: RecordDict) -> RecordDict:
        """A local round, as `loop` defines it."""
        tree, about = unpacked(letter)
        e = self._experiment(about)
        purpose, t, ids = str(about["purpose"]), _int(about, "t"), _ids(about)
        stored = NodeState(self.context.state, "batch" if purpose == "batch" else "aside")
        ticket = _int(about, "ticket")
        broadcast = Broadcast(
            e.algorithm,
            e.train.optimiser,
            float(str(about["lr"])),
            tree["down"],
            tree["buffers"],
            t,
            purpose,
        )
        with self._world(e, letter) as world:
            memory = OneRow(stored.read(ticket))
            world.engine.memory = memory
            steps = np.minimum(_int(about, "steps"), world.engine.data.steps(t, ids))
            walk = broadcast.walk(steps, np.array([_int(about, "age")]))
            result = world.engine.run(broadcast, ids, walk)
            world.engine.keep(result, ids)
        stored.write(_int(about, "exchange"), memory.row, keep=ticket)
        report = Report(result.up, Nothing(), result.buffers, result.training, result.walk.steps)
        forgot = ticket != NEVER and not stored.found
        return packed(rows(report, 0), forgot=int(forgot))

    def test(self, letter: RecordDict) -> RecordDict:
        """Sums over this client's test examples, from which scores follow."""
        tree, about = unpacked(letter)
        with self._world(self._experiment(about), letter) as world:
            world.enter(Session(0, _ids(about), 0, 1))
            sums = world.engine.sums(tree["model"], world.test)
        return RecordDict({"tested": MetricRecord(sums._asdict())})

    def losses(self, letter: RecordDict) -> RecordDict:
        """Mean losses at mixtures of models, which this client keeps until the next message that brings some.

        A client that has lost the models answers without examples.
        """
        tree, about = unpacked(letter)
        e, ids, t = self._experiment(about), _ids(about), _int(about, "t")
        stored = NodeState(self.context.state, "candidates")
        exchange = _int(about, "exchange")
        if "models" in tree:
            stored.write(exchange, tree["models"], keep=NEVER)
        models = stored.read(exchange)
        answer: dict[str, Any] = {"losses": [0.0], "examples": 0.0}
        if models is not None:
            with self._world(e, letter) as world:
                mine = NodeState(self.context.state, "batch").read(_int(about, "ticket"))
                world.engine.memory = OneRow(mine)
                listed = [models[str(n)] for n in range(len(models))]
                found = world.engine.losses(listed, tree["mixes"], ids, t)
            if len(found.ids):
                answer = {"losses": found.losses[:, 0].tolist(), "examples": float(found.weight[0])}
        return RecordDict({"losses": MetricRecord(answer)})

    def _experiment(self, about: ConfigRecord) -> Experiment:
        experiment = self.study.cells[_int(about, "cell")].experiment
        return replace(experiment, seed=_int(about, "seed"))

    def _world(self, e: Experiment, letter: RecordDict) -> World:
        data = of_client(self.hook, self.context.node_config) if self.hook.OWN else e.data
        stacks = isinstance(e.engine, VectorisedSettings)
        engine = (VectorisedSettings if stacks else LoopSettings)(workers=1, device=e.engine.device)
        world = World.build(replace(e, data=data, engine=engine, attack=Attack()))
        wanted = str(letter.config_records["config"][FROZEN])
        world.engine.task = settled(world.engine.task, wanted, letter, self.context.state)
        return world


class OneRow(Memory):
    """What one client remembers: a single row."""

    def __init__(self, row: Any = None) -> None:
        super().__init__()
        self.row = row

    def take(self, ids: Ids, fresh: Any) -> Any:
        return super().take(ids, fresh) if self.row is None else self.row

    def put(self, ids: Ids, stacked: Any) -> None:
        self.row = stacked

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        return super().kept(ids) if ids is None or self.row is None else (ids, self.row)


class NodeState:
    """Rows in the state that Flower keeps for a node, each under the exchange it came from."""

    def __init__(self, state: RecordDict, purpose: str) -> None:
        self._state, self._purpose = state, purpose
        self.found = False

    def read(self, ticket: int) -> Any:
        """The row after this exchange; None if there is none."""
        name = self._name(ticket)
        self.found = f"{name} arrays" in self._state
        if not self.found:
            return None
        parts = {part: self._state[f"{name} {part}"] for part in ("arrays", "config")}
        return unpacked(RecordDict(parts))[0]

    def write(self, exchange: int, row: Any, keep: int) -> None:
        """Store a row; beside it, only the row that it came from is kept."""
        kept = {self._name(keep), self._name(exchange)}
        for name in [n for n in self._state if n.startswith(f"{self._purpose} ")]:
            if name.rpartition(" ")[0] not in kept:
                del self._state[name]
        for part, record in packed({} if row is None else row).items():
            self._state[f"{self._name(exchange)} {part}"] = record

    def _name(self, exchange: int) -> str:
        return f"{self._purpose} {exchange}"


def _int(about: ConfigRecord, name: str) -> int:
    return int(str(about[name]))


def _ids(about: ConfigRecord) -> Ids:
    return np.array([_int(about, "client")], dtype=np.int64)
