"""The gradients of `chain`, compiled for this processor: client by client, straight from the stored examples.

Stacked products first copy every batch, and read the examples from memory three times in a step. Here one
client's batch stays in the cache from the first product to the last. Needs numba (`fedtide[fast]`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.algorithms.base import Teacher
from fedtide.core.types import Vector
from fedtide.engines.fast.chain import Chain, Layer
from fedtide.engines.fast.compiler import compiled, compiling

Floats = NDArray[Any]  # float32 or float64
Whole = NDArray[np.int64]

BLOCK = 32  # rows that a product goes through before it turns to the next weights: they stay in the cache
ZERO = np.float32(0)


class StoredBatches(NamedTuple):
    """The examples of clients' local steps, where they are stored."""

    inputs: Floats  # [N, width]
    places: Whole  # [U, K, B]
    labels: Whole  # [U, K, B]
    sizes: Whole  # [U, K]: how many of a batch count; 0 ends a client's round

    def some(self, clients: Any, steps: slice = slice(None)) -> StoredBatches:
        """The batches of these clients, at these steps."""
        return StoredBatches(self.inputs, *(field[clients, steps] for field in self[1:]))


class Moves(NamedTuple):
    """How SGD steps: along momentum * v + gradient + decay * y + weight * (y - anchor) + shift."""

    lr: float
    momentum: float = 0.0
    decay: float = 0.0
    weight: float = 0.0
    anchor: Tensor | None = None  # [dim]; None: zero
    shift: Tensor | None = None  # [dim], or [U, dim]; None: zero
    teacher: Teacher | None = None  # part of the gradient

    @property
    def is_plain(self) -> bool:
        """Is it the gradient alone?"""
        return not (self.momentum or self.decay or self.weight) and self.shift is None

    def some(self, clients: slice) -> Moves:
        """The moves of these clients."""
        shift = self.shift
        return self if shift is None or shift.dim() == 1 else self._replace(shift=shift[clients])


def gradients(chain: Chain, y: Tensor, rows: StoredBatches) -> tuple[Tensor, Tensor]:
    """The same result as `chain.gradients`, for one step."""
    y = y.contiguous()  # a user's own optimiser may return another memory order
    gradient = torch.zeros_like(y)
    return gradient, _walked(chain, y, y, gradient, rows, Moves(0.0))


def walk(
    chain: Chain, x: Vector, y: Tensor, v: Tensor | None, rows: StoredBatches, moves: Moves
) -> Tensor:
    """All steps from x, into y [U, dim], and in place the velocities v [U, dim] if there is momentum.

    Returns what each client saw, [U, 3], as `chain.gradients` does.
    """
    if v is None:  # a plain step is part of the products; any other needs memory for the gradient
        v = y[:0] if moves.is_plain else torch.zeros_like(y[:1])
    return _walked(chain, x[None], y, v, rows, moves)


def _walked(
    chain: Chain, x: Tensor, y: Tensor, v: Tensor, rows: StoredBatches, moves: Moves
) -> Tensor:
    lr, momentum, decay, weight, anchor, shift, taught = moves
    teacher, held = taught or (None, 0.0)
    rates, seen = y.new_tensor([lr, momentum, decay, weight, held]), y.new_zeros(len(y), 3)
    beside = [
        y[:0] if each is None else each.view(-1, y.shape[1]) for each in (anchor, shift, teacher)
    ]
    assert y.is_contiguous()  # they are written to
    assert v.is_contiguous()
    tensors = (each.contiguous().numpy() for each in (x, y, v, *beside, rates, seen))
    _walk(_table(chain), rows.inputs, *map(np.ascontiguousarray, rows[1:]), *tensors)
    return seen


@cache
def prepare(dtype: torch.dtype) -> None:
    """Compile, or load what was compiled before: once in every process, before anything is timed."""
    y, one = torch.zeros(1, 2, dtype=dtype), np.ones((1, 1, 1), np.int64)
    chain = (Layer(slice(0, 1), slice(1, 2), 1, 1, relu=False, is_head=False),)
    with compiling(_walk):
        gradients(chain, y, StoredBatches(y[:, :1].numpy(), 0 * one, 0 * one, one[0]))


def _table(chain: Chain) -> Whole:
    """A row for each layer: where its weight and its bias begin (-1: it has none), its sizes, its ReLU."""
    return np.array(
        [
            (
                each.weight.start,
                each.bias.start if each.bias else -1,
                each.outputs,
                each.inputs,
                each.relu,
            )
            for each in chain
        ]
    )


