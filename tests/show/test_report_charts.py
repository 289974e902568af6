"""What the report's charts of clients, changes and costs show, from journals written by hand."""

import csv
import gzip
from base64 import b64decode

import pytest

from fedtide.measure.results import Results
from fedtide.measure.targets import common_target, to_target
from fedtide.record.folder import StudyFolder
from fedtide.show.report.changes import change_charts
from fedtide.show.report.costs import cost_charts
from fedtide.show.report.page import packed
from fedtide.show.report.population import moves_chart, population_charts, raster
from fedtide.show.report.tables import result_table
from fedtide.show.tables import results_csv, rounds_csv, written
from tests.show.made import drawn, drawn_sections, figures, folder, html, line, run


def moved(arrived, left, **more):
    def those(ids):
        return {"clients": len(ids.split()), "ids": ids}

    return {"arrived": those(arrived), "left": those(left), **more}


def tide():
    """Clients 0 and 1 are there for two rounds, then 1 and 2; only one of them takes part."""
    lines = run([0.1, 0.2, 0.3, 0.4], per_session=2, population=2, cohort=1)
    for entry, client in zip(lines, (0, 1, 2, 2), strict=True):
        entry["clients"] = [client]
    lines[0] |= moved("0 1", "")
    lines[2] |= moved("2", "0")
    return lines


def of(path, lines, **cells):
    settings = cells or {"a": lines}
    made = folder(path, [({"case": k}, {1: v}) for k, v in settings.items()], seeds=[1])
    return drawn(made)


def by_key(charts):
    return {chart.key: chart for chart in charts}


def test_who_is_there_and_who_takes_part():
    found = raster(tide())
    assert found.there.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]]
    assert found.took_part.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]


def test_a_client_that_does_not_exist_is_an_empty_cell(tmp_path):
    charts = by_key(population_charts(of(tmp_path, tide())))
    assert charts["presence"].figure["data"][0]["z"] == [
        [100, 100, 0, 0],
        [100, 100, 100, 100],
        [0, 0, 100, 100],
    ]
    assert charts["participation"].figure["data"][0]["z"] == [
        [100, 0, None, None],
        [0, 100, 0, 0],
        [None, None, 100, 100],
    ]


def test_who_came_returned_and_left(tmp_path):
    lines = tide()
    lines[3] |= moved("0 3", "1", returned=1)
    (chart,) = moves_chart(of(tmp_path, lines))
    bars = {trace["name"]: (trace["x"], trace["y"]) for trace in chart.figure["data"]}
    assert bars == {
        "came for the first time": ([3, 4], [1, 1]),
        "returned": ([3, 4], [0, 1]),
        "left": ([3, 4], [-1, -1]),
    }


def test_many_rounds_share_bars(tmp_path):
    lines = run([0.1] * 600)
    for entry in lines:
        entry |= moved("1", "2") if entry["t"] else moved("1 2", "")
    (chart,) = moves_chart(of(tmp_path, lines))
    came = chart.figure["data"][0]
    assert len(came["x"]) == 150
    assert came["y"] == [3, *[4] * 149]  # those of the first round were there from the beginning
    assert came["x"][:2] == [2.5, 6.5]


def test_many_clients_and_rounds_share_cells():
    lines = [line(t, 0.5, cohort=1) | {"clients": [t % 1000]} for t in range(400)]
    lines[0] |= {
        "arrived": {"clients": 1000, "ids": "0-999"},
        "left": {"clients": 0, "ids": ""},
    }
    found = raster(lines)
    assert len(found.clients) <= 60
    assert found.there.sum(0).tolist() == [1000] * 400
    assert found.took_part.sum() == 400


def test_full_participation_and_a_still_population_have_no_such_charts(tmp_path):
    lines = run([0.1, 0.2, 0.3], population=2, cohort=2)
    for entry in lines:
        entry["clients"] = [0, 1]
    lines[0] |= moved("0 1", "")
    assert population_charts(of(tmp_path, lines)) == []


def test_crowds_that_are_only_counted_have_no_time_line(tmp_path):
    lines = tide()
    lines[2]["arrived"] = {"clients": 1}
    rows = of(tmp_path, lines)
    charts = by_key(population_charts(rows))
    assert "presence" not in charts
    assert "participation" in charts
    assert moves_chart(rows)


