"""What the tests' own set-up promises."""

import os

import pytest
import tensorflow as tf


def test_gpus_are_hidden_from_tests_and_their_processes(pytestconfig):
    if pytestconfig.getoption("--gpu"):
        pytest.skip("--gpu shows them")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
    assert not tf.config.list_physical_devices("GPU")
