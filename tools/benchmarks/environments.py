"""Python environments of the peers: ours if they are installed there, else one for each peer.

Also the name of the machine's CPU.
"""

import configparser
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

from benchmarks import ROOT
from t2t_keras.errors import InputError

PEERS = {"torch": "torch", "ctranslate2": "ctranslate2", "keras-hub": "keras_hub"}
"""The module of each."""


def find_interpreters(wanted, peers, given, folder):
    """Finds or makes the Python of each peer that is wanted and allowed.

    Args:
        wanted: set of names out of `PEERS`, and None.
        peers: list of those that are allowed.
        given: list of "peer=path", interpreters to take.
        folder: where environments are made.

    Returns:
        {peer: path}.

    Raises:
        InputError: if a name is not known, a given interpreter can't be run or pip fails.
    """
    chosen = dict(item.partition("=")[::2] for item in given)
    for name in [*peers, *chosen]:
        if name not in PEERS:
            raise InputError(f"there is no peer {name!r}: give some of {', '.join(PEERS)}.")
    for name, python in chosen.items():
        if not shutil.which(python):
            raise InputError(f"--peer_python={name}={python}: give a Python that can be run.")
    return {
        peer: chosen.get(peer) or _interpreter(peer, folder) for peer in peers if peer in wanted
    }


def cpu_name():
    """Returns the name of this machine's CPU, str."""
    if os.path.exists("/proc/cpuinfo"):  # Linux
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if "model name" in line:
                    return line.partition(":")[2].strip()
    return platform.processor()


def _interpreter(peer, folder):
    if importlib.util.find_spec(PEERS[peer]):
        return sys.executable
    environment = pathlib.Path(folder) / peer
    python = environment / "bin" / "python"
    ready = environment / "ready"
    if not ready.exists():
        print(f"Making the environment {environment}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        install = [python, "-m", "pip", "install", "-qq", *_requirements(peer)]
        if subprocess.run(install, check=False).returncode:
            raise InputError(
                f"pip could not install {peer}: leave it out of --peers, or give --peer_python="
                f"{peer}=PATH of a Python that has it."
            )
        ready.touch()
    return os.fspath(python)


def _requirements(peer):
    """Returns a peer's requirements: those of the extra `bench`, and TensorFlow for KerasHub."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.extras_require"]["bench"].split("\n")
    needed = [line.strip() for line in lines if line.strip().startswith(peer)]
    if peer == "keras-hub":
        lines = setup["options"]["install_requires"].split("\n")
        if shutil.which("nvidia-smi"):  # else it would compute on the CPU
            lines = setup["options.extras_require"]["gpu"].split("\n")
        needed += [line.strip() for line in lines if re.match(r"tensorflow[ \[]", line)]
    return [*needed, "numpy"]
