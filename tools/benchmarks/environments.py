"""The Pythons that have the peers, and the name of the machine's CPU."""

import importlib.util
import os
import platform
import shutil
import sys

from t2t_keras.errors import InputError

PEERS = {
    "torch": "torch",
    "ctranslate2": "ctranslate2",
    "keras-hub": "keras_hub",
    "transformers": "transformers",
}
"""The module of each."""


def find_interpreters(wanted, peers, given):
    """Returns {peer: path of a Python} of each peer that is wanted and allowed.

    Args:
        wanted: set of names out of `PEERS`, and None.
        peers: list of those that are allowed.
        given: list of "peer=path", interpreters to take in place of this one.

    Raises:
        InputError: if a name is not known, an interpreter can't be run or has no peer.
    """
    chosen = dict(item.partition("=")[::2] for item in given)
    for name in [*peers, *chosen]:
        if name not in PEERS:
            raise InputError(f"there is no peer {name!r}: give some of {', '.join(PEERS)}.")
    for name, python in chosen.items():
        if not shutil.which(python):
            raise InputError(f"--peer_python={name}={python}: give a Python that can be run.")
    found = {peer: chosen.get(peer, sys.executable) for peer in peers if peer in wanted}
    for peer, python in found.items():
        if python == sys.executable and not importlib.util.find_spec(PEERS[peer]):
            raise InputError(
                f"{peer} is not installed: pip install '.[bench]', leave it out of --peers, or "
                f"give --peer_python={peer}=PATH of a Python that has it."
            )
    return found


def cpu_name():
    """Returns the name of this machine's CPU, str."""
    if os.path.exists("/proc/cpuinfo"):  # Linux
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if "model name" in line:
                    return line.partition(":")[2].strip()
    return platform.processor()
