"""A training whose batches another process makes."""

import re
import signal

import pytest
import tensorflow as tf

from pipelines import data_service
from tests.end_to_end.binaries import SMALL, popen, refused, run


def test_names_of_this_host():
    assert all(map(data_service.is_loopback, ("localhost", "127.0.0.2", "::1", "[::1]")))
    assert not any(map(data_service.is_loopback, ("", "0.0.0.0", "example.org", "192.0.2.1")))


def test_a_port_in_use_is_refused(monkeypatch):
    def start(*_):
        raise RuntimeError("Could not start gRPC server")

    monkeypatch.setattr(tf.data.experimental.service, "DispatchServer", start)
    message = refused("data_service", "--port=5051")
    assert "cannot listen at --port=5051: give another port (Could not start gRPC" in message


@pytest.mark.slow
def test_train_with_a_data_service(corpus_folder, tmp_path):
    service = popen("data_service", "--port=0")
    try:
        line = next(line for line in service.stderr if b"--data_service=" in line).decode()
        assert b"without authentication" in next(iter(service.stderr))
        flag = re.search(r"--data_service=\S+", line)[0]
        flags = [*SMALL, f"--config.data.folder={corpus_folder}", f"--workdir={tmp_path / 'run'}"]
        _, stderr = run("train", *flags, flag)
        assert "Trained 20 steps" in stderr
    finally:
        service.send_signal(signal.SIGTERM)
        _, rest = service.communicate(timeout=30)
    assert service.returncode == 0, rest.decode()
    message = refused("train", *flags, "--config.train.steps=25", flag)
    assert "nothing answers there" in message
