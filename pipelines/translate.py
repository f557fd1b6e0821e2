"""Translates lines of text, with a trained model or an exported SavedModel.

python -m pipelines.translate --workdir=runs/grammar < sentences.en
python -m pipelines.translate --saved_model=export/1 --input=sentences.en --output=sentences.de
python -m pipelines.translate --workdir=runs/many --source_language=en --target_language=fr
python -m pipelines.translate --model=Helsinki-NLP/opus-mt-en-de

Each line of input gives one line of output, in order, UTF-8. With --n_best=N it gives N lines, or
as many as the search finds, each beginning with the input's line number (from 1) and a tab; with
--scores a score and a tab precede each translation. Several hypotheses may have the same text,
since a text has several segmentations; --unique leaves out the repetitions, so that fewer than N
may remain. The seed and the number of a line decide its samples.

With --document each line is a text of any number of sentences, which are translated one by one. The
rest of the file, such as line ends, empty lines and white space between sentences, stays unchanged,
and so do markup, placeholders such as {name}, addresses, and matches of --protected_pattern.

If --input ends in .po or .pot it is a catalog of messages (extra `catalogs`): its entries without a
translation are translated as documents and marked fuzzy, the convention for machine translation;
the rest of the file stays as it is.

Guides in pipelines/docs: terms_and_ensembles.md, translators_files.md, back_translation.md. A file
of any size takes bounded memory: thousands of lines are translated together, sorted by length.

--output appears when it is complete; after a kill the same command resumes after the lines that
were committed, if --input is a regular file. A pipe or a device as --output is written directly.
--apache_beam distributes the work to the workers of an Apache Beam runner (extra `beam`), with the
same output.
"""

import dataclasses
import itertools
import sys

from absl import flags
from tqdm import tqdm

from pipelines import app
from t2t_keras.data.files import is_stream, output_path
from t2t_keras.errors import InputError
from t2t_keras.settings import BEAMS, SamplingSettings, Setting, settings_of
from t2t_keras.tasks.catalogs import SUFFIXES, Catalog

WORKDIR = app.define_workdir(
    "Folder of a trained run. Give this, --model or --saved_model; no default."
)
SAVED_MODEL = app.define_path(
    "saved_model",
    "Folder of an exported SavedModel. Give this, --workdir or --model; no default.",
    "folder",
)
INPUT = app.define_path(
    "input", "Text file, a sentence a line, plain or .gz; default: standard input."
)
OUTPUT = app.define_path("output", "File to write; default: standard output.", "output")
MODEL = app.define_model("--workdir or --saved_model")
N_BEST = app.define_setting(
    "n_best", Setting(1, BEAMS, "Translations of each line, the best first.")
)
SCORES = flags.DEFINE_bool(
    "scores",
    False,
    "Write a score and a tab before each output: log P (natural) over the length penalty; of a "
    "classifier the probability.",
)
BATCH_SIZE = app.define("batch_size")
LINE_BUFFERED = flags.DEFINE_bool(
    "line_buffered",
    None,
    "Answer each line before the next one is read, for a program or person that waits for it; "
    "slower, and with --document a span ends with its line. Default: only if standard input is a "
    "terminal.",
)
TERMS = app.define_path(
    "terms",
    "File of terms: a source phrase, a tab and its target phrase on each line. If a sentence "
    "contains the source phrase, its translation contains the target phrase; an export needs the "
    "signature terms, or document_terms with --document; default: no terms.",
)
UNIQUE = flags.DEFINE_bool(
    "unique", False, "With --n_best: leave out translations that repeat a better one's text."
)
DOCUMENT = flags.DEFINE_bool(
    "document",
    False,
    "Split each line into sentences, translate them, and keep the text between them, instead of "
    "translating each line as one sentence.",
)
FUZZY = flags.DEFINE_bool(
    "fuzzy",
    None,
    "Mark the entries of a catalog of messages that are filled as fuzzy; default: true.",
)
RETRANSLATE = flags.DEFINE_bool(
    "retranslate",
    None,
    "Translate the entries of a catalog of messages that are marked fuzzy again; default: false.",
)
SAMPLE = flags.DEFINE_bool(
    "sample", False, "Draw translations from the model's probabilities instead of searching."
)
SAMPLING = {
    name: app.define_setting(
        name,
        x._replace(default=None, text=f"With --sample: {x.text[0].lower()}{x.text[1:]}"),
    )
    for name, x in settings_of(SamplingSettings, "samples").items()
}
ERRORS = app.define("errors")
PARALLEL_BATCHES = app.define("parallel_batches")
DECODING = app.define_decoding()
LANGUAGES = app.define_languages()
APACHE_BEAM = app.define("apache_beam")
HEADINGS = {
    "output": ("n_best", "scores", "unique", "line_buffered"),
    "catalogs": ("fuzzy", "retranslate"),
    "texts": ("document", "protected_pattern", "terms", "errors", *LANGUAGES),
    "model and search": DECODING.keys() - {"protected_pattern"},
    "samples": ("sample", *SAMPLING),
    "speed": ("batch_size", "parallel_batches", "apache_beam"),
}


