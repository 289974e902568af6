"""Regret: at every start of a run, what would each other start have led to in the next rounds?

The run of the first start is followed. At each of its starts, every start is played for some rounds from a
copy of the state before it: server, model, participation, batteries and what clients remember. A start's
archive, pilot model and gradients are those that it would have collected along this run. So all starts are
compared at the same changes of clients, from the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

from fedtide.core.errors import memory_explained, require
from fedtide.core.types import Round, Session
from fedtide.measure.regret import Branch, Fork, Forked
from fedtide.population.live import Live
from fedtide.record.line import Line
from fedtide.run import round as rounds
from fedtide.run import sessions
from fedtide.run.experiment import Experiment
from fedtide.run.state import Now, first_state
from fedtide.run.world import World
from fedtide.starts.archive import Archive
from fedtide.starts.base import Start
from fedtide.starts.trigger import Always, Era
from fedtide.training.memory import Memory

Watch = Callable[[], None]  # called after every round of the followed run


@dataclass
class Follower:
    """What another start would have collected along the followed run."""

    start: Start
    era: Era = field(default_factory=Era)
    archive: Archive = field(default_factory=Archive)

    def at(self, now: Now) -> Now:
        """The state with this start's own archive and gradient."""
        era = now.era._replace(gradient=self.era.gradient, kept=self.era.kept)
        return now._replace(era=era, archive=self.archive)


def fork(
    e: Experiment, starts: Sequence[Start], length: int, watch: Watch = lambda: None
) -> Forked:
    """Follow the run of the first of these starts, and play `length` rounds of each at every start."""
    check(e, starts, length)
    lines: list[Line] = []
    forks: list[Fork] = []
    followers = [Follower(with_trigger_of(e.start, start)) for start in starts]
    e = replace(e, start=starts[0], population=e.population.opened())
    with memory_explained(), World.build(e) as world:
        now = first_state(e, world)
        for t in range(e.population.length):
            session = e.population.at(t, e.seed)
            before, kept = now, copy_of(world.engine.memory)
            now, start = sessions.answer(e, world, session, t, now, resumed=False)
            if "start" in start[0]:
                is_choice = start[0]["start"] > 0  # there is nothing to choose at the first one
                span, reason = length if is_choice else 1, start[0]["start_reason"]
                with aside(world, session):
                    begun = [
                        played(e, world, t, before, kept, lines, number, follower, span, reason)
                        for number, follower in enumerate(followers)
                    ]
                has_tests = not isnan(begun[0].score)  # all branches have the same clients
                forks += [Fork(t, begun)] if is_choice and has_tests else []
            elif t == session.first:
                for follower in followers:
                    follower.era = follower.era.changed(session.clients, now.model)
            now, line = played_round(e, world, t, session, now, start, lines)
            e.evaluation.check(line)
            lines.append(line)
            watch()
    return Forked(lines, forks)


def check(e: Experiment, starts: Sequence[Start], length: int) -> None:
    """Refuse runs whose state cannot be copied."""
    require(len(starts) >= 2, "compare.start", "at least two starts with fork", len(starts))
    for start in starts:
        must = "empty with fork: each start collects its own models along the run"
        require(not start.archive, "start.archive", must, start.archive)
    require(length >= 1, "--rounds", "at least 1", length)
    must = "other than 'live' with fork: what has happened cannot be repeated"
    require(not isinstance(e.population, Live), "population.kind", must, "live")
    do = "Write --set engine.kind=auto."
    must = "one in this process with fork"
    require(not e.engine.has_processes, "engine.kind", must, "ray", do)


def with_trigger_of(first: Start, start: Start) -> Start:
    """The start with the trigger of the first one, so that all begin at the same rounds."""
    fits = start.computes or not first.trigger.measures
    return replace(start, trigger=first.trigger if fits else Always())


def played(
    e: Experiment,
    world: World,
    t: int,
    before: Now,
    kept: Memory,
    lines: Sequence[Line],
    number: int,
    follower: Follower,
    length: int,
    reason: str,
) -> Branch:
    """The rounds after a start in round t, from a copy of the state before it."""
    e = replace(e, start=follower.start, evaluation=replace(e.evaluation, every=1))
    world.engine.memory = copy_of(kept)
    now = follower.at(before) if number else before
    done: list[Line] = []
    bill: Mapping[str, Any] = {}
    for at in range(t, min(t + length, e.population.length)):
        session = e.population.at(at, e.seed)
        # The tests of the trigger are a cost of the followed run alone.
        forced = reason if at == t and number else ""
        now, start = sessions.answer(e, world, session, at, now, resumed=False, forced=forced)
        if at == t:
            follower.era, follower.archive, bill = now.era, now.archive, start[1]
        now, line = played_round(e, world, at, session, now, start, [*lines, *done])
        done.append(line)
    return Branch(number, done, bill, e.scale)


def played_round(
    e: Experiment,
    world: World,
    t: int,
    session: Session,
    now: Now,
    start: tuple[Mapping[str, Any], Mapping[str, Any]],
    lines: Sequence[Line],
) -> tuple[Now, Line]:
    """The rest of a round, as in `run`: paragraphs 3 to 7."""
    asked, now = rounds.invite(e, world, session, t, now, start)
    result = rounds.train(e, world, asked, now)
    now, done = rounds.aggregate(e, world, asked, result, now)
    line = rounds.line_of(asked, done, rounds.evaluate(e, world, asked, now.model, lines))
    return rounds.observe(e, now, Round(t, done.ids, line)), line


def copy_of(memory: Memory) -> Memory:
    """A copy of what clients remember."""
    copy = memory.anew()
    copy.put(*memory.kept())
    return copy


@contextmanager
def aside(world: World, session: Session) -> Iterator[None]:
    """Give back to the world, afterwards, what it has noted about clients and what they remember."""
    memory, met = world.engine.memory, set(world.met)
    try:
        yield
    finally:
        world.engine.memory, world.met = memory, met
        world.enter(session)
