"""The report, made from study folders written by hand."""

import re
from statistics import fmean, stdev

import pytest

from fedtide.core.errors import OutputError
from fedtide.measure.results import Results, SeedSpread
from fedtide.record.folder import StudyFolder
from fedtide.show.columns import amount, mean_alone
from fedtide.show.report.charts import COHORT, charts, curve, score_of, thinned, varying
from fedtide.show.report.colours import DASHES, PALETTE, look
from fedtide.show.report.headline import headline
from fedtide.show.report.page import write_report
from fedtide.show.report.rows import shown
from fedtide.show.report.sessions import common_spans
from fedtide.show.report.tables import comparisons, result_table, transition_table, unfinished
from tests.show.made import drawn, figures, folder, html, line, run

NASTY = "</script><script>alert(1)</script>"


@pytest.fixture
def two(tmp_path):
    """Two settings, two seeds, two sessions of three rounds."""
    return folder(
        tmp_path,
        [
            (
                {"start": "average"},
                {
                    1: run([0.2, 0.4, 0.6, 0.5, 0.7, 0.8], per_session=3),
                    2: run([0.2, 0.4, 0.6, 0.6, 0.8, 0.8], per_session=3),
                },
            ),
            (
                {"start": "previous"},
                {
                    1: run([0.2, 0.4, 0.6, 0.1, 0.3, 0.8], per_session=3),
                    2: run([0.2, 0.4, 0.6, 0.2, 0.4, 0.9], per_session=3),
                },
            ),
        ],
    )


def test_one_file_that_opens_offline(two):
    path = write_report(two)
    assert path == two.path / "report.html"
    assert path.stat().st_size < 6_000_000
    page = html(two)
    assert len(page) < 100_000  # Plotly is in it once
    assert not re.search(r"""<[^>]+(src|href)\s*=|url\(|@import|https?://""", page)
    assert "default-src 'none'" in page
    assert "tides</h1>" in page
    assert "Which is best?" in page
    assert "a machine" in page
    assert "loop: asked for" in page


def test_every_label_and_the_study_file_are_there(two):
    page = html(two)
    assert "</svg> average</button>" in page
    assert "</svg> previous</button>" in page
    assert "&lt;b&gt;a comment&lt;/b&gt;" in page


def test_numbers_equal_those_by_hand(two):
    transition = [fmean([0.5, 0.7]), fmean([0.6, 0.8])]
    accuracy = [fmean([0.4, 0.6, 0.5, 0.7, 0.8]), fmean([0.4, 0.6, 0.6, 0.8, 0.8])]
    row = result_table(Results.read(two)).rows[0]
    recovery = [3, 2]  # rounds until 95 % of 0.8
    assert [entry.text for entry in row.entries] == [
        f"{100 * fmean(transition):.1f} ± {100 * stdev(transition):.1f}",
        f"{fmean(recovery):.1f} ± {stdev(recovery):.1f}",
        "3.75",  # MB to recover: 1.5 in each round
        f"{100 * fmean(accuracy):.1f} ± {100 * stdev(accuracy):.1f}",
        "55.0 ± 2.4",  # over all rounds
        "6.00",
        "3.0",
    ]
    assert row.entries[0].text == "65.0 ± 7.1"
    assert "<strong>65.0 ± 7.1</strong>" in html(two)


def test_small_costs_keep_their_figures():
    assert amount(SeedSpread(0.01234, 0.0005, 2)) == "0.0123 ± 0.0005"
    assert amount(SeedSpread(12345.6, 7.0, 1)) == "12,345.6"
    assert [mean_alone(SeedSpread(mean, 0, 1)) for mean in (0.0, 0.0456, 3.21)] == [
        "0.0",
        "0.0456",
        "3.2",
    ]


def test_the_best_is_bold_and_equal_costs_are_not(two):
    table = result_table(Results.read(two))
    assert table.columns[0].startswith("after a change of clients")
    assert [[entry.best for entry in row.entries] for row in table.rows] == [
        [True, True, True, True, True, False, False],
        [False, False, False, False, False, False, False],
    ]


def test_headline_after_a_change_of_clients(two):
    assert headline(Results.read(two)) == [
        "After a change of clients, average recovers in 2.5 rounds, previous in 3.",
        # The difference is the same in both seeds, so no test can get below p = 0.5.
        "2 seeds cannot tell average and previous apart in the first 2 rounds: 65.0\xa0% and 25.0\xa0%. "
        "About 1 more would be needed.",
        "At the end, average is ahead of previous by 15.0 ± 12.7 points (2 seeds): 62.0\xa0% against "
        "47.0\xa0%.",
        "2 seeds are few: the intervals (95 %) assume that differences between seeds are normally "
        "distributed; a test without this assumption cannot get below p = 0.5.",
    ]


