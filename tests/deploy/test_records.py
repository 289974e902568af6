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
    assert set(record.array_records["arrays"]) == {"pair/left", "flag"}  # numbers are in `contents`
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
        '{"dtype": "float16", "number": 1.0}',
        '{"dtype": "int64", "number": "1"}',
        '{"dtype": "int64", "number": 1e30}',
        f'{{"dtype": "int64", "number": {10**30}}}',
        f'{{"dtype": "float32", "number": {10**400}}}',
        '{"dtype": "float32", "number": [1e3]}',
        "no JSON",
    ],
)
def test_a_message_cannot_name_what_it_likes(contents):
    record = packed(TREE)
    record["config"] = ConfigRecord({"contents": contents})
    with pytest.raises(EngineError, match="Deploy the same version"):
        unpacked(record)


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-45, 3.4028235e38, 1 / 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_keep_every_bit(value, dtype):
    number = torch.tensor(value, dtype=dtype)
    record = packed({"a": number, "n": torch.tensor(2**62 + 1)})
    assert not record.array_records["arrays"]
    back, _ = unpacked(record)
    assert back["a"].numpy().tobytes() == number.numpy().tobytes()
    assert back["n"] == 2**62 + 1


def test_numbers_that_are_none_are_arrays():
    record = packed({"a": torch.tensor(float("nan")), "b": torch.tensor(float("inf"))})
    assert set(record.array_records["arrays"]) == {"a", "b"}
    assert "NaN" not in record.config_records["config"]["contents"]
