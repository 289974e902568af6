"""A trial step of two clients: what a model and an algorithm can do, before an engine is chosen."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
import torch

from fedtide.algorithms.base import Context
from fedtide.core.errors import AuthorError, EngineError, require
from fedtide.core.trees import repeated, rows, width
from fedtide.core.types import Examples
from fedtide.data.batches import ClientData, Picks
from fedtide.engines.base import Chunk, Traits
from fedtide.engines.fast.chain import chain_of
from fedtide.engines.vectorised import Vectorised
from fedtide.tasks.task import Task
from fedtide.training.explain import check_state, explained, reason
from fedtide.training.messages import AnyAlgorithm, Broadcast, Row
from fedtide.training.train import Train

TRIED = 3  # examples of a trial step


def is_chain(task: Task) -> bool:
    """Is the model a chain of linear layers and ReLUs, with cross entropy as its loss?"""
    plain = task.objective.is_plain and task.is_whole
    return plain and chain_of(task.structure) is not None


def model_traits(task: Task, examples: Examples) -> Traits:
    """Facts about a model that a training step on three examples shows."""
    index = torch.arange(TRIED, device=examples.device) % len(examples)
    inputs, _ = examples.take(index)
    x, buffers = task.initial
    known = {name: constant.clone() for name, constant in task.constants.items()}
    with torch.random.fork_rng(), torch.no_grad():
        before = torch.get_rng_state()
        together = task.train(x, buffers, inputs)[0].logits[:2]
        changed = [name for name in known if not torch.equal(known[name], task.constants[name])]
        require(
            not changed,
            "train.model",
            "a module whose buffers are saved with it if training changes them",
            changed[0] if changed else "",
            "Register them with persistent=True.",
        )
        is_random = task.has_dropout or not torch.equal(before, torch.get_rng_state())
        apart = task.train(x, buffers, rows(inputs, slice(2)))[0].logits
        differ = not is_random and not torch.allclose(together, apart, rtol=1e-3)
        mixes = task.has_batch_norm or differ  # a head of zeros would hide it from the outputs
        return Traits(is_random, mixes)


def stacking_error(
    kind: type[Vectorised],
    task: Task,
    data: ClientData,
    traits: Traits,
    train: Train,
    algorithm: AnyAlgorithm,
) -> str:
    """Why model, optimiser and algorithm cannot be stacked over clients; empty if they can.

    Two clients make one step with an engine of this kind; their examples are the first three.
    """
    engine = kind(task, data, traits, train.buffers)
    try:
        with torch.random.fork_rng(), torch.no_grad(), warnings.catch_warnings():
            # Torch may run clients one by one, with a warning (LSTM).
            warnings.filterwarnings("error", message="There is a performance drop")
            broadcast = trial_broadcast(task, train, algorithm)
            engine.cohort(broadcast, _two_clients(engine, broadcast))
    except AuthorError:
        raise  # a method returned something that no engine can use
    # A warning, torch's words for "no batching rule", or anything a user's method does under vmap: the
    # loop runs the same code without vmap, and a true mistake is raised there, with client and round.
    except Exception as error:
        return reason(error)
    finally:
        engine.close()
    return ""


def trial_broadcast(task: Task, train: Train, algorithm: AnyAlgorithm) -> Broadcast:
    """What the server would broadcast before the first round, to a population of two."""
    with explained("trial step", 0):
        server = check_state(
            algorithm, "init", algorithm.init(task.initial.x, Context(task.layout, 2))
        )
        down = check_state(algorithm, "broadcast", algorithm.broadcast(server))
    return Broadcast(algorithm, train.optimiser, train.lr, down, task.initial.buffers, 0)


def _two_clients(engine: Vectorised, broadcast: Broadcast) -> Chunk:
    ids, rule = np.arange(2), broadcast.rule
    places = np.tile(np.arange(TRIED) % len(engine.data.examples), (2, 1))
    row: Row = repeated(engine.newcomer(broadcast), 2)
    row = row._replace(rule=repeated(rule.start(broadcast.down.x), 2))
    picks = Picks(places[:, None], np.ones((2, 1, TRIED), dtype=bool))
    walk = broadcast.walk(np.ones(2, dtype=np.int64), np.zeros(2, dtype=np.int64))
    if broadcast.algorithm.surveys == "never":
        return Chunk(ids, row, picks, walk)
    everything = Picks(places, np.ones((2, TRIED), dtype=bool))
    return Chunk(ids, row, picks, walk, everything, np.ones(2, dtype=np.int64))


def compiling_problem(task: Task, data: ClientData) -> str:
    """Why this task cannot be compiled; empty if it can."""
    inputs, x = data.examples.tensor, task.initial.x
    chain = chain_of(task.structure) if is_chain(task) else None
    if chain is None or inputs is None or chain[0].inputs != width(inputs):
        return "it is more than linear layers and ReLUs"
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return f"it computes on {x.device.type} with {x.dtype}"
    if inputs.dtype != x.dtype or data.examples.mean:
        return "its examples are prepared batch by batch"
    if find_spec("numba") is None:
        return "the package numba is missing: pip install fedtide[fast]"
    try:
        import numba  # noqa: F401
    except ImportError as error:  # as with a version of numpy that it does not know
        return f"the package numba does not load: {error}"
    return ""


def require_fit(task: Task, kind: str, problem: str) -> None:
    """Raise an `EngineError` if there is a problem with the engine that a study asks for."""
    if problem:
        raise EngineError(
            f"engine.kind must fit the model {task.name}: it cannot be {kind} ({problem}). "
            "Use engine.kind = 'loop' or 'auto'."
        )
