"""Charts with a dot for every client."""

from fedtide.show.report.charts import AT_CAP, AT_FLOOR, varying
from fedtide.show.report.clients import DOTS, client_charts
from fedtide.show.report.colours import look
from fedtide.show.report.rows import ChartRow


def row(number, lines, **more):
    runs = {7: lines, **more}
    return ChartRow(
        number, f"setting {number}", {}, runs, [7], {}, look(number), f"setting {number}"
    )


def lines(rounds, clients=2):
    return [
        {"t": t, "rates": [[0.1, 0.2 + t]] * clients, "drift": [1.0 + t] * clients}
        for t in range(rounds)
    ]


def test_a_dot_for_every_client_and_epoch():
    rates, drift = client_charts([row(0, lines(3))])
    assert [chart.key for chart in (rates, drift)] == ["rates", "drift"]
    first, second = rates.figure["data"]
    assert (first["x"], first["y"]) == ([1, 1, 2, 2, 3, 3], [0.1] * 6)
    assert second["y"] == [0.2, 0.2, 1.2, 1.2, 2.2, 2.2]
    assert first["marker"]["symbol"] != second["marker"]["symbol"]
    assert drift.figure["data"][0]["y"] == [1, 1, 2, 2, 3, 3]
    assert rates.figure["layout"]["yaxis"]["type"] == "log"


def test_shares_of_rates_on_their_limits():
    """In percent; an algorithm without limits has no such chart."""
    more = {"session": 0, "population": 2, "at_cap": 0.25}
    noted = [line | more | {"at_floor": 0.1 * line["t"]} for line in lines(3)]
    (chart,) = varying([row(0, noted)], (AT_FLOOR, AT_CAP))  # the other is the same all the time
    assert chart.key == "at_floor"
    assert chart.figure["data"][-1]["y"] == [0, 10, 20]
    assert varying([row(0, lines(3))], (AT_FLOOR, AT_CAP)) == []


def test_scores_of_osafl():
    scored = [{"t": t, "scores": [0.5, 0.25 * t]} for t in range(3)]
    (chart,) = client_charts([row(0, scored)])
    assert chart.key == "scores"
    assert chart.figure["data"][0]["y"] == [0.5, 0, 0.5, 0.25, 0.5, 0.5]
    assert chart.figure["layout"]["yaxis"]["type"] == "linear"


def test_nothing_without_the_probes():
    assert client_charts([row(0, [{"t": 0}])]) == []
    assert client_charts([row(0, [])]) == []


def test_rounds_without_a_cohort_are_left_out():
    (_, drift) = client_charts([row(0, [{"t": 0}, *lines(3)[1:]])])
    assert drift.figure["data"][0]["x"] == [2, 2, 3, 3]


def test_the_first_seed_only():
    (rates, _) = client_charts([row(0, lines(1), **{"8": lines(2)})])
    assert len(rates.figure["data"][0]["x"]) == 2
    assert "first seed" in rates.notes[1]


def test_large_charts_are_thinned():
    (rates, _) = client_charts([row(n, lines(300, clients=50)) for n in range(4)])
    assert sum(len(trace["x"]) for trace in rates.figure["data"]) <= DOTS
