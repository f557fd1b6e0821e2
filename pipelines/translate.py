"""Translates lines of text, with a trained model or an exported SavedModel.

python -m pipelines.translate --workdir=runs/grammar < sentences.en
python -m pipelines.translate --saved_model=export/1 --input=sentences.en --output=sentences.de

Each line of input gives one line of output, in order. With --n_best=N it gives N lines, each
beginning with the input's line number (from 1) and a tab; with --scores a score and a tab precede
each translation. Different hypotheses may have one text, since a text has several segmentations;
with --unique a line of input gives only the different ones, which may be fewer than N.

A file of any size takes bounded memory. --output appears when it is complete; after a kill the same
command resumes after the lines that were committed. --beam distributes the work to the workers of
an Apache Beam runner (extra `beam`), with the same output.
"""

import itertools

from absl import flags
from tqdm import tqdm

from pipelines import app
from pipelines.batch_inference import LinePredictor, ResumableOutput
from t2t_keras.errors import InputError

WORKDIR = app.define_workdir()
SAVED_MODEL = flags.DEFINE_string("saved_model", None, "Folder of an exported SavedModel.")
INPUT = flags.DEFINE_string(
    "input", "", "File of one sentence a line, plain or .gz; standard input if empty."
)
OUTPUT = flags.DEFINE_string("output", "", "File to write; standard output if empty.")
N_BEST = flags.DEFINE_integer("n_best", 1, "Translations of each line.", lower_bound=1)
SCORES = flags.DEFINE_bool("scores", False, "Write each translation's score before it.")
UNIQUE = flags.DEFINE_bool(
    "unique", False, "With --n_best: leave out translations that repeat a better one's text."
)
ERRORS = app.define_errors()
BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Lines of a batch.", lower_bound=1)
BATCHES_AT_ONCE = app.define_batches_at_once()
DECODING = app.define_decoding()
BEAM = app.define_beam()


def main():
    if OUTPUT.value:
        app.check_output(OUTPUT.value)
    app.check_input(INPUT.value, ERRORS.value)
    predictor = LinePredictor(
        WORKDIR.value,
        SAVED_MODEL.value,
        N_BEST.value,
        SCORES.value,
        BATCH_SIZE.value,
        DECODING.values(),
        UNIQUE.value,
        ERRORS.value,
    )
    if BEAM.value is not None:
        if not (INPUT.value and OUTPUT.value):
            raise InputError("--beam needs files: give --input and --output.")
        if BATCHES_AT_ONCE.value is not None:
            raise InputError(
                "--batches_at_once is for this process alone: leave it out with --beam."
            )
        beam = app.import_apache_beam()
        beam.write_outputs(predictor, INPUT.value, OUTPUT.value, BEAM.value)
        return
    outputs = predictor.load(app.limit_threads_per_batch(BATCHES_AT_ONCE.value))
    if not OUTPUT.value:
        for line in itertools.chain.from_iterable(_outputs(outputs, done=0)):
            print(line, flush=True)
        return
    with ResumableOutput(OUTPUT.value, predictor.fingerprint(INPUT.value)) as output:
        for number, lines in enumerate(_outputs(outputs, output.done), start=output.done + 1):
            for line in lines:
                output.write(line)
            if number % predictor.window == 0:
                output.commit(number)


def _outputs(outputs, done):
    """Yields the lines of output of each line of input after the first `done` ones."""
    lines = itertools.islice(app.read_lines(INPUT.value, ERRORS.value), done, None)
    return outputs(tqdm(lines, unit=" lines", initial=done, disable=None), first=done + 1)


if __name__ == "__main__":
    app.run(main)
