"""Figures and tables for papers, from study folders written by hand."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib.figure import Figure as Canvas

from fedtide.measure.results import Results
from fedtide.record.folder import StudyFolder
from fedtide.show.figures import draw, drawings, write_figures
from fedtide.show.report.colours import look
from fedtide.show.tables import LATEX, table, tex
from tests.show.made import drawn_sections, folder, run

NASTY = r"50% of $x_1 & <b>y</b> | #1 \ {z} ~^"


def journal(shift=0.0):
    """Everything that a chart could show."""
    lines = run([0.1, 0.2 + shift, 0.3, 0.1, 0.5, 0.6], per_session=2, population=2, cohort=1)
    for entry in lines:
        t = entry["t"]
        entry |= {"clients": [t % 3], "latency": 1.0 + shift, "joules": 2.0, "absent": t % 2}
        entry |= {"lr": 0.1 / (t + 1), "snapshot": t % 2 == 0, "q": t / 10, "rates": [[0.1, 0.2]]}
        entry |= {"drift": [0.5]}
    none, pair = {"clients": 0, "ids": ""}, {"clients": 2, "ids": "0-1"}
    lines[0] |= {"start": 0, "arrived": pair, "left": none}
    lines[0]["holdings"] = {"ids": "0-2", "labels": [[1, 2], [3, 4], [0, 5]]}
    lines[2] |= {
        "start": 1,
        "arrived": {"clients": 1, "ids": "2"},
        "left": {"clients": 1, "ids": "0"},
    }
    weights = {"start_weights": [0.3 + shift, 0.7 - shift], "start_from": [0, 1]}
    lines[4] |= {"start": 2, "arrived": none, "left": none, **weights}
    return lines


@pytest.fixture
def study(tmp_path):
    cells = [({"case": NASTY}, {1: journal(), 2: journal(0.1)}), ({"case": "b"}, {1: journal(0.1)})]
    return folder(tmp_path, cells)


@pytest.fixture
def small(tmp_path):
    cells = [({"case": NASTY}, {1: run([0.1, 0.2])}), ({"case": "b"}, {1: run([0.2, 0.4])})]
    return folder(tmp_path, cells, seeds=[1])


def test_every_chart_becomes_a_file(study):
    charts = [chart for part in drawn_sections(study) for chart in part.charts]
    names = [drawing.name for chart in charts for drawing in drawings(chart)]
    paths = write_figures(study, "svg")
    assert [path.stem for path in paths] == names
    assert {"accuracy", "rates", "snapshots", "presence", "phases", "over_joules"} <= set(names)
    assert {"weights-1", "weights-2"} <= set(names)
    assert all(path.parent == study.path / "figures" for path in paths)


def test_colours_are_those_of_the_report(small):
    write_figures(small, "svg")
    drawn = (small.path / "figures" / "accuracy.svg").read_text()
    for number in (0, 1):
        assert f"stroke: {look(number).colour.lower()}" in drawn


def test_a_column_wide_with_embedded_fonts(small):
    write_figures(small, "pdf")
    drawn = (small.path / "figures" / "accuracy.pdf").read_bytes()
    assert drawn.startswith(b"%PDF")
    assert b"/FontFile2" in drawn  # TrueType, in the file
    assert b"/Type3" not in drawn
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", drawn)
    assert float(box[1]) == 3.5 * 72


def test_the_same_file_every_time(small):
    first = [path.read_bytes() for path in write_figures(small, "svg", "page")]
    assert [path.read_bytes() for path in write_figures(small, "svg", "page")] == first
    root = ElementTree.fromstring(first[0])
    assert root.get("width") == f"{7.16 * 72:g}pt"


def test_every_setting_is_in_chart_and_legend(tmp_path):
    """The report shows eight of many settings at first; a figure has all of them."""
    cells = [({"lr": n}, {1: run([0.1, 0.2 + n / 100])}) for n in range(11)]
    (chart, *_) = drawn_sections(folder(tmp_path, cells, seeds=[1]))[0].charts
    canvas = Canvas()
    draw(canvas, next(drawings(chart)))
    (legend,) = canvas.legends
    assert {text.get_text() for text in legend.get_texts()} == {f"lr = {n}" for n in range(11)}
    assert len(canvas.axes[0].lines) == 11


@pytest.mark.parametrize("lines", [[], run([0.5]), run([0.5, 0.6])[:1]])
def test_studies_with_little_to_draw(tmp_path, lines):
    made = folder(tmp_path, [({}, {1: lines} if lines else {})], seeds=[1], unfinished=[(0, 1)])
    assert all(path.stat().st_size for path in write_figures(made, "png"))


def test_latex_is_escaped(study):
    text = table(Results.read(study), "latex")
    assert r"50\% of \$x\_1 \& \textless{}b\textgreater{}y" in text
    assert r"\textbar{} \#1 \textbackslash{} \{z\} \textasciitilde{}\textasciicircum{}" in text
    assert r"$\pm$" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body] == [len(columns) - 1] * 2
    assert all(line.endswith(r"\\") for line in body)
    assert text.count(r"\textbf{") >= 1


def test_no_letter_of_latex_is_left_alone():
    special = "\\{}$&#%_~^"
    assert all(letter in LATEX for letter in special)
    assert "\n" not in tex("a\nb")


def test_markdown_has_a_cell_for_every_column(study):
    head, rule, *body = table(Results.read(study), "markdown").splitlines()
    count = len(re.findall(r"(?<!\\)\|", head))
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in (rule, *body)] == [count] * 3
    assert r"\<b\>y" in body[0]
    assert any("**" in line for line in body)


def test_published_numbers_are_in_the_table(tmp_path):
    published = [{"settings": {"case": "a"}, "metric": "accuracy", "value": 0.5}]
    made = folder(tmp_path, [({"case": "a"}, {1: run([0.75])})], seeds=[1], published=published)
    assert "75.0 (published 50.0 (+25.0))" in table(
        Results.read(StudyFolder(made.path)), "markdown"
    )
