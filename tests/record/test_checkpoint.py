"""Checkpoints by themselves: what they can hold, what they write, and what they do when damaged."""

import json
import re
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fedtide.core.errors import ConfigError, OutputError
from fedtide.record.checkpoint import FORMAT, Checkpointing, Checkpoints, Stopped
from fedtide.record.checkpoint.codec import declared, pack, unpack
from fedtide.record.journal import Journal
from fedtide.starts.archive import on_disk
from fedtide.training.memory import Memory

CPU = torch.device("cpu")


class Point(NamedTuple):
    x: torch.Tensor
    y: object


class Row(NamedTuple):
    c: torch.Tensor


KINDS = declared(Point)


class Desk:
    """One run's checkpoints, memory and journal, as `loop.run` holds them."""

    def __init__(self, folder, **pace):
        self.folder = folder
        self.checkpoints = Checkpoints(folder / "checkpoints", Checkpointing(**pace))
        self.memory = Memory()
        self.journal = Journal(folder / "journal.jsonl", fresh=False)

    def __del__(self):
        self.journal.close()

    def begin(self, made_with="", target=""):
        kept = self.checkpoints.begin(KINDS, self.memory, CPU, made_with, target)
        self.journal.rewind(kept and kept.journal)
        return kept

    def after(self, rounds, state):
        self.journal.append({"t": rounds - 1})
        self.checkpoints.after(rounds, state, self.memory, self.journal)

    def remember(self, clients, value, width=3):
        ids = np.array(clients)
        self.memory.put(ids, Row(torch.full((len(ids), width), float(value))))

    def recalled(self, client):
        return self.memory.kept(np.array([client]))[1].c[0].tolist()

    def files(self):
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())


def round_trip(value):
    kept = []
    node = pack(value, KINDS, lambda tensor: kept.append(tensor) or len(kept) - 1)
    return unpack(json.loads(json.dumps(node, allow_nan=False)), KINDS, kept.__getitem__)


def test_every_sort_of_value_comes_back():
    value = {
        "plain": (None, True, 3, -1.5e-300, "text", [1, [2]], ()),
        "odd": (float("inf"), float("-inf")),
        7: Point(torch.arange(3), {"inner": (Point(torch.tensor(2.5), None),)}),
    }
    back = round_trip(value)
    assert back["plain"] == value["plain"]
    assert back["odd"] == value["odd"]
    assert type(back[7]) is Point
    assert torch.equal(back[7].x, torch.arange(3))
    assert back[7].y["inner"][0].x.item() == 2.5
    assert np.isnan(round_trip(float("nan")))


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint64", "float32", "float64"])
def test_arrays_keep_their_type(dtype):
    array = np.array([[0, 1], [1, 0]], dtype=dtype)
    array.flags.writeable = False
    back = round_trip((array, array[0, 1]))
    assert back[0].dtype == array.dtype
    assert (back[0] == array).all()
    assert type(back[1]) is type(array[0, 1])


def test_a_file_cannot_bring_its_own_classes():
    with pytest.raises(KeyError):
        unpack(["named", "os.system", ["command", "true"]], KINDS, lambda where: None)
    with pytest.raises(KeyError):
        unpack(["eval", "1"], KINDS, lambda where: None)
    with pytest.raises(ValueError, match="other fields"):
        unpack(["named", f"{__name__}.Point", ["x", 1]], KINDS, lambda where: None)


def test_what_cannot_be_kept_is_named():
    with pytest.raises(OutputError, match=r"builtins\.object.*as a NamedTuple"):
        pack(object(), KINDS, lambda tensor: 0)
    with pytest.raises(OutputError, match="arrays of numbers"):
        pack(np.array(["a"]), KINDS, lambda tensor: 0)


