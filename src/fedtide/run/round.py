"""One round, from values to values: invite, train, aggregate, evaluate.

A run, the gradient rounds of a start, `fedtide cost` and the checks before a study use these functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedtide.algorithms.base import Change
from fedtide.core.rng import torch_seed
from fedtide.core.types import Cohort, Ids, Model, Plan, Round, Scores, Session, Work
from fedtide.engines.base import Result
from fedtide.guard.gate import Gate
from fedtide.measure.fairness import by_shares, fairness, participations
from fedtide.measure.probes import Finished, measured
from fedtide.record.line import Line, added, begun, billed, received
from fedtide.run.experiment import Experiment
from fedtide.run.own_tests import client_scores
from fedtide.run.state import Asked, Done, Now
from fedtide.run.world import NO_NEWS, World
from fedtide.starts.trigger import Era
from fedtide.training.explain import check_state, explained
from fedtide.training.messages import Broadcast


def draw(e: Experiment, session: Session, t: int, who: Any) -> tuple[Ids, Mapping[str, Any]]:
    """The clients that take part in round t, and facts about their draw."""
    with explained("draw of the cohort", t):
        return e.participation.take(who, t, session, e.seed)


def plan(
    e: Experiment,
    world: World,
    t: int,
    ids: Ids,
    now: Now,
    news: Mapping[str, Any] = NO_NEWS,
    held: int | None = None,
) -> tuple[Work, Plan, Now]:
    """What a round asks of these clients, what each can afford, and the state of the network after it.

    Clients hold the examples of round t, or of round `held`.
    """
    held = t if held is None else held
    with explained("plan of the round", t):
        work = world.work(held, ids, e.algorithm, broadcast_state(e, now), news)
        planned, network = e.network.plan(now.network, t, ids, work, e.seed)
    return work, planned, now._replace(network=network)


def invite(
    e: Experiment,
    world: World,
    session: Session,
    t: int,
    now: Now,
    start: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> tuple[Asked, Now]:
    """Who takes part in round t, and what each client can afford; `start` has facts and costs of a start."""
    facts, bill = start
    ids, news = draw(e, session, t, now.who)
    work, planned, now = plan(e, world, t, ids, now, news)
    planned, struck = e.faults.strike(planned, t, ids, e.seed)
    if once := world.first_downloads(ids[planned.able]):
        bill = {**bill, "bytes_down": bill.get("bytes_down", 0) + once}
    lr = e.train.rate(t - now.era.first, horizon(e, session, now.era))
    return Asked(t, session, ids, work, planned, lr, {**news, **struck, **facts}, bill), now


def train(e: Experiment, world: World, asked: Asked, now: Now) -> Result:
    """The uploads that reach the server; some may be lost or refused."""
    ids = asked.able
    if not len(ids):
        return Result.none(now.model.x)
    with explained("broadcast", asked.t):
        broadcast = Broadcast(
            algorithm=e.algorithm,
            rule=e.train.optimiser,
            lr=asked.lr,
            down=broadcast_state(e, now),
            buffers=now.model.buffers,
            t=asked.t,
            purpose=asked.purpose,
        )
        walk = broadcast.walk(asked.plan.steps[asked.plan.able], now.members.ages(asked.t, ids))
        weights = e.algorithm.weigh(world.share(asked.t, ids), walk) if e.adds else None
    result = world.engine.run(broadcast, ids, walk, weights)
    return gate(e, asked).received(result, world.hostile, asked.t)


def broadcast_state(e: Experiment, now: Now) -> Any:
    """What the algorithm sends to every client of the round."""
    return check_state(e.algorithm, "broadcast", e.algorithm.broadcast(now.server))


def aggregate(
    e: Experiment, world: World, asked: Asked, result: Result, now: Now
) -> tuple[Now, Done]:
    """The state after the uploads of a round; probes look while the uploads are there."""
    before, facts = now.model, dict(result.facts)
    now, cohort = move(e, world, asked, result, now)
    if cohort is not None:
        looks = partial(world.gradients, result.ids, before)
        finished = Finished(
            asked.t,
            asked.session,
            before,
            now.model,
            result.up,
            cohort,
            asked.plan,
            looks,
            e.algorithm,
        )
        with explained("probes", asked.t):
            trained = result.means
            facts |= training_facts(e, trained)
            facts |= measured(e.evaluation.probes, finished)
            facts |= e.algorithm.facts(now.server, cohort)
        now = now._replace(era=now.era.after(trained["credit"]))
    world.meet(result.ids)
    return now, Done(result.ids, facts | e.gate.noted(asked.ids, result.ids))


def training_facts(e: Experiment, means: Mapping[str, float]) -> Mapping[str, float]:
    """What the journal says about training: loss, and accuracy or, without right answers, credit."""
    name = "train_accuracy" if e.task.has_answers else "train_credit"
    return {name: means["credit"], "train_loss": means["loss"]}


def move(
    e: Experiment, world: World, asked: Asked, result: Result, now: Now
) -> tuple[Now, Cohort | None]:
    """The state after an aggregation, and its cohort; without uploads the model stays (None)."""
    now = remember(e, world, result, now)
    if not len(result.ids):
        return now, None
    cohort = world.cohort(asked.t, result.ids, result.walk)
    with explained("aggregation", asked.t):
        server = gate(e, asked).aggregated(e.algorithm, now.server, result, cohort, asked.ids)
        check_state(e.algorithm, "move" if e.algorithm.weighs else "aggregate", server)
    model = world.next_model(server.x, now.model, result, cohort)
    members = now.members._replace(made=now.members.made + 1)
    return now._replace(server=server, model=model, members=members), cohort


def remember(e: Experiment, world: World, result: Result, now: Now) -> Now:
    """Store what clients remember of the round if their uploads passed.

    Clients that had lost their memory are taken out of the server's mean first.
    """
    forgot = np.intersect1d(result.forgot, result.ids)
    if len(forgot) and e.algorithm.has_own("row") and e.gate.keeps_sums:
        now = recount(e, world, now, len(now.members.present), forgot, forgot[:0], start=False)
    world.engine.keep(result, e.gate.remembering(result.trained, result.ids))
    return now


def recount(
    e: Experiment, world: World, now: Now, before: int, left: Ids, came: Ids, start: bool
) -> Now:
    """The state when the server's mean no longer counts the clients that left, and counts those that came."""
    down = e.algorithm.broadcast(now.server)
    gone, back = (world.engine.row_sum(e.algorithm, ids, down) for ids in (left, came))
    here = torch.from_numpy(now.members.present).to(now.model.x.device)
    change = Change(here, before, gone, back, start)
    return now._replace(server=e.algorithm.changed(now.server, change))


