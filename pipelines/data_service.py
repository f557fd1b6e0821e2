"""Runs a tf.data service, which makes batches for training processes, until SIGTERM or SIGINT.

python -m pipelines.data_service --port=5050
python -m pipelines.train --config=… --workdir=… --data_service=grpc://localhost:5050

The first command starts the dispatcher and a worker. Further workers on other hosts:

python -m pipelines.data_service --port=5050 --host=first.example                # on the first host
python -m pipelines.data_service --port=5051 --host=second.example --dispatcher=first.example:5050

All hosts must be able to read the workdir's tokens under the same path.

WARNING: a tf.data service runs the dataset graphs of its clients, which may read and write files,
without authentication. TensorFlow binds it to all network interfaces: every host that reaches the
port can use it, also without --host. Close the port in the firewall, or trust the whole network.
"""

import contextlib
import ipaddress
import signal
import threading

from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError, reason_of

PORT = flags.DEFINE_integer(
    "port", 5050, "TCP port to listen at; 0: any free one.", lower_bound=0, upper_bound=65_535
)
HOST = flags.DEFINE_string(
    "host",
    "localhost",
    "Name or address by which trainings and workers on other hosts reach this host.",
)
DISPATCHER = flags.DEFINE_string(
    "dispatcher",
    "",
    "Address host:port of the dispatcher to work for; empty: start a dispatcher and a worker here.",
)


def main():
    import tensorflow as tf

    service = tf.data.experimental.service
    host = HOST.value or "localhost"
    local = is_loopback(host)
    dispatcher, port = None, PORT.value
    if not DISPATCHER.value:
        with _explained(f"the dispatcher cannot listen at --port={PORT.value}: give another port"):
            dispatcher = service.DispatchServer(service.DispatcherConfig(port=PORT.value))
        port = dispatcher.target.rpartition(":")[2]
        logging.info("Trainings reach this service by --data_service=grpc://%s:%s", host, port)
    elif local and not is_loopback(DISPATCHER.value.rpartition(":")[0]):
        raise InputError(
            f"--dispatcher={DISPATCHER.value} is on another host, which must reach this worker: "
            "give --host, the name of this host."
        )
    address = DISPATCHER.value or f"localhost:{port}"
    with _explained(f"the worker for {address} cannot start: check --dispatcher and --port"):
        worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=address,
                worker_address=f"{host}:%port%",
                port=PORT.value if DISPATCHER.value else 0,
            )
        )
    logging.warning(
        "Every host that reaches this machine's port %s can run dataset graphs in this process, "
        "without authentication: close the port in the firewall, or trust the network.",
        port,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(timeout=1):  # a wait without timeout would not see signals
        pass
    del worker, dispatcher
    logging.info("Ended.")


@contextlib.contextmanager
def _explained(message):
    """Raises InputError, with a message, for a server that does not start."""
    import tensorflow as tf

    try:
        yield
    except (RuntimeError, tf.errors.OpError) as error:
        raise InputError(f"{message} ({reason_of(error)}).") from error


def is_loopback(host):
    """Returns whether a host name or address is this host's loopback interface."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    app.run(main, gpu=False)
