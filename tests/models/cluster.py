"""Several processes on 127.0.0.1 as the workers of one training."""

import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_workers(count, *command):
    """Starts `python -m *command` as each of `count` workers; "{index}" in it is the worker's."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(count)]}
    return [
        subprocess.Popen(
            [sys.executable, "-m", *(str(part).replace("{index}", str(index)) for part in command)],
            cwd=ROOT,
            env=os.environ
            | {
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": "worker", "index": index}}
                ),
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]


def outcomes(workers, timeout=900):
    """Waits for all; returns [(exit code, stderr)]. None is left running."""
    try:
        texts = [worker.communicate(timeout=timeout)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, text) for worker, text in zip(workers, texts, strict=True)]
