"""What a search says: flat and steep optima, edges of ranges, and how the budget was spent."""

import pytest

from fedtide.measure.searched import ChosenSetting, searched
from fedtide.show.searched import chosen_table
from tests.show.test_width import rendered

LOG = {"low": 0.001, "high": 1.0, "log": True, "whole": False}


def trial(number, score, ended="finished", **values):
    return {
        "number": number,
        "values": {key.replace("_", "."): value for key, value in values.items()},
        "ended": ended,
        "score": score,
        "checks": [],
        "rounds": 4,
        "updates": 40,
        "seconds": 1.0,
    }


def tuned(*cells):
    return {
        "budget": "4 trials",
        "seed": [3],
        "score": ["accuracy"],
        "cells": [
            {
                "settings": {"case": name},
                "ranges": {"train.lr": LOG},
                "values": {"train.lr": value},
                "trials": trials,
            }
            for name, value, trials in cells
        ],
    }


TRIALS = [
    trial(0, 0.80, train_lr=0.1),
    trial(1, 0.795, train_lr=0.03),
    trial(2, 0.70, train_lr=0.01),
    trial(3, None, "diverged", train_lr=1.0),
]


def test_flatness_and_budget():
    found = searched(tuned(("A", 0.1, TRIALS)))
    (method,) = found.methods
    assert method.choices[0].flatness == "0.03 to 0.1 (2 of 3)"
    assert method.choices[0].range == "0.001 to 1, log"
    assert (method.score, method.updates, method.count("diverged")) == (0.8, 160, 1)
    assert found.cautions == []
    assert "4 trials of each setting with seed 3, scored by accuracy" in found.sentence


@pytest.mark.parametrize(
    ("value", "edge"),
    [(0.1, ""), (0.00139, "lower"), (0.0015, ""), (0.72, "upper"), (0.70, ""), (1.0, "upper")],
)
def test_edges_on_a_logarithmic_scale(value, edge):
    """Five hundredths of three decades: up to 0.001 * 10^0.15 and from 10^-0.15 on."""
    assert ChosenSetting("train.lr", LOG, value, []).edge == edge


@pytest.mark.parametrize(
    ("values", "value", "edge"),
    [
        ([16, 32, 64], 16, "lower"),
        ([16, 32, 64], 32, ""),
        ([64, 16, 32], 64, "upper"),
        ([16, 32], 16, ""),  # one of two is always an end
        (["sgd", "adam", "none"], "sgd", ""),
    ],
)
def test_edges_of_lists(values, value, edge):
    assert ChosenSetting("x", {"values": values}, value, []).edge == edge


def test_a_caution_says_what_to_do():
    found = searched(tuned(("FedAvg", 1.0, [trial(0, 0.8, train_lr=1.0)])))
    assert found.cautions == [
        "The best train.lr of FedAvg, 1.0, lies at the upper edge of its range (0.001 to 1, log): "
        "a better one may lie beyond. Widen the range."
    ]


def test_without_history_there_is_nothing_to_say():
    assert searched({"cells": [{"settings": {}, "values": {"train.lr": 0.1}}]}) is None


def test_the_tables_fit_eighty_columns():
    long = "a method with quite a long name (server_lr = 0.1, power = 2)"
    text = rendered(chosen_table(searched(tuned(("A", 0.1, TRIALS), (long, 0.1, TRIALS)))))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert all(word in text for word in long.split())
