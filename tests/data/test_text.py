"""AG News words and Shakespeare windows, on texts written here."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedtide.core.errors import ConfigError, DataError
from fedtide.core.types import Dataset
from fedtide.data import text
from fedtide.data.datasets import load

TRAIN = '"3","Oil up","Oil, oil!"\n"1","War ends",""\n\n'
TEST = "label,title,description\n4,Oil,chips up_\n"


def write_news(folder: Path, train: str = TRAIN, name: str = "train.csv") -> Path:
    (folder / name).write_text(train)
    (folder / "test.csv.gz").write_bytes(gzip.compress(TEST.encode()))
    return folder


def test_ag_news_by_hand(tmp_path: Path) -> None:
    """Words by count, then alphabet: oil 3 times, then ! , ends up war once; ids begin at 2."""
    news = load("ag-news", write_news(tmp_path), length=6)
    assert news.train.inputs.tolist() == [[2, 6, 2, 4, 2, 3], [7, 5, 0, 0, 0, 0]]
    assert news.train.targets.tolist() == [2, 0]
    assert news.test.inputs.tolist() == [[2, 1, 6, 1, 0, 0]]  # chips and _ are unknown
    assert news.test.targets.tolist() == [3]
    assert (news.classes, news.vocabulary, news.keys) == (4, 30_522, None)
    inputs, _ = news.train.take(torch.tensor([0]))
    assert inputs.dtype == torch.int64


def test_ag_news_cap_of_the_vocabulary(tmp_path: Path) -> None:
    news = load("ag-news", write_news(tmp_path), length=6, vocabulary=4)
    assert news.train.inputs.tolist() == [[2, 1, 2, 1, 2, 3], [1, 1, 0, 0, 0, 0]]
    assert news.vocabulary == 4
    with pytest.raises(ConfigError, match=r"data.length must be at least 1"):
        load("ag-news", tmp_path, length=0)


def test_ag_news_subset_with_a_text_column(tmp_path: Path) -> None:
    rows = 'label,text,src\n2,"a, b",noisy\n'
    news = load("ag-news", write_news(tmp_path, rows, "train_subset.csv"), length=4)
    assert news.train.inputs.tolist() == [[3, 2, 4, 0]]  # , a b; the source is not text
    assert news.train.targets.tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,a,b\n5,a,b\n", "line 2 must be a label 1-4 and 2 texts. Got '5,a,b'"),
        ("1,a,b\n2,a\n", "line 2 must be"),
        ("label,text\n1,a,b\n", "line 2 must be a label 1-4 and 1 texts"),
        ('1,a,"never closed\n', "not a CSV file"),
        ("label,title,description\n", "there are no examples"),
        ("", "there are no examples"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load("ag-news", write_news(tmp_path, rows))


def test_a_csv_in_another_encoding(tmp_path: Path) -> None:
    write_news(tmp_path)
    (tmp_path / "train.csv").write_bytes(b"1,caf\xe9,b\n")
    with pytest.raises(DataError, match="not a CSV file in UTF-8"):
        load("ag-news", tmp_path)


# ------------------------------------------------------------------ Shakespeare

PLAY = """A PLAY

by Nobody

ANNA, a queen.
BEN

ACT I.

Scene I. A street.

[Enter ANNA.]

ANNA.
Good day,  [Aside] and
good night.

BEN. [Rising.]
No.

Porter.
One line only.

ANNA.
Again.

[A noise.]

Who is there?

BEN. Nothing, madam.

SCENE II. A hall.

Here is nobody.

Ben.
Yes.

ANNA
At last.

BEN.

