"""One run: the only module that knows every room. Its loop is the system model of the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin, get_type_hints

import numpy as np
import torch

from fedtide.algorithms.base import Change
from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.errors import memory_explained, require
from fedtide.core.parts import NO_KINDS, expect, settle
from fedtide.core.task import Layout
from fedtide.core.types import Ids, Model, Round, Session, Walk
from fedtide.data.source import Data, Source
from fedtide.engines.base import NOBODY, Result
from fedtide.engines.choose import EngineChoice
from fedtide.engines.client import AnyAlgorithm, Row
from fedtide.engines.house import House
from fedtide.engines.rehearsal import Rehearsal
from fedtide.engines.train import Train
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence, Mean
from fedtide.guard.faults import Faults
from fedtide.guard.gate import Gate
from fedtide.guard.privacy import Privacy
from fedtide.kinds import KINDS, kinds
from fedtide.network.plan import IdealNetwork, Network
from fedtide.population.participation import Full, Participation, Uniform
from fedtide.population.sessions import Fixed, Population
from fedtide.record.census import holdings, moves, sample
from fedtide.record.checkpoint import Checkpointing, Checkpoints
from fedtide.record.clock import Clock
from fedtide.record.evaluation import Evaluation
from fedtide.record.fairness import fairness, participations
from fedtide.record.journal import Journal, Line, answered, charged, described
from fedtide.record.metrics import Metric, metrics
from fedtide.record.notebook import card, figure, frame
from fedtide.record.probes import Finished, probed
from fedtide.record.values import declared
from fedtide.starts.archive import Archive
from fedtide.starts.base import Beginning, Start
from fedtide.starts.previous import Previous
from fedtide.starts.trigger import Era

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that defines a run; its fields are the sections of a study file.

    A name stands for the kind of that name with its defaults, as in a study file: `algorithm="fedprox"`.
    """

    data: Source = field(default_factory=Data)
    population: Population = field(default_factory=Fixed)
    participation: Participation = field(default_factory=Full)
    network: Network = field(default_factory=IdealNetwork)
    algorithm: AnyAlgorithm = field(default_factory=FedAvg)
    train: Train = field(default_factory=lambda: Train(epochs=1))
    start: Start = field(default_factory=Previous)
    engine: EngineChoice = field(default_factory=EngineChoice)
    faults: Faults = field(default_factory=Faults)
    attack: Attack = field(default_factory=Attack)
    defence: Defence = field(default_factory=Mean)
    privacy: Privacy = field(default_factory=Privacy)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    seed: int = 0

    def __post_init__(self) -> None:
        for section, base in sections().items():
            settle(self, section, section, base, kinds(base) if base in KINDS else NO_KINDS)
        paced = self.algorithm.surveys == "epochs"
        require(
            not paced or self.train.epochs > 0,
            "train.epochs",
            f"at least 1 with {type(self.algorithm).__name__}, which works in local epochs",
            self.train.epochs,
            "Set train.epochs instead of train.steps.",
        )
        kept = self.train.memories == "keep"
        require(
            not (kept and self.algorithm.has_own("row")),
            "train.memories",
            f"'carry' or 'reset' with {type(self.algorithm).__name__}, whose server keeps a mean of what "
            "clients remember",
            self.train.memories,
            "With 'keep' the server begins anew at every start and clients do not.",
        )
        if self.population.announced:
            self.participation.check_session(self.population.at(0, self.seed))
            self.gate.check_cohorts(self._cohorts())
        self.gate.check(self.algorithm)
        listens = self.start.computes or self.start.trigger.listens or self.participation.listens
        require(
            not (self.privacy.noise and listens),
            "privacy.noise",
            "0 with a start or a participation that learns from clients beside their uploads",
            self.privacy.noise,
            "What those learn is not hidden. Use start = 'previous' and participation = 'uniform'.",
        )
        if self.engine.uploads == "sums":
            self._check_sums()

    def _cohorts(self) -> Iterator[int]:
        """The sizes of the cohorts of every session that has clients, where they are known beforehand."""
        t = 0
        while t < self.population.length:
            session = self.population.at(t, self.seed)
            size = self.participation.size(len(session.clients))
            if size is None:
                return
            if size:
                yield size
            t = session.first + session.rounds

    def _check_sums(self) -> None:
        one = torch.ones(1)
        require(
            self.algorithm.weigh(one, Walk(one, one, one, one)) is not None,
            "engine.uploads",
            f"'stacked' with {type(self.algorithm).__name__}, whose server needs every upload",
            self.engine.uploads,
        )
        probes = self.evaluation.probes
        require(
            "drift" not in probes,
            "evaluation.probes",
            "without 'drift', which needs every upload, where engine.uploads = 'sums'",
            probes,
        )
        require(
            self.gate.is_open and self.gate.is_plain,
            "engine.uploads",
            "'stacked' with faults, attack, defence or privacy, which look at every upload",
            self.engine.uploads,
        )

    @property
    def gate(self) -> Gate:
        """What stands between clients and server."""
        kinds = (self.faults, self.attack, self.defence, self.privacy)
        return Gate(*kinds, self.seed, self.engine.is_real)

    @property
    def adds(self) -> bool:
        """Is a sum of the uploads enough, where the algorithm weighs them? Nobody looks at a single one."""
        if self.engine.kind == "ray":
            return self.engine.uploads == "sums"
        looks = {"drift", "rates"} & set(self.evaluation.probes)
        return self.gate.is_open and self.gate.is_plain and not looks

    @property
    def is_uniform(self) -> bool:
        """Is every cohort a uniform sample of those who exist, of a fixed size?

        Real clients have the study file, and with its seed they know who is drawn: no sample for them.
        """
        steady = isinstance(self.network, IdealNetwork) and not self.faults.is_active
        return steady and type(self.participation) is Uniform and not self.engine.is_real


