"""Clients spread over Ray actors, on this machine or a cluster; each actor runs another engine inside."""

from __future__ import annotations

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
from fedtide.core.types import Ids, Training, Walk
from fedtide.engines.base import NOBODY, Engine, Given, InProcess, Result, walked
from fedtide.engines.loop import Loop
from fedtide.engines.ray.actor import Broadcast, Order, Part, Settings, packed, unpacked
from fedtide.engines.ray.memory import Copies
from fedtide.engines.ray.pool import STAFF, Place, check_room, connected

ATTEMPTS = 3  # deaths over one piece of work before it is given up
PATIENCE = 300.0  # seconds until an actor must have settled
Answer = tuple[Any, Any, Any]  # references to what `Actor.run` returns
INLINE = 100 << 10  # bytes: Ray brings a smaller answer straight into this process


class Spread(NamedTuple):
    """How clients are spread over actors."""

    kind: type[InProcess] = Loop  # the engine inside
    actors: int = 2
    workers: int = 1  # threads and CPUs of each actor
    gpus: float = 0.0  # of each actor
    lost: Literal["redo", "count"] = "redo"  # the work of an actor that dies


class Taught(NamedTuple):
    """What a round taught an actor's clients, as references."""

    job: Job
    new: Any  # a `Kept` of the clients of the round
    whole: Any  # a `Kept` of all its clients before the round, or None


class Job(NamedTuple):
    """An actor's part of a round."""

    actor: int
    places: NDArray[np.int64]  # of its clients in the cohort
    order: Order
    broadcast: Any  # a reference
    bytes_kept: int  # what its clients remember; 0: nothing


