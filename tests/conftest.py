import shutil

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Operators on one thread, as in `loop.run`: quick for small tensors, and bits stay in place."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def chromium():
    """A headless browser with a fresh profile; tests that need one are skipped where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no browser: Debian's package chromium is not installed")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, headless=True, args=flags)
        yield browser
        browser.close()