def test_state_rows_and_journal_come_back(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    assert desk.begin() is None
    desk.remember([4, 2], 1)
    desk.after(1, Point(torch.arange(5), np.arange(2)))
    desk.remember([2, 9], 2)
    desk.after(2, Point(torch.arange(5) * 2, np.arange(2)))
    desk.journal.append({"t": 2})  # a round that no checkpoint knows

    later = Desk(tmp_path, rounds=1)
    kept = later.begin()
    assert kept.rounds == 2
    assert torch.equal(kept.state.x, torch.arange(5) * 2)
    assert [line["t"] for line in later.journal.lines] == [0, 1]
    assert (tmp_path / "journal.jsonl").read_text() == '{"t": 0}\n{"t": 1}\n'
    assert [later.recalled(client)[0] for client in (4, 2, 9)] == [1, 2, 2]
    assert len(later.memory.changed) == 0


def test_only_what_changed_is_written(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    archive = torch.randn(50_000)
    desk.remember(range(100), 1, width=1000)
    desk.after(1, (archive, torch.zeros(10)))
    desk.remember([3], 2, width=1000)
    desk.after(2, (archive, torch.ones(10)))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "checkpoints").iterdir()}
    assert sizes["00000001.safetensors"] > 4 * (50_000 + 100_000)
    assert sizes["00000002.safetensors"] < 4 * 1000 + 5000  # one row, ten numbers, where rows lie

    archive.add_(1)  # in place: the same tensor, but not the same content
    desk.after(3, (archive, torch.ones(10)))
    assert (tmp_path / "checkpoints/00000003.safetensors").stat().st_size > 4 * 50_000
    kept = Desk(tmp_path).begin()
    assert torch.equal(kept.state[0], archive)


