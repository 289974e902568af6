"""What one would write for exactly one model: no framework, every trick that we know.

Linear models and MLPs: 25 clients stacked, gradients by hand in batched products, plain SGD fused into the
product. Convolutions: one client at a time, channels last, two threads. Both keep freed memory.
"""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from turns import Turns

from models import build

CHUNK, THREADS = 25, 2


def stacked(net, inputs, labels, chosen, work):
    """The mean model after one pass of every chosen client, 25 at a time."""
    layers = [part for part in net.modules() if isinstance(part, nn.Linear)]
    sums = [torch.zeros_like(p) for p in net.parameters()]
    for clients in torch.tensor(chosen).split(CHUNK):
        count = len(clients)
        weights = [layer.weight.detach().expand(count, -1, -1).clone() for layer in layers]
        biases = [layer.bias.detach().expand(count, 1, -1).clone() for layer in layers]
        moving = [torch.zeros_like(value) for value in weights + biases]
        order = torch.rand(count, work.held).argsort(1)
        for index in order.split(work.batch, 1):
            x, y = inputs[clients[:, None], index], labels[clients[:, None], index]
            entered = [x]
            for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                out = torch.baddbmm(bias, entered[-1], weight.mT)
                entered.append(out.relu_() if number + 1 < len(layers) else out)
            back = entered.pop().softmax(-1)
            back.scatter_add_(-1, y[..., None], torch.full_like(y[..., None], -1.0, dtype=x.dtype))
            back /= work.batch
            for number in reversed(range(len(layers))):
                before = torch.bmm(back, weights[number]) if number else None
                gradients = back.mT, entered[number], back.sum(1, keepdim=True)
                descend(weights, biases, moving, number, gradients, work)
                if number:
                    back = before.mul_(entered[number] > 0)
        for total, value in zip(sums, interleaved(weights, biases), strict=True):
            total += value.sum(0).view_as(total)
    return [total / len(chosen) for total in sums]


def descend(weights, biases, moving, number, gradients, work):
    """One step of SGD, with momentum if asked; without, it is part of the product."""
    left, right, bias = gradients
    if work.momentum:
        moving[number].mul_(work.momentum).baddbmm_(left, right)
        moving[len(weights) + number].mul_(work.momentum).add_(bias)
        weights[number].sub_(moving[number], alpha=work.lr)
        biases[number].sub_(moving[len(weights) + number], alpha=work.lr)
    else:
        weights[number].baddbmm_(left, right, alpha=-work.lr)
        biases[number].sub_(bias, alpha=work.lr)


def interleaved(weights, biases):
    """In the order of a module's parameters."""
    return [value for pair in zip(weights, biases, strict=True) for value in pair]


def alone(net, inputs, labels, client, work):
    """The model of one client after its pass."""
    with torch.no_grad():
        start = [p.detach().clone(memory_format=torch.preserve_format) for p in net.parameters()]
    names = [name for name, _ in net.named_parameters()]
    for index in torch.randperm(work.held).split(work.batch):
        values = [p.requires_grad_() for p in start]
        images = inputs[client, index].contiguous(memory_format=torch.channels_last)
        out = torch.func.functional_call(net, dict(zip(names, values, strict=True)), (images,))
        gradients = torch.autograd.grad(cross_entropy(out, labels[client, index]), values)
        with torch.no_grad():
            start = [p.detach() for p in values]
            torch._foreach_add_(start, gradients, alpha=-work.lr)
    return start


def main():
    """Rounds for as long as somebody asks."""
    for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        ctypes.CDLL(None).mallopt(option, 1 << 30)
    turns = Turns()
    work = turns.workload
    inputs, labels = (torch.from_numpy(array) for array in work.arrays())
    net, t = build(work.model).to(memory_format=torch.channels_last), 0
    pool = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))
    structures = [build(work.model).to("meta") for _ in range(work.clients)]
    turns.wait()
    while True:
        chosen = work.cohort_of(t)
        if work.model in ("linear", "mlp"):
            with torch.no_grad():
                mean = stacked(net, inputs, labels, chosen, work)
        else:
            for u in chosen:
                structures[u].load_state_dict(net.state_dict(), assign=True)
            ends = pool.map(lambda u: alone(structures[u], inputs, labels, u, work), chosen)
            mean = [torch.stack(values).mean(0) for values in zip(*ends, strict=True)]
        with torch.no_grad():
            for value, new in zip(net.parameters(), mean, strict=True):
                value.copy_(new)
        t += 1
        turns.done()


if __name__ == "__main__":
    main()
