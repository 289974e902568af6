"""The report in a real browser: curves, colours, downloads, phone and dark, and names full of HTML."""

import csv
import json
import time

import pytest

from fedtide import config
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study
from fedtide.show.report.page import write_report
from fedtide.show.tables import scalars
from tests.show.made import folder

PATIENCE = 600  # seconds; only a test that fails waits so long
NASTY = "<img src=x onerror=alert(1)>"
STUDY = f"""
question = "Is {NASTY} escaped?"
transition_rounds = 2
[data]
name = "digits"
[population]
kind = "alternating"
clients = 4
sessions = 4
rounds = 3
[participation]
kind = "fast"
q = 0.4
of = {{ kind = "uniform", clients = 2 }}
[train]
model = "linear"
lr = 0.05
steps = 2
[evaluation]
probes = ["rates", "drift"]
[[case]]
name = "{NASTY}"
[[case]]
name = "b"
start = "average"
participation = {{ q = 0.9 }}
[compare]
seed = [1, 2]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies") / "tide.toml"
    path.write_text(STUDY)
    made, _ = run_study(config.load(path), path.parent / "runs", jobs=1)
    return made


@pytest.fixture(scope="module")
def opened(chromium):
    """Opens a report; anything the browser complains about or fetches fails the test."""
    context, complaints = chromium.new_context(accept_downloads=True), []
    context.set_default_timeout(1000 * PATIENCE)

    def open_(path):
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda dialog: (complaints.append("a script ran"), dialog.dismiss()))
        page.on(
            "request", lambda r: None if r.url.startswith("file:") else complaints.append(r.url)
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        return page

    yield open_
    context.close()
    assert [text for text in complaints if not text.startswith("blob:")] == []


@pytest.fixture(scope="module")
def whole(opened, study):
    """The report, opened once."""
    return opened(study.path / "report.html")


@pytest.fixture
def page(whole):
    """The report as it is on a desktop in daylight."""
    whole.set_viewport_size({"width": 1280, "height": 800})
    whole.emulate_media(color_scheme="light")
    return whole


def soon(page, check):
    """Check until it holds: charts follow the window and its colours when the browser has time for them.

    Not `wait_for_function`, which asks in the page: its policy forbids the words of others.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
        page.wait_for_timeout(50)


def charts(page):
    return page.eval_on_selector_all(".chart", "all => all.map(one => one.id.slice(6))")


def test_every_chart_is_drawn_and_nothing_is_fetched(page):
    assert {
        "accuracy",
        "loss",
        "recovery",
        "weights",
        "presence",
        "participation",
        "snapshots",
    } <= set(charts(page))
    drawn = "all => all.every(one => one.querySelector('.main-svg') && one.clientHeight > 200)"
    assert page.eval_on_selector_all(".chart", drawn)
    lines = page.locator("#chart-accuracy .scatterlayer .js-line").count()
    assert lines == 4  # a line and a band for each setting


def test_axes_have_titles_and_no_text_is_cut(page):
    page.set_viewport_size({"width": 390, "height": 844})
    for name in charts(page):
        soon(page, lambda name=name: assert_titles_inside(page, name))


def assert_titles_inside(page, name):
    box = page.locator(f"#chart-{name}").bounding_box()
    assert box["x"] + box["width"] <= 390, name
    titles = page.locator(f"#chart-{name} .xtitle, #chart-{name} .ytitle")
    assert titles.count() == 2, name
    for title in titles.all():
        inside = title.bounding_box()
        assert inside, name
        assert inside["x"] >= box["x"] - 1, name
        assert inside["x"] + inside["width"] <= box["x"] + box["width"] + 1, name
        assert inside["y"] + inside["height"] <= box["y"] + box["height"] + 1, name


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_screen_in_light_and_dark(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)

    def fits():
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert (ink == "rgb(230, 233, 237)") == (scheme == "dark")
        title = page.locator("#chart-accuracy .ytitle")
        assert title.evaluate("one => getComputedStyle(one).fill") == ink

    soon(page, fits)


def test_the_answer_and_the_numbers_are_in_the_first_screen(page):
    for part in (".answer", "tbody tr >> nth=1"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] < 800


def test_the_csv_equals_the_journal(page, study, tmp_path):
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Every round as CSV").click()
    assert waiting.value.suggested_filename == "tide-rounds.csv"
    waiting.value.save_as(tmp_path / "rounds.csv")
    with (tmp_path / "rounds.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    written = [
        ({"case": cell.settings["case"], "seed": seed} | scalars(line))
        for cell in study.journals()
        for seed, lines in cell.runs.items()
        for line in lines
    ]
    assert len(found) == len(written) == 2 * 2 * 12
    for row, line in zip(found, written, strict=True):
        assert {name: "" if v is None else str(v) for name, v in line.items()} == {
            name: row[name] for name in line
        }


def test_the_results_as_csv(page, study, tmp_path):
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Results as CSV").click()
    waiting.value.save_as(tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = json.loads((study.path / "summary.json").read_text())["cells"]
    for row, cell in zip(rows, known, strict=True):
        assert float(row["accuracy_mean"]) == cell["metrics"]["accuracy"]["mean"]


def test_the_legend_hides_a_setting_in_every_chart(page):
    page.locator(".legend button").nth(1).click()
    for name in ("accuracy", "loss", "phases"):
        shown = page.evaluate(
            f"document.getElementById('chart-{name}').data.map(t => [t.meta, t.visible])"
        )
        assert all(visible == (row == 0) for row, visible in shown), name
    page.locator(".legend button").nth(1).click()


def test_another_setting_can_be_chosen(page):
    value = "document.getElementById('chart-participation').data[0].z"
    before = page.evaluate(value)
    page.locator("select[data-chart=participation]").select_option("1")
    assert page.evaluate(value) != before


def test_names_are_text(page):
    assert page.locator("img").count() == 0
    assert NASTY in page.locator(".question").inner_text()
    assert NASTY in page.locator("div.legend").inner_text()


@pytest.mark.parametrize("kind", ["killed", "one round", "without sessions"])
def test_unusual_studies(opened, tmp_path, study, kind):
    cell = study.journals()[0]
    lines = next(iter(cell.runs.values()))
    kept = {"killed": lines[:7], "one round": lines[:1], "without sessions": lines[:3]}[kind]
    unfinished = [(0, 1)] if kind == "killed" else []
    made = folder(tmp_path, [({}, {1: kept})], seeds=[1], unfinished=unfinished)
    write_report(StudyFolder(tmp_path))
    page = opened(made.path / "report.html")
    assert ("not finished" in page.locator("header").inner_text()) == (kind == "killed")
    assert page.locator(".chart").count() > 0
    assert ("When clients change" in page.inner_text("body")) == (kind == "killed")
    empty = "all => all.filter(one => !one.data.some(t => (t.z || t.y || []).length)).length"
    assert page.eval_on_selector_all(".chart", empty) == 0
