"""The gradients of `chain`, compiled for this processor: client by client, straight from the stored examples.

Stacked products first copy every batch, and read the examples from memory three times in a step. Here one
client's batch stays in the cache from the first product to the last. Needs numba (`fedtide[fast]`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.chain import Chain

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., None])

BLOCK = 32  # rows that a product goes through before it turns to the next weights: they stay in the cache
ZERO, ONE = np.float32(0), np.float32(1)


class Rows(NamedTuple):
    """The examples of clients' local steps, where they are stored."""

    inputs: Floats  # [N, width]
    places: Whole  # [U, K, B]
    labels: Whole  # [U, K, B]
    sizes: Whole  # [U, K]: how many of a batch count; 0 ends a client's round


def gradients(chain: Chain, y: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """As `chain.gradients`, of one step."""
    gradient = torch.zeros_like(y)
    return gradient, walk(chain, y, gradient, rows, 0.0)


def walk(
    chain: Chain,
    y: Tensor,
    v: Tensor | None,
    rows: Rows,
    lr: float,
    momentum: float = 0.0,
    decay: float = 0.0,
) -> Tensor:
    """All steps of SGD from y, in place; returns what each client saw [U, 3], as `chain.gradients` does.

    Without velocities v [U, dim], for momentum or weight decay, a step is part of the products.
    """
    seen, inputs, *picks = y.new_zeros(len(y), 3), *rows
    places, labels, sizes = map(np.ascontiguousarray, picks)
    _walk(
        _table(chain),
        y.numpy(),
        (y[:0] if v is None else v).numpy(),
        inputs,
        places,
        labels,
        sizes,
        np.array([lr, momentum, decay], np.float32),
        seen.numpy(),
    )
    return seen


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


def _compiled(function: Function) -> Function:
    """Sums in any order and fused steps, but what is not a number stays so: a run must notice it."""
    free = {"reassoc", "contract", "nsz"}
    return cast(Function, njit(nogil=True, cache=True, fastmath=free)(function))


@_compiled
def _products(rows: Floats, at: Whole, weights: Floats, out: Floats) -> None:
    """out[i, o] = rows[at[i]] . weights[o]: two rows and four weights at once fill the registers."""
    count, outputs = len(out), len(weights)
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        for a in range(0, outputs, 4):
            b, c, d = min(a + 1, outputs - 1), min(a + 2, outputs - 1), min(a + 3, outputs - 1)
            wa, wb, wc, wd = weights[a], weights[b], weights[c], weights[d]
            for i in range(first, last, 2):
                j = min(i + 1, count - 1)
                x, y = rows[at[i]], rows[at[j]]
                xa = xb = xc = xd = ya = yb = yc = yd = ZERO
                for k in range(len(x)):
                    pa, pb, pc, pd = wa[k], wb[k], wc[k], wd[k]
                    p = x[k]
                    xa, xb, xc, xd = xa + p * pa, xb + p * pb, xc + p * pc, xd + p * pd
                    p = y[k]
                    ya, yb, yc, yd = ya + p * pa, yb + p * pb, yc + p * pc, yd + p * pd
                out[i, a], out[i, b], out[i, c], out[i, d] = xa, xb, xc, xd
                out[j, a], out[j, b], out[j, c], out[j, d] = ya, yb, yc, yd


@_compiled
def _mixtures(rows: Floats, at: Whole, shares: Floats, into: Floats) -> None:
    """into[o] += the sum over i of shares[i, o] * rows[at[i]]: four rows and three sums at once."""
    count, sums = shares.shape
    spare = np.empty((2, into.shape[1]), np.float32)  # instead of a second and a third sum
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        for o in range(0, sums, 3):
            q, r = min(o + 1, sums - 1), min(o + 2, sums - 1)
            to_o, to_q, to_r = (
                into[o],
                into[q] if q > o else spare[0],
                into[r] if r > q else spare[1],
            )
            for a in range(first, last, 4):
                b, c, d = min(a + 1, last - 1), min(a + 2, last - 1), min(a + 3, last - 1)
                has_b, has_c, has_d = ONE * (b > a), ONE * (c > b), ONE * (d > c)
                xa, xb, xc, xd = rows[at[a]], rows[at[b]], rows[at[c]], rows[at[d]]
                oa, ob, oc, od = (
                    shares[a, o],
                    has_b * shares[b, o],
                    has_c * shares[c, o],
                    has_d * shares[d, o],
                )
                qa, qb, qc, qd = (
                    shares[a, q],
                    has_b * shares[b, q],
                    has_c * shares[c, q],
                    has_d * shares[d, q],
                )
                ra, rb, rc, rd = (
                    shares[a, r],
                    has_b * shares[b, r],
                    has_c * shares[c, r],
                    has_d * shares[d, r],
                )
                for k in range(len(to_o)):
                    ka, kb, kc, kd = xa[k], xb[k], xc[k], xd[k]
                    to_o[k] += oa * ka + ob * kb + oc * kc + od * kd
                    to_q[k] += qa * ka + qb * kb + qc * kc + qd * kd
                    to_r[k] += ra * ka + rb * kb + rc * kc + rd * kd


@_compiled
def _errors(logits: Floats, labels: Whole, seen: Floats) -> None:
    """From logits to the gradient of their mean cross entropy; adds up loss and right answers."""
    count, classes = logits.shape
    even = ONE * count
    loss, right = 0.0, 0
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
            row[c] /= total * even
        row[label] -= ONE / even
    seen[0] += loss
    seen[1] += right
    seen[2] += count


@_compiled
def _outputs(
    layers: Whole, x: Floats, inputs: Floats, at: Whole, left: Floats, order: Whole
) -> None:
    """What leaves each layer, for the rows at `at`; at last the logits."""
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


@_compiled
def _add_gradient(
    layers: Whole,
    x: Floats,
    inputs: Floats,
    at: Whole,
    left: Floats,
    order: Whole,
    error: Floats,
    scale: np.float32,
    out: Floats,
) -> None:
    """Add to `out`, from the error of the logits; it may be `x` itself: a layer changes when it is done."""
    count = len(at)
    for n in range(len(layers) - 1, -1, -1):
        w, b, outputs, width, _ = layers[n]
        rows, index, back = inputs, at, error
        if n:
            rows, index = left[n - 1, : count * width].reshape(count, width), order
            back = np.zeros((count, width), np.float32)
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


@_compiled
def _walk(
    layers: Whole,
    y: Floats,
    v: Floats,
    inputs: Floats,
    places: Whole,
    labels: Whole,
    sizes: Whole,
    rates: Floats,
    seen: Floats,
) -> None:
    """For every client: all its steps, each of them into its model, or by its velocity."""
    lr, momentum, decay = rates
    widest = layers[:, 2:4].max()
    order = np.arange(max(places.shape[2], widest))
    left = np.empty((len(layers), places.shape[2] * widest), np.float32)
    for u in range(len(y)):
        x = y[u]
        for k in range(sizes.shape[1]):
            at, told = places[u, k, : sizes[u, k]], labels[u, k, : sizes[u, k]]
            if len(at) == 0:
                break
            _outputs(layers, x, inputs, at, left, order)
            error = left[-1, : len(at) * layers[-1, 2]].reshape(len(at), layers[-1, 2])
            _errors(error, told, seen[u])
            out, scale = (v[u], ONE) if len(v) else (x, -lr)
            if len(v):
                for i in range(len(x)):
                    out[i] = momentum * out[i] + decay * x[i]
            _add_gradient(layers, x, inputs, at, left, order, error, scale, out)
            if len(v):
                for i in range(len(x)):
                    x[i] -= lr * out[i]
