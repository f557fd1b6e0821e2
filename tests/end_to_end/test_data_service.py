"""A training whose batches another process makes, and who can reach that process."""

import re
import signal
import socket

import psutil
import pytest

from pipelines import data_service
from tests.end_to_end.binaries import SMALL, popen, run


def own_addresses():
    """Returns the addresses of this host, by which packets do not come from the loopback one."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6) and "%" not in address.address
    ]
    found = [address for address in found if not data_service.is_loopback(address)]
    if not found:
        pytest.skip("this host has only a loopback interface")
    return found


def reaches(address, port):
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except TimeoutError:
        return False
    return True


def test_a_socket_can_be_kept_to_this_host():
    addresses = own_addresses()
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert all(reaches(address, port) for address in ("127.0.0.1", "::1", *addresses))
        data_service.ignore_other_hosts(listener)
        assert all(reaches(address, port) for address in ("127.0.0.1", "::1"))
        assert not any(reaches(address, port) for address in addresses)


def test_names_of_this_host():
    assert all(map(data_service.is_loopback, ("localhost", "127.0.0.2", "::1", "[::1]")))
    assert not any(map(data_service.is_loopback, ("", "0.0.0.0", "example.org", "192.0.2.1")))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--host=first.example"]])
def test_a_service_answers_other_hosts_only_if_told(flags):
    addresses = own_addresses()
    service = popen("data_service", "--port=0", *flags)
    try:
        line = next(line for line in service.stderr if b"--data_service=" in line).decode()
        port = int(line.rpartition(":")[2])
        assert reaches("localhost", port)
        assert all(reaches(address, port) == bool(flags) for address in addresses)
    finally:
        service.kill()
        service.communicate()


def test_a_worker_of_another_host_must_be_named():
    _, stderr = run("data_service", "--port=0", "--dispatcher=first.example:5050", code=1)
    assert "give --host" in stderr


@pytest.mark.slow
def test_train_with_a_data_service(corpus_folder, tmp_path):
    service = popen("data_service", "--port=0")
    try:
        line = next(line for line in service.stderr if b"--data_service=" in line).decode()
        flag = re.search(r"--data_service=\S+", line)[0]
        flags = [*SMALL, f"--config.data.folder={corpus_folder}", f"--workdir={tmp_path / 'run'}"]
        _, stderr = run("train", *flags, flag)
        assert "Trained 20 steps" in stderr
    finally:
        service.send_signal(signal.SIGTERM)
        _, rest = service.communicate(timeout=30)
    assert service.returncode == 0, rest.decode()
    _, stderr = run("train", *flags, "--config.train.steps=25", flag, code=1)
    assert "nothing answers there" in stderr
