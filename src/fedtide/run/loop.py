"""One run: the system model of the papers, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedtide.core.errors import memory_explained
from fedtide.core.kinds import expect
from fedtide.core.types import Round
from fedtide.record.archive import StoredArchive
from fedtide.record.checkpoint import Checkpoints
from fedtide.record.checkpoint.codec import declared
from fedtide.record.journal import Journal
from fedtide.record.line import Line, added
from fedtide.record.timer import Timer
from fedtide.run import round as rounds
from fedtide.run import sessions
from fedtide.run.experiment import Experiment
from fedtide.run.history import History
from fedtide.run.state import Now, first_state
from fedtide.run.world import World
from fedtide.show.progress import followed
from fedtide.training.messages import Row

HOW = "For a study file, write run_study(load('study.toml'))."


def run(
    experiment: Experiment,
    journal: Journal | None = None,
    watch: Callable[[Line], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Run an experiment, or go on with it; `watch` sees every line (without it, a notebook shows a bar)."""
    expect(experiment, Experiment, "fedtide.run()", HOW)
    e = replace(experiment, population=experiment.population.opened())
    journal, checkpoints = journal or Journal(), checkpoints or Checkpoints()
    length = e.population.length
    with memory_explained(), World.build(e) as world, followed(watch, length, e.scale) as tell:
        first, now = resumed(e, world, journal, checkpoints)
        for line in journal.lines:  # of rounds before a resumed run broke off
            tell(line)
        timer = Timer()
        for t in range(first, length):
            # 1. Who exists?
            session = e.population.at(t, e.seed)
            # 2. Clients came or went: a new start, or the algorithm's answer to the change.
            now, start = sessions.answer(e, world, session, t, now, resumed=t == first)
            timer.lap("session")
            # 3. Who takes part, what can each client afford, what does it cost?
            asked, now = rounds.invite(e, world, session, t, now, start)
            timer.lap("select")
            # 4. Clients train from what the server broadcasts; some uploads are lost or refused.
            result = rounds.train(e, world, asked, now)
            timer.lap("train")
            timer.part("gather", "train", result.gather)
            # 5. The server aggregates; probes look while the uploads are there.
            now, done = rounds.aggregate(e, world, asked, result, now)
            del result  # uploads are large: gone before the next ones come
            timer.lap("aggregate")
            # 6. How good is the model?
            scores = rounds.evaluate(e, world, asked, now.model, journal.lines)
            timer.lap("evaluate")
            # 7. What is kept: journal, listeners, participation, checkpoint.
            line = added(rounds.line_of(asked, done, scores), {"seconds": timer.seconds})
            line = rounds.closed(e, world, line, journal.lines, now.model)
            timer = Timer()
            journal.append(line)
            tell(line)
            e.evaluation.check(line)
            now = rounds.observe(e, now, Round(t, done.ids, line))
            checkpoints.after(t + 1, now, world.engine.memory, journal)
            timer.lap("record")  # counted with the next round
        return finished(e, world, journal, now)


def finished(e: Experiment, world: World, journal: Journal, now: Now) -> History:
    """What a run returns after its last round."""
    archive = sessions.with_last_session(e, world, now)
    stored = StoredArchive(archive, now.era.number, now.model)
    about = world.engine.why, world.sample, world.made_for
    return History(e, journal.lines, now.model, world.layout, *about, stored)


def resumed(
    e: Experiment, world: World, journal: Journal, checkpoints: Checkpoints
) -> tuple[int, Now]:
    """The first round to run and the state before it: fresh, or as the last checkpoint kept it."""
    engine, device = world.engine, world.initial.x.device
    made = engine.made_with, engine.target
    kept = checkpoints.begin(declared(e, Now, Row), engine.memory, device, *made)
    journal.rewind(kept and kept.journal)
    for line in journal.lines:
        world.meet(line["clients"])
    if kept is None:
        return 0, first_state(e, world)
    world.enter(e.population.at(kept.rounds - 1, e.seed))
    return kept.rounds, kept.state
