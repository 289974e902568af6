"""The clients, their data and the engine of one run, put together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from fedtide.algorithms.base import Survey
from fedtide.core.errors import TrainingError
from fedtide.core.trees import size_bytes, tree_map
from fedtide.core.types import (
    Buffers,
    Cohort,
    Crowd,
    Dataset,
    Ids,
    Model,
    Outputs,
    Session,
    Vector,
    Walk,
    Work,
)
from fedtide.data.batches import ClientData
from fedtide.data.holdings import distribute
from fedtide.data.source import Data
from fedtide.engines.base import Engine
from fedtide.engines.choose import EngineChoice
from fedtide.engines.client import AnyAlgorithm
from fedtide.engines.train import Train
from fedtide.population.sessions import Population


@dataclass(eq=False)
class House:
    """Answers the questions of a round that need data, model and session together."""

    dataset: Dataset
    engine: Engine
    train: Train

    @classmethod
    def furnish(
        cls, data: Data, population: Population, train: Train, choice: EngineChoice, seed: int
    ) -> House:
        """Load the data, split it over the clients, build the model and choose the engine."""
        device = choice.place()
        dataset = data.load()
        holdings = distribute(dataset, data.partition, population.groups(dataset.classes), seed)
        dataset = dataset.to(device)
        task = train.task(dataset, seed, device)
        clients = ClientData(dataset.train, holdings, train, seed)
        return cls(dataset, choice.build(task, clients, train.buffers), train)

    @property
    def initial(self) -> Model:
        """The untrained model."""
        return self.engine.task.initial

    @property
    def crowd(self) -> Crowd:
        """All clients that ever exist."""
        holdings, targets = self.engine.data.holdings, self.dataset.train.targets.cpu().numpy()
        return Crowd(holdings.clients, lambda: holdings.labels(targets, self.dataset.classes))

    def weigh(self, algorithm: AnyAlgorithm, down: Any, buffers: Buffers) -> None:
        """Note how many bytes a client receives and sends in this round."""
        task, own = self.engine.task, _shapes(self.initial.buffers)
        first = _shapes(self.dataset.train.ready(self.dataset.train.inputs[:1]))
        one = torch.ones(1, device="meta")

        def outputs(y: Vector) -> Outputs:
            return task.view(y, own, first)

        survey = Survey(torch.empty_like, outputs, one, one, task.layout, self.train.epochs, False)
        self.bytes_down, self.bytes_up = traffic(algorithm, down, buffers, survey)

    def enter(self, session: Session) -> None:
        """A session begins: note who exists, and which labels its model is tested on."""
        self.population = len(session.clients)
        holdings, dataset = self.engine.data.holdings, self.dataset
        held = torch.from_numpy(holdings.held(session.first, session.clients))
        present = torch.zeros(dataset.classes, dtype=torch.bool)
        present[dataset.train.targets[held.to(dataset.train.targets.device)].cpu()] = True
        self.test = present.to(dataset.test.targets.device)[dataset.test.targets].nonzero()[:, 0]

    def work(self, t: int, ids: Ids) -> Work:
        """What round t asks of these clients."""
        data = self.engine.data
        return Work(
            steps=data.steps(t, ids),
            examples=data.holdings.sizes(t, ids),
            batch_size=self.train.batch_size,
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            parameters=self.initial.x.numel(),
        )

    def cohort(self, t: int, ids: Ids, walk: Walk) -> Cohort:
        """The clients whose uploads are aggregated."""
        sizes = self.engine.data.holdings.sizes(t, ids)
        share = torch.from_numpy(sizes / sizes.sum()).to(self.initial.x)
        return Cohort(torch.from_numpy(ids).to(share.device), share, walk, self.population, t)

    def evaluate(self, t: int, model: Model) -> tuple[float, float]:
        """Accuracy and loss on the test examples whose labels somebody in the session holds."""
        accuracy, loss = self.engine.evaluate(model, self.dataset.test, self.test)
        if not math.isfinite(loss):
            raise TrainingError(
                f"round {t}: the global model's test loss must be a number. Got {loss}. "
                "Try a smaller train.lr, or clip gradients with train.optimiser.clip."
            )
        return accuracy, loss

    def by_label(self, model: Model) -> dict[int, float]:
        """Accuracy on the test examples of each label that somebody in the session holds."""
        test, targets = self.dataset.test, self.dataset.test.targets[self.test]
        return {
            label: self.engine.evaluate(model, test, self.test[targets == label])[0]
            for label in sorted(set(targets.tolist()))
        }


def traffic(
    algorithm: AnyAlgorithm, down: Any, buffers: Buffers, survey: Survey
) -> tuple[int, int]:
    """Bytes that one client receives and sends per round, from shapes alone."""
    shapes = _shapes(down)
    one = torch.ones((), device="meta")
    mine = algorithm.memory(shapes)
    if algorithm.surveys != "never":
        mine = algorithm.survey(shapes.x, one, survey, shapes, mine)
        mine = algorithm.survey(shapes.x, one, survey._replace(over=True), shapes, mine)
    up, _ = algorithm.report(shapes.x, Walk(one, one, one), shapes, mine)
    return size_bytes(down) + size_bytes(buffers), size_bytes(up) + size_bytes(buffers)


def _shapes(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.to("meta"), tree)
