"""Runs a tf.data service, which makes batches for training processes, until SIGTERM or SIGINT.

python -m pipelines.data_service --port=5050
python -m pipelines.train --config=… --workdir=… --data_service=grpc://localhost:5050

The first command starts the dispatcher and a worker. Further workers on other hosts:

python -m pipelines.data_service --port=5050 --host=first.example                # on the first host
python -m pipelines.data_service --port=5051 --host=second.example --dispatcher=first.example:5050

All hosts must be able to read the workdir's tokens under the same path.

WARNING: a tf.data service runs the dataset graphs of its clients, which may read and write files,
without any authentication. By default it answers this host only. With --host it answers every
host that can reach its port: use it only in a network where all hosts are trusted.
"""

import contextlib
import ctypes
import ipaddress
import os
import signal
import socket
import struct
import threading

import tensorflow as tf
from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError

PORT = flags.DEFINE_integer("port", 5050, "TCP port to listen at; 0: any free one.", lower_bound=0)
HOST = flags.DEFINE_string(
    "host",
    "localhost",
    "Name or address by which other hosts reach this one. They can then run any dataset graph "
    "here, without authentication: trusted networks only. localhost or empty: packets of other "
    "hosts are ignored.",
)
DISPATCHER = flags.DEFINE_string(
    "dispatcher",
    "",
    "Address host:port of the dispatcher to work for; empty: start a dispatcher and a worker here.",
)

_SO_ATTACH_FILTER = 26  # <asm-generic/socket.h>


def main():
    service = tf.data.experimental.service
    host = HOST.value or "localhost"
    local = is_loopback(host)
    dispatcher = None
    if not DISPATCHER.value:
        dispatcher = service.DispatchServer(service.DispatcherConfig(port=PORT.value))
        if local:
            restrict_to_loopback()
        port = dispatcher.target.rpartition(":")[2]
        logging.info("Trainings reach this service by --data_service=grpc://%s:%s", host, port)
    elif local and not is_loopback(DISPATCHER.value.rpartition(":")[0]):
        raise InputError(
            f"--dispatcher={DISPATCHER.value} is on another host, which must reach this worker: "
            "give --host, the name of this host (see the warning of --help)."
        )
    worker = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=DISPATCHER.value or f"localhost:{port}",
            worker_address=f"{host}:%port%",
            port=PORT.value if DISPATCHER.value else 0,
        )
    )
    if local:
        restrict_to_loopback()
    else:
        logging.warning("Every host that reaches %s can run dataset graphs in this process.", host)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(timeout=1):  # a wait without timeout would not see signals
        pass
    del worker, dispatcher
    logging.info("Ended.")


def is_loopback(host):
    """Returns whether a host name or address is this host's loopback interface."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def restrict_to_loopback():
    """Makes the listening sockets of this process ignore packets from other hosts.

    TensorFlow 2.21 binds the servers of a data service to all interfaces and offers no choice
    (`grpc_data_server_base.cc`). A socket filter of the kernel drops what does not come from the
    loopback interface, before a connection is made.

    Raises:
        InputError: where the system has no socket filters.
    """
    try:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not a socket, or closed since
                listener = socket.socket(fileno=os.dup(int(name)))
                with listener:
                    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if listens and listener.family in (socket.AF_INET, socket.AF_INET6):
                        ignore_other_hosts(listener)
    except FileNotFoundError as error:
        raise InputError(
            "a data service can be restricted to this host only on Linux: give --host=NAME to let "
            "other hosts reach it (see the warning of --help)."
        ) from error


def ignore_other_hosts(listener):
    """Attaches a filter to a listening socket that drops packets from other hosts.

    The filter is classic BPF: https://docs.kernel.org/networking/filter.html.
    """
    load_byte, load_word, mask, jump_if_equal, result = 0x30, 0x20, 0x54, 0x15, 0x06
    ip = 0xFFF00000  # SKF_NET_OFF: offsets count from the IP header
    program = [  # (operation, instructions to skip if equal, and if not, operand)
        (load_byte, 0, 0, ip),
        (mask, 0, 0, 0xF0),
        (jump_if_equal, 0, 2, 0x40),  # IP version 4; else 6
        (load_byte, 0, 0, ip + 12),  # source address
        (jump_if_equal, 9, 8, 127),
        (load_word, 0, 0, ip + 8),  # source address, four words
        (jump_if_equal, 0, 6, 0),
        (load_word, 0, 0, ip + 12),
        (jump_if_equal, 0, 4, 0),
        (load_word, 0, 0, ip + 16),
        (jump_if_equal, 0, 2, 0),
        (load_word, 0, 0, ip + 20),
        (jump_if_equal, 1, 0, 1),
        (result, 0, 0, 0),  # drop
        (result, 0, 0, 0xFFFFFFFF),  # keep
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    pointer = struct.pack("HP", len(program), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


if __name__ == "__main__":
    app.run(main, gpu=False)
