"""The console scripts of the installed package: `t2t-train` runs `python -m pipelines.train`.

Each function runs a binary as the main module, so that --help and errors are the same both ways.
`setup.cfg` names the scripts.
"""

import runpy


def _command(binary):
    def main():
        runpy.run_module(f"pipelines.{binary}", run_name="__main__", alter_sys=True)

    return main


prepare = _command("prepare")
train = _command("train")
average = _command("average")
evaluate = _command("evaluate")
translate = _command("translate")
visualize = _command("visualize")
export = _command("export")
import_model = _command("import_model")
export_ctranslate2 = _command("export_ctranslate2")
demo = _command("demo")
data_service = _command("data_service")
