"""The simulated world of one run: clients, their data, the model and the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedtide.algorithms.base import Context, Survey
from fedtide.core.errors import TrainingError, require
from fedtide.core.layout import Layout
from fedtide.core.trees import outline, repeated, size_bytes, tree_map
from fedtide.core.types import (
    Buffers,
    Cohort,
    Crowd,
    Dataset,
    Ids,
    Inputs,
    Model,
    Outputs,
    Scores,
    Session,
    Vector,
    Walk,
    Work,
)
from fedtide.data.batches import ClientData
from fedtide.engines.base import Engine, Result
from fedtide.measure.own_tests import Bench
from fedtide.models.base import MadeFor
from fedtide.run.experiment import Experiment
from fedtide.tasks.task import Task
from fedtide.training.explain import check_report, explained
from fedtide.training.gradient import by_backward
from fedtide.training.messages import AnyAlgorithm
from fedtide.training.train import Train, made_for

NO_NEWS: Mapping[str, Any] = MappingProxyType({})
PREPARED_BYTES = 1 << 30  # larger sets of images are converted batch by batch


@dataclass(eq=False)
class World:
    """Answers the questions of a round that need data, model and session together."""

    dataset: Dataset
    engine: Engine
    train: Train
    hostile: Ids  # clients that an attack controls
    sample: Dataset  # the first example of each part, as it is stored
    made_for: MadeFor  # what the model was built for
    bits_per_example: int = 0  # of an input as it is stored
    population: int = 0  # clients that exist now
    _known_traffic: dict[Any, tuple[int, int]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)  # clients that have received what is frozen
    _untrained: dict[Any, Scores] = field(default_factory=dict)

    @classmethod
    def build(cls, e: Experiment) -> World:
        """Load the data, split it over the clients, build the model and choose the engine."""
        with explained("preparation", 0):
            return cls._built(e)

    @classmethod
    def _built(cls, e: Experiment) -> World:
        device = e.engine.place()
        dataset, holdings = e.data.deal(e.population.groups, e.population.length, e.seed)
        dataset = dataset.scored_on(e.evaluation.on)
        bits, sample = 8 * dataset.train.raw_bytes, dataset.some(1)
        dataset = e.gate.poisoned(dataset.to(device).prepared(PREPARED_BYTES), holdings)
        task = e.train.task(dataset, e.seed, device, e.task)
        e.privacy.check_buffers(task.initial.buffers, e.train.buffers)
        check_task(e, task, dataset)
        clients = ClientData(dataset.train, holdings, e.train, e.seed)
        engine = e.engine.build(task, clients, e.train, e.algorithm)
        hostile = e.attack.members(holdings.clients, e.seed)
        wanted = made_for(dataset, e.task)
        return cls(dataset, engine, e.train, hostile, sample, wanted, bits)

    def __enter__(self) -> Self:
        # One thread per operator: engines use threads across clients, which leaves every bit in place.
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.engine.open()
        return self

    def __exit__(self, *problem: object) -> None:
        torch.set_num_threads(self._threads)
        self.engine.close()

    @property
    def initial(self) -> Model:
        """The untrained model."""
        return self.engine.task.initial

    @property
    def layout(self) -> Layout:
        """Where each parameter lies in the model's vector."""
        return self.engine.task.layout

    @property
    def context(self) -> Context:
        """What an algorithm may know when a session begins."""
        return Context(self.layout, self.population)

    @property
    def crowd(self) -> Crowd:
        """All clients that ever exist."""
        return Crowd(self.engine.data.holdings.clients, self._label_counts)

    def _label_counts(self) -> NDArray[np.int64]:
        """How many examples of each label every client holds at the start: [clients, classes]."""
        require(
            self.dataset.classes > 0,
            "data",
            "examples with labels, one whole number each, where a study uses the labels of clients",
            f"targets of shape {list(self.dataset.train.targets.shape)} in {self.dataset.name!r}",
            "Leave participation.label_alpha and evaluation.fairness out.",
        )
        return self.engine.data.holdings.labels(self.dataset.labels, self.dataset.classes)

    @property
    def sees_labels(self) -> bool:
        """Are the clients' labels here, and not only with real clients? Targets may not be labels."""
        return self.engine.data.holdings.here and self.dataset.classes > 0

    def labels(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples of each label these clients hold in round t: [U, classes]."""
        holdings, targets = self.engine.data.holdings, self.dataset.labels
        found = np.zeros((len(ids), self.dataset.classes), dtype=np.int64)
        for row, client, size in zip(found, ids[:, None], holdings.sizes(t, ids), strict=True):
            mine = targets[holdings.examples(t, client, np.arange(size)[None])]
            row += np.bincount(mine.ravel(), minlength=len(row))
        return found

    def enter(self, session: Session) -> None:
        """A session begins: note who exists, and which labels its model is tested on."""
        self.population = len(session.clients)
        holdings, dataset = self.engine.data.holdings, self.dataset
        if not dataset.classes:
            self._tested, self.test = (), dataset.test
            return
        held = torch.from_numpy(holdings.ever(session.first, session.clients))
        present = torch.zeros(dataset.classes, dtype=torch.bool)
        present[dataset.train.targets[held.to(dataset.train.device)].cpu()] = True
        self._tested = tuple(present.tolist())
        fits = present.to(dataset.test.device)[dataset.test.targets]
        self.test = dataset.test if fits.all() else dataset.test.some(fits.nonzero()[:, 0])

    def work(
        self,
        t: int,
        ids: Ids,
        algorithm: AnyAlgorithm,
        down: Any,
        news: Mapping[str, Any] = NO_NEWS,
    ) -> Work:
        """The work of these clients in round t: steps, examples, bytes and operations.

        `down` is the message that they receive, `news` holds facts about how they were drawn.
        """
        data = self.engine.data
        bytes_down, bytes_up = self._traffic(algorithm, down)
        return Work(
            steps=data.steps(t, ids),
            examples=data.holdings.sizes(t, ids),
            batch_size=self.train.batch_size,
            bytes_down=bytes_down,
            bytes_up=bytes_up,
            parameters=self.initial.x.numel(),
            bits_per_example=self.bits_per_example,
            flops=lambda: self._flops,
            asked=news.get("asked", 0),
            hoped=news.get("hoped", 0),
            wait=news.get("wait", 1.0),
        )

    @cached_property
    def _flops(self) -> float:
        """Operations for one example, forward and backward."""
        train, (x, buffers) = self.dataset.train, self.initial
        values = (x, buffers, train.between(0, 1)[0])
        try:  # from shapes alone, where kernels that join operations are taken apart
            return self._counted(*(_shapes(value) for value in values))
        except (RuntimeError, NotImplementedError):  # a model that looks at its values
            return self._counted(*values)

    def _counted(self, x: Vector, buffers: Buffers, inputs: Inputs) -> float:
        x = x.detach().clone().requires_grad_()
        with FlopCounterMode(display=False) as counter:
            logits = self.engine.task.view(x, buffers, inputs).logits
            logits.sum().backward()  # type: ignore[no-untyped-call]
        return float(counter.get_total_flops())

    def _traffic(self, algorithm: AnyAlgorithm, down: Any) -> tuple[int, int]:
        """Bytes that one client receives and sends in a round; computed once for each shape of `down`."""
        shape = outline(down)
        if shape not in self._known_traffic:
            down_, up = size_bytes(down), size_bytes(idle_upload(algorithm, down, self._survey()))
            buffers, policy = size_bytes(self.initial.buffers), self.train.buffers
            moving = buffers if policy == "average" else 0
            self._known_traffic[shape] = down_ + moving, up + moving
        return self._known_traffic[shape]

    def first_downloads(self, ids: Ids) -> int:
        """Bytes that these clients receive once only: what is frozen, before their first round."""
        return self._frozen_bytes * len(set(ids.tolist()) - self.met) if self._frozen_bytes else 0

    def meet(self, ids: Iterable[int]) -> None:
        """Note that these clients have taken part, and have what is frozen."""
        if self._frozen_bytes:
            self.met.update(map(int, ids))

    @cached_property
    def _frozen_bytes(self) -> int:
        """The size of frozen parameters, and of buffers if they are frozen."""
        buffers = self.initial.buffers if self.train.buffers == "frozen" else {}
        return size_bytes(self.engine.task.frozen) + size_bytes(buffers)

    def idle_round(self, algorithm: AnyAlgorithm, server: Any, t: int, ids: Ids) -> Any:
        """The server's state after a round in which these clients answer, but have not moved."""
        down = algorithm.broadcast(server)
        one = torch.ones(len(ids), device=down.x.device)
        up = repeated(idle_upload(algorithm, down, self._survey()), len(ids))
        return algorithm.aggregate(server, up, self.cohort(t, ids, Walk(one, one, one, one)))

    def _survey(self) -> Survey:
        """A survey of one example, for the sizes of what comes of it."""
        task, own = self.engine.task, self.initial.buffers
        first, _ = self.dataset.train.between(0, 1)
        one = torch.ones(1, device=self.dataset.train.device)

        def outputs(y: Vector) -> Outputs:
            return task.view(y, own, task.arranged(first))

        return Survey(torch.zeros_like, outputs, one, one, self.layout, self.train.epochs, False)

    def share(self, t: int, ids: Ids) -> Tensor:
        """The share of a cohort's examples that each of its clients holds: [U]."""
        sizes = self.engine.data.holdings.sizes(t, ids)
        return torch.from_numpy(sizes / sizes.sum()).to(self.initial.x)

    def cohort(self, t: int, ids: Ids, walk: Walk) -> Cohort:
        """The clients whose uploads are aggregated."""
        share = self.share(t, ids)
        return Cohort(torch.from_numpy(ids).to(share.device), share, walk, self.population, t)

    def next_model(self, x: Vector, before: Model, result: Result, cohort: Cohort) -> Model:
        """The global model after a round: the server's vector, and the buffers of the clients mixed."""
        return Model(x, self.train.next_buffers(before.buffers, result.buffers, cohort.share))

    def evaluate(self, t: int, model: Model) -> Scores | None:
        """How good a model is on the test examples whose labels clients of the session hold.

        None if no client was there to test it.
        """
        scores = self.engine.evaluate(model, self.test)
        if scores is None:
            return None
        if not math.isfinite(scores.loss):
            raise TrainingError(
                f"round {t}: the global model's test loss must be a number. Got {scores.loss}. "
                "Try a smaller train.lr, or clip gradients with train.optimiser.clip."
            )
        return scores

    @property
    def untrained(self) -> Scores:
        """The untrained model's scores on the test examples of the session; computed once for each set."""
        if self._tested not in self._untrained:
            tested = self.engine.evaluate(self.initial, self.test)
            self._untrained[self._tested] = tested or Scores(None, math.nan, None)
        return self._untrained[self._tested]

    def gradients(self, ids: Ids, model: Model, t: int) -> Tensor:
        """The gradient of each client's mean loss over all it holds in round t, at this model: [U, dim]."""
        task, picks = self.engine.task, self.engine.data.everything(t, ids)

        def one(places: NDArray[np.int64], mask: NDArray[np.bool_]) -> Vector:
            index = torch.from_numpy(places[mask]).to(model.x.device)
            inputs, targets = self.dataset.train.take(index)

            def loss(y: Vector) -> tuple[Tensor, None]:
                logits = task.view(y, model.buffers, inputs).logits
                loss, weights = task.losses(logits, targets), task.weights(targets)
                return loss.mean() if weights is None else loss.sum() / weights.sum(), None

            return by_backward(loss, model.x)[0] if mask.any() else torch.zeros_like(model.x)

        return torch.stack([one(*row) for row in zip(picks.places, picks.mask, strict=True)])

    @cached_property
    def bench(self) -> Bench | None:
        """Tests on clients' own test examples, if the data have any."""
        own = self.dataset.own
        return None if own is None else Bench(self.engine, own, self.engine.task.objective)

    def own_accuracies(self, model: Model) -> NDArray[np.float64] | None:
        """The accuracy on each client's own test examples, [clients]; not a number without any."""
        if self.bench is None:
            return None
        bench = replace(self.bench, objective=replace(self.bench.objective, metrics=()))
        found = np.full(self.engine.data.holdings.clients, np.nan)
        ids = bench.known(np.arange(len(found)))
        found[ids] = bench.scores(model, ids)
        return found

    def by_label(self, model: Model) -> dict[int, float]:
        """Accuracy on the test examples of each label that clients of the session hold."""
        test, targets = self.test, self.test.targets
        parts = {
            label: test.some((targets == label).nonzero()[:, 0]) for label in set(targets.tolist())
        }
        found = {label: self.engine.evaluate(model, parts[label]) for label in sorted(parts)}
        return {
            label: scores.accuracy
            for label, scores in found.items()
            if scores and scores.accuracy is not None
        }


def check_task(e: Experiment, task: Task, dataset: Dataset) -> None:
    """Raise a `ConfigError` if algorithm or evaluation need what task, model and data do not have."""
    name = type(e.algorithm).__name__
    require(
        e.algorithm.needs != "features" or task.has_features or e.task.has_labels,
        "train.model",
        f"in two halves, embed and head, for {name}, which compares features",
        task.name,
        "Give it `embed`, `head` and `is_split = True`, or use another algorithm.",
    )
    labels = dataset.classes > 0 and e.task.scores[0].name == "accuracy" and not e.engine.is_real
    own = dataset.own is not None
    require(
        not e.evaluation.clients or own or labels,
        "evaluation.clients",
        "0 where clients have no test examples of their own",
        e.evaluation.clients,
        "Set data.test_share = 0.2, or use data that name the owners of test examples.",
    )
    require(
        e.evaluation.personalise is None or own,
        "evaluation.personalise",
        "left out where clients have no test examples of their own",
        e.evaluation.personalise,
        "Set data.test_share = 0.2, or use data that name the owners of test examples.",
    )
    require(
        not e.evaluation.fairness or (dataset.classes > 0 and e.task.has_answers),
        "evaluation.fairness",
        "false where examples have no labels or answers are not right or wrong",
        True,
    )


def idle_upload(algorithm: AnyAlgorithm, down: Any, survey: Survey) -> Any:
    """The upload of a client that has not moved, to see how large an upload is."""
    one, mine = torch.ones((), device=down.x.device), algorithm.memory(down)
    if algorithm.surveys != "never":
        mine = algorithm.survey(down.x, one, survey, down, mine)
        if algorithm.surveys != "begin":
            mine = algorithm.survey(down.x, one, survey._replace(over=True), down, mine)
    walk = Walk(one, one, one, one)
    return check_report(algorithm, algorithm.report(down.x, walk, down, mine))[0]


def _shapes(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.to("meta"), tree)
