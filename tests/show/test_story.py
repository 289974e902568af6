"""The starts of a study, as the report tells them."""

import pytest

from fedtide.measure.results import Results
from fedtide.measure.scale import ACCURACY
from fedtide.measure.story import events
from fedtide.show.report.rows import chart_rows
from fedtide.show.report.story import cost_words, start_charts, stories, story_rows
from tests.show.made import folder, html, run


def tide(*accuracies):
    """Starts in rounds 0, 2, 4 and 6; clients come and go in rounds 2 and 3."""
    lines = run(accuracies, per_session=2)
    for number, entry in enumerate(lines[::2]):
        entry |= {"start": number, "start_reason": "half of the clients came or went"}
    for t in (2, 3):
        lines[t] |= {"arrived": {"clients": 3}, "left": {"clients": 1}, "returned": t - 2}
    return lines


@pytest.fixture
def study(tmp_path):
    soup = tide(0.1, 0.2, 0.5, 0.7, 0.4, 0.4, 0.8, 0.8)
    soup[2] |= {"start_untested": True}
    soup[4] |= {"start_from": [1, 0], "start_weights": [0.25, 0.75], "start_gain": 0.5}
    soup[4] |= {"start_costs": {"bytes_up": 1e6, "bytes_down": 2e6, "joules": 0.5}}
    soup[6] |= {"start_from": [2, 0], "start_weights": [1.0, 0.0], "start_gain": 0.0}
    previous = tide(0.1, 0.2, 0.1, 0.3, 0.5, 0.5, 0.8, 0.8)
    cells = [({"start": "soup"}, {1: soup}), ({"start": "previous"}, {1: previous})]
    return folder(tmp_path, cells, seeds=[1])


def told(study):
    results = Results.read(study)
    return results, stories(results, chart_rows(results.rows))


def test_what_was_taken_and_what_it_brought(study):
    """The first two rounds: 0.6 instead of 0.2, 0.4 instead of 0.5, 0.8 as well."""
    results, (story,) = told(study)
    assert story.beside == "previous"
    fresh, mix, stays = story.events
    assert (fresh.source, stays.source) == ("the untrained model", "the current model")
    assert mix.source == "that of round 2 (75%), the current model (25%)"
    assert [one.beyond for one in story.events] == pytest.approx([0.4, -0.1, 0])
    assert fresh.moves == (3, 0, 1)
    assert mix.moves == (3, 1, 1)
    assert mix.gain == 0.5
    assert mix.reason == "half of the clients came or went"
    first, second, third = story_rows([story], results.scale)
    assert (first.round, first.score, first.beyond) == (3, "60.0%", "+40")
    assert (second.gain, second.cost) == ("-0.5", "3 MB, 0.5 J")
    assert (third.present, third.moves) == (4, (0, 0, 0))


def test_a_mark_for_every_start(study):
    (chart,) = start_charts(*told(study))
    taken, stayed = chart.figure["data"]
    assert (taken["x"], taken["y"]) == ([3, 5], pytest.approx([40, -10]))
    assert (stayed["x"], stayed["marker"]["symbol"]) == ([7], "circle-open")
    assert chart.figure["layout"]["yaxis"]["title"]["text"] == "gain over previous (points)"
    assert "why: half of the clients came or went" in taken["text"][0]


def test_the_page_lists_every_start(study):
    page = html(study)
    assert "<h2>Every start</h2>" in page
    assert page.count("half of the clients came or went</td>") == 3


def test_without_a_setting_that_goes_on_the_score_is_shown(tmp_path):
    made = folder(tmp_path, [({"start": "cold"}, {1: tide(*[0.1, 0.3] * 3)})], seeds=[1])
    (chart,) = start_charts(*told(made))
    assert chart.figure["data"][0]["y"] == pytest.approx([20, 20])


def test_models_of_an_archive_and_of_many_sessions():
    lines = tide(*[0.5] * 8)
    for number, entry in enumerate(lines[::2]):
        entry["start"] = 9 + number  # the run goes on from an archive
    lines[2] |= {"start_from": [7, 3, 4, 5, 9], "start_weights": [0.4, 0.3, 0.1, 0.1, 0.1]}
    opening, first, *_ = events(lines, [], 2, ACCURACY)
    assert opening.t == 0  # a choice among the models of the archive
    assert first.source == (
        "model 7 of the archive (40%), model 3 of the archive (30%), model 4 of the archive (10%), 2 more"
    )


def test_free_starts_have_no_cost():
    assert cost_words({}) == "\N{EN DASH}"
