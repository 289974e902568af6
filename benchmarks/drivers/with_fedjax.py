"""fedjax: federated averaging with its default backend, one compiled function for each client's step."""

from itertools import pairwise

import jax
import jax.numpy as jnp
from turns import Turns

jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 is older than its removal

import fedjax  # noqa: E402

turns = Turns()
work = turns.workload
inputs, labels = work.arrays()
WIDTHS = {"linear": (784, 10), "mlp": (784, 200, 200, 10), "cnn28": (3136, 512, 10)}
CHANNELS = {"cnn28": (5, 1, 32, 64), "cnn32": (3, 3, 32, 64, 128)}


def initial(key):
    """Weights and biases, layer by layer: convolutions first."""
    widths = WIDTHS.get(work.model, (2048, 256, 10))
    shapes: list[tuple[int, ...]] = list(pairwise(widths))
    if work.model in CHANNELS:
        kernel, *channels = CHANNELS[work.model]
        shapes = [(kernel, kernel, *pair) for pair in pairwise(channels)] + shapes
    keys = jax.random.split(key, len(shapes))
    scale = [jnp.sqrt(2.0 / jnp.prod(jnp.array(shape[:-1]))) for shape in shapes]
    layers = zip(keys, shapes, scale, strict=True)
    return [(jax.random.normal(k, s) * z, jnp.zeros(s[-1])) for k, s, z in layers]


def logits(params, x):
    """The forward pass; images have their channels last, as JAX likes them."""
    if x.ndim == 4:
        x = jnp.transpose(x, (0, 2, 3, 1))
    for number, (weight, bias) in enumerate(params):
        if weight.ndim == 4:
            x = jax.lax.conv_general_dilated(
                x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + bias)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            continue
        x = x.reshape(len(x), -1) @ weight + bias
        x = jax.nn.relu(x) if number + 1 < len(params) else x
    return x


def loss(params, batch, rng):
    log_p = jax.nn.log_softmax(logits(params, batch["x"]))
    return -jnp.take_along_axis(log_p, batch["y"][:, None], 1).mean()


algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(loss),
    fedjax.optimizers.sgd(work.lr, work.momentum or None),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1),
)
people = [
    fedjax.ClientDataset({"x": x, "y": y}) for x, y in zip(inputs, labels.astype("i4"), strict=True)
]
state, key, t = algorithm.init(initial(jax.random.PRNGKey(0))), jax.random.PRNGKey(1), 0
turns.wait()
while True:
    key, *keys = jax.random.split(key, work.cohort + 1)
    cohort = [(u, people[u], k) for u, k in zip(work.cohort_of(t), keys, strict=True)]
    state, _ = algorithm.apply(state, cohort)
    jax.block_until_ready(state.params)
    t += 1
    turns.done()