@compiled
def _products(rows: Floats, at: Whole, weights: Floats, out: Floats) -> None:
    """out[i, o] = rows[at[i]] . weights[o]: twelve sums at once are what a processor's registers hold."""
    count, outputs = out.shape
    for first in range(0, count, BLOCK):
        for o in range(0, outputs, 3):
            p, q = min(o + 1, outputs - 1), min(o + 2, outputs - 1)
            wo, wp, wq = weights[o], weights[p], weights[q]
            for a in range(first, min(first + BLOCK, count), 4):
                b, c, d = min(a + 1, count - 1), min(a + 2, count - 1), min(a + 3, count - 1)
                xa, xb, xc, xd = rows[at[a]], rows[at[b]], rows[at[c]], rows[at[d]]
                ao = ap = aq = bo = bp = bq = co = cp = cq = do = dp = dq = ZERO
                for k in range(len(wo)):
                    ko, kp, kq = wo[k], wp[k], wq[k]
                    x = xa[k]
                    ao, ap, aq = ao + x * ko, ap + x * kp, aq + x * kq
                    x = xb[k]
                    bo, bp, bq = bo + x * ko, bp + x * kp, bq + x * kq
                    x = xc[k]
                    co, cp, cq = co + x * ko, cp + x * kp, cq + x * kq
                    x = xd[k]
                    do, dp, dq = do + x * ko, dp + x * kp, dq + x * kq
                out[a, o], out[a, p], out[a, q] = ao, ap, aq
                out[b, o], out[b, p], out[b, q] = bo, bp, bq
                out[c, o], out[c, p], out[c, q] = co, cp, cq
                out[d, o], out[d, p], out[d, q] = do, dp, dq


@compiled
def _four(shares: Floats, a: int, last: int, o: int) -> tuple[Any, ...]:
    """Four neighbours of column o; zeros from `last` on."""
    if a + 3 < last:  # the common case: one comparison instead of three
        return shares[a, o], shares[a + 1, o], shares[a + 2, o], shares[a + 3, o]
    b = shares[a + 1, o] if a + 1 < last else ZERO
    c = shares[a + 2, o] if a + 2 < last else ZERO
    return shares[a, o], b, c, ZERO


@compiled
def _mixtures(rows: Floats, at: Whole, shares: Floats, into: Floats) -> None:
    """into[o] += the sum over i of shares[i, o] * rows[at[i]]: four rows and four sums at once.

    Starting the innermost loop costs as much as a hundred of its numbers, so short rows use large tiles.
    """
    count, sums = shares.shape
    spare = np.empty((3, into.shape[1]), into.dtype)  # in place of sums beyond the last one
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        for o in range(0, sums, 4):
            p, q, r = min(o + 1, sums - 1), min(o + 2, sums - 1), min(o + 3, sums - 1)
            to_o, to_p = into[o], into[p] if p > o else spare[0]
            to_q, to_r = into[q] if q > p else spare[1], into[r] if r > q else spare[2]
            for a in range(first, last, 4):
                b, c, d = min(a + 1, last - 1), min(a + 2, last - 1), min(a + 3, last - 1)
                xa, xb, xc, xd = rows[at[a]], rows[at[b]], rows[at[c]], rows[at[d]]
                oa, ob, oc, od = _four(shares, a, last, o)
                pa, pb, pc, pd = _four(shares, a, last, p)
                qa, qb, qc, qd = _four(shares, a, last, q)
                ra, rb, rc, rd = _four(shares, a, last, r)
                for k in range(len(to_o)):
                    ka, kb, kc, kd = xa[k], xb[k], xc[k], xd[k]
                    to_o[k] += oa * ka + ob * kb + oc * kc + od * kd
                    to_p[k] += pa * ka + pb * kb + pc * kc + pd * kd
                    to_q[k] += qa * ka + qb * kb + qc * kc + qd * kd
                    to_r[k] += ra * ka + rb * kb + rc * kc + rd * kd


@compiled
def _errors(logits: Floats, labels: Whole, seen: Floats) -> None:
    """Turn logits into the gradient of their mean cross entropy; add up loss and correct answers."""
    count, classes = logits.shape
    loss, right, share = 0.0, 0, 1 / logits.dtype.type(count)
    for i in range(count):
        row, label = logits[i], labels[i]
        best = 0
        for c in range(1, classes):
            if row[c] > row[best]:
                best = c
        top, told, total = row[best], row[label], ZERO
        for c in range(classes):
            row[c] = np.exp(row[c] - top)
            total += row[c]
        loss += np.log(total) - (told - top)
        right += best == label
        for c in range(classes):
            row[c] *= share / total
        row[label] -= share
    seen[0] += loss
    seen[1] += right
    seen[2] += count


