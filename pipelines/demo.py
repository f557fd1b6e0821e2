"""Serves a web page that translates sentences and shows the model's attention.

python -m pipelines.demo --saved_model=export/1     # then open http://127.0.0.1:8080

Needs the extra `demo`: pip install ".[demo]". Only this machine reaches the page unless --host is
given; there is no password.
"""

import signal
import socket

from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError

SAVED_MODEL = app.define_path("saved_model", "Folder of an exported SavedModel.", "folder")
HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen at; 0.0.0.0: reachable from the network."
)
PORT = flags.DEFINE_integer(
    "port", 8080, "TCP port to listen at; 0: any free one.", lower_bound=0, upper_bound=65_535
)

LANGUAGES = app.define_languages()

THREADS = 4
"""Requests that are answered in parallel, each operation with an equal part of the cores."""

LARGEST_BODY = 2**20
"""Bytes of a request that are read; the page refuses smaller ones with a message."""


def main():
    from pipelines import devices

    try:
        import waitress.server

        from t2t_keras.serving.demo.app import ExportedTranslator, create_app
    except ImportError as error:
        raise InputError(
            f'{error}: install what the page needs with pip install "t2t_keras[demo]".'
        ) from error

    devices.limit_threads(THREADS)  # before TensorFlow's first operation
    # Ignored by default in the background and by the first process of a container.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    listener = _listen(HOST.value, PORT.value)
    logging.info("Loading %s", SAVED_MODEL.value)
    page = create_app(
        ExportedTranslator(SAVED_MODEL.value, **app.given(LANGUAGES)), SAVED_MODEL.value
    )
    server = waitress.server.create_server(
        page, sockets=[listener], threads=THREADS, max_request_body_size=LARGEST_BODY
    )
    host = f"[{HOST.value}]" if ":" in HOST.value else HOST.value
    print(f"http://{host}:{server.effective_port}", flush=True)
    server.run()  # until a signal


def _listen(host, port):
    """Returns a socket that listens at the first address of `host`."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen at {host!r}, port {port} ({reason}): give another --host or --port."
        ) from error


if __name__ == "__main__":
    app.require("saved_model")
    app.run(main)
