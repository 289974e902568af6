"""Clients spread over Ray actors, on this machine or a cluster; each actor runs another engine inside."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayTaskError
from torch import Tensor

from fedtide.core.errors import EngineError, FedTideError
from fedtide.core.trees import rows, size_bytes, tree_map
from fedtide.core.types import Ids, Model, Tested, Walk
from fedtide.engines.base import NO_CLIENTS, Engine, InProcess, Result
from fedtide.engines.loop import Loop
from fedtide.engines.ray.actor import Settings, TableSync, packed, shared_arrays, unpacked
from fedtide.engines.ray.memory import RemoteMemory
from fedtide.engines.ray.pool import ACTORS, Place, check_room, connected
from fedtide.training.messages import Broadcast, Report

ATTEMPTS = 3  # times that an actor may die over the same work before the run ends with an error
PATIENCE = 300.0  # seconds within which an actor must hold its clients
Answer = tuple[Any, Any, Any]  # references to what `Actor.run` returns
INLINE = 100 << 10  # bytes: Ray brings a smaller answer straight into this process


class Spread(NamedTuple):
    """How clients are spread over actors."""

    kind: type[InProcess] = Loop  # the engine inside
    actors: int = 2
    workers: int = 1  # threads and CPUs of each actor
    gpus: float = 0.0  # of each actor
    lost: Literal["redo", "count"] = "redo"  # the work of an actor that dies


class ActorJob(NamedTuple):
    """An actor's part of a round: the arguments of `Actor.run`, and what to do with the answer."""

    actor: int
    places: NDArray[np.int64]  # of its clients in the cohort
    ids: Ids
    walk: Any  # packed
    weights: Any  # packed, or None
    broadcast: Any  # a reference: Ray sends it once to every machine
    t: int
    whole: bool  # does the answer hold all rows of the actor?
    bytes_kept: int  # size of what its clients remember; 0: nothing


class Learnt(NamedTuple):
    """New rows of an actor's clients, as references."""

    job: ActorJob
    new: Any  # `StoredRows` of the clients of the round
    whole: Any  # `StoredRows` of all its clients before the round, or None


