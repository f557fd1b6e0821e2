"""The console scripts of the installed package: `t2t-train` runs `python -m pipelines.train`.

Each function runs a binary as the main module, so that --help and errors are the same both ways.
`setup.cfg` names the scripts.
"""

import runpy

BINARIES = ("prepare", "train", "average", "evaluate", "translate", "visualize", "export")
BINARIES += ("import_model", "export_ctranslate2", "demo", "data_service")


def _command(binary):
    def main():
        runpy.run_module(f"pipelines.{binary}", run_name="__main__", alter_sys=True)

    return main


globals().update({binary: _command(binary) for binary in BINARIES})