def evaluate(
    e: Experiment, world: World, asked: Asked, model: Model, before: Sequence[Line]
) -> Mapping[str, Any]:
    """Test scores of the model, if a test is due; `before` are the lines of the rounds before."""
    if not len(asked.session.clients) or not e.evaluation.due(asked.t, e.population.length):
        return {"accuracy": None, "loss": None}
    scores = world.evaluate(asked.t, model)
    if scores is None:
        return {"accuracy": None, "loss": None}
    facts = score_facts(e, world, scores) | client_scores(e, world, asked, model)
    return facts | e.evaluation.judged(scores.loss, before, lambda: world.untrained.loss)


def score_facts(e: Experiment, world: World, scores: Scores) -> dict[str, Any]:
    """What the journal says about a test."""
    facts: dict[str, Any] = {"accuracy": scores.accuracy, "loss": scores.loss}
    if not e.scale.is_accuracy:
        facts |= {"score": scores.score, "untrained_score": world.untrained.score}
    return facts | ({"metrics": dict(scores.metrics)} if scores.metrics else {})


def line_of(asked: Asked, done: Done, scores: Mapping[str, Any]) -> Line:
    """The round's line of the journal."""
    line = begun(asked.t, asked.session, asked.ids, asked.plan, asked.work, asked.lr)
    line = received(line, done.ids, asked.work)
    return billed(added(line, {**asked.facts, **done.facts, **scores}), asked.bill)


def observe(e: Experiment, now: Now, done: Round) -> Now:
    """The state after the participation process has seen the finished round."""
    with explained("end of the round", done.t):
        return now._replace(who=e.participation.observe(now.who, done))


def closed(e: Experiment, world: World, line: Line, before: Sequence[Line], model: Model) -> Line:
    """The line, with closing facts if it is the last one."""
    is_last = line["t"] + 1 == e.population.length
    return added(line, closing_facts(e, world, [*before, line], model)) if is_last else line


def closing_facts(
    e: Experiment, world: World, lines: Sequence[Line], model: Model
) -> Mapping[str, Any]:
    """Further facts in the last line of a journal: fairness, and the privacy that the run has spent."""
    facts: dict[str, Any] = {}
    if e.evaluation.fairness:
        crowd = world.crowd
        counts = participations((line["clients"] for line in lines), crowd.clients)
        by_label, own = world.by_label(model), world.own_accuracies(model)
        scores = by_shares(crowd.labels(), by_label) if own is None else own
        facts["fairness"] = fairness(counts, scores, by_label, proxy=own is None)
    return facts | e.gate.privacy_spent(lines, e.is_uniform)


def gate(e: Experiment, asked: Asked) -> Gate:
    """Faults, attack, defence and privacy; gradient rounds have addresses for random numbers of their own."""
    if asked.purpose == "batch":
        return e.gate
    return replace(e.gate, seed=torch_seed(e.seed, asked.purpose))


def horizon(e: Experiment, session: Session, era: Era) -> int:
    """How many rounds a learning-rate schedule spans: a session, or all that are left of the run.

    Only where every session begins with a start is it known when the next one comes.
    """
    return session.rounds if e.start.trigger.is_steady else e.population.length - era.first
