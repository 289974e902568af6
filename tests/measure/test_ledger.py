"""Published numbers beside ours: places, verdicts, and what is taken from results."""

import importlib.util
import json
from pathlib import Path

import pytest

from fedtide.core.errors import ConfigError
from fedtide.measure.ledger import OURS, OurNumber, PublishedNumber, read, taken, verdict
from fedtide.show.ledger import counts, coverage_markdown, lines, numbers_markdown
from tests.cli.command import fedtide
from tests.show.made import folder, run

PAPERS = Path(__file__).parents[2] / "studies" / "papers"
PUBLISHED = """
paper = "A paper"

[[table]]
name = "Table 1"
unit = "%"
rows = ["dataset", "alpha"]
columns = { transition = [2, 4], scheme = ["proposed", "previous"] }
values = [
  ["MNIST", 0.3, "70.0±1.0", "20.0±1.0", "80.5", ""],
  ["MNIST", 0.7, "71.0±1.0", "21.0±1.0", "81.0", "31.0"],
  ["SVHN", 0.3, "72", "22", "82", "32"],
]
[[table.ours]]
study = "tides"
where = { dataset = "MNIST" }
settings = { "data.partition.alpha" = "{alpha}", start = "{scheme}" }
words = { proposed = "similarity" }
number = "dimc_windows"
start = "transition"
starts = { 2 = 1, 4 = 2 }
times = 100

[[table.differs]]
where = { scheme = "previous" }
because = "another split"

[[table.not_run]]
where = { dataset = "SVHN" }
because = "needs a GPU"
"""


@pytest.fixture
def paper(tmp_path):
    """Windows of two rounds around the starts in rounds 2 and 4; 70.5 and 80.0 % for the proposed start."""
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "published.toml").write_text(PUBLISHED)
    (tmp_path / "tides").mkdir()
    proposed = {
        seed: run([0.5, 0.7 + gap, 0.71 - gap, 0.8, 0.8, 0.9], per_session=2)
        for seed, gap in ((1, 0.0), (2, 0.02), (3, 0.0))
    }
    previous = {seed: run([0.5, 0.7, 0.1, 0.8, 0.2, 0.9], per_session=2) for seed in (1, 2, 3)}
    alpha = "data.partition.alpha"
    cells = [
        ({alpha: 0.3, "start": {"kind": "similarity", "P": 1}}, proposed),
        ({alpha: 0.3, "start": {"kind": "previous", "P": 1}}, previous),
    ]
    found = folder(tmp_path / "tides", cells, seeds=[1, 2, 3])
    (tmp_path / "paper" / OURS).write_text(json.dumps(taken(tmp_path / "paper", found)))
    return tmp_path / "paper"


def test_every_number_has_its_place_and_a_verdict(paper):
    entries = read(paper).entries
    assert len(entries) == 11
    assert counts(entries) == [11, 1, 1, 1, 8, 3]
    first, second, fourth = entries[:3]
    assert first.printed.place == {
        "dataset": "MNIST",
        "alpha": 0.3,
        "transition": 2,
        "scheme": "proposed",
    }
    assert (first.ours.value, first.ours.seeds) == (pytest.approx(70.5), 3)
    assert first.verdict == "agrees"
    assert (second.ours.value, second.verdict) == (pytest.approx(40), "differs")
    assert second.because == "another split"
    assert (fourth.ours.value, fourth.verdict) == (pytest.approx(80), "close")
    assert entries[-1].because == "needs a GPU"


def test_spreads_points_and_relative_distances_decide():
    def judged(value, spread, ours, unit="%", deviation=0.5):
        published = PublishedNumber("T", {}, value, spread, unit)
        return verdict(published, OurNumber("s", ours, deviation, 3, ""))

    assert judged(70, 1.0, 70.4) == "agrees"
    assert judged(70, 0.3, 70.4) == "close"  # ours is outside of the published spread
    assert judged(70, None, 71.9) == "close"
    assert judged(70, 5.0, 72.1) == "differs"  # the published value is outside of our spread
    assert judged(0.70, None, 0.715, "fraction") == "close"
    assert judged(0.70, None, 0.725, "fraction") == "differs"
    assert judged(100.0, None, 101.0, "seconds") == "close"
    assert judged(100.0, None, 103.0, "seconds") == "differs"


def test_what_people_read(paper):
    ledger = read(paper)
    told = list(lines(ledger.entries))
    assert told[1] == (
        "MNIST, alpha 0.3, transition 2, previous: published 20.00 ± 1.00, ours 40.00 ± 0.00; "
        "differs: another split"
    )
    text = "".join(numbers_markdown(ledger.entries, ["dataset", "alpha"])).splitlines()
    assert text[0].startswith("| dataset | alpha | | transition 2, proposed |")
    assert text[2].startswith("| MNIST | 0.3 | ours | **70.50 ± 1.15** | 40.00 ± 0.00 |")
    assert text[3].startswith("| | | published | 70.00 ± 1.00 |")
    assert len(text) == 4  # rows of which nothing was run are left out
    assert "| **all** | **11** |" in "".join(coverage_markdown([ledger]))


def test_the_command(paper, tmp_path):
    (paper / OURS).unlink()
    done = fedtide("papers", "paper", "--take", "tides", cwd=tmp_path)
    assert "Taken from tides: paper/ours.json" in done.stdout
    assert "Table 1" in done.stdout
    listed = fedtide("papers", "paper", "--table", "Table 1", cwd=tmp_path).stdout
    assert listed.count("needs a GPU") == 4
    done = fedtide("papers", "tides", cwd=tmp_path)
    assert done.returncode == 2
    assert "published.toml in it" in done.stderr


def test_results_of_another_study_are_refused(paper, tmp_path):
    (tmp_path / "other").mkdir()
    other = folder(tmp_path / "other", [({}, {1: run([0.5])})], study="waves")
    with pytest.raises(ConfigError, match="It names tides"):
        taken(paper, other)


@pytest.mark.parametrize("paper", ["dimc", "fast", "fedagg", "osafl"])
def test_ledgers_of_the_papers(paper):
    """Every number is read, every study that a rule names exists, and what was not run has a reason."""
    ledger = read(PAPERS / paper)
    assert ledger.entries
    for entry in ledger.entries:
        if entry.ours:
            assert (PAPERS / paper / f"{entry.ours.study}.toml").is_file()


def test_the_pages_are_up_to_date():
    spec = importlib.util.spec_from_file_location("ledger", PAPERS.parents[1] / "docs/ledger.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for page, text in made.pages():
        assert page.read_text(encoding="utf-8") == text, "run: python docs/ledger.py"
