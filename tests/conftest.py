import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Operators on one thread, as in `experiment.run`: quick for small tensors, and bits stay in place."""
    torch.set_num_threads(1)
