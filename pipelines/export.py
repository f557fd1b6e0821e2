"""Exports a trained model as a SavedModel: strings in, translations out, ready for TF Serving.

python -m pipelines.export --workdir=runs/grammar --output=export     # writes export/1, 2, …
"""

from absl import flags, logging

from pipelines import app
from pipelines.workdir import Workdir
from t2t_keras.serving.export import export_saved_model, next_version

WORKDIR = app.define_workdir()
OUTPUT = flags.DEFINE_string(
    "output", None, "The model's folder; the export becomes its next numbered version."
)
DECODING = app.define_decoding()


def main():
    translator = Workdir(WORKDIR.value).load_translator(**DECODING.values())
    directory = next_version(OUTPUT.value)
    export_saved_model(translator, directory)
    logging.info("Exported %s", directory)
    print(directory)


if __name__ == "__main__":
    app.require("workdir", "output")
    app.run(main)
