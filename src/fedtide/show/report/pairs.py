"""Comparisons of settings over seeds as tables, and mean ranks over problems as a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fedtide.measure.ranks import Ranks
from fedtide.measure.results import Results
from fedtide.measure.scale import Scale
from fedtide.measure.statistics import LEVEL, MOST_SEEDS, Paired, smallest_p
from fedtide.show.columns import NONE
from fedtide.show.report.charts import Chart, layout


def titles(scale: Scale) -> dict[str, str]:
    """The metrics by which settings are compared, in words."""
    after = "after a change of clients"
    named = after if scale.is_accuracy else f"{scale.name} {after}"
    return {scale.metric("transition_"): named, scale.metric(): scale.name}


BAR, DOT = "#7f7f7f", "#0072b2"


class PairRow(NamedTuple):
    """Two settings, the better one first, and their difference, of accuracies in percentage points."""

    metric: str
    first: str
    second: str
    difference: str
    interval: str
    p_holm: str
    p_permutation: str
    more: str  # seeds
    clear: bool


def pair_rows(results: Results) -> list[PairRow]:
    """Every comparison of the study, the largest differences first."""
    return [
        pair_row(results, metric, pair, pair.difference)
        for metric, pairs in results.pairs.items()
        for pair in sorted(pairs, key=lambda pair: -pair.difference)
    ]


def pair_row(results: Results, metric: str, pair: Paired, gap: float) -> PairRow:
    """A comparison in words; `gap` is its difference, with the sign that is to be shown."""
    low, high = gap - pair.margin, gap + pair.margin
    factor, form = results.scale.factor, "+.1f" if results.scale.is_accuracy else "+.3g"
    return PairRow(
        titles(results.scale)[metric],
        results.name(results.rows[pair.first]),
        results.name(results.rows[pair.second]),
        f"{factor * gap:{form}}",
        f"{factor * low:{form}} to {factor * high:{form}}",
        probability(pair.p_holm),
        NONE if pair.p_permutation is None else probability(pair.p_permutation),
        _more(pair),
        pair.is_clear,
    )


def _more(pair: Paired) -> str:
    if pair.is_clear:
        return NONE
    return f"over {MOST_SEEDS:,}" if pair.more is None else str(pair.more)


def probability(p: float) -> str:
    """A p-value with two digits."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def pair_notes(results: Results) -> list[str]:
    """How the comparisons were made, and what the number of seeds can show."""
    pairs = [pair for found in results.pairs.values() for pair in found]
    if not pairs:
        return []
    seeds, scale = sorted({pair.seeds for pair in pairs}), results.scale
    unit = "in percentage points" if scale.is_accuracy else f"by how much {scale.name} is better"
    least = " and ".join(f"{smallest_p(n):.2g} with {n} seeds" for n in seeds[:1])
    return [
        "A seed gives every setting the same data, clients and first model, so differences are taken "
        f"seed by seed. Difference: {unit}, with its 95 % interval (paired t). "
        f"p: paired t-test, corrected by Holm's method for all pairs; bold below {LEVEL:g}. "
        "Permutations: exact test of all signs of the differences, not corrected, which assumes no "
        f"distribution; it cannot get below {least}. More seeds: about as many, beside those that were "
        "run, would make the difference clear with a probability of 80 %, if it stays as it is."
    ]


def rank_charts(ranks: Ranks | None) -> list[Chart]:
    """A critical-difference diagram: mean ranks, and bars over methods that cannot be told apart."""
    if not ranks:
        return []
    names, groups = list(ranks.ranks), ranks.level
    traces = [
        {
            "x": [ranks.ranks[group[0]], ranks.ranks[group[-1]]],
            "y": [-1 - place, -1 - place],
            "mode": "lines",
            "line": {"color": BAR, "width": 5},
            "hovertemplate": escape(f"cannot be told apart: {', '.join(group)}")
            + "<extra></extra>",
        }
        for place, group in enumerate(groups)
    ]
    traces.append(
        {
            "x": list(ranks.ranks.values()),
            "y": list(range(len(names))),
            "mode": "markers",
            "marker": {"color": DOT, "size": 10},
            "text": [escape(name) for name in names],
            "hovertemplate": "%{text}: mean rank %{x:.2f}<extra></extra>",
        }
    )
    drawn = layout("mean rank (1: the best)", "")
    drawn["yaxis"] |= {
        "tickvals": list(range(len(names))),
        "ticktext": [escape(name) for name in names],
        "autorange": "reversed",
    }
    notes = [
        f"Ranks over {ranks.problems} problems. Bars join methods whose mean ranks differ by less than the "
        f"critical difference of {ranks.critical:.2f} (Nemenyi's test, 5 %). Friedman's test of the "
        f"hypothesis that all methods are equal: p {'' if ranks.p < 1e-4 else '= '}{probability(ranks.p)}."
    ]
    return [Chart("ranks", "Mean ranks", notes, {"data": traces, "layout": drawn})]


def beside_best(results: Results, metric: str, rows: Sequence[int]) -> dict[int, Paired]:
    """For each of these rows but the best, its comparison with the best by this metric."""
    sign = results.scale.sign
    known = {n: sign * results.rows[n].numbers[metric].mean for n in rows if results.rows[n].final}
    if not known:
        return {}
    best = max(known, key=lambda n: known[n])
    return {
        pair.second if pair.first == best else pair.first: pair
        for pair in results.pairs.get(metric, [])
        if best in (pair.first, pair.second)
    }