def test_headline_names_the_slowest_of_many(tmp_path):
    def back_in(n):
        return run([0.5] * 10 + [0.1] * (n - 1) + [0.8] * (11 - n), per_session=10)

    cells = [({"start": f"s{n}"}, {1: back_in(n)}) for n in (1, 2, 3, 5, 8)]
    assert headline(Results.read(folder(tmp_path, cells, seeds=[1])))[0] == (
        "After a change of clients, s1 recovers in 1 round, the next, s2, in 2, the slowest, s8, in 8."
    )


def test_headline_counts_those_that_recover_alike(tmp_path):
    lines = run([0.5] * 6, per_session=3)
    cells = [({"mu": n}, {1: lines}) for n in range(5)]
    slow = run([0.5] * 3 + [0.1, 0.1, 0.5], per_session=3)
    made = folder(tmp_path, [*cells, ({"mu": 9}, {1: slow})], seeds=[1])
    assert headline(Results.read(made))[0] == (
        "After a change of clients, 5 of 6 settings recover in 1 round, mu = 9 in 3."
    )


def seeded(*scores):
    return {seed: run([score]) for seed, score in enumerate(scores)}


def told(tmp_path, cells, seeds):
    made = [({"algorithm": name}, seeded(*scores)) for name, scores in cells.items()]
    return headline(Results.read(folder(tmp_path, made, seeds=range(seeds))))


def test_headline_says_by_how_much_a_setting_is_ahead(tmp_path):
    cells = {"a": (0.70, 0.80, 0.75, 0.72, 0.78), "b": (0.69, 0.785, 0.735, 0.71, 0.766)}
    gaps = [0.01, 0.015, 0.015, 0.01, 0.014]
    margin = 2.776 * stdev(gaps) / 5**0.5  # Student's t with 4 degrees of freedom
    assert told(tmp_path, cells, 5) == [
        f"a is ahead of b by 1.3 ± {100 * margin:.1f} points (5 seeds): 75.0\xa0% against 73.7\xa0%.",
        "5 seeds are few: the intervals (95 %) assume that differences between seeds are normally "
        "distributed; a test without this assumption cannot get below p = 0.0625.",
    ]


def test_headline_says_what_the_seeds_cannot_tell(tmp_path):
    cells = {"a": (0.70, 0.80, 0.75), "b": (0.71, 0.76, 0.73), "c": (0.11, 0.19, 0.16)}
    assert told(tmp_path, cells, 3)[0] == (
        "3 seeds cannot tell a and b apart: 75.0\xa0% and 73.3\xa0%. About 17 more would be needed."
    )


def test_headline_counts_settings_that_cannot_be_told_from_the_best(tmp_path):
    cells = [({"mu": n}, {1: run([0.5 + n / 1000]), 2: run([0.6])}) for n in range(5)]
    (sentence,) = headline(Results.read(folder(tmp_path, cells)))
    assert sentence.startswith(
        "2 seeds cannot tell mu = 4 from all 4 settings: 55.0\xa0% to 55.2\xa0%."
    )


def test_headline_over_several_problems(tmp_path):
    cells = [
        ({"data.name": data, "algorithm": kind}, seeded(*(base + x for x in (0, 0.001, 0.002))))
        for data, by_kind in (("mnist", (0.9, 0.8)), ("svhn", (0.6, 0.7)))
        for kind, base in zip(("fedavg", "fedprox"), by_kind, strict=True)
    ]
    said = headline(Results.read(folder(tmp_path, cells, seeds=range(3))))
    assert said[0] == (
        "Over 2 problems, FedAvg has the best mean rank, 1.5, but 2 problems cannot tell it from "
        "FedProx (1.5)."
    )
    assert said[1].startswith("MNIST: 3 seeds cannot tell MNIST with FedAvg and MNIST with FedProx")
    assert said[2].startswith("SVHN: ")


def test_differences_and_ranks_are_in_the_report(tmp_path):
    cells = [
        ({"data.name": data, "algorithm": kind}, seeded(*(base + x for x in noise)))
        for data, level in (("mnist", 0.2), ("svhn", 0.1), ("digits", 0.3))
        for kind, base, noise in (
            ("fedavg", level + 0.1, (0, 0.01, 0.02)),
            ("fedprox", level, (0.004, 0.01, 0.021)),
        )
    ]
    page = html(folder(tmp_path, cells, seeds=range(3)))
    assert "Differences between settings" in page
    assert page.count("<td>accuracy</td>") == 3
    assert "it cannot get below 0.25 with 3 seeds" in page
    ranks = figures(page)["ranks"]
    assert ranks["data"][-1]["x"] == [1.0, 2.0]
    assert ranks["layout"]["yaxis"]["ticktext"] == ["FedAvg", "FedProx"]
    assert "critical difference of 1.13" in page


