"""The kind of processor that computes: the last bits of a sum depend on it."""

import platform

import torch


def processor(device: torch.device) -> str:
    """Architecture, vector instructions that torch uses and, if it computes there, the GPU."""
    words = [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        words.append(torch.cuda.get_device_name(device))
    return " ".join(words)
