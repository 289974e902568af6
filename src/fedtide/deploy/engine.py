"""Real clients over Flower: the server sends a broadcast to them and stacks the reports that come back.

What a client remembers never leaves it. The server keeps a ticket instead: the number of the exchange after
which the client's memory stands. A client whose reply was not counted is told so by its next message, and
goes on from the memory before: as in a simulation, an upload that does not arrive leaves no trace. Where an
algorithm's server keeps a mean of what clients remember, the server adds up what each client has sent, too,
so that a client that leaves, or that has lost its memory, can be taken out of that mean.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from flwr.app import MessageType, RecordDict
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves, stack, tree_map
from fedtide.core.types import Examples, Ids, Model, Tested, Walk
from fedtide.data.batches import ClientData
from fedtide.deploy.frozen import FROZEN, is_lacking, with_frozen
from fedtide.deploy.records import letters, unpacked
from fedtide.deploy.roster import Roster
from fedtide.engines.base import Engine, Result, Traits
from fedtide.engines.kinds import EngineSettings
from fedtide.tasks.objective import Meters
from fedtide.tasks.scores import Sums
from fedtide.tasks.task import Task, checksum
from fedtide.training.messages import AnyAlgorithm, Broadcast, Report
from fedtide.training.train import Train

TEST_LOSSES = "evaluate.losses"  # the kind of message that asks for losses of models
NEVER = -1  # the ticket of a client that has nothing to remember

_exchanges = count(
    time.time_ns() // 1_000_000
)  # numbers that are never used again, also after a restart


class Standing(NamedTuple):
    """What the server knows of a client's memory."""

    ticket: Tensor  # the exchange after which it stands
    row: Any  # what the server's mean counts of it: the sum of all that was `sent` and counted


@dataclass(frozen=True, kw_only=True)
class Deployed(EngineSettings):
    """An [engine] whose clients are real."""

    is_real: ClassVar[bool] = True
    roster: Roster
    cell: int = 0  # of the study, which every client has as a file
    tested_by_clients: bool = False

    @property
    def adds(self) -> bool:
        return False  # every upload arrives by itself

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        self.roster.settings = self.flower
        traits = Traits(is_random=False, mixes=False)  # nothing is trained here
        why = "flower: clients are connected over a network"
        return Flower(task, data, traits, train.buffers, 1, 0, why, settings=self)


