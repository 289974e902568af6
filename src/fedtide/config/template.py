"""A first study file, written from a few answers, with a comment at every setting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from fedtide.algorithms import ALGORITHMS
from fedtide.core.errors import ConfigError, choices, require
from fedtide.data.datasets import DATASETS
from fedtide.measure.names import title
from fedtide.starts import STARTS

SCHEMA = "fedtide.schema.json"  # beside the study, for editors
POPULATIONS = ("fixed", "alternating", "poisson")
SESSIONS = 6  # of an alternating population
MODELS = {  # a small model that learns each dataset; the others get an MLP
    "ag-news": "fasttext",
    "cifar10": "cifar-cnn",
    "cifar100": "cifar-cnn",
    "digits": "linear",
    "shakespeare": "char-lstm",
    "svhn": "svhn-cnn-small",
    "tinyimagenet": "resnet18",
    "uci-har": "har-cnn",
}
WIDTH = 31  # characters before a comment
MLP = '{ kind = "mlp", hidden = [64] }'


Setting = tuple[str, str]  # a line of the file, and its comment


class Answers(NamedTuple):
    """What a new study is to be about."""

    data: str = "digits"
    population: str = "fixed"
    clients: int = 20
    rounds: int = 30
    compare: Sequence[str] = ()  # algorithms, or starts; empty: usual ones
    seeds: int = 3


def usual(population: str) -> list[str]:
    """What a study of this population usually compares."""
    fixed = ["fedavg", "fedprox", "scaffold"]
    return fixed if population == "fixed" else ["soup", "similarity", "previous"]


def new_study(path: str, answers: Answers) -> str:
    """The text of the study file at this path."""
    _check(answers)
    compared = list(answers.compare) or usual(answers.population)
    section = "algorithm" if compared[0] in ALGORITHMS else "start"
    *most, last = [title(each) for each in compared]
    question = f"Which {section} is best on {title(answers.data)}: {', '.join(most)} or {last}?"
    if not most:
        question = f"How far does {last} come on {title(answers.data)}?"
    changes = answers.population != "fixed"
    lines = [
        (f"#:schema {SCHEMA}", ""),
        (f"# Check this study: fedtide check {path}    Run it: fedtide run {path}", ""),
        (f'question = "{question}"', ""),
        *[("transition_rounds = 5", "after each change of clients: what accuracy is averaged over")]
        * changes,
        ("", ""),
        *_world(answers, compared),
        ("", ""),
        ("[compare]", "every list is a dimension of the grid"),
        (f"{section} = {json.dumps(compared)}", f"fedtide list {section}s"),
        (f"seed = {list(range(1, answers.seeds + 1))}", "each repeats all settings"),
    ]
    said = (f"{text:<{WIDTH}} # {comment}" if comment else text for text, comment in lines)
    return "\n".join(said) + "\n"


def _world(answers: Answers, compared: Sequence[str]) -> list[Setting]:
    """What is learned, by which clients."""
    learnt = MODELS.get(answers.data)
    return [
        ("[data]", ""),
        (f'name = "{answers.data}"', "fedtide list datasets"),
        ('partition = { kind = "dirichlet", alpha = 0.3 }', "smaller: clients differ more"),
        ("", ""),
        ("[population]", "which clients exist: fedtide list populations"),
        *_population(answers),
        ("", ""),
        ("[participation]", "who takes part in a round: fedtide list participation"),
        ('kind = "uniform"', "drawn at random"),
        ("rate = 0.5", "the share of the clients that exist"),
        ("", ""),
        ("[train]", ""),
        (f'model = "{learnt}"' if learnt else f"model = {MLP}", "fedtide list models"),
        ("lr = 0.1", "learning rate of clients"),
        ("batch_size = 32", ""),
        _work(compared),
    ]


def _check(answers: Answers) -> None:
    for word, known, where in (
        (answers.data, DATASETS, "--data"),
        (answers.population, POPULATIONS, "--population"),
    ):
        if word not in known:
            raise ConfigError(f"{where}: {word!r} is not known. {choices(word, known)}")
    for each in answers.compare:
        if each not in ALGORITHMS and each not in STARTS:
            raise ConfigError(
                f"--compare: {each!r} is no algorithm and no start. {choices(each, [*ALGORITHMS, *STARTS])}"
            )
    rooms = {each in ALGORITHMS for each in answers.compare}
    require(len(rooms) < 2, "--compare", "algorithms only, or starts only", list(answers.compare))
    least = {"clients": 2, "rounds": 1, "seeds": 1}
    for name, number in least.items():
        given = getattr(answers, name)
        require(given >= number, f"--{name}", f"at least {number}", given)


def _population(answers: Answers) -> list[Setting]:
    clients, rounds = answers.clients, answers.rounds
    if answers.population == "alternating":
        return [
            ('kind = "alternating"', "two groups of clients take turns"),
            (f"clients = {clients}", "in each group"),
            ("labels_overlap = 0.0", "share of the labels that both groups hold"),
            (f"sessions = {SESSIONS}", ""),
            (f"rounds = {max(1, rounds // SESSIONS)}", "of each session"),
        ]
    if answers.population == "poisson":
        return [
            ('kind = "poisson"', "clients arrive and leave at random"),
            (f"clients = {clients}", "that ever exist"),
            (f"present = {max(1, clients // 2)}", "at a time, on average"),
            ("stay = 20", "rounds that a client stays, on average"),
            (f"rounds = {rounds}", ""),
        ]
    return [
        ('kind = "fixed"', "the same clients in all rounds"),
        (f"clients = {clients}", ""),
        (f"rounds = {rounds}", ""),
    ]


def _work(compared: Sequence[str]) -> Setting:
    algorithms = [ALGORITHMS[each]() for each in compared if each in ALGORITHMS]
    if any(algorithm.surveys == "epochs" for algorithm in algorithms):
        return "epochs = 1", "passes over its examples that a client makes in a round"
    return "steps = 5", "mini-batches that a client trains on in a round; or epochs = 1"
