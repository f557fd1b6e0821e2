r"""Exports a trained model as a SavedModel for TF Serving: strings in, translations out.

python -m pipelines.export --workdir=runs/grammar --output=export     # writes export/1, 2, …
python -m pipelines.export --workdir=runs/grammar --output=export --precision=bfloat16 \
    --signatures=serving_default,n_best --beam_size=8 --max_source_length=100
python -m pipelines.export --workdir=runs/grammar --output=export --precision=int8 --shortlist=100
"""

import os

from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.settings import EXPORT_DEVICES, PRECISIONS

WORKDIR = app.define_workdir("Folder of a run. Give this or --model; no default.")
MODEL = app.define_model("--workdir")
OUTPUT = app.define_path(
    "output", "The model's folder; the export becomes its next numbered version.", "folder"
)
SIGNATURES_WANTED = flags.DEFINE_list(
    "signatures",
    None,
    "Signatures to export, such as serving_default,n_best (t2t_keras/serving/README.md lists all); "
    "default: those that an export has without being asked.",
)
PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    PRECISIONS,
    "How matrices are stored. float32: as they were trained; bfloat16: half the bytes, cast to "
    "float32 when they are loaded; int8: a quarter of the bytes, multiplied in int8, for which the "
    "server must be x86-64, with a TensorFlow that has oneDNN.",
)
DEVICE = flags.DEFINE_enum(
    "device",
    None,
    EXPORT_DEVICES,
    "Device of the server, for which the graph is made; default: gpu if TensorFlow sees one here, "
    "else cpu.",
)
NAME = flags.DEFINE_string("name", "translator", "The model's name on the server, in its URL.")
VERIFY = flags.DEFINE_bool(
    "verify",
    True,
    "Publish the export only if a new process that has only its files answers as the model does.",
)
LINES = app.define_path(
    "lines",
    "Text file of typical sources, a line each. The export is checked with all of them, and the "
    "server warms up with some. Default: lines sampled from the vocabulary.",
)
SHORTLIST = flags.DEFINE_integer(
    "shortlist",
    None,
    "Let a search choose among the K most probable translations of each source token, the most "
    "frequent tokens, and the bytes. They are learned from the run's training shards and kept in "
    "its folder. K is at least 1, and usually 50 to 200. Default: the whole vocabulary.",
)
DECODING = app.define_decoding()


def main():
    from pipelines.pretrained import workdir_of
    from pipelines.workdir import Workdir
    from t2t_keras.serving import export_saved_model, next_version

    # TensorFlow's own allocator keeps what is freed, and the verification loads a second model.
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
    if SHORTLIST.value is not None:
        require_whole_number("--shortlist", SHORTLIST.value)
    lines = LINES.value and [line.decode() for line in app.read_lines(LINES.value)]
    if LINES.value and not lines:
        raise InputError(f"--lines={LINES.value} is empty: give a file with a source on each line.")
    workdir = Workdir(workdir_of(WORKDIR.value, MODEL.value))
    predictor = workdir.load_predictor(**app.given(DECODING))
    directory = next_version(OUTPUT.value)
    export_saved_model(
        predictor,
        directory,
        signatures=SIGNATURES_WANTED.value,
        precision=PRECISION.value,
        device=DEVICE.value,
        name=NAME.value,
        lines=lines,
        verify=VERIFY.value,
        shortlist=SHORTLIST.value and _shortlist(workdir, predictor, SHORTLIST.value),
    )
    logging.info("Exported %s", directory)
    print(directory)


def _shortlist(workdir, translator, k):
    """Returns the run's `Shortlist`, learned if its folder has none of this vocabulary."""
    from pipelines.directions import directions_of
    from t2t_keras.data.shards import open_shards
    from t2t_keras.tasks.shortlist import Shortlist

    if directions_of(workdir.load_config()):
        raise InputError("--shortlist is for one corpus, and this run has several: leave it out.")
    path = os.path.join(workdir.path, f"shortlist_{k}.npz")
    kept = Shortlist.load(path) if os.path.exists(path) else None
    if kept is not None and kept.vocabulary != translator.tokenizer.fingerprint():
        kept = None
    try:
        shards = open_shards(workdir.tokens, workdir.load_config().data.train_split)
    except InputError as error:
        if kept is None:
            raise InputError(f"--shortlist: {error}, or leave --shortlist out") from error
        logging.warning("%s: no training shards, so scores use its saved cost of a token", path)
        return kept
    if kept is not None:
        return kept.measured(shards, translator)
    shortlist = Shortlist.learn(shards, translator, k)
    shortlist.save(path)
    return shortlist


if __name__ == "__main__":
    app.take("workdir")
    app.require("output")
    app.run(main)