def main():
    from pipelines import devices
    from pipelines.batch_inference import LinePredictor

    app.check_output(OUTPUT.value)
    if MODEL.value and (WORKDIR.value or SAVED_MODEL.value):
        raise InputError("give one of --workdir, --model and --saved_model.")
    catalog = _catalog()
    if catalog is None:
        app.check_input(INPUT.value, ERRORS.value, keep_ends=DOCUMENT.value)
    predictor = LinePredictor(
        WORKDIR.value or MODEL.value,
        SAVED_MODEL.value,
        N_BEST.value,
        SCORES.value,
        BATCH_SIZE.value,
        app.given(DECODING),
        UNIQUE.value,
        ERRORS.value,
        **_request(DOCUMENT.value or catalog is not None),
        languages=app.given(LANGUAGES),
    )
    predictor.check()
    writes_through = not OUTPUT.value or is_stream(output_path(OUTPUT.value))
    if APACHE_BEAM.value is not None:
        if not INPUT.value or is_stream(output_path(INPUT.value)) or writes_through:
            raise InputError("--apache_beam needs regular files: give --input and --output.")
        if PARALLEL_BATCHES.value is not None or LINE_BUFFERED.value:
            raise InputError(
                "Apache Beam's workers know neither --parallel_batches nor --line_buffered: leave "
                "them out with --apache_beam."
            )
        from pipelines import apache_beam

        apache_beam.write_outputs(
            _downloaded(predictor), INPUT.value, OUTPUT.value, APACHE_BEAM.value
        )
        return
    line_buffered = _is_line_buffered(writes_through)
    parallel_batches = devices.limit_threads_per_batch(
        1 if line_buffered else PARALLEL_BATCHES.value
    )
    predictor = _downloaded(predictor)
    outputs = predictor.load(parallel_batches, line_buffered)
    if writes_through:
        with app.line_writer(OUTPUT.value) as write:
            lines = _lines(catalog, line_buffered)
            for line in itertools.chain.from_iterable(_outputs(outputs, lines, 0, line_buffered)):
                write(line, predictor.line_end)
        return
    with _output(catalog, predictor.fingerprint(INPUT.value or "")) as output:
        rows = _outputs(outputs, _lines(catalog), output.done)
        for number, lines in enumerate(rows, start=output.done + 1):
            for line in lines:
                output.write(line, predictor.line_end)
            if number % predictor.window == 0:
                output.commit(number)


def _is_line_buffered(writes_through):
    """Returns whether each line is answered before the next one is read."""
    if LINE_BUFFERED.value and not writes_through:
        raise InputError(
            f"--line_buffered: the file --output={OUTPUT.value} appears when it is complete; leave "
            "out one of the two."
        )
    for flag in (BATCH_SIZE, PARALLEL_BATCHES) if LINE_BUFFERED.value else ():
        if (flag.value or 1) > 1:
            raise InputError(
                f"--{flag.name}={flag.value} is for batches, and --line_buffered answers lines one "
                "by one: leave one of the two out."
            )
    if LINE_BUFFERED.value is not None:
        return LINE_BUFFERED.value
    return writes_through and not INPUT.value and sys.stdin.isatty()


def _downloaded(predictor):
    """Returns the `LinePredictor` with the workdir of --model, if it is given."""
    from pipelines.pretrained import workdir_of

    if not MODEL.value:
        return predictor
    return dataclasses.replace(predictor, workdir=workdir_of(None, MODEL.value))


def _catalog():
    """Returns the `Catalog` that --input names, or None if it is a file of lines."""
    if not (INPUT.value or "").lower().endswith(SUFFIXES):
        for flag in (FUZZY, RETRANSLATE):
            if flag.value is not None:
                raise InputError(
                    f"--{flag.name} is for a catalog of messages, a file .po or .pot: give one as "
                    "--input, or leave it out."
                )
        return None
    if not OUTPUT.value or is_stream(output_path(OUTPUT.value)):
        message = f"--input={INPUT.value} is a catalog of messages: give a file as --output."
        raise InputError(message)
    for flag in (SAMPLE, APACHE_BEAM, LINE_BUFFERED):
        if flag.value:
            raise InputError(f"--{flag.name} is not for a catalog of messages: leave it out.")
    if ERRORS.value != "strict":
        raise InputError(
            "--errors=replace is not for a catalog of messages, whose other bytes stay as they "
            "are: leave it out, and convert the catalog to UTF-8, such as by msgconv."
        )
    return Catalog(INPUT.value, bool(RETRANSLATE.value))


def _request(is_document):
    """Returns the arguments of `LinePredictor` that say how lines are answered, by the flags."""
    sampling, terms = app.given(SAMPLING), TERMS.value or ""
    if SAMPLE.value:
        for flag in (DOCUMENT, TERMS):
            if flag.value:
                raise InputError(f"--{flag.name} and --sample do not combine: give one of them.")
        return {"request": "sample", "sampling": SamplingSettings(**sampling)}
    for name, value in sampling.items():
        raise InputError(f"--{name}={value} is for --sample: give it too, or leave --{name} out.")
    wanted = "document" * is_document, "terms" * bool(terms)
    return {"request": "_".join(filter(None, wanted)) or "serving_default", "terms": terms}


def _output(catalog, fingerprint):
    """Returns the file of output, a `ResumableOutput`."""
    from pipelines.batch_inference import CatalogOutput, ResumableOutput

    if catalog is None:
        return ResumableOutput(OUTPUT.value, fingerprint)
    return CatalogOutput(OUTPUT.value, fingerprint, catalog, FUZZY.value is not False)


def _lines(catalog, line_buffered=False):
    """Returns an iterable of the lines of input, or of the texts of a catalog, bytes."""
    if catalog is not None:
        return [text.encode() for text in catalog.texts]
    return app.read_lines(INPUT.value, ERRORS.value, DOCUMENT.value, look_ahead=not line_buffered)


def _outputs(outputs, lines, done, line_buffered=False):
    """Yields the lines of output of each line of input after the first `done` ones."""
    lines = itertools.islice(lines, done, None)
    no_bar = line_buffered or None  # None: none unless standard error is a terminal
    return outputs(tqdm(lines, unit=" lines", initial=done, disable=no_bar), first=done + 1)


if __name__ == "__main__":
    app.run(main, headings=HEADINGS)
