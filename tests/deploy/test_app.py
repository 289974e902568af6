"""The app that `deploy init` writes, the keys, and the command."""

import importlib
import stat
import sys

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.build import build_fab_from_disk
from typer.testing import CliRunner

from fedtide.cli import app, main
from fedtide.core.errors import ConfigError, OutputError
from fedtide.deploy.data import of_client
from fedtide.deploy.keys import generate
from fedtide.deploy.template import init

STUDY = """
[population]
kind = "live"
clients = 3
rounds = 2
[train]
steps = 1
"""


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # inside Flower
def test_the_app_is_one_that_flower_takes(tmp_path, monkeypatch):
    """Flower builds it, and its modules hold a ServerApp and a ClientApp."""
    study = tmp_path / "Two words.toml"
    study.write_text(STUDY)
    done = invoke("deploy", "init", study, tmp_path / "app")
    assert done.exit_code == 0, done.output
    assert "fedtide deploy up" in done.output
    assert build_fab_from_disk(tmp_path / "app")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    server = importlib.import_module("two_words_app.server_app")
    client = importlib.import_module("two_words_app.client_app")
    assert type(server.app).__name__ == "ServerApp"
    assert type(client.app).__name__ == "ClientApp"
    assert not client.app.prepared.hook.OWN


def test_the_hook_as_it_is_written_reads_a_file(tmp_path, monkeypatch):
    """What stands after --node-config names the client's own file; the server has nothing to test on."""
    (tmp_path / "hook.toml").write_text(STUDY)
    init(tmp_path / "hook.toml", tmp_path / "app")
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    hook = importlib.import_module("hook_app.data")
    np.savez(tmp_path / "mine.npz", x=np.zeros((5, 1, 8, 8), np.uint8), y=np.arange(5))
    own = of_client(hook, {"file": str(tmp_path / "mine.npz")})
    assert own.holdings.sizes(0, np.array([7])).tolist() == [5]
    assert own.dataset.shape == (1, 8, 8)
    assert own.dataset.classes == 10
    assert hook.of_server() is None


def test_a_file_beside_the_study_travels_with_it(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedtide.algorithms.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    (tmp_path / "study.toml").write_text(f'algorithm = "mine.py:Mine"\n{STUDY}')
    init(tmp_path / "study.toml", tmp_path / "app")
    assert (tmp_path / "app" / "study_app" / "mine.py").exists()


def test_a_file_elsewhere_does_not(tmp_path):
    inner = tmp_path / "studies"
    inner.mkdir()
    (tmp_path / "other.py").write_text(
        "from fedtide.algorithms.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    (inner / "study.toml").write_text(f'algorithm = "../other.py:Mine"\n{STUDY}')
    with pytest.raises(ConfigError, match="must lie beside it"):
        init(inner / "study.toml", tmp_path / "app")


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(OutputError, match="must be a new folder"):
        init(tmp_path / "study.toml", tmp_path)
    with pytest.raises(OutputError, match="never overwritten"):
        generate(tmp_path, 1)


def test_keys(tmp_path):
    """The authority has signed the server's certificate, for the hosts that were named; keys are private."""
    done = invoke("deploy", "keys", tmp_path / "keys", "--clients", 2, "--host", "10.1.2.3")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "keys"
    ca, server = (
        x509.load_pem_x509_certificate((folder / name).read_bytes())
        for name in ("ca.crt", "server.pem")
    )
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert "10.1.2.3" in map(str, names.get_values_for_type(x509.IPAddress))
    for name in ("server.key", "client-0.key", "client-1.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    key = serialization.load_ssh_private_key((folder / "client-1.key").read_bytes(), None)
    public = serialization.load_ssh_public_key((folder / "client-1.pub").read_bytes())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == public
    assert not (folder / "ca.key").exists()


def test_up_needs_an_app(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fedtide", "deploy", "up", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "fedtide deploy init" in capsys.readouterr().err


def test_without_the_extra(monkeypatch, capsys):
    monkeypatch.setattr("fedtide.core.errors.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["fedtide", "deploy", "up"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert 'pip install "fedtide[flower]"' in capsys.readouterr().err
