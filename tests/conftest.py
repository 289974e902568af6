import os
import re
import shutil

import pytest
import torch
from hypothesis import HealthCheck, settings

# Programs that tests start may take minutes to come up on a busy machine; packages read this when imported.
os.environ |= {
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_gcs_server_request_timeout_seconds": "600",
    "RAY_health_check_failure_threshold": "200",
    "RAY_worker_register_timeout_seconds": "600",
    "WANDB_INIT_TIMEOUT": "600",
    "WANDB__SERVICE_WAIT": "600",
}

# The same examples in every run, whatever the speed of the machine; FEDTIDE_FUZZ draws new ones.
settings.register_profile(
    "same",
    derandomize="FEDTIDE_FUZZ" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")

# Files that take long, the longest first, so that no process is left alone with one at the end.
LONG = (
    "deploy/test_processes.py",
    "conformance/test_ray.py",
    "run/test_broken_off.py",
    "deploy/test_village.py",
    "test_docs.py",
    "cli/test_cli.py",
    "show/test_jsonl.py",
    "show/test_trackers.py",
    "conformance/test_changes.py",
    "papers/test_dimc_studies.py",
    "config/test_entry_points.py",
    "conformance/test_surveys.py",
    "conformance/test_conformance.py",
)
# What stands before the name of an algorithm in the parameters of the conformance suite.
BEFORE = re.compile(r"(?:(?:\d+|loop|vectorised|mlp|conv|chain|sgd|momentum|adam|carried)-)*")


def pytest_collection_modifyitems(items):
    places = {f"tests/{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A process takes whole files: their tests share a cluster, a browser, a server, finished runs.

    (pytest 9 has no place for xdist's own groups.) The conformance suite is divided by algorithm.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            if not file.endswith("test_conformance.py"):
                return file
            return file + BEFORE.sub("", test.partition("[")[2], count=1)

    config.option.loadscopereorder = False  # the order above
    return Files(config, log)


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory):
    """What trackers keep for a user is kept for this run alone."""
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))


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