Alone.
"""


def test_speeches_by_hand() -> None:
    """Cues on their own line, bare, inline or in lower case; directions and rare roles left out."""
    assert text.speeches(PLAY) == {
        "ANNA": "Good day, and good night. Again. Who is there? At last.",
        "BEN": "No. Nothing, madam. Yes. Alone.",
    }


def test_letters_are_those_of_leaf() -> None:
    assert len(text.LETTERS) == len(set(text.LETTERS)) == 80
    assert text.encoded("\n A}").tolist() == [
        0,
        1,
        25,
        79,
    ]  # 11 signs, 10 digits and 4 signs before A
    assert text.encoded("a_{é☃b").tolist() == [text.LETTERS.index("a"), text.LETTERS.index("b")]


def play_of(*lengths: int) -> str:
    """A play whose roles say so many characters: three speeches of one repeated letter."""
    parts = ["ACT I."]
    for role, length in enumerate(lengths):
        name = f"ROLE {'ABCDEFG'[role]}."
        letter = "abcdefg"[role]
        rest = length - 2 * 2  # two speeches of one letter, each with a space after it
        parts += [f"{name}\n{letter}", f"{name}\n{letter}", f"{name}\n{letter * rest}"]
    return "\n\n".join(parts)


def write_plays(folder: Path, *lengths: int) -> Path:
    with zipfile.ZipFile(folder / "plays_gutenberg.zip", "w") as archive:
        archive.writestr("hamlet_gut.txt", play_of(*lengths))
        archive.writestr("sonnets_gut.txt", play_of(5000))
        archive.writestr("alls_well_that_ends_well_gut.txt", play_of(5000))
    return folder


def test_windows_and_split_by_hand(tmp_path: Path) -> None:
    """1080 characters are 1000 windows: 900 train, 79 skipped, 21 test.

    A role of 80 characters has no window; one of 870 has 790 windows: 711 train, none left to test.
    """
    plays = load("shakespeare", write_plays(tmp_path, 1080, 80, 870, 1180), fraction=1.0)
    assert plays.keys is not None
    assert np.bincount(plays.keys).tolist() == [900, 990]  # 1100 windows: 990, 79, 31
    assert len(plays.test) == 21 + 31
    assert (plays.shape, plays.classes, plays.vocabulary) == ((80,), 80, 80)
    a, space = text.LETTERS.index("a"), text.LETTERS.index(" ")
    assert plays.train.inputs[0].tolist() == [a, space, a, space] + [a] * 76
    assert plays.train.inputs[1].tolist() == [space, a, space] + [a] * 77
    assert plays.train.targets[:3].tolist() == [a, a, a]
    assert plays.train.targets[900] == text.LETTERS.index("d")
    inputs, _ = plays.train.take(torch.tensor([0]))
    assert inputs.dtype == torch.int64


def test_stride_keeps_every_other_window(tmp_path: Path) -> None:
    """500 windows at stride 2: 450 train, 40 skipped (80 characters), 10 test."""
    plays = load("shakespeare", write_plays(tmp_path, 1080), fraction=1.0, stride=2)
    assert (len(plays.train), len(plays.test)) == (450, 10)
    every = load("shakespeare", tmp_path, fraction=1.0)
    assert torch.equal(plays.train.inputs, every.train.inputs[::2])


def test_a_fraction_takes_whole_clients_and_cuts_the_last(tmp_path: Path) -> None:
    write_plays(tmp_path, *[2080] * 5)  # 5 x 2000 windows

    def train_counts(seed: int) -> tuple[list[int], list[int], Dataset]:
        plays = load("shakespeare", tmp_path, fraction=0.3, seed=seed)
        assert plays.keys is not None
        firsts = [int(plays.train.inputs[np.flatnonzero(plays.keys == k)[9], 9]) for k in (0, 1)]
        return sorted(np.bincount(plays.keys).tolist()), firsts, plays

    counts, roles, plays = train_counts(seed=0)
    assert counts == [900, 1800]  # 3000 windows: one whole client, half of another
    assert len(plays.test) == 21 + 121
    assert train_counts(seed=0)[1] == roles
    assert len({tuple(train_counts(seed)[1]) for seed in range(8)}) > 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"fraction": 0.0}, r"data.fraction must be in \(0, 1\]"),
        ({"fraction": 0.1}, "data.fraction must be large enough"),
        ({"stride": 0}, "data.stride must be at least 1"),
    ],
)
def test_settings_out_of_range(tmp_path: Path, setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("shakespeare", write_plays(tmp_path, 1080), **setting)


def test_a_damaged_zip_is_named(tmp_path: Path) -> None:
    path = write_plays(tmp_path, 1080) / "plays_gutenberg.zip"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"plays_gutenberg.zip: it is not a readable zip file"):
        load("shakespeare", tmp_path)
