"""The live page in a real browser, beside a real run: it updates, survives, and escapes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from queue import Queue
from threading import Event, Thread

import pytest

from fedtide import config, run_study

PATIENCE = 600  # seconds; only a test that fails waits so long
EVIL = "<img src=x onerror=document.title='hacked'>"
STUDY = f"""
question = "Is {EVIL} shown as text?"
[population]
kind = "alternating"
clients = 4
sessions = 2
rounds = 3
[train]
steps = 1
[[case]]
name = "{EVIL}"
[[case]]
name = "other"
train.lr = 0.2
"""

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An address and the folder that is watched there."""
    folder = tmp_path_factory.mktemp("watched")
    code = "from fedtide.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "watch", str(folder / "runs"), "--port", "0"],
        stdout=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "500", "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        yield re.search(r"http://\S+", process.stdout.readline())[0], folder
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


@pytest.fixture
def folder(server):
    shutil.rmtree(server[1] / "runs", ignore_errors=True)
    return server[1]


@pytest.fixture
def page(chromium, server, folder):
    problems = []
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(1000 * PATIENCE)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server[0])
    yield page
    page.close()
    assert problems == []


class SlowRun(Thread):
    """A study that waits after each round until it may go on."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        (folder / "study.toml").write_text(STUDY)
        self.study = config.load(folder / "study.toml")
        self.out, self.rounds, self.may_go_on = folder / "runs", Queue(), Event()
        self.broken = False

    def run(self):
        try:
            run_study(self.study, self.out, jobs=1, watch=self.after)
        except KeyboardInterrupt:
            self.broken = True

    def after(self, news):
        self.rounds.put(news)
        self.may_go_on.wait(PATIENCE)
        self.may_go_on.clear()
        if self.broken:
            raise KeyboardInterrupt

    def go_on(self):
        self.may_go_on.set()


def shows(page, part, words):
    playwright.expect(page.locator(part)).to_contain_text(words, timeout=1000 * PATIENCE)


def test_the_page_follows_a_run(page, folder):
    shows(page, "#note", "Waiting for the first study")
    run = SlowRun(folder)
    run.start()
    for number in range(1, 13):  # two settings, two sessions of three rounds
        news = run.rounds.get(timeout=PATIENCE)
        shows(page, "#numbers", f"{number} of 12 rounds")
        latest = page.inner_text("#log li:first-child")
        assert f"round {news.line['t'] + 1}" in latest
        assert f"{100 * news.line['accuracy']:.1f} %" in latest
        run.go_on()
    run.join(PATIENCE)
    page.wait_for_selector("#numbers .finished")
    page.wait_for_selector("#numbers a")  # to the report
    assert len(page.query_selector_all("#score polyline")) == 2
    points = page.get_attribute("#score polyline", "points").split()
    assert len(points) == 6
    assert len(page.query_selector_all("#clients polyline")) == 3
    assert len(page.query_selector_all("#loss .session")) == 1  # the second of two sessions
    assert "round" in page.text_content("#score svg")
    assert "accuracy (%)" in page.text_content("#score svg")
    assert_escaped(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # nothing is cut on a phone


def assert_escaped(page):
    assert page.title() == "FedTide: watch"
    assert page.query_selector("img") is None
    for part in ("#question", "#cells", "#log"):
        assert EVIL in page.inner_text(part)
    page.hover("#score svg")
    assert EVIL in page.inner_text(".tip >> nth=0")


def test_the_page_survives_a_crash_and_a_folder_that_vanishes(page, folder):
    run = SlowRun(folder)
    run.start()
    run.rounds.get(timeout=PATIENCE)
    shows(page, "#numbers", "1 of 12")
    run.broken = True  # the run dies here
    run.go_on()
    run.join(PATIENCE)
    study = folder / "runs" / "study" / "1"
    long_ago = time.time() - 100
    for path in [*study.glob("cells/*/*/journal.jsonl"), study / "study.json"]:
        os.utime(path, (long_ago, long_ago))
    shows(page, "#numbers", "no news for")
    assert "it may have stopped" in page.inner_text("#numbers")
    shutil.rmtree(study)
    shows(page, "#note", "study/1 is no longer there")
    assert page.query_selector_all("nav a") == []
    shutil.rmtree(folder / "runs")
    for _ in range(2):  # it asks again, and is answered
        with page.expect_response(lambda answer: answer.url.endswith("/studies")):
            pass
    shows(page, "#link", "live")
    again = SlowRun(folder)  # and it sees the next study
    again.start()
    again.rounds.get(timeout=PATIENCE)
    page.wait_for_selector("nav a")
    again.broken = True
    again.go_on()
    again.join(PATIENCE)


def made(path, rounds, **journals):
    """A study by hand: one setting whose seeds have come to different rounds, by their accuracies."""
    cell = path / "cells/01-all"
    for seed, accuracies in journals.items():
        (cell / seed.replace("_", "-")).mkdir(parents=True, exist_ok=True)
        lines = [
            {"t": t, "session": 0, "population": 4, "cohort": 2, "accuracy": a, "loss": 1 - a}
            | {"seconds": {"train": 0.1}}
            for t, a in enumerate(accuracies)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (cell / seed.replace("_", "-") / "journal.jsonl").write_text(text)
    about = {"cells": [{"label": "all", "rounds": rounds}], "seeds": [1, 2, 3]}
    (path / "study.json").write_text(json.dumps(about))


def test_seeds_are_compared_at_the_same_round(page, folder):
    """Seed 1 is at round 3, seed 2 at round 1; a mean of 0.9 and 0.1 would say nothing."""
    made(folder / "runs/ahead/1", 5, seed_1=[0.5, 0.7, 0.9], seed_2=[0.1])
    cells = page.locator("#cells td")
    playwright.expect(cells).to_have_text(
        ["all", "4 / 15", "1 (2 of 3 seeds)", "30.0", "30.0", "0.700", "4", "2"],
        timeout=1000 * PATIENCE,
    )
    solid, faint = page.query_selector_all("#score polyline")
    assert len(solid.get_attribute("points").split()) == 1
    assert len(faint.get_attribute("points").split()) == 3
    assert faint.get_attribute("opacity") == "0.35"
    # Once seeds have finished, only they are averaged.
    made(folder / "runs/ahead/1", 5, seed_1=[0.5, 0.7, 0.9, 0.8, 0.8], seed_2=[0.1, 0.3])
    playwright.expect(cells).to_have_text(
        ["all", "7 / 15", "5 (1 of 3 seeds)", "80.0", "90.0", "0.200", "4", "2"],
        timeout=1000 * PATIENCE,
    )
