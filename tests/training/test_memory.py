"""The table of memories: rows for clients that took part, and nobody else."""

from typing import NamedTuple

import numpy as np
import torch

from fedtide.core.types import Nothing
from fedtide.training.memory import Memory


class Two(NamedTuple):
    a: torch.Tensor
    b: dict


def one(value):
    return Two(torch.full((2,), float(value)), {"n": torch.tensor(int(value))})


def many(*values):
    v = torch.tensor(values)
    return Two(v.float()[:, None].expand(-1, 2).clone(), {"n": v.clone()})


def values(taken):
    assert torch.equal(taken.a[:, 0], taken.a[:, 1])
    assert taken.a[:, 0].tolist() == taken.b["n"].tolist()
    return taken.b["n"].tolist()


def ids(*clients):
    return np.array(clients)


def test_everybody_is_fresh_at_first():
    memory = Memory()
    assert values(memory.take(ids(5, 900_000_000), one(7))) == [7, 7]
    assert len(memory) == 0  # looking leaves no trace
    assert 5 not in memory


def test_rows_return_to_their_clients():
    memory = Memory()
    memory.put(ids(5, 900_000_000, 2), many(50, 90, 20))
    assert len(memory) == 3
    assert 900_000_000 in memory
    assert values(memory.take(ids(2, 5, 900_000_000), one(0))) == [20, 50, 90]
    assert values(memory.take(ids(2, 3, 5, 4), one(7))) == [20, 7, 50, 7]
    assert values(memory.take(ids(3, 4), one(8))) == [8, 8]


def test_rows_are_replaced_and_the_table_grows():
    memory, expected, rng = Memory(), {}, np.random.default_rng(0)
    for t in range(30):
        cohort = rng.choice(200, size=9, replace=False)
        written = [1000 * t + int(client) for client in cohort]
        memory.put(cohort, many(*written))
        expected |= dict(zip(cohort.tolist(), written, strict=True))
        assert len(memory) == len(expected)
    everyone = np.arange(200)
    assert values(memory.take(everyone, one(-1))) == [expected.get(c, -1) for c in range(200)]
    assert len(next(iter(memory._table))) <= 1.5 * len(memory) + 9  # memory for those seen only


def test_rows_handed_out_never_change():
    memory = Memory()
    memory.put(ids(1, 2), many(10, 20))
    taken = memory.take(ids(1, 2, 3), one(0))
    memory.put(ids(2, 1), many(21, 11))
    assert values(taken) == [10, 20, 0]
    taken.a.zero_()  # nor does whoever holds them reach the table
    assert values(memory.take(ids(1, 2), one(0))) == [11, 21]


def test_rows_handed_in_may_change_afterwards():
    memory, written = Memory(), many(10, 20)
    memory.put(ids(1, 2), written)
    written.a.zero_()
    written.b["n"].zero_()
    assert values(memory.take(ids(1, 2), one(0))) == [10, 20]


def test_fresh_rows_stay_whole():
    memory, fresh = Memory(), one(7)
    memory.put(ids(1), many(10))
    memory.take(ids(1, 2), fresh).a.zero_()
    assert fresh.a.tolist() == [7, 7]


def test_clear():
    memory = Memory()
    memory.put(ids(1, 2), many(10, 20))
    memory.clear()
    assert len(memory) == 0
    assert values(memory.take(ids(1, 2), one(7))) == [7, 7]
    memory.put(ids(2), many(30))
    assert values(memory.take(ids(1, 2), one(7))) == [7, 30]


def test_nothing_needs_no_rows():
    memory = Memory()
    memory.put(ids(1, 2), Nothing())
    assert len(memory) == 0
    assert memory.take(ids(1, 2), Nothing()) == Nothing()
