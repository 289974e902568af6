"""Hostile input: mutated studies and data files give results or a FedTide error, never a traceback.

FEDTIDE_FUZZ=2000 tries so many of each; by default a few are tried, always the same.
"""

import gzip
import io
import os
import signal
import struct
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedtide import config
from fedtide.core.errors import ConfigError, DataError, EngineError, FedTideError, memory_explained
from fedtide.core.types import Crowd
from fedtide.data import images, text
from fedtide.data.files import content as unpacked
from fedtide.data.files import idx
from fedtide.population import recording, traces
from fedtide.population.arrivals import VisitTrace
from fedtide.population.traces import AvailabilityTrace, Phones
from fedtide.record.checkpoint import Checkpointing, Checkpoints, Stopped
from fedtide.record.journal import Journal
from fedtide.run.loop import run
from fedtide.run.study import Study
from fedtide.training.memory import Memory
from tests.config.hostile import files, mutated

COUNT = int(os.environ.get("FEDTIDE_FUZZ", "60"))  # examples of each sort
SLOW = 600  # seconds: nothing hangs, however busy the machine is
BOUNDED = settings(
    max_examples=COUNT,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def within(seconds):
    """Fail instead of hanging."""

    def ring(number, frame):
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@BOUNDED
@given(source=files())
def test_mutated_studies(folder, source):
    """One round, or a FedTide error; and no file beside the study."""
    (folder / "study.toml").write_text(source, encoding="utf-8")
    with within(SLOW):
        try:
            cell = config.load(folder / "study.toml").cells[0]
            run(cell.experiment, checkpoints=Checkpoints(stop=lambda: True))
        except (FedTideError, Stopped):
            pass
    assert {path.name for path in folder.iterdir()} <= {"study.toml", "data"}


def packed(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def zipped(**texts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, words in texts.items():
            archive.writestr(name.replace("_", "."), words)
    return file.getvalue()


IDX = bytes((0, 0, 8, 3)) + struct.pack(">III", 5, 4, 4) + bytes(range(80))
NPZ = packed(x=np.zeros((6, 3, 32, 32), np.uint8), y=np.arange(6))
NEWS = b'"3","A title","Some words, more words"\n"1","Another","\xe2\x82\xac 5"\n' * 4
TRACE = b"client,start,end\n0,0,600\n1,60,1200.5\n2,30,90\n"
MINUTES = b"client,minute,available\n0,0,1\n1,1,0\n1,2,1\n"
VISITS = b"client,arrive,leave\n0,0,4\n1,2,3\n0,5,9\n"
PHONES = b"user,timestamp,plugged,battery,wifi\n0,60,ac,full,reachable_via_wifi\n0,360,no,x,y\n"
PLAY = "\n\n".join(
    f"{who}.\nSo it is said, and said again, by {who} {number}."
    for number in range(60)
    for who in ("HAMLET", "OPHELIA")
)
CROWD = Crowd(3, lambda: np.ones((3, 10), np.int64))


def news(place):
    for name in ("train.csv", "test.csv"):
        (place / name).write_bytes((place / "file").read_bytes())
    text.ag_news(place, 4)


def arrays(place):
    for name in ("train.npz", "test.npz"):
        (place / name).write_bytes((place / "file").read_bytes())
    images.svhn(place, 10)


def plays(place):
    (place / "plays_gutenberg.zip").write_bytes((place / "file").read_bytes())
    text.shakespeare(place, 80, fraction=1.0)


def gzipped(place):
    (place / "file.gz").write_bytes((place / "file").read_bytes())
    idx(place / "file.gz", 3)


def cells(place):
    process = AvailabilityTrace(file=str(place / "file"))
    process.start(CROWD, 0)


SORTS = {
    "idx": (IDX, lambda place: idx(place / "file", 3)),
    "idx-gz": (gzip.compress(IDX, mtime=0), gzipped),
    "npz": (NPZ, arrays),
    "csv": (NEWS, news),
    "plays": (zipped(hamlet_txt=PLAY), plays),
    "trace": (TRACE, cells),
    "minutes": (MINUTES, cells),
    "phones": (PHONES, lambda place: Phones(file=str(place / "file")).start(CROWD, 0)),
    "visits": (VISITS, lambda place: VisitTrace(rounds=9, file=str(place / "file")).at(0)),
}


@pytest.mark.parametrize("sort", SORTS)
def test_untouched_data_files_can_be_read(tmp_path, sort):
    content, reader = SORTS[sort]
    (tmp_path / "file").write_bytes(content)
    reader(tmp_path)


@BOUNDED
@given(data=st.data())
def test_mutated_data_files(folder, data):
    """They are read, or refused with a FedTide error; nothing but them is in the folder."""
    sort = data.draw(st.sampled_from(sorted(SORTS)))
    content, reader = SORTS[sort]
    place = folder / "data" / sort
    place.mkdir(parents=True, exist_ok=True)
    (place / "file").write_bytes(mutated(data.draw, content))
    for cached in (traces._read, recording._recording):
        cached.cache_clear()
    with within(SLOW), suppress(FedTideError):
        reader(place)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The files of a checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    keeper, journal = Checkpoints(folder / "kept", Checkpointing(rounds=1)), Journal()
    keeper.begin({}, Memory(), torch.device("cpu"))
    keeper.after(1, {"x": torch.arange(9.0), "y": (1, "two", None)}, Memory(), journal)
    return {path.name: path.read_bytes() for path in (folder / "kept").iterdir()}


@BOUNDED
@given(data=st.data())
def test_mutated_checkpoints(tmp_path_factory, checkpoint, data):
    folder = tmp_path_factory.getbasetemp() / f"kept-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    chosen = data.draw(st.sampled_from(sorted(checkpoint)))
    for name, content in checkpoint.items():
        new = mutated(data.draw, content) if name == chosen else content
        (folder / name).write_bytes(new)
    with within(SLOW), suppress(FedTideError):
        kept = Checkpoints(folder).begin({}, Memory(), torch.device("cpu"))
        assert torch.equal(kept.state["x"], torch.arange(9.0))  # or it is not read at all


# One by one


def test_a_gzip_bomb_is_refused(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(IDX + bytes(50_000_000)))  # 50 kB that want to be 50 MB
    with pytest.raises(DataError, match=r"promises 80 bytes. Got more"):
        idx(path, 3)
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        unpacked(path, 1_000_000)


def test_a_trace_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtide.population.traces.MOST_BYTES", 1000)
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TRACE + b"0,0,600\n" * 10_000))
    with pytest.raises(DataError, match="at most 1,000 bytes"):
        AvailabilityTrace(file=str(path)).start(CROWD, 0)


def test_arrays_of_objects_are_refused(tmp_path):
    (tmp_path / "file").write_bytes(packed(x=np.array([{}]), y=np.arange(1)))
    with pytest.raises(DataError, match="not an npz file of plain arrays"):
        arrays(tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "/etc/x", "a/b", "a\\b", ".x", "x\0y", "x" * 300]
)
def test_a_study_stays_in_its_folder(name):
    cells = config.study("small", {"train": {"steps": 1}}).cells
    with pytest.raises(ConfigError, match="name for a folder"):
        Study(name=name, cells=cells, seeds=(0,))


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("population", "clients"),
        ("population", "rounds"),
        ("train", "steps"),
        ("train", "batch_size"),
    ],
)
def test_numbers_beyond_any_machine_are_refused(section, setting):
    table = {"train": {"steps": 1}, "population": {"kind": "fixed"}}
    table[section][setting] = 10**11
    with pytest.raises(ConfigError, match=rf"{section}\.{setting} must be .* at most 100,000,000"):
        config.study("huge", table)


