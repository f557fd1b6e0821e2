"""Makes batches for trainings on other hosts: a tf.data service, until it is told to end.

python -m pipelines.data_service --port=5050                              # on one host
python -m pipelines.data_service --port=5051 --dispatcher=host:5050      # on any number of others
python -m pipelines.train --config=… --workdir=… --data_service=grpc://host:5050

The first command starts the dispatcher, and a worker beside it; every other one a further worker.
All must be able to read the workdir's tokens under the same path.
"""

import signal
import socket
import threading

import tensorflow as tf
from absl import flags, logging

from pipelines import app

PORT = flags.DEFINE_integer(
    "port", 5050, "Port to listen at; any that is free if 0.", lower_bound=0
)
HOST = flags.DEFINE_string("host", "", "Name by which others reach this host; its own if empty.")
DISPATCHER = flags.DEFINE_string(
    "dispatcher", "", "host:port of the dispatcher to work for; if empty this is one."
)


def main():
    service = tf.data.experimental.service
    host = HOST.value or socket.gethostname()
    dispatcher = None
    if not DISPATCHER.value:
        dispatcher = service.DispatchServer(service.DispatcherConfig(port=PORT.value))
        port = dispatcher.target.rpartition(":")[2]
        logging.info("Trainings reach this service by --data_service=grpc://%s:%s", host, port)
    worker = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=DISPATCHER.value or f"localhost:{port}",
            worker_address=f"{host}:%port%",
            port=PORT.value if DISPATCHER.value else 0,
        )
    )
    told_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told_to_end.set())
    while not told_to_end.wait(timeout=1):  # a wait without an end is deaf to signals
        pass
    del worker, dispatcher
    logging.info("Ended.")


if __name__ == "__main__":
    app.run(main)
