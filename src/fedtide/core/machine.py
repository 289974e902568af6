"""The kind of processor, on which the last bits of floating-point sums depend."""

import platform

import torch


def processor(device: torch.device) -> str:
    """The architecture, the vector instructions that torch uses and, on CUDA, the GPU's name."""
    words = [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        words.append(torch.cuda.get_device_name(device))
    return " ".join(words)
