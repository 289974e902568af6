"""The answer of a study in a few sentences, computed from its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedtide.measure.results import ResultRow, Results, SeedSpread

NAMED = 3  # settings; more than these are counted, not named


class Said(NamedTuple):
    """The words of a sentence about a metric."""

    metric: str
    where: str  # begins the sentence
    verb: str
    when: str


def headline(results: Results) -> list[str]:
    """The answer first, then how far it can be trusted."""
    rows = [row for row in results.rows if row.final]
    if not rows:
        return ["No run has finished yet, so there is no answer."]
    sentences = _recovery(results, rows)
    where = "" if sentences else "After a change of clients, "
    sentences += [sentence(results, rows, said) for said in _metrics(results, rows, where)]
    if len(rows) < len(results.rows):
        sentences.append("Settings without a finished run are left out here.")
    if len(results.seeds) == 1:
        sentences.append("There is one seed only, so how much of this is chance is not known.")
    return sentences


def _metrics(results: Results, rows: Sequence[ResultRow], where: str) -> list[Said]:
    if not all("transition_accuracy" in row.numbers for row in rows):
        return [Said("accuracy", "", "reaches", "")]
    rounds = results.transition_rounds
    first = "first round" if rounds == 1 else f"first {rounds} rounds"
    return [
        Said("transition_accuracy", where, "holds", f" in the {first}"),
        Said("accuracy", "At the end, ", "reaches", ""),
    ]


def _recovery(results: Results, rows: Sequence[ResultRow]) -> list[str]:
    """For example: After a change of clients, similarity recovers in 1 round, previous in 11."""
    metric = "recovery_rounds"
    if len(rows) < 2 or not all(metric in row.numbers for row in rows):
        return []
    ranked = sorted(rows, key=lambda row: row.numbers[metric].mean)
    times = {row.number: f"{round(row.numbers[metric].mean, 1):g}" for row in ranked}
    first = times[ranked[0].number]
    best = [row for row in ranked if times[row.number] == first]
    others = ranked[len(best) :]
    rounds = "round" if first == "1" else "rounds"
    verb = "recovers" if len(best) == 1 else "recover"
    clauses = [f"{_named(results, best, len(rows))} {verb} in {first} {rounds}"]
    if len(others) <= NAMED:
        clauses += [f"{results.short(row)} in {times[row.number]}" for row in others]
    else:
        for word, row in (("the next", others[0]), ("the slowest", others[-1])):
            clauses.append(f"{word}, {results.short(row)}, in {times[row.number]}")
    return [f"After a change of clients, {', '.join(clauses)}."]


def _named(results: Results, rows: Sequence[ResultRow], total: int) -> str:
    """Settings by name, or how many they are if they are many."""
    if len(rows) > NAMED:
        return f"all {total} settings" if len(rows) == total else f"{len(rows)} of {total} settings"
    names = [results.short(row) for row in rows]
    return names[0] if len(names) == 1 else _listed(names)


def sentence(results: Results, rows: Sequence[ResultRow], said: Said) -> str:
    """Which setting is best by this metric, and the next best; or which are level with it."""
    ranked = sorted(rows, key=lambda row: -row.numbers[said.metric].mean)
    best, *rest = ranked
    value = best.numbers[said.metric]
    if not rest:
        name = "the model" if not best.settings else results.short(best)
        return _capital(f"{said.where}{name} {said.verb} {_percent(value)}{said.when}.")
    level = [row for row in rest if is_level(value, row.numbers[said.metric])]
    if level:
        return _levelled(results, [best, *level], len(rows), said)
    second = rest[0]
    return _capital(
        f"{said.where}{results.short(best)} {said.verb} {_percent(value)}{said.when}; the next best, "
        f"{results.short(second)}, {_percent(second.numbers[said.metric])}."
    )


def is_level(best: SeedSpread, other: SeedSpread) -> bool:
    """Is the difference at most one standard deviation, the larger one of the two?"""
    return best.mean - other.mean <= max(best.std, other.std)


def _levelled(results: Results, rows: Sequence[ResultRow], total: int, said: Said) -> str:
    values = [_percent(row.numbers[said.metric]) for row in rows]
    why = ", closer than their spread over seeds" if len(results.seeds) > 1 else ""
    names = _named(results, rows, total)
    shown = _listed(values) if len(rows) <= NAMED else f"{values[-1]} to {values[0]}"
    best = "" if len(rows) <= NAMED else f"; the best is {results.short(rows[0])}"
    return _capital(f"{said.where}{names} are level{said.when}: {shown}{why}{best}.")


def _percent(value: SeedSpread) -> str:
    return f"{100 * value.mean:.1f}\N{NO-BREAK SPACE}%"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _capital(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a setting's name, which stays as it is."""
    return text[:1].upper() + text[1:] if text.startswith(("the ", "all ")) else text