@cache
def sections() -> dict[str, type]:
    """The class that every section of an experiment is of."""
    hints = get_type_hints(Experiment)
    return {name: get_origin(hint) or hint for name, hint in hints.items() if name != "seed"}


@dataclass(frozen=True, eq=False)
class History:
    """What came of a run: the journal's lines and the final model."""

    experiment: Experiment
    rounds: list[Line]
    model: Model
    layout: Layout  # where each parameter lies in model.x
    engine: str  # which engine ran, and why

    def metrics(self, transition_rounds: int = 10) -> dict[str, Metric]:
        """Accuracy, accuracy after transitions, time: see `fedtide.record.metrics`."""
        return metrics(self.rounds, transition_rounds)

    def to_pandas(self) -> DataFrame:
        """One row per round, one column per number of the journal."""
        return frame([({}, self.rounds)])

    def plot(self) -> Figure:
        """Test accuracy and loss over the rounds, as a Plotly figure."""
        return figure(self.rounds)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card(type(self.experiment.algorithm).__name__, self.engine, self.rounds)


GONE = -1  # in place of the round in which a client came


class State(NamedTuple):
    """What changes from round to round; what clients remember stays with the engine."""

    server: Any  # the algorithm's
    model: Model
    era: Era  # since the last start
    archive: Archive
    network: Any  # time and batteries
    present: Ids = NOBODY  # the clients that the server's state counts, sorted
    since: Ids = NOBODY  # the round in which each of them came; GONE in rounds without any client

    def ages(self, t: int, ids: Ids) -> Ids:
        """Rounds since each of these clients came."""
        return t - self.since[np.searchsorted(self.present, ids)]


