"""The messages that docs/messages.md specifies are those that are sent."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide import run
from fedtide.core.trees import leaves
from fedtide.deploy.engine import _checked, _losses, _tested
from fedtide.deploy.frozen import is_lacking
from fedtide.deploy.records import packed, unpacked
from fedtide.deploy.roster import Roster
from fedtide.engines.kinds import FlowerSettings
from tests.deploy.test_village import CLIENT_1, NODES, SOUP, TURNS, clock, experiment, written
from tests.deploy.village import Village

__all__ = ["clock"]  # a fixture that every test here uses
ROOT = Path(__file__).parents[2]
VECTORS = {
    each["name"]: each
    for each in json.loads((ROOT / "docs" / "messages.json").read_text())["messages"]
}


def record(vector):
    """The records of a vector, made of its bytes."""
    found = RecordDict()
    for name, content in vector.items():
        if name == "arrays":
            arrays = {path: array(each) for path, each in content.items()}
            found[name] = ArrayRecord(arrays)
        elif name in ("tested", "losses"):
            from flwr.app import MetricRecord

            found[name] = MetricRecord(content)
        else:
            found[name] = ConfigRecord(content)
    return found


def array(each):
    raw = base64.b64decode(each["npy"])
    return Array(each["dtype"], tuple(each["shape"]), "numpy.ndarray", raw)


@pytest.mark.parametrize("name", ["train", "test", "losses"])
@pytest.mark.parametrize("way", ["request", "reply"])
def test_the_bytes_are_read_and_written_again(name, way):
    vector = VECTORS[name][way]
    if "arrays" not in vector:
        return
    tree, about = unpacked(record(vector))
    assert dict(about) == vector["config"]
    stored = [leaf for leaf in leaves(tree) if leaf.dim()]
    for leaf, each in zip(stored, vector["arrays"].values(), strict=True):
        expected = torch.from_numpy(np.array(each["values"], each["dtype"]).reshape(each["shape"]))
        assert leaf.dtype == expected.dtype
        assert torch.equal(leaf, expected)
        loaded = np.load(io.BytesIO(base64.b64decode(each["npy"])), allow_pickle=False)
        assert loaded.tolist() == expected.tolist()
    settings = {key: value for key, value in about.items() if key != "contents"}
    again = packed(tree, **settings)
    assert again["config"] == record(vector)["config"]
    assert {p: a.data for p, a in again["arrays"].items()} == {
        p: base64.b64decode(each["npy"]) for p, each in vector["arrays"].items()
    }


def test_the_replies_are_taken():
    report, _ = unpacked(record(VECTORS["train"]["reply"]))
    assert _checked(report) is report
    assert (report.training.loss, report.training.credit, report.steps) == (2.25, 0.125, 3.0)
    assert _tested(record(VECTORS["test"]["reply"])).examples == 283
    assert _losses(record(VECTORS["losses"]["reply"]), 2) == ([2.203, 2.145], 481.0)
    assert is_lacking(record(VECTORS["frozen parameters are missing"]["reply"]))


def test_an_introduction_is_taken(tmp_path):
    written(tmp_path)
    village = Village(tmp_path, {1: {}})
    answer = village._answer

    def introduced(message):
        reply = answer(message)
        reply.content["config"] = ConfigRecord(VECTORS["introduce"]["reply"]["config"])
        return reply

    village._answer = introduced
    roster = Roster(village, FlowerSettings(wait=0.2), 3)
    assert roster.gather(1).tolist() == [1]
    assert roster.examples == {1: 40}


def shape(content):
    """Names and types of all fields of a message."""
    return {
        name: {key: type(value).__name__ for key, value in part.items() if name != "arrays"}
        for name, part in content.items()
    }


def test_what_is_sent_has_these_fields_and_no_others(tmp_path):
    study = written(
        tmp_path, "fedavg", TURNS, rounds=1, flower='deadline = 5, tests = "clients"', more=SOUP
    )
    village = Village(tmp_path, NODES)
    run(experiment(study, village))
    kinds = {vector["type"]: vector for vector in VECTORS.values() if vector["request"] is not None}
    seen = set()
    for way, messages in (("request", village.messages), ("reply", village.replies)):
        for message in messages:
            kind = message.metadata.message_type
            seen.add((kind, way))
            assert shape(message.content) == shape(record(kinds[kind][way])), (kind, way)
    assert seen == {(kind, way) for kind in kinds for way in ("request", "reply")}
    trained = [m for m in village.messages if m.metadata.message_type == "train"]
    contents = {m.content["config"]["contents"] for m in trained}
    assert contents == {VECTORS["train"]["request"]["config"]["contents"]}
    assert any(m.metadata.dst_node_id == CLIENT_1 for m in trained)


def test_every_field_is_explained():
    page = (ROOT / "docs" / "messages.md").read_text()
    for vector in VECTORS.values():
        for way in ("request", "reply"):
            for name, part in (vector[way] or {}).items():
                assert f"`{name}`" in page
                assert all(f"`{key}`" in page for key in part if name != "arrays"), name