@dataclass(eq=False)
class Ray(Engine):
    """Actors hold their clients' data and memories; a round moves the broadcast and the reports."""

    spread: Spread = Spread()  # noqa: RUF009 (it cannot change)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.made_with = self.spread.kind.made_with  # type: ignore[misc]
        self.target = self.spread.kind.target  # type: ignore[misc]
        self._owners = assigned(self.data, self.spread.actors)
        self.memory: RemoteMemory = RemoteMemory(self._owners, count(), WeakSet())
        self._connection = ExitStack()
        self._actors: list[Any] = []
        self._held: Any = (
            None  # a reference to frozen parameters and constants, once for all actors
        )
        self._tables: list[set[int]] = [
            set() for _ in range(self.spread.actors)
        ]  # that each actor has
        self._counted: dict[tuple[int, int], Ids] = {}  # of an actor and a table, in its last round

    def run(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, weights: Tensor | None = None
    ) -> Result:
        self._connect()
        jobs = self._jobs(broadcast, ids, walk, weights)
        sent = [(job, self._send(job)) for job in jobs]
        done = [(job, back) for job, answer in sent if (back := self._answer(job, answer))]
        reports = [(job, report) for job, (report, _) in done]
        result = self._result(ids, walk, reports, weights is not None)
        return result._replace(rows=tuple(learnt for _, (_, learnt) in done))

    def _jobs(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, weights: Tensor | None
    ) -> list[ActorJob]:
        """The round's work, by actor."""
        each = size_bytes(self.newcomer(broadcast))
        down, buffers = packed(broadcast.down), packed(broadcast.buffers)
        sent = ray.put(broadcast._replace(down=down, buffers=buffers))
        jobs = []
        for actor in np.unique(self._owners[ids]).tolist():
            places = np.flatnonzero(self._owners[ids] == actor)
            jobs.append(
                ActorJob(
                    actor=actor,
                    places=places,
                    ids=ids[places],
                    walk=packed(rows(walk, torch.from_numpy(places))),
                    weights=None if weights is None else packed(weights[places]),
                    broadcast=sent,
                    t=broadcast.t,
                    whole=self.memory.is_stale(actor),
                    bytes_kept=each * len(places),
                )
            )
        return jobs

    def keep(self, result: Result, ids: Ids) -> None:
        """Note which rows count; the actors are told with their next round."""
        alive = self.memory.alive
        self._counted = {key: ids for key, ids in self._counted.items() if key[1] in alive}
        for job, new, whole in result.rows:
            if not job.bytes_kept:
                continue
            counted = job.ids[np.isin(job.ids, ids)]
            self._counted[job.actor, self.memory.number] = counted
            if job.bytes_kept < INLINE:
                new = ray.put(ray.get(new))  # out of this process
            self.memory.note(job.actor, counted, new, whole if job.whole else None)

    def losses(self, models: Sequence[Model], mixes: Tensor, ids: Ids, t: int) -> Tested:
        """The losses, each client's from its actor; this process computes those of an actor that dies."""
        if self.buffers == "local":
            return super().losses(models, mixes, ids, t)  # buffers of clients come to this process
        self._connect()
        ids = np.sort(ids)
        sent = ray.put(([packed(model) for model in models], packed(mixes)))
        actors = np.unique(self._owners[ids]).tolist()
        parts = [ids[self._owners[ids] == actor] for actor in actors]
        asked = [
            self._actors[a].losses.remote(sent, part, t)
            for a, part in zip(actors, parts, strict=True)
        ]
        answers = []
        for actor, part, word in zip(actors, parts, asked, strict=True):
            try:
                answers.append(ray.get(word))
            except (RayActorError, ObjectLostError):
                self._replace(actor)
                answers.append(super().losses(models, mixes, part, t))
        return joined(answers, len(mixes))

    def close(self) -> None:
        for actor in self._actors:
            ACTORS.give_back(actor, self._place)
        self._actors = []
        self._connection.close()
        super().close()

    @property
    def _place(self) -> Place:
        return Place(self.spread.workers, self.spread.gpus)

    def _connect(self) -> None:
        """Connect to Ray and settle the actors, at the first round."""
        if self._actors:
            return
        actors, task = self.spread.actors, self.task
        self._connection.enter_context(connected(max(self.workers, actors * self._place.cpus)))
        check_room(actors, self._place)
        self._held = ray.put((shared_arrays(task.frozen), shared_arrays(task.constants)))
        self._actors = [ACTORS.take(self._place) for _ in range(actors)]
        settled = [self._settle(number) for number in range(actors)]
        for number, word in enumerate(settled):
            self._settled(number, word)

    def _settle(self, number: int) -> Any:
        """Send an actor its clients; returns a reference that is ready when they are there."""
        spread, share = self.spread, self.data.share(np.flatnonzero(self._owners == number))
        device = "cuda" if spread.gpus else "cpu"
        task = self.task.holding({}, {})
        settings = Settings(
            spread.kind, task, self.traits, self.buffers, spread.workers, self.chunk, device
        )
        examples = share.examples
        arrays = packed(examples.stored)
        nothing: dict[str, Any] = dict.fromkeys(examples.stored, torch.empty(0))
        none = replace(examples, **nothing)
        self._tables[number] = set()
        return self._actors[number].settle.remote(
            settings, replace(share, examples=none), arrays, self._held
        )

    def _settled(self, number: int, word: Any) -> None:
        """Wait until an actor holds its clients; an actor that dies meanwhile is replaced."""
        for _ in range(ATTEMPTS):
            try:
                ray.get(word, timeout=PATIENCE)
                return
            except GetTimeoutError:
                break
            except RayActorError:
                self._actors[number] = ACTORS.take(self._place)
                word = self._settle(number)
        raise EngineError(
            f"engine.actors must find room in the Ray cluster within {PATIENCE:g} s. Got none for actor "
            f"{number + 1} of {self.spread.actors}. Choose fewer, or look at the cluster with `ray status`."
        )

    def _send(self, job: ActorJob) -> Answer:
        """Give an actor its work, with its clients' rows if it does not have them."""
        memory, known = self.memory, self._tables[job.actor]
        is_new = memory.number not in known
        known.add(memory.number)
        counted = self._counted.pop((job.actor, memory.number), NO_CLIENTS)
        sync = TableSync(memory.number, memory.alive, is_new, counted, job.whole)
        backups = memory.of(job.actor) if is_new else []
        run = self._actors[job.actor].run.options(num_returns=3)
        answer: Answer = run.remote(
            sync,
            job.broadcast,
            job.ids,
            job.walk,
            job.weights,
            [backup.ids for backup in backups],
            *(backup.rows for backup in backups),
        )
        return answer

    def _answer(self, job: ActorJob, answer: Answer) -> tuple[Report, Learnt] | None:
        """The reports of an actor's clients, and references to their new rows; None if they are lost."""
        for attempt in range(ATTEMPTS):
            if attempt:
                answer = self._send(job)
            try:
                report: Any = ray.get(answer[0])
                return report, Learnt(job, *answer[1:])
            except RayTaskError as error:
                if isinstance(error.cause, FedTideError):
                    raise error.cause from error
                raise
            except (RayActorError, ObjectLostError):
                if attempt + 1 < ATTEMPTS or self.spread.lost == "count":
                    self._replace(job.actor)
                if self.spread.lost == "count":
                    return None
        raise EngineError(
            f"round {job.t}: an actor must survive its clients' work. Got {ATTEMPTS} deaths over "
            f"the same {len(job.places)} clients, for lack of memory perhaps. Use fewer engine.actors on a "
            "machine, or a smaller engine.chunk."
        )

    def _replace(self, number: int) -> None:
        """Replace an actor that died or cannot be reached."""
        ray.kill(self._actors[number])
        self._actors[number] = ACTORS.take(self._place)
        self._settled(number, self._settle(number))

    def _result(
        self, ids: Ids, walk: Walk, done: list[tuple[ActorJob, Report]], adds: bool
    ) -> Result:
        """The reports of all actors put together, in the order of the cohort."""
        if not done:
            return Result.none(walk.lr)
        places, reports = zip(*((job.places, report) for job, report in done), strict=True)
        here = np.sort(np.concatenate(places))
        order = [np.searchsorted(here, part) for part in places]
        training = merged([report.training for report in reports], order)
        buffers = merged([report.buffers for report in reports], order)
        walk = rows(walk, torch.from_numpy(here))
        uploads = [report.up for report in reports]
        up = summed(uploads) if adds else merged(uploads, order)
        return Result(ids[here], up, buffers, training, walk, is_sum=adds)


