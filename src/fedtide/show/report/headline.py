"""The answer of a study in a few sentences, computed from its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedtide.measure.results import ResultRow, Results, SeedSpread
from fedtide.measure.scale import Scale
from fedtide.measure.statistics import Paired, smallest_p

NAMED = 3  # settings or problems; more than these are counted, not named
FEW = 5  # seeds, with which no test without assumptions gets below 5 %


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
    if len(results.problems) > 1:
        sentences = _over_problems(results, rows)
    else:
        sentences = _recovery(results, rows)
        where = "" if sentences else "After a change of clients, "
        sentences += [sentence(results, rows, said) for said in _metrics(results, rows, where)]
    if len(rows) < len(results.rows):
        sentences.append("Settings without a finished run are left out here.")
    if len(results.seeds) == 1:
        sentences.append("There is one seed only, so how much of this is chance is not known.")
    return [*sentences, *_few_seeds(results)]


def _metrics(results: Results, rows: Sequence[ResultRow], where: str) -> list[Said]:
    scale = results.scale
    if not all(scale.metric("transition_") in row.numbers for row in rows):
        return [Said(scale.metric(), "", "reaches", "")]
    rounds = results.transition_rounds
    first = "first round" if rounds == 1 else f"first {rounds} rounds"
    return [
        Said(scale.metric("transition_"), where, "holds", f" in the {first}"),
        Said(scale.metric(), "At the end, ", "reaches", ""),
    ]


def _over_problems(results: Results, rows: Sequence[ResultRow]) -> list[str]:
    """Mean ranks of the methods over the problems, then each problem, if there are few."""
    sentences = _ranks(results)
    said = _metrics(results, rows, "")[0]
    known = {row.number: row for row in rows}
    posed = [(p.name, [known[n] for n in p.rows if n in known]) for p in results.problems]
    posed = [(name, solved) for name, solved in posed if solved]
    if len(posed) <= NAMED:
        sentences += [
            sentence(results, solved, said._replace(where=f"{name}: ")) for name, solved in posed
        ]
    elif results.pairs.get(said.metric):
        clear = sum(_is_won(results, solved, said.metric) for _, solved in posed)
        sentences.append(
            f"In {clear} of {len(posed)} problems the best setting is ahead of every other "
            "by more than chance explains."
        )
    return sentences or [f"The {len(posed)} problems have different answers: see the table."]


def _is_won(results: Results, rows: Sequence[ResultRow], metric: str) -> bool:
    """Is the best of these rows clearly ahead of every other?"""
    best, *rest = in_order(results, rows, metric)
    return bool(rest) and not any(is_level(results, metric, best, row) for row in rest)


def _ranks(results: Results) -> list[str]:
    if not (found := results.ranks):
        return []
    best, *rest = found.ranks
    near = [name for name in rest if found.ranks[name] - found.ranks[best] < found.critical]
    first = (
        f"Over {found.problems} problems, {best} has the best mean rank, {found.ranks[best]:.1f}"
    )
    if not near:
        return [f"{first}; the next best, {rest[0]}, {found.ranks[rest[0]]:.1f}."]
    shown = _listed([f"{name} ({found.ranks[name]:.1f})" for name in near[:NAMED]])
    more = f" and {len(near) - NAMED} more" if len(near) > NAMED else ""
    return [f"{first}, but {found.problems} problems cannot tell it from {shown}{more}."]


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
        clauses += [f"{results.name(row)} in {times[row.number]}" for row in others]
    else:
        for word, row in (("the next", others[0]), ("the slowest", others[-1])):
            clauses.append(f"{word}, {results.name(row)}, in {times[row.number]}")
    return [f"After a change of clients, {', '.join(clauses)}."]


def _named(results: Results, rows: Sequence[ResultRow], total: int) -> str:
    """Settings by name, or how many they are if they are many."""
    if len(rows) > NAMED:
        return f"all {total} settings" if len(rows) == total else f"{len(rows)} of {total} settings"
    return _listed([results.name(row) for row in rows])


def sentence(results: Results, rows: Sequence[ResultRow], said: Said) -> str:
    """Which setting is ahead by this metric and by how much; or which cannot be told apart."""
    best, *rest = in_order(results, rows, said.metric)
    value = _named_score(results, best.numbers[said.metric])
    if not rest:
        name = "the model" if not best.settings else results.name(best)
        return _capital(f"{said.where}{name} {said.verb} {value}{said.when}.")
    level = [row for row in rest if is_level(results, said.metric, best, row)]
    if level:
        return _levelled(results, [best, *level], len(rows), said)
    second, name = rest[0], results.name(best)
    other = _score(results, second.numbers[said.metric])
    if pair := _pair(results, said.metric, best, second):
        return (
            f"{said.where}{name} is ahead of {results.name(second)} by "
            f"{points(pair, results.scale)}{said.when} "
            f"({pair.seeds} seeds): {value} against {other}."
        )
    return (
        f"{said.where}{name} {said.verb} {value}{said.when}; the next best, "
        f"{results.name(second)}, {other}."
    )


def is_level(results: Results, metric: str, best: ResultRow, other: ResultRow) -> bool:
    """Can the seeds not tell the two apart? With one seed: are they equal?"""
    if pair := _pair(results, metric, best, other):
        return not (pair.is_clear and pair.first == best.number)
    sign = results.scale.sign
    return sign * best.numbers[metric].mean <= sign * other.numbers[metric].mean


def _pair(results: Results, metric: str, one: ResultRow, other: ResultRow) -> Paired | None:
    both = {one.number, other.number}
    return next((p for p in results.pairs.get(metric, []) if {p.first, p.second} == both), None)


def points(pair: Paired, scale: Scale) -> str:
    """A difference of scores with half of its 95 % interval: `1.3 ± 0.4 points`."""
    return scale.apart(pair.difference, pair.margin) + " points" * scale.is_accuracy


def _levelled(results: Results, rows: Sequence[ResultRow], total: int, said: Said) -> str:
    """For example: 5 seeds cannot tell A and B apart: 85.1 % and 84.6 %. About 9 more would be needed."""
    best, second = rows[0], rows[1]
    values = [_score(results, row.numbers[said.metric]) for row in rows]
    shown = _listed(values) if len(rows) <= NAMED else f"{values[-1]} to {values[0]}"
    pair = _pair(results, said.metric, best, second)
    if not pair:
        names = _named(results, rows, total)
        return _capital(f"{said.where}{names} are level{said.when}: {shown}.")
    if len(rows) == 2:
        names = f"{results.name(best)} and {results.name(second)} apart"
    else:
        names = f"{results.name(best)} from {_named(results, rows[1:], total - 1)}"
    return f"{said.where}{pair.seeds} seeds cannot tell {names}{said.when}: {shown}.{_more(pair)}"


def _more(pair: Paired) -> str:
    """How many seeds are missing, if difference and spread stay as they are."""
    if pair.difference == 0:
        return ""
    if pair.more is None:
        return " More than a thousand would be needed."
    return f" About {pair.more} more would be needed."


def _few_seeds(results: Results) -> list[str]:
    """What so few seeds cannot show, if a setting is said to be ahead."""
    clear = [pair for pairs in results.pairs.values() for pair in pairs if pair.is_clear]
    few = min((pair.seeds for pair in clear), default=FEW + 1)
    if few > FEW:
        return []
    return [
        f"{few} seeds are few: the intervals (95 %) assume that differences between seeds are normally "
        f"distributed; a test without this assumption cannot get below p = {smallest_p(few):g}."
    ]


def in_order(results: Results, rows: Sequence[ResultRow], metric: str) -> list[ResultRow]:
    """Rows by a metric of the score, the best first."""
    return sorted(rows, key=lambda row: -results.scale.sign * row.numbers[metric].mean)


def _score(results: Results, value: SeedSpread) -> str:
    if results.scale.is_accuracy:
        return f"{100 * value.mean:.1f}\N{NO-BREAK SPACE}%"
    return results.scale.text(value.mean)


def _named_score(results: Results, value: SeedSpread) -> str:
    """A score with its name, unless it is the accuracy."""
    name = "" if results.scale.is_accuracy else f"{results.scale.name} "
    return name + _score(results, value)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _capital(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a setting's name, which stays as it is."""
    return text[:1].upper() + text[1:] if text.startswith(("the ", "all ")) else text
