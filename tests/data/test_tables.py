"""Files of clients: what is read from them, and one sentence for every mistake in them."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import fedtide
from fedtide import config
from fedtide.core.errors import DataError
from fedtide.run.loop import run

GOOD = {
    "site1.csv": "age,dose,day,y\n50,1.5,2024-01-03,3\n61,2,2024-01-01,4.5\n",
    "site2.csv": "age,dose,day,y\n40,0.5,2024-01-02,2\n",
    "site10.csv": "dose,age,y,day\n2.5,70,6,2024-01-04\n",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_file_for_each_client(tmp_path):
    """Columns may be in any order; clients are those of the files, counted as people count."""
    data = fedtide.from_files(write(tmp_path, GOOD), time="day")
    assert data.train.inputs.tolist() == [[50, 1.5], [61, 2], [40, 0.5], [70, 2.5]]
    assert data.train.targets.tolist() == [3, 4.5, 2, 6]
    assert data.keys.tolist() == [0, 0, 1, 2]
    assert data.times.tolist() == [2, 0, 1, 3]
    assert (data.classes, len(data.test)) == (0, 0)


def test_one_file_with_a_column_of_clients_and_text_labels(tmp_path):
    text = "\ufeffward;x;z;sick\nb;1;2;no\na;3;4;yes\n\nb;5;6;yes\n"
    with gzip.open(tmp_path / "all.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    data = fedtide.from_files(tmp_path / "all.csv.gz", target="sick", client="ward", scale=True)
    assert data.keys.tolist() == [1, 0, 1]
    assert (data.train.targets.tolist(), data.classes) == ([0, 1, 1], 2)
    spread = np.std([1, 3, 5])
    assert data.train.inputs[:, 0].tolist() == pytest.approx([-2 / spread, 0, 2 / spread])


def test_parquet_and_test_files(tmp_path):
    (tmp_path / "test").mkdir()
    table = {
        "x": [1, 2],
        "ok": [True, False],
        "day": np.array(["2024-02-01", "2024-01-01"], "M8[D]"),
        "y": [0, 2],
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    parquet.write_table(pa.table(table), tmp_path / "test" / "a.parquet")
    given = {"time": "day", "classes": 3, "test": tmp_path / "test"}
    data = fedtide.from_files(tmp_path, **given)
    assert data.train.inputs.tolist() == [[1, 1], [2, 0]]
    assert (data.classes, data.test_keys.tolist(), data.times.tolist()) == (3, [0, 0], [1, 0])
    two = fedtide.from_files(tmp_path, target=["x", "y"], drop=["day"])
    assert two.train.targets.tolist() == [[1, 0], [2, 2]]


@pytest.mark.parametrize(
    ("changes", "settings", "sentence"),
    [
        (
            None,
            {},
            "must be a table, or a folder with one for each client: .* Got no such file or folder. Check",
        ),
        ({}, {}, r"Got a folder without one\. Check the path\."),
        (
            {"a.csv": ""},
            {},
            r"a.csv: the first row must have a name for each column, .* Got nothing\. Name",
        ),
        ({"a.csv": "x,x,y\n1,2,3\n"}, {}, r"none twice\. Got the name 'x' twice"),
        (
            {"a.csv": "x,y\n"},
            {},
            r"a.csv: it must have columns with names, and rows of values\. Got no row",
        ),
        (
            {"a.csv": "x,z\n1,2\n"},
            {},
            r"a.csv: there must be a column 'y'\. Got the columns x, z\. Name one",
        ),
        ({"a.csv": "y\n1\n"}, {}, r"there must be a column of inputs beside y\. Got none"),
        (
            {"a.csv": "x,y\n1,2\n3\n"},
            {},
            r"a.csv: row 3 must have 2 values, .* Got 1\. Correct the row\.",
        ),
        (
            {"a.csv": "x,y\n1,2\nlow,4\n"},
            {},
            r"row 3 of column 'x' must be a number\. Got 'low'\. .* drop = \['x'\]",
        ),
        ({"a.csv": "x,y\n1,2\n,4\n"}, {}, r"a.csv: row 3 of column 'x' must be a number\. Got ''"),
        (
            {"a.csv": "x,y\n1,2\nnan,4\nnan,1\n"},
            {},
            r"row 3 of column 'x' must be a finite number\. Got nan \(2 such",
        ),
        (
            {"a.csv": "x,y\n1,nan\n"},
            {},
            r"a.csv: row 2 of column 'y' must be a finite number\. Got nan",
        ),
        ({"a.csv": "x,y\n1,2\n3,bad\n"}, {}, r"row 3 of column 'y' must be a number\. Got 'bad'"),
        ({"a.csv": "x,y\n1,no\n3,\n"}, {}, r"row 3 of column 'y' must not be empty"),
        (
            {"a.csv": "x,y\n1,2\n"},
            {"classes": 2},
            r"column 'y' must have labels, whole numbers from 0 to 1, .* Got 2\.",
        ),
        (
            {"a.csv": "x,y\n1,2\n", "b.csv": "X,y\n1,2\n"},
            {},
            r"b.csv: it must have the columns of a.csv\. Got a table without x and with X\. Give all clients",
        ),
        ({"a.csv": "x,y,d\n1,2,\n"}, {"time": "d"}, r"row 2 of column 'd' must not be empty"),
        (
            {"a.parquet": "no table"},
            {},
            r"a.parquet must be a Parquet file\. Got one that cannot be read",
        ),
        (
            {"a.csv.gz": "x,y\n"},
            {},
            r"a.csv.gz must be a CSV file in UTF-8\. Got one that cannot be read",
        ),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, changes, settings, sentence):
    folder = tmp_path / "sites"
    if changes is not None:
        folder.mkdir()
        write(folder, changes)
    with pytest.raises(DataError, match=sentence) as caught:
        fedtide.from_files(folder, **settings)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\xff\xfe\n")
    with pytest.raises(DataError, match=r"a.csv must be a CSV file in UTF-8"):
        fedtide.from_files(tmp_path)


STUDY = """
[data]
kind = "files"
folder = "{folder}"
drop = ["day"]
{more}
[population]
kind = "fixed"
clients = 3
rounds = 1
[task]
kind = "regression"
[train]
epochs = 1
lr = 0.0001
"""


def test_a_study_with_files(tmp_path):
    """They change: the next run sees it. Without test examples a study says what to set."""
    import tomllib

    write(tmp_path, GOOD)

    def experiment(more=""):
        table = tomllib.loads(STUDY.format(folder=tmp_path, more=more))
        return config.study("sites", table).cells[0].experiment

    with pytest.raises(
        fedtide.FedTideError, match=r"data.test_share must be above 0, as '.*' has no test"
    ):
        run(experiment())
    data = experiment("test_share = 0.5").data
    before = data.checksum()
    dataset, holdings = data.deal(experiment().population.groups, 1, 0)
    assert holdings.sizes(0, np.arange(3)).tolist() == [1, 1, 1]
    assert torch.equal(dataset.test.targets, dataset.own.examples.targets)
    (tmp_path / "site2.csv").write_text(GOOD["site2.csv"].replace("0.5", "0.25"))
    assert data.checksum() != before