def test_what_does_not_fit_into_memory_is_explained():
    with (
        pytest.raises(EngineError, match=r"this machine's memory.*fewer clients"),
        memory_explained(),
    ):
        np.empty(2**60, np.uint8)
    with pytest.raises(EngineError, match="this machine's memory"), memory_explained():
        torch.empty(2**55)
    with pytest.raises(RuntimeError, match="something else"), memory_explained():
        raise RuntimeError("something else")


def test_an_own_kind_in_a_folder_with_a_dot(tmp_path):
    folder = tmp_path / "v1.2"
    folder.mkdir()
    (folder / "mine.py").write_text("from fedtide.algorithms.fedavg import FedAvg as Mine\n")
    (folder / "study.toml").write_text('algorithm = "mine.py:Mine"\ntrain = { steps = 1 }\n')
    with pytest.raises(ConfigError, match=r"a dot in its name. Rename 'v1.2'"):
        config.load(folder / "study.toml")


def test_an_own_kind_that_breaks_off(tmp_path):
    folder = tmp_path / "broken_kinds"
    folder.mkdir()
    (folder / "mine.py").write_text("1 / 0\n")
    (folder / "study.toml").write_text('algorithm = "mine.py:Mine"\ntrain = { steps = 1 }\n')
    with pytest.raises(ConfigError, match=r"fails to import: ZeroDivisionError.*Correct the file"):
        config.load(folder / "study.toml")


def test_nothing_is_ever_unpickled():
    """numpy and torch are told not to unpickle files, and no module reads a file with pickle.

    What Ray's own processes hand to each other (run/cluster.py) never was a file.
    """
    for path in set(Path("src").rglob("*.py")) - {Path("src/fedtide/run/cluster.py")}:
        source = path.read_text()
        assert source.count("np.load(") == source.count("allow_pickle=False"), path
        assert "torch.load(" not in source, path
        assert "pickle.load" not in source, path
