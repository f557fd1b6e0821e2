"""Converts a trained translation model to a CTranslate2 model.

python -m pipelines.export_ctranslate2 --workdir=runs/grammar --output=engine

Needs the extra: pip install ".[ctranslate2]". See t2t_keras/serving/ctranslate2.py for the input
and output of the folder, and for how CTranslate2's search differs from ours.
"""

from absl import logging

from pipelines import app

WORKDIR = app.define_workdir()
OUTPUT = app.define_path(
    "output", "Folder of the CTranslate2 model, which the command makes.", "folder"
)
CHECKPOINT = app.define_checkpoint()


def main():
    from pipelines.workdir import Workdir
    from t2t_keras.serving.ctranslate2 import export_ctranslate2

    workdir = Workdir(WORKDIR.value)
    if workdir.load_config().knn.k:
        logging.warning("CTranslate2 has no kNN-MT: the model is converted alone")
    translator = workdir.load_predictor(CHECKPOINT.value, knn_k=0)
    export_ctranslate2(translator, OUTPUT.value)
    print(OUTPUT.value)


if __name__ == "__main__":
    app.require("workdir", "output")
    app.run(main, gpu=False)