def test_without_sessions_and_with_one_seed(tmp_path):
    cells = [
        ({"algorithm": "scaffold"}, {1: run([0.5, 0.9])}),
        ({"algorithm": "fedavg"}, {1: run([0.5, 0.8])}),
    ]
    made = folder(tmp_path, cells, seeds=[1])
    assert headline(Results.read(made)) == [
        "SCAFFOLD reaches 70.0\xa0%; the next best, FedAvg, 65.0\xa0%.",
        "There is one seed only, so how much of this is chance is not known.",
    ]
    page = html(made)
    assert "change of clients" not in page
    assert transition_table(Results.read(made)) is None
    assert "shapes" not in figures(page)["accuracy"]["layout"]
    assert "±" not in page


def test_one_round_and_one_setting(tmp_path):
    made = folder(tmp_path, [({}, {1: run([0.5]), 2: run([0.7])})])
    page = html(made)
    assert "The model reaches 60.0\xa0%." in page
    assert "60.0 ± 14.1" in page
    assert "chart-accuracy" not in page  # one point is no course over rounds


def test_names_are_escaped(tmp_path):
    cells = [({"case": NASTY}, {1: run([0.5, 0.6])}), ({"case": "b"}, {1: run([0.5, 0.7])})]
    published = [{"settings": {"case": NASTY}, "metric": NASTY, "value": 1, "source": NASTY}]
    about = {"study": NASTY, "question": NASTY, "published": published}
    made = folder(tmp_path, cells, seeds=[1], environment={NASTY: NASTY}, **about)
    page = html(made)
    assert "<script>alert" not in page
    assert page.count("<script") == page.count("</script") == 5
    assert "&lt;script&gt;alert(1)" in page
    names = {trace["name"] for trace in figures(page)["accuracy"]["data"]}
    assert all("<" not in name for name in names)  # Plotly reads tags in names, too


def test_killed_half_way(tmp_path):
    made = folder(
        tmp_path,
        [
            (
                {"start": "average"},
                {1: run([0.5] * 9, per_session=3), 2: run([0.9] * 4, per_session=3)},
            ),
            ({"start": "previous"}, {1: run([0.8] * 7, per_session=3)}),
            ({"start": "cold"}, {}),
        ],
        unfinished=[(0, 2), (1, 1)],
    )
    cold = made.run(2, "start = cold", 1)
    cold.mkdir(parents=True)
    (cold / "journal.jsonl").write_text('{"t": 0, "acc')
    found = Results.read(made)
    assert unfinished(found) == (
        "This study is not finished: of 6 runs, 1 finished, "
        "2 stopped before their end, 3 did not begin."
    )
    table = result_table(found)
    assert [row.pending for row in table.rows] == [False, True, True]
    assert [row.entries[-1].text for row in table.rows] == ["1 of 2", "0 of 2", "0 of 2"]
    assert table.rows[0].entries[0].text == "50.0"  # of the finished run alone
    assert table.rows[1].entries[0].text == "80.0"  # so far
    assert table.rows[2].entries[0].text == "–"  # noqa: RUF001
    assert headline(found)[0].startswith("After a change of clients, average holds 50.0")
    assert headline(found)[-1] == "Settings without a finished run are left out here."
    page = html(made)
    assert "This study is not finished" in page
    assert "start = cold" not in page  # nothing to draw; its row says what is missing
    assert "</svg> cold</th>" in page
    assert "differ in length" in page


def test_nothing_has_run_yet(tmp_path):
    made = folder(
        tmp_path, [({"a": 1}, {}), ({"a": 2}, {1: run([None, None])})], unfinished=[(1, 1)]
    )
    page = html(made)
    assert "No run has finished yet" in page
    assert "chart-accuracy" not in page


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(OutputError, match=r"study\.json"):
        write_report(StudyFolder(tmp_path))


