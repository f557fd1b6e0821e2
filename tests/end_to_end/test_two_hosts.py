"""Two hosts train over a network: two network namespaces that a veth pair connects."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_keras.training.checkpoint_files import CheckpointReader, checkpoint_paths
from tests.end_to_end.binaries import ROOT, SMALL, wait_for, write_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
    ),
]
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LONG = "--config.train.steps=100000"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """The two namespaces, and the processes started in them."""

    def __init__(self, folder):
        self.names = [f"t2t{os.getpid()}{letter}" for letter in "ab"]
        self.folders = [folder / name for name in self.names]
        self.processes = []

    def set_link(self, state):
        ip("-n", self.names[1], "link", "set", self.names[1], state)

    def start(self, host, binary, *flags, **environment):
        command = ["ip", "netns", "exec", self.names[host], sys.executable, "-m"]
        process = subprocess.Popen(
            [*command, f"pipelines.{binary}", *map(str, flags)],
            cwd=self.folders[host],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def train(self, host, *flags):
        """Starts one of two workers."""
        cluster = {"worker": [f"{address}:4000" for address in ADDRESSES]}
        task = {"type": "worker", "index": host}
        config = json.dumps({"cluster": cluster, "task": task})
        return self.start(host, "train", *SMALL, *flags, TF_CONFIG=config)


@pytest.fixture
def hosts(tmp_path):
    hosts = Hosts(tmp_path)
    try:
        for name, folder in zip(hosts.names, hosts.folders, strict=True):
            folder.mkdir()
            ip("netns", "add", name)
        first, second = hosts.names
        ip("link", "add", first, "netns", first, "type", "veth", "peer", second, "netns", second)
        for name, address in zip(hosts.names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", name, "up")
        yield hosts
    finally:
        for process in hosts.processes:
            process.kill()
            process.communicate()
        for name in hosts.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "text").mkdir()
    return [f"--config.data.folder={write_folder(tmp_path / 'text')}"]


def end(process, code, timeout=300):
    """Waits for a process; returns the last line of its messages."""
    _, stderr = process.communicate(timeout=timeout)
    assert process.returncode == code, stderr
    return stderr.splitlines()[-1]


def test_a_late_worker_and_a_short_cut(hosts, flags, tmp_path):
    """One host with the same batches and without dropout gets the same weights."""
    flags += ["--config.data.batching=packed", "--config.data.max_length=50"]
    flags += ["--config.model.dropout=0.0", "--config.train.validation_sentences=0"]
    flags += ["--config.train.steps=60", "--config.train.validate_every=1000"]
    workers = [hosts.train(0, f"--workdir={tmp_path / 'two'}", *flags)]
    end(hosts.start(1, "train", *SMALL, f"--workdir={tmp_path / 'one'}", *flags), 0)
    workers.append(hosts.train(1, f"--workdir={tmp_path / 'two'}", *flags))
    wait_for(lambda: checkpoint_paths(tmp_path / "two" / "checkpoints"), workers)
    hosts.set_link("down")
    time.sleep(5)
    assert checkpoint_paths(tmp_path / "two" / "checkpoints")[-1].name < "step_00000060"
    hosts.set_link("up")
    for worker in workers:
        end(worker, 0)
    last = pathlib.Path("checkpoints", "step_00000060")
    one, two = (CheckpointReader(tmp_path / name / last) for name in ("one", "two"))
    names = [name for name in one.shapes if name.startswith("model/")]
    assert len(names) > 20
    for name in names:
        alone = one.read(name)
        np.testing.assert_allclose(two.read(name), alone, atol=1e-4 * np.abs(alone).max())


def test_workers_that_lose_one_another_end_with_75_and_resume(hosts, flags, tmp_path):
    flags.append(f"--workdir={tmp_path / 'run'}")
    workers = [hosts.train(host, *flags, LONG) for host in range(2)]
    wait_for(lambda: checkpoint_paths(tmp_path / "run" / "checkpoints"), workers)
    hosts.set_link("down")
    for worker in workers:
        assert "start all of them again with the same command" in end(worker, 75, timeout=60)
    hosts.set_link("up")
    step = int(checkpoint_paths(tmp_path / "run" / "checkpoints")[-1].name.removeprefix("step_"))
    for worker in [
        hosts.train(host, *flags, f"--config.train.steps={step + 2}") for host in (0, 1)
    ]:
        end(worker, 0)
    last = checkpoint_paths(tmp_path / "run" / "checkpoints")[-1]
    assert last.name == f"step_{step + 2:08d}"


@pytest.mark.parametrize("different", ["config", "text"])
def test_a_worker_with_another_config_or_text_is_refused(different, hosts, tmp_path):
    for folder in hosts.folders:
        (folder / "text").mkdir()
        write_folder(folder / "text")
    flags = [f"--workdir={tmp_path / 'run'}", "--config.data.folder=text"]
    changed = []
    if different == "config":
        changed, message = ["--config.train.label_smoothing=0.2"], "label_smoothing is 0.2 here and"
    else:
        path, message = hosts.folders[1] / "text" / "train.de", "train.de has a text that differs"
        path.write_text(path.read_text().replace("null", "nil"))
    workers = hosts.train(0, *flags), hosts.train(1, *flags, *changed)
    assert "worker 1 differs from the chief in its config or corpus" in end(workers[0], 1)
    assert message in end(workers[1], 1)


def test_the_batches_come_from_another_host(hosts, flags, tmp_path):
    service = hosts.start(1, "data_service", "--port=5050", f"--host={ADDRESSES[1]}")
    for line in service.stderr:
        if "without authentication" in line:
            break
    address = f"--data_service=grpc://{ADDRESSES[1]}:5050"
    trainer = hosts.start(0, "train", *SMALL, *flags, f"--workdir={tmp_path / 'run'}", address)
    assert "Trained 20 steps" in end(trainer, 0)
