"""Study folders written by hand, and what a report made of them."""

import json
import re

from fedtide.measure.metrics import metrics
from fedtide.measure.results import Results
from fedtide.record.folder import StudyFolder, labelled
from fedtide.show.report.page import sections, write_report
from fedtide.show.report.rows import chart_rows
from fedtide.show.report.story import stories

ENGINE = "loop: asked for"


def line(t, accuracy, per_session=1000, cohort=3, population=4):
    return {
        "t": t,
        "session": t // per_session,
        "round_in_session": t % per_session,
        "population": population,
        "cohort": cohort,
        "accuracy": accuracy,
        "loss": None if accuracy is None else 1 - accuracy,
        "train_accuracy": accuracy,
        "train_loss": None if accuracy is None else 2 - accuracy,
        "steps": 6,
        "bytes_up": 1_000_000,
        "bytes_down": 500_000,
        "seconds": {"train": 0.25, "evaluate": 0.25},
    }


def run(accuracies, **more):
    return [line(t, accuracy, **more) for t, accuracy in enumerate(accuracies)]


def folder(path, cells, *, seeds=(1, 2), unfinished=(), **about):
    """A study folder; `cells` are (settings, {seed: lines}), `unfinished` (cell, seed) pairs."""
    made = StudyFolder(path)
    labels = [labelled(settings) for settings, _ in cells]
    study = {
        "format": 1,
        "study": "tides",
        "question": "Which is best?",
        "transition_rounds": 2,
        "seeds": list(seeds),
        "cells": [
            {"settings": settings, "label": label}
            for (settings, _), label in zip(cells, labels, strict=True)
        ],
        "published": [],
        "environment": {"fedtide": "0.1.0", "machine": "a machine"},
        **about,
    }
    (path / "study.json").write_text(json.dumps(study))
    (path / "study.toml").write_text('question = "Which is best?"\n# <b>a comment</b>\n')
    for number, (label, (_, runs)) in enumerate(zip(labels, cells, strict=True)):
        for seed, lines in runs.items():
            at = made.run(number, label, seed)
            at.mkdir(parents=True)
            text = "".join(json.dumps(entry) + "\n" for entry in lines)
            (at / "journal.jsonl").write_text(text)
            if (number, seed) not in unfinished:
                end = {"metrics": metrics(lines, study["transition_rounds"]), "engine": ENGINE}
                (at / "run.json").write_text(json.dumps(end))
    return made


def drawn(made):
    """The rows of a study's results as charts show them."""
    return chart_rows(Results.read(made).rows)


def drawn_sections(made):
    """The sections of a study's report."""
    results = Results.read(made)
    rows = chart_rows(results.rows)
    return sections(results, rows, stories(results, rows))


def html(made):
    """The page without what is packed in it."""
    text = write_report(made).read_text(encoding="utf-8")
    return re.sub(r'(<script type="text/plain" id="[a-z-]+">)[^<]*', r"\1", text)


def figures(page):
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])