def test_resuming_does_not_write_everything_again(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.remember(range(100), 1, width=1000)
    desk.after(1, torch.randn(50_000))
    later = Desk(tmp_path, rounds=1)
    state = later.begin().state
    later.after(2, state)
    assert (tmp_path / "checkpoints/00000002.safetensors").stat().st_size < 5000
    third = Desk(tmp_path)
    assert torch.equal(third.begin().state, state)
    assert third.recalled(99)[0] == 1


def test_useless_rows_are_tidied_up(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    largest = 0
    for rounds in range(1, 40):  # every row changes again and again
        desk.remember(np.arange(rounds % 5, 200, 5), rounds, width=2000)
        desk.after(rounds, None)
        used = sum(path.stat().st_size for path in (tmp_path / "checkpoints").iterdir())
        largest = max(largest, used)
    assert largest < 4 * 200 * 2000 * 5  # two checkpoints, each at most twice the table
    assert sum(name.endswith(".json") for name in desk.files()) == 2
    later = Desk(tmp_path)
    later.begin()
    for client in range(200):
        assert later.recalled(client) == desk.recalled(client)


def test_forgotten_rows_stay_forgotten(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.remember([1, 2], 1)
    desk.after(1, None)
    desk.memory.clear()
    desk.remember([2], 5)
    desk.after(2, None)
    later = Desk(tmp_path)
    later.begin()
    assert later.memory.clients.tolist() == [2]
    assert later.recalled(2)[0] == 5


def test_shared_views_and_mapped_files(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    base = torch.arange(10.0)
    mapped = on_disk(base + 1)
    desk.after(1, (base, base, base[2:5], base.expand(2, 10), mapped))
    one, same, part, wide, disk = Desk(tmp_path).begin().state
    assert one is same
    assert part.tolist() == [2, 3, 4]
    assert wide.shape == (2, 10)
    assert torch.equal(disk, base + 1)
    assert disk.untyped_storage().filename  # as it was: not in memory


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_the_second_last_serves_where_the_last_is_damaged(tmp_path, damage, suffix):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    for rounds in (1, 2, 3):
        desk.after(rounds, torch.full((100,), rounds))
    path = tmp_path / "checkpoints" / f"00000003.{suffix}"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        bad = bytes([content[middle] ^ 1]) + content[middle + 1 :] if damage == "flip" else b""
        path.write_bytes(content[:middle] + bad)
    later = Desk(tmp_path, rounds=1)
    kept = later.begin()
    assert kept.rounds == 2
    assert kept.state[0] == 2
    assert len(later.journal.lines) == 2
    later.after(3, torch.full((100,), 3))
    assert Desk(tmp_path).begin().state[0] == 3


def test_where_nothing_serves_the_error_says_what_to_do(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.after(1, torch.zeros(3))
    (tmp_path / "checkpoints/00000001.json").write_bytes(b"{}")
    with pytest.raises(OutputError, match=r"must hold an undamaged checkpoint.*remove that folder"):
        Desk(tmp_path).begin()


def test_another_kind_of_processor_is_a_choice(tmp_path, monkeypatch):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.after(1, torch.zeros(3))
    with pytest.raises(
        OutputError, match=r"Got .* compiled for znver9\. .*checkpoint\.processor=any"
    ):
        Desk(tmp_path).begin(target=", compiled for znver9")
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    with pytest.raises(OutputError, match=r"Got abacus .*within rounding, no longer bit for bit"):
        Desk(tmp_path).begin()
    other = Desk(tmp_path, rounds=1, processor="any")
    assert other.begin().rounds == 1
    other.after(2, torch.zeros(3))
    assert Desk(tmp_path).begin().rounds == 2  # made here by now
    with pytest.raises(ConfigError, match=r"checkpoint\.processor must be 'same' or 'any'"):
        Checkpointing(processor="some")


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.after(1, torch.zeros(3))
    path = tmp_path / "checkpoints/00000001.json"
    head, body, _ = path.read_bytes().split(b"\n")
    path.write_bytes(json.dumps(json.loads(head) | {"format": 2}).encode() + b"\n" + body + b"\n")
    with pytest.raises(
        OutputError, match=rf"its format is 2, .* reads {FORMAT}.*remove that folder"
    ):
        Desk(tmp_path).begin()


def test_a_journal_that_was_changed_is_not_trusted(tmp_path):
    desk = Desk(tmp_path, rounds=1)
    desk.begin()
    desk.after(1, None)
    (tmp_path / "journal.jsonl").write_text('{"t": 7}\n')
    with pytest.raises(OutputError, match="must begin with the lines"):
        Desk(tmp_path).begin()
    assert (tmp_path / "journal.jsonl").read_text() == '{"t": 7}\n'


def test_paces(tmp_path):
    for name, pace, expected in (
        ("never", {"rounds": 0, "seconds": 0.0}, []),
        ("third", {"rounds": 3, "seconds": 0.0}, [3, 6]),
        ("clock", {"rounds": 0, "seconds": 1e-9}, [6, 7]),
        ("default", {}, []),
    ):
        (tmp_path / name).mkdir()
        desk = Desk(tmp_path / name, **pace)
        desk.begin()
        for rounds in range(1, 8):
            desk.after(rounds, None)
        found = (tmp_path / name).glob("checkpoints/*.json")
        assert sorted(int(path.stem) for path in found) == expected


def test_a_wish_to_stop_keeps_everything_first(tmp_path):
    desk = Desk(tmp_path)
    desk.checkpoints = Checkpoints(tmp_path / "checkpoints", stop=lambda: True)
    desk.begin()
    with pytest.raises(Stopped):
        desk.after(1, torch.ones(2))
    assert Desk(tmp_path).begin().rounds == 1


def test_a_run_goes_on_only_with_what_it_was_made_with(tmp_path):
    """Another compiler may round otherwise: it would no longer be the same run."""
    desk = Desk(tmp_path, rounds=1)
    desk.begin(" and numba 0.68.1")
    desk.after(1, torch.ones(2))
    torch_here = re.escape(torch.__version__)
    said = f"made with torch {torch_here} and numba 0.68.1, this is {torch_here}[.]"
    with pytest.raises(OutputError, match=said):
        Desk(tmp_path).begin()
    assert torch.equal(Desk(tmp_path).begin(" and numba 0.68.1").state, torch.ones(2))
