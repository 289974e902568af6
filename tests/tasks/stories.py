"""The studies in studies/tasks at small size, and small files in the form of the data that they read."""

import gzip
import runpy
import shutil
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from fedtide import config
from fedtide.run.execute import run_study
from fedtide.run.study import Cell, Study

FOLDER = Path(__file__).parent.parent.parent / "studies" / "tasks"
SHORT = ("population.rounds=2", "train.steps=3")
FEW = ("population.clients=6", "participation.clients=3", "data.name='digits'", *SHORT)
SMALL = {  # the number of the setting that a test takes, and what it changes
    "regression": (
        0,
        "population.clients=4",
        "participation.clients=2",
        "population.rounds=3",
        "train.lr=0.02",
    ),
    "imbalance": (1, "data.keep=0.5", *FEW),
    "multilabel": (0, *FEW),
    "har": (0, "population.present=6", "population.stay=3", *SHORT),
    "plays-first": (0, "train.model.width=8", "train.batch_size=16", *SHORT),
    "tokens": (2, "population.clients=3", "participation.clients=2", "train.batch_size=16", *SHORT),
    "text": (
        0,
        "data.count=48",
        "data.length=12",
        "population.clients=2",
        "population.sessions=2",
        "population.rounds=1",
        "train.batch_size=4",
    ),
}


def story(name, folder):
    """The experiment of one setting at small size; the folder has what `write` wrote."""
    number, *changes = SMALL[name]
    study = config.load(folder / f"{name}.toml", [*changes, "evaluation.every=1"])
    return study.cells[number].experiment


def pre_trained(folder):
    """Run the study with whose model the study "tokens" goes on."""
    study = Study(name="plays-first", cells=(Cell({}, story("plays-first", folder)),), seeds=(0,))
    return run_study(study, "runs", jobs=1)


def write(folder):
    """The study files and the data that they read."""
    for file in (*FOLDER.glob("*.toml"), *FOLDER.glob("*.py")):
        shutil.copy(file, folder)
    write_data(folder)


def write_data(folder):
    """Files of all studies that read some."""
    rng = np.random.default_rng(0)
    runpy.run_path(str(FOLDER / "sites.py"))["write"](folder / "sites", sites=4, rows=25)
    for name in ("shakespeare", "ag_news", "uci_har"):
        (folder / name).mkdir()
    with ZipFile(folder / "shakespeare" / "plays_gutenberg.zip", "w") as plays:
        for number in range(6):
            words = ["to", "be", "or", "not", "that", "is", "the", "question", "\n"]
            plays.writestr(f"play{number}.txt", " ".join(rng.choice(words, 17_000)))
    texts = [f"Team {k} wins the cup, and shares of company {k} fall" for k in range(60)]
    for file, header, middle in (
        ("train_subset", "label,text,src", ""),
        ("test", "label,title,description", "A title,"),
    ):
        rows = [f'{1 + k % 4},{middle}"{text}",x' for k, text in enumerate(texts)]
        with gzip.open(folder / "ag_news" / f"{file}.csv.gz", "wt") as out:
            out.write("\n".join([header, *rows]))
    subject = np.repeat(np.arange(1, 31), 36)
    np.savez(
        folder / "uci_har" / "windows.npz",
        x=rng.normal(size=(len(subject), 9, 128)).astype(np.float16),
        y=np.arange(len(subject)) % 6,
        subject=subject,
    )
