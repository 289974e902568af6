"""This machine: its cores, and the kind of processor, on which the last bits of a sum depend."""

import os
import platform

import torch


def processor(device: torch.device) -> str:
    """The architecture, the vector instructions that torch uses and, on CUDA, the GPU's name."""
    words = [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        words.append(torch.cuda.get_device_name(device))
    return " ".join(words)


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