def test_labels_of_each_client(tmp_path):
    lines = run([0.1, 0.2])
    lines[0]["holdings"] = {"ids": "0 5", "labels": [[3, 0], [1, 4]]}
    (chart,) = population_charts(of(tmp_path, lines))
    (trace,) = chart.figure["data"]
    assert (trace["y"], trace["z"]) == (["0", "5"], [[3, 0], [1, 4]])
    assert chart.choices == ()
    scale = chart.figure["layout"]["coloraxis"]
    assert (scale["cmin"], scale["cmax"]) == (0, 4)  # empty is empty


def test_settings_that_differ_are_a_choice(tmp_path):
    def holding(count):
        lines = run([0.1, 0.2])
        lines[0]["holdings"] = {"ids": "0", "labels": [[count]]}
        return lines

    rows = of(tmp_path, None, a=holding(1), b=holding(1), c=holding(2))
    (chart,) = population_charts(rows)
    assert [choice.label for choice in chart.choices] == ["a", "c"]
    assert chart.figure["data"] == chart.choices[0].data


def test_stragglers_snapshots_and_rates_only_where_there_are_any(tmp_path):
    lines = run([0.1, 0.2, 0.3])
    for entry, snapshot, q in zip(lines, (True, False, True), (0.1, 0.2, 0.3), strict=True):
        entry |= {"snapshot": snapshot, "q": q, "absent": entry["t"], "lr": 0.1 / (1 + entry["t"])}
    of(tmp_path, lines)
    made = drawn_sections(StudyFolder(tmp_path))
    charts = by_key(chart for section in made for chart in section.charts)
    assert charts["snapshots"].figure["data"][0]["x"] == [1, 3]
    assert charts["q"].figure["data"][0]["y"] == [10, 20, 30]
    assert charts["absent"].figure["data"][0]["y"] == [0, 1, 2]
    assert charts["lr"].figure["data"][0]["y"] == [0.1, 0.05, 0.03333333]
    (tmp_path / "still").mkdir()
    of(tmp_path / "still", run([0.1, 0.2]))
    still = drawn_sections(StudyFolder(tmp_path / "still"))
    assert [c.key for part in still for c in part.charts] == [
        "accuracy",
        "loss",
        "train_loss",
        "phases",
    ]


def test_weights_of_a_start(tmp_path):
    lines = run([0.1] * 8, per_session=2)
    lines[0] |= {"start": 0}
    lines[2] |= {"start": 1}
    lines[4] |= {"start": 2, "start_weights": [1.0], "start_from": [1]}
    lines[6] |= {"start": 3, "start_weights": [0.25, 0.75], "start_from": [1, 2]}
    chart = by_key(change_charts(of(tmp_path, lines)))["weights"]
    (trace,) = chart.figure["data"]
    assert (trace["x"], trace["y"]) == (["2", "3"], ["3", "4"])
    assert trace["z"] == [[1, None], [0.25, 0.75]]


def test_tests_of_a_start(tmp_path):
    lines = run([0.1] * 6, per_session=2)
    lines[0] |= {"start": 0}
    lines[2] |= {"start": 1}
    lines[4] |= {"start": 2, "start_weights": [0.5, 0.5], "start_from": [0, 1], "start_gain": 0.5}
    lines[4] |= {"start_tests": [[1, 0], [0, 1], [0.5, 0.5]], "start_losses": [2.0, 1.75, 1.5]}
    lines[4] |= {"test_answers": 8, "test_exchanges": 2}
    (trace,) = by_key(change_charts(of(tmp_path, lines)))["tests"].figure["data"]
    assert (trace["x"], trace["y"]) == ([3], [0.5])
    assert trace["text"] == [
        "session 3: the mean of 2 models (session 1, session 2)<br>taken from 3 candidates, loss "
        "2.000 \N{RIGHTWARDS ARROW} 1.500<br>8 answers in 2 exchanges"
    ]