def test_published_numbers_beside_ours(tmp_path):
    cells = [
        ({"start": {"kind": "similarity", "R": 10}, "mu": 0.1}, {1: run([0.9]), 2: run([0.8])}),
        ({"start": "previous", "mu": 0.1}, {1: run([0.5]), 2: run([0.5])}),
    ]
    published = [
        {"settings": {"start": "nowhere"}, "value": 0.3, "source": "Table 9"},
        {
            "settings": {"start": "similarity"},
            "metric": "accuracy",
            "value": 0.8823,
            "source": "Table 2",
        },
        {"settings": {"start": "previous", "mu": 0.1}, "metric": "loss", "value": 0.25},
    ]
    made = folder(tmp_path, cells, published=published)
    ours, loss, missing = comparisons(Results.read(made))
    assert ours == (
        "similarity (R = 10, mu = 0.1)",
        "accuracy (%)",
        "85.0 ± 7.1",
        "88.2",
        "-3.2",
        "Table 2",
    )
    assert loss[1:5] == ("loss", "0.5", "0.25", "+0.25")
    assert (missing.label, missing.ours, missing.published) == ("start = nowhere", "–", "30.0")  # noqa: RUF001
    assert "Table 2" in html(made)


def test_curves_average_the_seeds(two):
    rows = Results.read(two).rows
    points = curve(list(rows[0].runs.values()), score_of([]))
    assert points.rounds == [1, 2, 3, 4, 5, 6]
    assert points.mean[3] == 55.0
    assert (points.low[3], points.high[3]) == (50.0, 60.0)


def test_rounds_without_an_evaluation_are_left_out():
    points = curve([run([None, 0.5, None, 0.6])], score_of([]))
    assert (points.rounds, points.mean) == ([2, 4], [50.0, 60.0])


def test_long_curves_are_thinned_and_keep_their_end():
    points = thinned(curve([run([0.5] * 1002)], score_of([])), 100)
    assert len(points.rounds) <= 101
    assert points.rounds[0] == 1
    assert points.rounds[-1] == 1002


def test_sessions_are_marked_with_their_population(tmp_path):
    lines = run([0.5] * 3, per_session=3, population=4)
    later = run([0.5] * 5, per_session=3, population=7)[3:]
    rows = drawn(folder(tmp_path, [({}, {1: lines + later, 2: lines})]))
    spans = common_spans(rows)
    assert spans is not None
    assert [(span.number, span.first, span.last, span.clients) for span in spans] == [
        (1, 1, 3, "4"),
        (2, 4, 5, "7"),
    ]
    layout = charts(rows)[0].figure["layout"]
    assert [note["text"] for note in layout["annotations"]] == ["<b>1</b><br>4", "<b>2</b><br>7"]
    assert (layout["shapes"][0]["x0"], layout["shapes"][0]["x1"]) == (3.5, 5.5)


def test_sessions_that_differ_between_settings_are_not_marked(tmp_path):
    cells = [({"n": n}, {1: run([0.5] * 6, per_session=n)}) for n in (2, 3)]
    chart = charts(drawn(folder(tmp_path, cells)))[0]
    assert "shapes" not in chart.figure["layout"]
    assert any("different rounds" in note for note in chart.notes)


def test_cohort_chart_only_if_it_varies(two, tmp_path):
    assert [chart.key for chart in charts(drawn(two))] == ["accuracy", "loss", "train_loss"]
    assert varying(drawn(two), [COHORT]) == []
    lines = [line(t, 0.5, cohort=3 + t) for t in range(3)]
    other = tmp_path / "other"
    other.mkdir()
    made = folder(other, [({"a": 1}, {1: lines}), ({"a": 2}, {1: lines})], seeds=[1])
    (chart,) = varying(drawn(made), [COHORT])
    (trace,) = chart.figure["data"]  # the same for both settings: one line
    assert trace["y"] == [3, 4, 5]


def test_many_settings(tmp_path):
    cells = [({"mu": n}, {1: run([n / 100, n / 50] * 300, per_session=100)}) for n in range(50)]
    made = folder(tmp_path, cells, seeds=[1])
    assert shown(Results.read(made).rows) == set(range(42, 50))
    page = html(made)
    assert (tmp_path / "report.html").stat().st_size < 6_000_000
    assert page.count("data-row=") == 50
    assert page.count('aria-pressed="true"') == 8
    assert "show all" in page
    visible = [t["meta"] for t in figures(page)["accuracy"]["data"] if t.get("visible", True)]
    assert set(visible) == set(range(42, 50))
    assert drawn(made)[49].look == look(0)  # the best: the first colour, solid


def test_looks_differ_as_long_as_they_can():
    count = len(PALETTE) * len(DASHES)
    assert len({look(number) for number in range(count)}) == count
    assert look(count) == look(0)


def test_same_colour_everywhere(two):
    page = html(two)
    for key in ("accuracy", "train_loss"):
        lines = [t for t in figures(page)[key]["data"] if "fill" not in t]
        assert [t["line"]["color"] for t in lines] == [look(0).colour, look(1).colour]
    assert page.count(f'stroke="{look(1).colour}"') == 2  # table and legend


def test_no_temporary_file_remains(two):
    write_report(two)
    assert not list(two.path.rglob("*.tmp"))
