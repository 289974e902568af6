"""One run: its loop is the system model of the papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import memory_explained
from fedtide.core.kinds import expect
from fedtide.core.types import Model, Round, Session
from fedtide.measure.census import holdings, moves, sample
from fedtide.measure.fairness import fairness, participations
from fedtide.measure.metrics import Metric, metrics
from fedtide.measure.probes import Finished, probed
from fedtide.record.checkpoint import Checkpoints
from fedtide.record.checkpoint.codec import declared
from fedtide.record.journal import Journal
from fedtide.record.line import Line, added, begun, billed, received
from fedtide.record.timer import Timer
from fedtide.run.world import House
from fedtide.show.notebook import card, figure, frame
from fedtide.starts.archive import Archive
from fedtide.starts.trigger import Era
from fedtide.tasks.task import Layout
from fedtide.training.client import Row

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


from fedtide.run.experiment import Experiment
from fedtide.run.sessions import State, begin, horizon, remembered


@dataclass(frozen=True, eq=False)
class History:
    """What came of a run: the journal's lines and the final model."""

    experiment: Experiment
    rounds: list[Line]
    model: Model
    layout: Layout  # where each parameter lies in model.x
    engine: str  # which engine ran, and why

    def metrics(self, transition_rounds: int = 10) -> dict[str, Metric]:
        """Accuracy, accuracy after transitions, time: see `fedtide.measure.metrics`."""
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
        first, (now, who) = resumed(e, house, journal, checkpoints)
        for line in journal.lines:  # of before
            watch(line)
        timer = Timer()
        for t in range(first, e.population.length):
            session = e.population.at(t, e.seed)  # who exists
            now, facts, bill = begin(e, house, t, session, now, t == first)  # someone came or went
            timer.lap("session")

            ids, news = e.participation.take(who, t, session, e.seed)  # who takes part
            down = algorithm.broadcast(now.server)
            work = house.work(t, ids, algorithm, down, news)
            # What each can afford, and what it costs.
            plan, network = e.network.plan(now.network, t, ids, work, e.seed)
            plan, struck = e.faults.strike(plan, t, ids, e.seed)
            now = now._replace(network=network)
            asked, ids, steps = ids, ids[plan.able], plan.steps[plan.able]
            lr = e.train.rate(t - now.era.first, horizon(e, session, now.era))
            line = added(begun(t, session, asked, plan, work, lr), {**news, **struck})
            line["bytes_down"] += house.first_downloads(ids, journal.lines)
            line = added(line, census(e, house, t, session))  # who came and went
            timer.lap("select")

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
                ids = result.ids
                line = added(received(line, ids, work), result.facts)
                timer.lap("train")
                timer.part("gather", "train", result.gather)
            if len(ids):  # without a cohort the model stays as it is
                cohort = house.cohort(t, ids, result.walk)
                server = gate.aggregated(algorithm, now.server, result, cohort, asked)
                model = house.next_model(server.x, now.model, result, cohort)
                looks = partial(house.gradients, ids, now.model)  # for probes that ask
                done = Finished(
                    t, session, now.model, model, result.up, cohort, plan, looks, algorithm
                )
                means = result.means
                line = added(line, means | probed(e.evaluation.probes, done))
                line = added(line, algorithm.facts(server, cohort))
                era = now.era.after(means["train_accuracy"])
                now = now._replace(server=server, model=model, era=era, made=now.made + 1)
                del result, done  # uploads are large: gone before the next ones come
            line = added(line, gate.noted(asked, ids))
            timer.lap("aggregate")

            line = evaluated(e, house, session, now.model, line, journal.lines)
            timer.lap("evaluate")
            line = added(billed(line, bill), {**facts, "seconds": timer.seconds})
            timer = Timer()
            journal.append(line)  # what is kept
            watch(line)
            e.evaluation.check(line)
            who = e.participation.observe(who, Round(t, ids, line))
            checkpoints.after(t + 1, (now, who), house.engine.memory, journal)  # nothing is lost
            timer.lap("record")  # booked with the next round
        return History(e, journal.lines, now.model, house.layout, house.engine.why)


def resumed(
    e: Experiment,
    house: House,
    journal: Journal,
    checkpoints: Checkpoints,
) -> tuple[int, tuple[State, Any]]:
    """The first round to run and what is known by then: fresh, or as the last checkpoint kept it."""
    engine, device = house.engine, house.initial.x.device
    made = engine.made_with, engine.target
    kept = checkpoints.begin(declared(e, State, Row), engine.memory, device, *made)
    journal.rewind(kept and kept.journal)
    if kept is None:
        server = e.algorithm.init(house.initial.x, house.context)
        network = e.network.start(house.crowd.clients, e.seed)
        now = State(server, house.initial, Era(), Archive(), network)
        return 0, (now, e.participation.start(house.crowd, e.seed))
    house.enter(e.population.at(kept.rounds - 1, e.seed))
    return kept.rounds, kept.state


def evaluated(
    e: Experiment,
    house: House,
    session: Session,
    model: Model,
    line: Line,
    before: Sequence[Line],
) -> Line:
    """The line with tests of the model, if they are due; after the last round with what the run cost."""
    t, length = line["t"], e.population.length
    if len(session.clients) and e.evaluation.due(t, length):
        accuracy, loss = house.evaluate(t, model)
        line = added(line, {"accuracy": accuracy, "loss": loss})
        line = added(line, e.evaluation.judged(line, before, house.untrained_loss))
    if t + 1 < length:
        return line
    if e.evaluation.fairness:
        line = added(line, {"fairness": served(house, [*before, line], model)})
    return added(line, e.gate.price([*before, line], e.is_uniform))


def census(e: Experiment, house: House, t: int, session: Session) -> dict[str, Any]:
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
