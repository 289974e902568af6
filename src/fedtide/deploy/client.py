"""What runs on a client's machine: it says who it is, trains a round, tests a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from fedtide.core.trees import rows
from fedtide.core.types import Ids, Nothing, Session
from fedtide.deploy.data import Hook, Settings, written
from fedtide.deploy.engine import NEVER
from fedtide.deploy.errors import Recorder, told
from fedtide.deploy.frozen import FROZEN, LacksFrozen, lacking, settled
from fedtide.deploy.nodes import NO_NUMBER
from fedtide.deploy.prepared import Prepared, RunKey
from fedtide.deploy.records import packed, unpacked
from fedtide.run.world import World
from fedtide.training.memory import Memory
from fedtide.training.messages import Broadcast, Report


def client_app(file: Path, hook: Hook | str) -> ClientApp:
    """The ClientApp of the study in this file; `hook` is the app's module `data.py`, or its name."""
    app, prepared = ClientApp(), Prepared(file, hook)
    Recorder.begin()
    # A process that stays loads this before the first message, and forks for each.
    app.prepared = prepared  # type: ignore[attr-defined]

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        return answered(lambda _: introduced(prepared, context.node_config), message, context)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answered(Client(prepared, context).train, message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answered(Client(prepared, context).test, message, context)

    @app.evaluate("losses")
    def losses(message: Message, context: Context) -> Message:
        return answered(Client(prepared, context).losses, message, context)

    return app


def answered(
    work: Callable[[RecordDict], RecordDict], message: Message, context: Context
) -> Message:
    """The reply to a message; a client that lacks the model's frozen parameters asks for them.

    Of an error, the server is told type, file and line, and what it says only if the client shares that.
    """
    try:
        return Message(work(message.content), reply_to=message)
    except LacksFrozen as error:
        return Message(lacking(str(error)), reply_to=message)
    except Exception as error:  # in the app's own code: for the people at the server and here
        is_known = message.metadata.message_type != MessageType.QUERY
        reason = told(error, context.node_config, is_known)
        failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason)
        return Message(failed, reply_to=message)


def introduced(prepared: Prepared, settings: Settings) -> RecordDict:
    """A client's first message: its number and, of its data, only count, shapes and dtypes of examples."""
    about: dict[str, Any] = {"client": int(str(settings.get("partition-id", NO_NUMBER)))}
    about |= {"examples": 0, "form": ""}
    own = prepared.data(settings)
    if own is not None:
        about["examples"] = len(own.dataset.train)
        about["form"] = written(own.dataset.train)
    return RecordDict({"config": ConfigRecord(about)})


@dataclass
class Client:
    """One client, for as long as it takes to answer one message."""

    prepared: Prepared
    context: Context

    def train(self, letter: RecordDict) -> RecordDict:
        """A local round, as `loop` defines it."""
        tree, about = unpacked(letter)
        e = self.prepared.experiment(_run(about))
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
        with self._world(letter) as world:
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
        with self._world(letter) as world:
            world.enter(Session(0, _ids(about), 0, 1))
            sums = world.engine.sums(tree["model"], world.test)
        return RecordDict({"tested": MetricRecord(sums._asdict())})

    def losses(self, letter: RecordDict) -> RecordDict:
        """Mean losses at mixtures of models, which this client keeps until the next message that brings some.

        A client that has lost the models answers without examples.
        """
        tree, about = unpacked(letter)
        ids, t = _ids(about), _int(about, "t")
        stored = NodeState(self.context.state, "candidates")
        exchange = _int(about, "exchange")
        if "models" in tree:
            stored.write(exchange, tree["models"], keep=NEVER)
        models = stored.read(exchange)
        answer: dict[str, Any] = {"losses": [0.0], "examples": 0.0}
        if models is not None:
            with self._world(letter) as world:
                mine = NodeState(self.context.state, "batch").read(_int(about, "ticket"))
                world.engine.memory = OneRow(mine)
                listed = [models[str(n)] for n in range(len(models))]
                found = world.engine.losses(listed, tree["mixes"], ids, t)
            if len(found.ids):
                answer = {"losses": found.losses[:, 0].tolist(), "examples": float(found.weight[0])}
        return RecordDict({"losses": MetricRecord(answer)})

    def _world(self, letter: RecordDict) -> World:
        about = letter.config_records["config"]
        world = self.prepared.world(self.context.node_config, _run(about))
        wanted = str(about[FROZEN])
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


def _run(about: ConfigRecord) -> RunKey:
    return RunKey(_int(about, "cell"), _int(about, "seed"))


def _ids(about: ConfigRecord) -> Ids:
    return np.array([_int(about, "client")], dtype=np.int64)