@compiled
def _outputs(
    layers: Whole, x: Floats, inputs: Floats, at: Whole, left: Floats, order: Whole
) -> None:
    """The outputs of each layer for the rows at `at`; at the end the logits."""
    count, rows, index = len(at), inputs, at
    for n in range(len(layers)):
        w, b, outputs, width, relu = layers[n]
        z = left[n, : count * outputs].reshape(count, outputs)
        _products(rows, index, x[w : w + outputs * width].reshape(outputs, width), z)
        for i in range(count):
            for o in range(outputs):
                value = z[i, o] + x[b + o] if b >= 0 else z[i, o]
                z[i, o] = ZERO if relu and value < ZERO else value
        rows, index = z, order


@compiled
def _add_gradient(
    layers: Whole,
    x: Floats,
    inputs: Floats,
    at: Whole,
    left: Floats,
    order: Whole,
    error: Floats,
    scale: Any,
    out: Floats,
) -> None:
    """Back-propagate the error of the logits and add the gradient to `out`.

    `out` may be `x` itself: a layer is updated only after the layer below has read it.
    """
    count = len(at)
    for n in range(len(layers) - 1, -1, -1):
        w, b, outputs, width, _ = layers[n]
        rows, index, back = inputs, at, error
        if n:
            rows, index = left[n - 1, : count * width].reshape(count, width), order
            back = np.zeros((count, width), x.dtype)
            weight = x[w : w + outputs * width].reshape(outputs, width)
            _mixtures(weight, order, error.T.copy(), back)
            if layers[n - 1, 4]:
                for i in range(count):
                    for j in range(width):
                        back[i, j] = back[i, j] if rows[i, j] > ZERO else ZERO
        for i in range(count):
            for o in range(outputs):
                error[i, o] *= scale
                if b >= 0:
                    out[b + o] += error[i, o]
        _mixtures(rows, index, error, out[w : w + outputs * width].reshape(outputs, width))
        error = back


@compiled
def _begin(x: Floats, out: Floats, anchor: Floats, shift: Floats, rates: Floats) -> None:
    """The part of a step that is not the gradient: momentum, decay, anchor and shift."""
    _, momentum, decay, weight, _ = rates
    for i in range(len(x)):
        out[i] = (momentum * out[i] if momentum else ZERO) + decay * x[i]
    if weight:
        for i in range(len(x)):
            out[i] += weight * (x[i] - anchor[i] if len(anchor) else x[i])
    if len(shift):
        for i in range(len(x)):
            out[i] += shift[i]


@compiled
def _hold(error: Floats, labels: Whole, said: Floats, held: Any) -> None:
    """Add the gradient of held * KL(said || the logits), both logits, to the error of `_errors`."""
    count, classes = error.shape
    share = 1 / error.dtype.type(count)
    for i in range(count):
        row, other = error[i], said[i]
        top, total = other.max(), ZERO
        for c in range(classes):
            other[c] = np.exp(other[c] - top)
            total += other[c]
        row[labels[i]] += share  # so that it is a softmax
        for c in range(classes):
            row[c] += held * (row[c] - share * other[c] / total)
        row[labels[i]] -= share


@compiled
def _row(stack: Floats, u: int) -> Floats:
    """The row of client u, or the one that all share, or none."""
    return stack[min(u, len(stack) - 1)] if len(stack) else np.empty(0, stack.dtype)


@compiled
def _walk(
    layers: Whole,
    inputs: Floats,
    places: Whole,
    labels: Whole,
    sizes: Whole,
    start: Floats,
    y: Floats,
    v: Floats,
    anchor: Floats,
    shift: Floats,
    teacher: Floats,
    rates: Floats,
    seen: Floats,
) -> None:
    """For every client: all its steps, each of them straight into its model, or by its velocity."""
    lr, widest = rates[0], layers[:, 2:4].max()
    order = np.arange(max(places.shape[2], widest))
    left = np.empty((len(layers), places.shape[2] * widest), y.dtype)
    said = np.empty_like(left)
    for u in range(len(y)):
        x = _row(start, u).copy()  # aligned, so that loads do not cross cache lines: a tenth faster
        out, scale = x, -lr
        if len(v):
            out, scale = _row(v, u).copy(), y.dtype.type(1)
        for k in range(sizes.shape[1]):
            at, told = places[u, k, : sizes[u, k]], labels[u, k, : sizes[u, k]]
            if len(at) == 0:
                break
            _outputs(layers, x, inputs, at, left, order)
            error = left[-1, : len(at) * layers[-1, 2]].reshape(len(at), layers[-1, 2])
            _errors(error, told, seen[u])
            if len(teacher):
                _outputs(layers, teacher[0], inputs, at, said, order)
                _hold(error, told, said[-1, : error.size].reshape(error.shape), rates[4])
            if len(v):
                _begin(x, out, _row(anchor, u), _row(shift, u), rates)
            _add_gradient(layers, x, inputs, at, left, order, error, scale, out)
            if len(v):
                for i in range(len(x)):
                    x[i] -= lr * out[i]
        y[u] = x
        if len(v) == len(y):
            v[u] = out