def run(
    experiment: Experiment,
    journal: Journal | None = None,
    watch: Callable[[Line], None] = lambda line: None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Run an experiment, or go on with it; `watch` sees every line of the journal."""
    do = "For a study file, write run_study(load('study.toml'))."
    expect(experiment, Experiment, "fedtide.run()", do)
    e = replace(experiment, population=experiment.population.opened())
    algorithm, gate, journal = e.algorithm, e.gate, journal or Journal()
    checkpoints = checkpoints or Checkpoints()
    with (
        memory_explained(),
        House.furnish(e.data, e.population, e.train, e.engine, e.seed, gate.poisoned) as house,
    ):
        e.privacy.check_buffers(house.initial.buffers, e.train.buffers)
        hostile = e.attack.members(house.crowd.clients, e.seed)
        server = algorithm.init(house.initial.x, house.context)
        network = e.network.start(house.crowd.clients, e.seed)
        now = State(server, house.initial, Era(), Archive(), network)
        who = e.participation.start(house.crowd, e.seed)
        first, (now, who) = resumed(e, house, (now, who), journal, checkpoints)
        for line in journal.lines:  # of before
            watch(line)
        clock = Clock()
        for t in range(first, e.population.length):
            session = e.population.at(t, e.seed)  # who exists
            now, facts, bill = begin(e, house, t, session, now)  # someone came or went
            clock.lap("session")

            ids, news = e.participation.take(who, t, session, e.seed)  # who takes part
            down = algorithm.broadcast(now.server)
            work = house.work(t, ids, algorithm, down, news)
            # What each can afford, and what it costs.
            plan, network = e.network.plan(now.network, t, ids, work, e.seed)
            plan, struck = e.faults.strike(plan, t, ids, e.seed)
            now = now._replace(network=network)
            asked, ids, steps = ids, ids[plan.able], plan.steps[plan.able]
            lr = e.train.rate(t - now.era.first, horizon(e, session, now.era))
            line = described(t, session, asked, plan, work, lr) | dict(news) | struck
            line["bytes_down"] += house.first_downloads(ids, journal.lines)
            line |= census(e, house, t, session)  # who came and went
            clock.lap("select")

            if len(ids):
                sent = house.engine.run(
                    algorithm,
                    e.train.optimiser,
                    lr,
                    down,
                    now.model.buffers,
                    ids,
                    steps,
                    t,
                    adds=e.adds,
                    ages=now.ages(t, ids),
                )
                result = gate.received(sent, hostile, t)  # some may be lost or refused
                now = remembered(e, house, now, sent, result.ids)
                del sent
                ids, line = result.ids, answered(line, result.ids, work) | dict(result.facts)
                clock.lap("train")
                clock.part("gather", "train", result.gather)
            if len(ids):  # without a cohort the model stays as it is
                cohort = house.cohort(t, ids, result.walk)
                server = gate.aggregated(algorithm, now.server, result, cohort, asked)
                model = house.next_model(server.x, now.model, result, cohort)
                looks = partial(house.gradients, ids, now.model)  # for probes that ask
                done = Finished(
                    t, session, now.model, model, result.up, cohort, plan, looks, algorithm
                )
                line |= result.means | probed(e.evaluation.probes, done)
                line |= algorithm.facts(server, cohort)
                era = now.era.after(line["train_accuracy"])
                now = now._replace(server=server, model=model, era=era)
                del result, done  # uploads are large: gone before the next ones come
            line |= gate.noted(asked, ids)
            clock.lap("aggregate")

            if len(session.clients) and e.evaluation.due(t, e.population.length):
                line["accuracy"], line["loss"] = house.evaluate(t, now.model)
                line |= e.evaluation.judged(line, journal.lines, house.untrained_loss)
            if e.evaluation.fairness and t + 1 == e.population.length:
                line["fairness"] = served(house, [*journal.lines, line], now.model)
            if t + 1 == e.population.length:
                line |= gate.price([*journal.lines, line], e.is_uniform)
            clock.lap("evaluate")
            line = charged(line, bill) | {**facts, "seconds": clock.seconds}
            clock = Clock()
            journal.append(line)  # what is kept
            watch(line)
            e.evaluation.check(line)
            who = e.participation.observe(who, Round(t, ids, line))
            checkpoints.after(t + 1, (now, who), house.engine.memory, journal)  # nothing is lost
            clock.lap("record")  # booked with the next round
        return History(e, journal.lines, now.model, house.layout, house.engine.why)


def resumed(
    e: Experiment,
    house: House,
    fresh: tuple[State, Any],
    journal: Journal,
    checkpoints: Checkpoints,
) -> tuple[int, tuple[State, Any]]:
    """The first round to run and what is known by then: fresh, or as the last checkpoint kept it."""
    engine, device = house.engine, house.initial.x.device
    made = engine.made_with, engine.target
    kept = checkpoints.begin(declared(e, State, Row), engine.memory, device, *made)
    journal.rewind(kept and kept.journal)
    if kept is None:
        return 0, fresh
    house.enter(e.population.at(kept.rounds - 1, e.seed))
    return kept.rounds, kept.state


def begin(
    e: Experiment, house: House, t: int, session: Session, now: State
) -> tuple[State, Mapping[str, Any], Mapping[str, Any]]:
    """Answer a change of clients with a new start, if one is due; with facts about it and its costs."""
    facts: Mapping[str, Any]
    if t == session.first:
        if e.population.announced:
            e.participation.check_session(session)
        house.enter(session)
    rehearse = Rehearsal(house, e.algorithm, e.network, now.network, session, t, e.seed, e.adds)
    number = now.era.number + 1
    known = Beginning(
        number, session, house.initial, now.model, house.layout, now.archive, rehearse
    )
    if not e.start.is_due(t, now.era, known):
        now, facts = carried(e, house, t, session, now._replace(network=rehearse.state), False)
        return now, facts, rehearse.bill
    past = now.era.over(now.model)
    archive = e.start.store(now.archive, past, house.layout) if number else Archive()
    begun = e.start.begin(known._replace(archive=archive))
    era = Era(number, t, session.clients, begun.gradient)
    facts = {"start": number, **begun.facts}
    if number and begun.model is now.model and e.train.memories == "carry":
        now = now._replace(era=era, archive=archive, network=rehearse.state)
        now, more = carried(e, house, t, session, now, True)
        return now, {**facts, **more}, rehearse.bill
    if e.train.memories != "keep":
        house.engine.memory.clear()
    server = e.algorithm.restart(now.server, begun.model.x, house.context)
    now = State(server, begun.model, era, archive, rehearse.state, *arrivals(now, t, session))
    return now, facts, rehearse.bill


def horizon(e: Experiment, session: Session, era: Era) -> int:
    """How many rounds a learning-rate schedule spans: a session, or all that are left of the run.

    Only where every session begins with a start is it known when the next one comes.
    """
    return session.rounds if e.start.trigger.is_steady else e.population.length - era.first


def arrivals(now: State, t: int, session: Session) -> tuple[Ids, Ids]:
    """The clients that exist, sorted, and the round in which each of them came."""
    clients = np.sort(session.clients)
    since = np.full(len(clients), t)
    _, here, before = np.intersect1d(clients, now.present, assume_unique=True, return_indices=True)
    since[here] = np.where(now.since[before] == GONE, t, now.since[before])
    return clients, since


def carried(
    e: Experiment, house: House, t: int, session: Session, now: State, start: bool
) -> tuple[State, Mapping[str, Any]]:
    """The state when the model stays: those who left no longer count, those who came do."""
    if not (start or t == session.first):
        return now, {}
    if not len(session.clients):  # the mean over no clients is none: it stays until some come
        return now._replace(since=np.full_like(now.since, GONE)), {}
    present, since = arrivals(now, t, session)
    left = np.setdiff1d(now.present, present, assume_unique=True)
    came = np.setdiff1d(present, now.present, assume_unique=True)
    now_ = now._replace(present=present, since=since)
    if not (start or len(left) or len(came)):
        return now_, {}
    if e.algorithm.has_own("row") and not e.gate.keeps_sums:
        house.engine.memory.clear()
        server = e.algorithm.init(now.model.x, house.context)
        return now_._replace(server=server), {"memories": "anew"}
    server = recounted(e, house, now.server, present, len(now.present), left, came, start)
    return now_._replace(server=server), {}


def recounted(
    e: Experiment,
    house: House,
    server: Any,
    present: Ids,
    before: int,
    left: Ids,
    came: Ids,
    start: bool = False,
) -> Any:
    """The server's state without the rows of those who left and with those of the clients that came."""
    down, engine = e.algorithm.broadcast(server), house.engine
    gone, back = (engine.row_sum(e.algorithm, ids, down) for ids in (left, came))
    here = torch.from_numpy(present).to(house.initial.x.device)
    return e.algorithm.changed(server, Change(here, before, gone, back, start))


def remembered(e: Experiment, house: House, now: State, sent: Result, passed: Ids) -> State:
    """After a round: clients whose uploads passed remember it, and the server knows who had forgotten."""
    forgot = np.intersect1d(sent.forgot, passed)
    if len(forgot) and e.algorithm.has_own("row"):
        count = len(now.present)
        server = recounted(e, house, now.server, now.present, count, forgot, forgot[:0])
        now = now._replace(server=server)
    house.engine.keep(sent, e.gate.remembering(sent.ids, passed))
    return now


def census(e: Experiment, house: House, t: int, session: Session) -> Line:
    """Who came and who left, where a session begins; in the first round also what clients hold."""
    if t != session.first:
        return {}
    if t:
        return moves(e.population.at(t - 1, e.seed).clients, session.clients)
    some = sample(house.crowd.clients)
    held = holdings(some, house.labels(t, some)) if house.sees_data else {}
    return moves(session.clients[:0], session.clients) | held


def served(house: House, lines: Sequence[Line], model: Model) -> Mapping[str, Any]:
    """How well the model serves clients that took part often, rarely and never."""
    crowd = house.crowd
    counts = participations((line["clients"] for line in lines), crowd.clients)
    return fairness(counts, crowd.labels(), house.by_label(model))