@dataclass(eq=False)
class Flower(Engine):
    """Sends a round's work to the nodes of the cohort, and takes their replies until the deadline."""

    settings: Deployed = field(kw_only=True)
    _lent: tuple[Sequence[Model], int] | None = field(default=None, init=False)  # with its exchange

    def run(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, weights: Tensor | None = None
    ) -> Result:
        roster, exchange = self.settings.roster, next(_exchanges)
        roster.look()
        blank = broadcast.algorithm.row(broadcast.algorithm.memory(broadcast.down))
        new = Standing(torch.tensor(NEVER), blank)
        asked = self._letters(broadcast, ids, walk, new, exchange)
        answers = self._ask(MessageType.TRAIN, asked, roster.settings.enough)
        reports, forgot = self._read(answers)
        facts = roster.counted() | ({"forgot": len(forgot)} if len(forgot) else {})
        if len(reports) < roster.settings.minimum:
            return Result.none(broadcast.down.x, facts)
        answered = np.array(sorted(reports), dtype=np.int64)
        back: Report = stack([reports[client] for client in answered.tolist()])
        order = np.argsort(ids)
        place = torch.from_numpy(order[np.searchsorted(ids[order], answered)])
        made = back.steps  # a client may make fewer steps than asked
        walk = Walk(made, walk.lr[place], broadcast.rule.weight(made), walk.age[place])
        before = self.memory.take(answered, new).row
        fresh, sent = torch.from_numpy(np.isin(answered, forgot)), broadcast.algorithm.sent(back.up)
        row = tree_map(lambda old, more: _grown(old, more, fresh), before, sent)
        kept = Standing(torch.full((len(answered),), exchange), row)
        return Result(
            answered,
            back.up,
            back.buffers,
            back.training,
            walk,
            facts=facts,
            rows=kept,
            forgot=forgot,
        )

    def _letters(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, new: Standing, exchange: int
    ) -> dict[int, RecordDict]:
        """A message for every client: the broadcast without algorithm and rule, which a client has."""
        tickets = self.memory.take(ids, new).ticket.tolist()
        tree = {"down": broadcast.down, "buffers": broadcast.buffers}
        about: dict[str, Any] = {
            **self._run,
            "t": broadcast.t,
            "purpose": broadcast.purpose,
            "lr": broadcast.lr,
            "exchange": exchange,
        }
        work = zip(
            ids.tolist(),
            walk.steps.int().tolist(),
            walk.age.int().tolist(),
            tickets,
            strict=True,
        )
        each = {
            client: {"client": client, "steps": made, "age": age, "ticket": ticket}
            for client, made, age, ticket in work
        }
        return letters(tree, each, **about)

    def rows_counted(self, algorithm: AnyAlgorithm, kept: Standing) -> Any:
        return kept.row

    def sums(self, model: Model, examples: Examples, meters: Meters | None = None) -> Sums:
        if not self.settings.tested_by_clients:
            return super().sums(model, examples, meters)
        roster = self.settings.roster
        each = {client: {"client": client} for client in roster.cards}
        sums = Sums()
        asked = letters({"model": model}, each, **self._run)
        for client, answer in self._ask(MessageType.EVALUATE, asked).items():
            try:
                sums = sums.plus(_tested(answer))
            except (KeyError, ValueError) as error:
                roster.refuse(client, f"its test cannot be used: {error!r}")
        return sums

    def losses(self, models: Sequence[Model], mixes: Tensor, ids: Ids, t: int) -> Tested:
        """Models travel once: clients that hold them from the last exchange receive only the weights."""
        roster = self.settings.roster
        roster.look()
        if self._lent is None or self._lent[0] is not models:
            self._lent = models, next(_exchanges)
            tree = {"mixes": mixes, "models": {str(n): model for n, model in enumerate(models)}}
        else:
            tree = {"mixes": mixes}
        about = {**self._run, "t": t, "exchange": self._lent[1]}
        known, kept = self.memory.kept(ids)  # local buffers are part of what a client remembers
        tickets = dict(zip(known.tolist(), kept.ticket.tolist(), strict=True)) if len(known) else {}
        each = {c: {"client": c, "ticket": tickets.get(c, NEVER)} for c in ids.tolist()}
        found: dict[int, tuple[list[float], float]] = {}
        for client, answer in self._ask(TEST_LOSSES, letters(tree, each, **about)).items():
            try:
                found[client] = _losses(answer, len(mixes))
            except (KeyError, ValueError) as error:
                roster.refuse(client, f"its losses cannot be used: {error!r}")
        answered = sorted(client for client, (_, examples) in found.items() if examples)
        losses = np.array([found[client][0] for client in answered]).reshape(-1, len(mixes)).T
        weight = np.array([found[client][1] for client in answered], dtype=np.float64)
        return Tested(np.array(answered, dtype=np.int64), losses, weight)

    def _ask(
        self, kind: str, asked: Mapping[int, RecordDict], enough: float = 1.0
    ) -> dict[int, RecordDict]:
        """The replies of clients; those that lack the frozen parameters receive them and are asked again."""
        roster = self.settings.roster
        answers = roster.ask(kind, asked, enough)
        without = [client for client, answer in answers.items() if is_lacking(answer)]
        if not without:
            return answers
        again = with_frozen({client: asked[client] for client in without}, self.task.frozen)
        whole = {client: answer for client, answer in answers.items() if client not in again}
        return whole | roster.ask(kind, again)

    @property
    def _run(self) -> dict[str, Any]:
        """The run of the study that messages belong to, and the checksum of the model's frozen parameters."""
        return {"cell": self.settings.cell, "seed": self.data.seed, FROZEN: self._frozen}

    @cached_property
    def _frozen(self) -> str:
        return checksum(self.task.frozen)

    def _read(self, answers: Mapping[int, RecordDict]) -> tuple[dict[int, Report], Ids]:
        """The replies that can be used: whole, finite, and of the shape that most of them have.

        With those among them whose client had lost its memory, say because it was restarted.
        """
        replies: dict[int, Report] = {}
        forgot: set[int] = set()
        for client, answer in answers.items():
            try:
                reply, about = unpacked(answer, self.task.initial.x.device)
                replies[client] = _checked(reply)
                if int(str(about["forgot"])):
                    forgot.add(client)
            except EngineError as error:
                self.settings.roster.refuse(client, str(error))
        shapes = {client: _shape(reply) for client, reply in replies.items()}
        usual = Counter(shapes.values()).most_common(1)
        for client, shape in shapes.items():
            if shape != usual[0][0]:
                self.settings.roster.refuse(client, "its update has another shape than the others'")
                del replies[client]
        return replies, np.array(sorted(forgot & set(replies)), dtype=np.int64)


def _grown(old: Tensor, sent: Tensor, fresh: Tensor) -> Tensor:
    """Rows after these uploads; rows of `fresh` clients, which had lost their memory, begin at zero."""
    old = old.to(sent)
    old = torch.where(fresh.to(sent.device).view(-1, *[1] * (old.dim() - 1)), 0, old)
    return old + sent


def _checked(reply: Any) -> Report:
    if not isinstance(reply, Report):
        raise EngineError(f"A reply must be an update. Got {type(reply).__name__}.")
    if not all(bool(torch.isfinite(leaf).all()) for leaf in leaves(reply)):
        raise EngineError("An update must be made of finite numbers. Got others.")
    return reply


def _tested(answer: RecordDict) -> Sums:
    """The sums over a client's test examples."""
    found = answer.metric_records["tested"]
    sums = Sums(*(float(str(found[name])) for name in Sums._fields))
    fits = 0 <= sums.right <= sums.examples and sums.weight >= 0
    if not (np.isfinite(sums).all() and fits):
        raise ValueError(f"got {sums}")
    return sums


def _losses(answer: RecordDict, count: int) -> tuple[list[float], float]:
    """A client's mean losses, and how many examples they are taken over; 0 if it could not test."""
    found = answer.metric_records["losses"]
    losses, examples = (
        [float(each) for each in cast(list[float], found["losses"])],
        found["examples"],
    )
    examples = float(cast(float, examples))
    if examples and not (len(losses) == count and 0 < examples < math.inf):
        raise ValueError(f"got {len(losses)} losses over {examples} examples")
    return losses, examples


def _shape(reply: Report) -> str:
    return repr(tree_map(lambda leaf: leaf.to("meta"), reply))
