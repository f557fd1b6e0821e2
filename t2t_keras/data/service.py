"""Batches made by other hosts: tf.data service, for hosts whose cores can't feed their devices."""

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

import tensorflow as tf

from t2t_keras.errors import InputError

_SECONDS_TO_ANSWER = 10


class DataService(NamedTuple):
    """A running tf.data service: a dispatcher and workers, see `pipelines.data_service`.

    Its workers share out the windows of the stream among themselves, and so every pair comes once
    in an epoch; which batch comes first is theirs to settle, so two runs do not see the same order.

    Args:
        address: of the dispatcher: "grpc://host:port".
        job: name of the stream, where several training processes draw on one together; each batch
            goes to one of them. None: the stream is this process's alone.
    """

    address: str
    job: str | None = None

    def check(self):
        """Raises InputError if there is no such address or nothing answers there."""
        parts = urlsplit(self.address)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "grpc" or not parts.hostname or not port:
            raise InputError(f"data service {self.address!r}: give grpc://host:port.")
        try:
            socket.create_connection((parts.hostname, port), _SECONDS_TO_ANSWER).close()
        except OSError as error:
            raise InputError(
                f"data service {self.address}: nothing answers there ({error}); start one with "
                "python -m pipelines.data_service."
            ) from error

    def spread(self, dataset):
        """Returns the dataset made by the service's workers.

        Args:
            dataset: one whose source can be split, such as `tf.data.Dataset.range`; its elements
                are made from the files that it names, which all workers must be able to read.
        """
        service = tf.data.experimental.service
        return dataset.apply(
            service.distribute(service.ShardingPolicy.DYNAMIC, self.address, job_name=self.job)
        )