def joined(answers: Sequence[Tested], rows: int) -> Tested:
    """The answers of all actors, in the order of the ids."""
    none = Tested(NO_CLIENTS, np.empty((rows, 0)), np.empty(0))
    ids, losses, weight = zip(none, *answers, strict=True)
    order = np.argsort(np.concatenate(ids))
    return Tested(
        np.concatenate(ids)[order],
        np.concatenate(losses, axis=1)[:, order],
        np.concatenate(weight)[order],
    )


def assigned(data: Any, actors: int) -> NDArray[np.int64]:
    """An actor for every client: in turns, from the client with most examples to that with fewest."""
    sizes = data.holdings.sizes(0, np.arange(data.holdings.clients))
    turns = np.concatenate([np.arange(actors), np.arange(actors)[::-1]])
    owners = np.empty(len(sizes), dtype=np.int64)
    owners[np.argsort(-sizes, kind="stable")] = np.resize(turns, len(sizes))
    return owners


def merged(parts: Any, order: list[NDArray[np.int64]]) -> Any:
    """Stacked parts as one stack, part p in the rows order[p]; each number is copied once."""
    clients = sum(map(len, order))

    def one(*arrays: NDArray[Any]) -> Tensor:
        whole = np.empty((clients, *arrays[0].shape[1:]), arrays[0].dtype)
        for array, places in zip(arrays, order, strict=True):
            whole[places] = array
        return torch.from_numpy(whole)

    return tree_map(one, *parts)


def summed(parts: Any) -> Any:
    """The sum of partial sums."""
    return tree_map(lambda *tensors: torch.stack(tensors).sum(0), *map(unpacked, parts))
