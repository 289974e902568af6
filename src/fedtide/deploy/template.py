"""A study file as a Flower app: a folder that `flwr run` understands, with a hook for the clients' data."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.metadata import version
from pathlib import Path

from fedtide import config
from fedtide.core.errors import ConfigError, OutputError, require

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "The study {study} on real clients, written by fedtide deploy init."
license = {{ file = "LICENSE" }}
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["fedtide[flower]", "flwr>=1.41,<1.43"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "fedtide"
fab-format-version = 1
flwr-version-target = "{flower}"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
out = "runs"  # where the server writes results, seen from where it was started
archive = ""  # a folder for the models of all sessions, from which a later run goes on
clients = 0   # so many must be there before the first round, if they come in time
wait = 0      # seconds for that, where engine.flower.wait is shorter
"""
README = """\
# {title}

The study `{package}/{study}` on real clients, written by `fedtide deploy init`. What clients hold is in
`{package}/data.py`: edit it for data of your own.

    fedtide deploy up . --clients 3        # a server and three clients on this machine

With Flower's own simulation, which needs `pip install "flwr[simulation]"`:

    flwr run . local --stream --run-config "clients=3" --federation-config "num-supernodes=3"

On several machines: the page "Real clients over Flower" of FedTide's documentation.
"""
LICENSE = """\
Copyright the authors of this app.

Licensed under the Apache License, Version 2.0 (the "License"); you may not use this app except in
compliance with the License. You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is
distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See
the License for the specific language governing permissions and limitations under the License.
"""
SERVER = '''\
"""The server: the rounds of the study, with the clients that are connected."""

from pathlib import Path

from fedtide.deploy.server import server_app

app = server_app(Path(__file__).with_name("{study}"), "{package}.data")
'''
CLIENT = '''\
"""The client: a local round of the study, with the data of its machine."""

from pathlib import Path

from fedtide.deploy.client import client_app

app = client_app(Path(__file__).with_name("{study}"), "{package}.data")
'''
DATA = '''\
"""The data of this deployment. Edit this file; examples never leave the machine they are on."""

OWN = False  # False: client 0, 1, ... takes its share of the study's [data]: for a try. True: as below.
CLASSES = 10  # how many labels there are; 0 where targets are not labels
VOCABULARY = 0  # how many tokens there are; 0 where inputs are not tokens


def of_client(settings):
    """What this client holds: (inputs, targets) to train on and (inputs, targets) to test on, or None.

    Called on the client's machine. `settings` is what its SuperNode was started with, for example
    --node-config 'partition-id=0 file="/srv/images.npz"'. Inputs are uint8 images [N, C, H, W], floats
    of any shape [N, ...], or tokens, or several of these in a dict, by the names of the model's arguments;
    targets are labels, whole numbers from 0, or with CLASSES = 0 numbers of any shape [N, ...].
    """
    import numpy

    with numpy.load(settings["file"]) as arrays:
        return (arrays["x"], arrays["y"]), None


def of_server():
    """(inputs, targets) to test the global model on; None: the clients test it, on their own examples."""
    return None
'''
OWN_KIND = re.compile(r'"([^"\n]+\.py):\w+"')


def init(study: Path, folder: Path, data: Path | None = None) -> Path:
    """Write the app of this study into a new folder; `data` takes the place of its data.py."""
    plan = config.load(study)
    must = "a Python file such as the data.py of an app"
    require(data is None or data.is_file(), "deploy init --data", must, str(data))
    text = study.read_text(encoding="utf-8")
    name = re.sub(r"[^a-z0-9]+", "-", plan.name.lower()).strip("-") or "study"
    package = f"{name.replace('-', '_')}_app"
    beside = sorted(set(OWN_KIND.findall(text)))
    for file in beside:
        if Path(file).name != file:
            raise ConfigError(
                f"deploy: the files of a study must lie beside it, so that they travel with the app. "
                f"Got {file!r}. Move it into the study's folder."
            )
    words = {"name": name, "package": package, "study": study.name}
    words |= {"title": plan.name, "flower": version("flwr")}
    try:
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(PYPROJECT.format(**words), encoding="utf-8")
        (folder / "README.md").write_text(README.format(**words), encoding="utf-8")
        (folder / "LICENSE").write_text(LICENSE, encoding="utf-8")
        inside = folder / package
        inside.mkdir()
        modules = {"__init__": f'"""{plan.name} on real clients."""\n', "data": DATA}
        if data:
            modules["data"] = data.read_text(encoding="utf-8")
        modules |= {"server_app": SERVER.format(**words), "client_app": CLIENT.format(**words)}
        for module, content in modules.items():
            (inside / f"{module}.py").write_text(content, encoding="utf-8")
        for file in (study.name, *beside):
            shutil.copy(study.parent / file, inside / file)
    except OSError as error:
        raise OutputError(
            f"deploy: {folder} must be a new folder that can be written. Got: {error.strerror}. "
            "Choose another."
        ) from error
    return inside / "data.py"


def check_app(folder: Path, clients: int) -> None:
    """Refuse what cannot work before a process is started: no app, or more clients than may exist."""
    if not (folder / "pyproject.toml").is_file():
        raise ConfigError(
            f"deploy: the folder must hold an app. Got {str(folder)!r} without a pyproject.toml. "
            "Write one: fedtide deploy init study.toml my-app"
        )
    for path in folder.glob("*_app/*.toml"):
        population = tomllib.loads(path.read_text(encoding="utf-8")).get("population")
        most = population.get("clients") if isinstance(population, dict) else None
        must = f"at most {most}, the clients of the population in {path.name}"
        require(not isinstance(most, int) or clients <= most, "deploy --clients", must, clients)