@dataclass(eq=False)
class Ray(Engine):
    """Actors hold their clients' data and memories; what travels in a round is `down` and the uploads."""

    spread: Spread = Spread()  # noqa: RUF009 (it cannot change)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.made_with = self.spread.kind.made_with  # type: ignore[misc]
        self.target = self.spread.kind.target  # type: ignore[misc]
        self._owners = dealt(self.data, self.spread.actors)
        self.memory: Copies = Copies(self._owners, count(), WeakSet())
        self._connection = ExitStack()
        self._actors: list[Any] = []
        self._tables: list[set[int]] = [set() for _ in range(self.spread.actors)]  # each one knows
        self._counted: dict[tuple[int, int], Ids] = {}  # of an actor and a table, in its last round

    def perform(self, given: Given) -> Result:
        algorithm, rule, lr, down, buffers, ids, steps, ages, t, purpose, weights = given
        self._open()
        walk = walked(rule, lr, steps, ages, down.x)
        each = size_bytes(self.newcomer(algorithm, rule, down, buffers))
        broadcast = ray.put(packed(Broadcast(down, buffers)))  # once to every machine
        jobs = []
        for actor in np.unique(self._owners[ids]).tolist():
            places = np.flatnonzero(self._owners[ids] == actor)
            order = Order(
                algorithm,
                rule,
                lr,
                ids[places],
                steps[places],
                ages[places],
                t,
                purpose,
                None if weights is None else packed(weights[places]),
                whole=self.memory.is_crowded(actor),
            )
            jobs.append(Job(actor, places, order, broadcast, each * len(places)))
        sent = [(job, self._send(job)) for job in jobs]
        done = [(job, back) for job, answer in sent if (back := self._part(job, answer))]
        result = self._result(
            ids, walk, [(job, part) for job, (part, _) in done], weights is not None
        )
        return result._replace(rows=tuple(taught for _, (_, taught) in done))

    def keep(self, result: Result, ids: Ids) -> None:
        """Note what counts; the actors learn of it with their next order."""
        alive = self.memory.alive
        self._counted = {key: ids for key, ids in self._counted.items() if key[1] in alive}
        for job, new, whole in result.rows:
            if not job.bytes_kept:
                continue
            counted = job.order.ids[np.isin(job.order.ids, ids)]
            self._counted[job.actor, self.memory.number] = counted
            if job.bytes_kept < INLINE:
                new = ray.put(ray.get(new))  # out of this process
            self.memory.note(job.actor, counted, new, whole if job.order.whole else None)

    def close(self) -> None:
        for actor in self._actors:
            STAFF.release(actor, self._place)
        self._actors = []
        self._connection.close()
        super().close()

    @property
    def _place(self) -> Place:
        return Place(self.spread.workers, self.spread.gpus)

    def _open(self) -> None:
        """Settle the actors, when there is work for them."""
        if self._actors:
            return
        actors = self.spread.actors
        self._connection.enter_context(connected(max(self.workers, actors * self._place.cpus)))
        check_room(actors, self._place)
        self._actors = [STAFF.hire(self._place) for _ in range(actors)]
        settled = [self._settle(number) for number in range(actors)]
        for number, word in enumerate(settled):
            self._settled(number, word)

    def _settle(self, number: int) -> Any:
        """Send an actor its clients; returns a reference to the word that they are there."""
        spread, share = self.spread, self.data.share(np.flatnonzero(self._owners == number))
        device = "cuda" if spread.gpus else "cpu"
        settings = Settings(
            spread.kind, self.task, self.traits, self.buffers, spread.workers, self.chunk, device
        )
        examples = share.examples
        tensors = (examples.inputs, examples.targets, examples.rows)
        arrays = [packed(tensor) for tensor in tensors if tensor is not None]
        none = replace(examples, inputs=torch.empty(0), targets=torch.empty(0), rows=None)
        self._tables[number] = set()
        return self._actors[number].settle.remote(settings, replace(share, examples=none), *arrays)

    def _settled(self, number: int, word: Any) -> None:
        """Wait until an actor has settled; another one takes the place of an actor that dies over it."""
        for _ in range(ATTEMPTS):
            try:
                ray.get(word, timeout=PATIENCE)
                return
            except GetTimeoutError:
                break
            except RayActorError:
                self._actors[number] = STAFF.hire(self._place)
                word = self._settle(number)
        raise EngineError(
            f"engine.actors must find room in the Ray cluster within {PATIENCE:g} s. Got none for actor "
            f"{number + 1} of {self.spread.actors}. Choose fewer, or look at the cluster with `ray status`."
        )

    def _send(self, job: Job) -> Answer:
        """Give an actor its work, with its clients' memories if it does not have them."""
        memory, known = self.memory, self._tables[job.actor]
        anew = memory.number not in known
        known.add(memory.number)
        counted = self._counted.pop((job.actor, memory.number), NOBODY)
        order = job.order._replace(
            table=memory.number, alive=memory.alive, anew=anew, counted=counted
        )
        notes = memory.of(job.actor) if anew else []
        run = self._actors[job.actor].run.options(num_returns=3)
        answer: Answer = run.remote(
            order, job.broadcast, [note.ids for note in notes], *(note.copy for note in notes)
        )
        return answer

    def _part(self, job: Job, answer: Answer) -> tuple[Part, Taught] | None:
        """What an actor's clients send, and what the round taught them; None if it is lost."""
        for attempt in range(ATTEMPTS):
            if attempt:
                answer = self._send(job)
            try:
                part: Any = ray.get(answer[0])
                return part, Taught(job, *answer[1:])
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
            f"round {job.order.t}: an actor must survive its clients' work. Got {ATTEMPTS} deaths over "
            f"the same {len(job.places)} clients, for lack of memory perhaps. Use fewer engine.actors on a "
            "machine, or a smaller engine.chunk."
        )

    def _replace(self, number: int) -> None:
        """Another actor in the place of one that died or cannot be reached."""
        ray.kill(self._actors[number])
        self._actors[number] = STAFF.hire(self._place)
        self._settled(number, self._settle(number))

    def _result(self, ids: Ids, walk: Walk, done: list[tuple[Job, Part]], adds: bool) -> Result:
        """The parts of a cohort put together, in the order of its clients."""
        if not done:
            nobody = torch.empty(0)
            return Result(ids[:0], (), {}, Training(nobody, nobody), rows(walk, slice(0)))
        places, parts = zip(*((job.places, part) for job, part in done), strict=True)
        here = np.sort(np.concatenate(places))
        order = [np.searchsorted(here, part) for part in places]
        training = merged([part.training for part in parts], order)
        buffers = merged([part.buffers for part in parts], order)
        walk = rows(walk, torch.from_numpy(here))
        uploads = [part.up for part in parts]
        up = added(uploads) if adds else merged(uploads, order)
        return Result(ids[here], up, buffers, training, walk, is_sum=adds)


def dealt(data: Any, actors: int) -> NDArray[np.int64]:
    """An actor for every client: dealt to and fro from the largest to the smallest, so that all are even."""
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


def added(parts: Any) -> Any:
    """The sum of partial sums."""
    return tree_map(lambda *tensors: torch.stack(tensors).sum(0), *map(unpacked, parts))