def test_rounds_to_recover_by_start(tmp_path):
    fast, slow = [0.5, 0.5, 0.5], [0.1, 0.1, 0.5]
    rows = of(
        tmp_path,
        None,
        a=run(fast * 3, per_session=3),
        b=run(fast + slow + fast, per_session=3),
    )
    chart = by_key(change_charts(rows))["recovery"]
    assert [trace["x"] for trace in chart.figure["data"]] == [[4, 7], [4, 7]]
    assert [trace["y"] for trace in chart.figure["data"]] == [[1, 1], [3, 1]]


def test_seconds_and_joules_to_accuracy(tmp_path):
    quick, slow = run([0.3, 0.6, 0.9]), run([0.5, 0.61, 0.605])
    for entry in quick:
        entry |= {"latency": 2.0, "joules": 5.0}
    for entry in slow:
        entry |= {"latency": 3.0, "joules": 1.0}
    assert common_target([quick, slow]) == 0.61
    assert to_target(quick, 0.61) == {
        "rounds_to_target": 3,
        "seconds_to_target": 6,
        "joules_to_target": 15,
    }
    rows = of(tmp_path, None, quick=quick, slow=slow)
    table = result_table(Results.read(StudyFolder(tmp_path)))
    at = table.columns.index("simulated s to 61 %")
    assert [row.entries[at].text for row in table.rows] == ["6.0", "6.0"]
    at = table.columns.index("joules to 61 %")
    assert [(row.entries[at].text, row.entries[at].best) for row in table.rows] == [
        ("15.0", False),
        ("2.0", True),
    ]
    charts = by_key(cost_charts(rows))
    assert charts["over_seconds"].figure["data"][0]["x"] == [2, 4, 6]
    assert charts["over_joules"].figure["data"][1]["x"] == [1, 2, 3]
    assert "over_megabytes" not in charts  # the same for both


@pytest.mark.parametrize(
    "runs", [[], [run([0.5])], [run([0.0, 0.0])], [run([0.5] * 4, per_session=2)]]
)
def test_no_target_where_it_would_say_nothing(runs):
    assert common_target(runs) is None


def test_published_numbers_stand_beside_ours(tmp_path):
    published = [{"settings": {"case": "a"}, "metric": "accuracy", "value": 0.8823}]
    made = folder(tmp_path, [({"case": "a"}, {1: run([0.85])})], seeds=[1], published=published)
    entries = dict(
        zip((t := result_table(Results.read(made))).columns, t.rows[0].entries, strict=True)
    )
    assert entries["accuracy (%)"].published == "published 88.2 (-3.2)"
    assert "<small>published 88.2 (-3.2)</small>" in html(made)


def test_csv_has_the_numbers_of_the_journal(tmp_path):
    lines = [line(t, 1 / 3) | {"clients": [1, 2], "snapshot": True} for t in range(3)]
    made = folder(tmp_path, [({"case": 'a, "b"'}, {1: lines})], seeds=[1])
    head, first, *rest = rounds_csv(Results.read(made)).splitlines()
    assert len(rest) == 2
    assert head.startswith("case,seed,t,session,round_in_session,population,cohort,accuracy")
    assert head.endswith("seconds.train,seconds.evaluate,snapshot")
    assert first.startswith('"a, ""b""",1,0,0,0,4,3,0.3333333333333333,')
    assert len(rounds_csv(Results.read(made), stride=2).splitlines()) == 3
    (found,) = csv.DictReader(results_csv(Results.read(made)).splitlines())
    assert (found["case"], found["finished_seeds"]) == ('a, "b"', "1")
    assert (found["wall_seconds_mean"], found["wall_seconds_std"]) == ("1.5", "0.0")


def test_packed_texts_can_be_unpacked():
    text = written([["ä", "1,5"]])
    assert gzip.decompress(b64decode(packed(text))).decode("utf-8") == 'ä,"1,5"\n'


def test_every_chart_has_a_title_and_units_on_both_axes(tmp_path):
    lines = tide()
    lines[0]["holdings"] = {"ids": "0-2", "labels": [[1, 2]] * 3}
    for entry in lines:
        entry |= {"latency": 1.0, "joules": 1.0, "snapshot": True, "q": 0.1 * entry["t"]}
    made = folder(tmp_path, [({"case": "a"}, {1: lines})], seeds=[1])
    found = figures(html(made))
    assert len(found) >= 8
    for figure in found.values():
        for axis in ("xaxis", "yaxis"):
            assert figure["layout"][axis]["title"]["text"]
