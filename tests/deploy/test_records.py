"""Trees of tensors through Flower's records."""

from typing import NamedTuple

import pytest
import torch
from flwr.app import ConfigRecord

from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves
from fedtide.core.types import Nothing
from fedtide.deploy.records import packed, unpacked


class Pair(NamedTuple):
    """Two parts."""

    left: torch.Tensor
    right: dict


TREE = {
    "pair": Pair(
        torch.randn(3, 2), {"bn.mean": torch.tensor(2, dtype=torch.int64), "none": Nothing()}
    ),
    "flag": torch.tensor([True, False]),
}


def test_a_tree_comes_back_as_it_was():
    record = packed(TREE, t=3, lr=0.1, word="gradient 0")
    assert set(record.array_records["arrays"]) == {"pair/left", "pair/right/bn.mean", "flag"}
    back, about = unpacked(record)
    assert isinstance(back["pair"], Pair)
    assert back["pair"].right["none"] == Nothing()
    for one, other in zip(leaves(back), leaves(TREE), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert (about["t"], about["lr"], about["word"]) == (3, 0.1, "gradient 0")


@pytest.mark.parametrize(
    "contents",
    [
        '{"type": "os:system", "fields": {}}',  # loaded, but no NamedTuple
        '{"type": "antigravity:geohash", "fields": {}}',  # not loaded, and stays so
        '{"fields": {"missing": null}}',
        "no JSON",
    ],
)
def test_a_message_cannot_name_what_it_likes(contents):
    record = packed(TREE)
    record["config"] = ConfigRecord({"contents": contents})
    with pytest.raises(EngineError, match="Deploy the same version"):
        unpacked(record)
