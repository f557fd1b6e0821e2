"""Scores a trained model on a split or on files: BLEU, chrF, chrF++ and TER of its translations.

python -m pipelines.evaluate --workdir=runs/grammar --split=test
python -m pipelines.evaluate --workdir=runs/grammar --source=text.en --reference=text.de

The first line printed names the texts, the last one is JSON: scores, signatures, length ratio,
fraction of exact translations. A run of many languages is scored in each of its directions, with
the means; --source_language and --target_language choose one direction, with all its corpora. The
run need not have trained it.
--config.data.test_split=… and the other fields of config.data that may change during a run override
the run's values.

--baseline adds a paired bootstrap test against another system's translations, --by_length BLEU by
source length, --compound_split the tokenized BLEU of the paper's English-German figures. Parses are
scored by EVALB's rules, with the parameters of --parameters. The scores of a language model are its
perplexity by token and by word, and its bits per byte; --stride computes them in windows.
"""

import dataclasses
import json
import os
import tempfile
import time
from typing import NamedTuple

from absl import flags, logging
from tqdm import tqdm

from pipelines import app
from pipelines.corpora import Direction
from t2t_keras.errors import InputError, TextError

WORKDIR = app.define_workdir("Folder of a run. Give this or --model; no default.")
MODEL = app.define_model("--workdir")
SPLIT = flags.DEFINE_string(
    "split", "test", "Split of the run's corpus: train, validation, test, or another of its names."
)
SOURCE = app.define_path(
    "source", "Text file to translate or classify, a line each, plain or .gz; default: --split."
)
REFERENCE = app.define_path(
    "reference",
    "File of reference translations of --source, line by line; give the flag several times for "
    "several references. Classification: a file of labels, one on each line. Without --source: "
    "trees for parsing, texts for a language model. Default: those of --split.",
    several=True,
)
TOKENIZE = flags.DEFINE_string(
    "tokenize",
    None,
    "sacreBLEU's tokenization; none: the text is tokenized already; default: by the target "
    "language: zh, ja-mecab, ko-mecab, char, and 13a for most.",
)
LOWERCASE = flags.DEFINE_bool("lowercase", False, "Score without regard to case.")
BASELINE = app.define_path(
    "baseline",
    "File of another system's translations of the same lines, for a paired bootstrap test; "
    "default: none.",
)
BY_LENGTH = flags.DEFINE_bool("by_length", False, "Also give BLEU by the length of the source.")
COMPOUND_SPLIT = flags.DEFINE_bool(
    "compound_split",
    False,
    "Also give the BLEU of Moses-tokenized text with compounds split at hyphens (needs the extra "
    "`evaluation`).",
)
PARAMETERS = flags.DEFINE_string(
    "parameters",
    "",
    "EVALB parameter file, for parsing; empty: the settings of COLLINS.prm.",
)
STRIDE = flags.DEFINE_integer(
    "stride",
    None,
    "For a language model: score windows of the run's `data.max_length` tokens, of which each "
    "begins this many tokens after the one before; fewer give each token more context and take "
    "longer. Default: each line alone, or, of a stream, windows that do not overlap.",
    lower_bound=1,
)
ERRORS = app.define("errors")
LANGUAGES = app.define_languages("every direction of the run")
OUTPUT = app.define_path(
    "output", "File to write the outputs to, a line each; default: none.", "output"
)
BATCH_SIZE = app.define("batch_size")
PARALLEL_BATCHES = app.define("parallel_batches")
DECODING = app.define_decoding(without=("protected_pattern",))
override_data = app.define_data_fields()
_OF_BLEU = ("tokenize", "lowercase", "baseline", "by_length", "compound_split")
_OF_MODEL = ("checkpoint", "ensemble_mean", "max_source_length")
_OF_OUTPUTS = ("output", *(name for name in DECODING if name not in _OF_MODEL))
HEADINGS = {
    "texts": ("split", "source", "reference", "errors", "output", "config.data", *LANGUAGES),
    "scores": (*_OF_BLEU, "parameters", "stride"),
    "model and search": DECODING,
    "speed": ("batch_size", "parallel_batches"),
}


class _Examples(NamedTuple):
    """Texts that are translated and scored together."""

    scored: dict  # names of the split or the files, and of the direction
    direction: Direction | None  # None: that of the run's only corpus
    inputs: list  # and references as a task returns them
    references: list  # several: a list of lists

    def __str__(self):
        names = ((kind, name) for kind, name in self.scored.items() if kind != "zero_shot" and name)
        what = ", ".join(f"{kind} {name}" for kind, name in names)
        zero_shot = " (zero-shot)" if "zero_shot" in self.scored else ""
        return f"{what}{zero_shot}: {len(self.inputs)} sentences"


def main():
    from pipelines import devices
    from pipelines.directions import check_languages, languages_of
    from pipelines.pretrained import workdir_of
    from pipelines.tasks import make_task
    from pipelines.workdir import Workdir
    from t2t_keras.evaluation.bracketing import read_parameters
    from t2t_keras.evaluation.text import make_bleu

    if SOURCE.value and not REFERENCE.value:
        raise InputError("give both --source and --reference, or neither.")
    if MODEL.value and not (SOURCE.value or flags.FLAGS["config.data.folder"].present):
        raise InputError("--model comes without a corpus: also give --source and --reference.")
    if REFERENCE.value and flags.FLAGS["split"].present:
        raise InputError("give either --split or --source and --reference.")
    if TOKENIZE.value is not None:
        make_bleu(TOKENIZE.value)  # or an error
    started = time.monotonic()
    parallel_batches = devices.limit_threads_per_batch(PARALLEL_BATCHES.value)  # first
    workdir = Workdir(workdir_of(WORKDIR.value, MODEL.value))
    config = workdir.load_config()
    override_data(config)
    task = make_task(config)
    _check_flags(task)
    parameters = read_parameters(PARAMETERS.value) if PARAMETERS.value else None
    parts = _read_examples(task)
    tokenizers = [_tokenizer(task, part.direction) for part in parts]
    baseline = _read_baseline(len(parts[0].inputs), task.config.data.get("errors", "strict"))
    for part in parts:
        print(f"Scoring {part}", flush=True)
    predict = workdir.load_predictor(**app.given(DECODING))
    languages = [languages_of(config, part.direction, predict) for part in parts]
    for part, codes in zip(parts, languages, strict=True):
        check_languages(predict, part.direction.languages if part.direction else codes)
    stride = {} if STRIDE.value is None else {"stride": STRIDE.value}
    results = [
        _score(
            task, part, tokenize, baseline, parallel_batches, parameters, predict, codes | stride
        )
        for part, codes, tokenize in zip(parts, languages, tokenizers, strict=True)
    ]
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps(_summary(parts, results) | {"seconds": seconds}))


def _check_flags(task):
    """Raises InputError for a flag of another task; lets --errors override the run's value."""
    metric, has_errors = task.metric, "errors" in task.config.data
    for names, fits, purpose in (
        (["errors"], has_errors, "for text, and trees must be UTF-8"),
        ([*_OF_BLEU, *LANGUAGES], metric == "bleu", "only for translation"),
        (_OF_OUTPUTS, metric != "perplexity", "for outputs, and perplexity needs none"),
        (["stride"], metric == "perplexity", "only for language models"),
        (["parameters"], metric == "f1", "only for parsing"),
    ):
        for name in names:
            if flags.FLAGS[name].present and not fits:
                raise InputError(f"--{name} is {purpose}: leave it out.")
    if ERRORS.present:
        task.config.data.errors = ERRORS.value


def _summary(parts, results):
    """Returns the printed scores of one part, or of several with their means, a JSON-able dict."""
    rows = [
        part.scored | result | {"sentences": len(part.inputs)}
        for part, result in zip(parts, results, strict=True)
    ]
    if len(rows) == 1:
        return rows[0]
    means = {
        name: sum(row[name] for row in rows) / len(rows)
        for name in ("bleu", "chrf", "chrf_pp", "ter", "length_ratio", "exact")
    }
    return {
        "split": rows[0].pop("split"),
        "directions": {row.pop("direction"): row for row in rows},
        **means,
        "sentences": sum(row["sentences"] for row in rows),
    }


def _score(task, part, tokenize, baseline, parallel_batches, parameters, predictor, options):
    """Returns the scores of one part, a JSON-able dict."""
    from t2t_keras.data.texts import shown
    from t2t_keras.tasks.text_io import map_by_length

    inputs, references = part.inputs, part.references

    def answer(function, items):
        results = map_by_length(
            function, items, BATCH_SIZE.value, num_parallel_batches=parallel_batches
        )
        total = len(items) if isinstance(items, list) else None
        return tqdm(results, total=total, unit=" lines", disable=None)

    try:
        outputs = list(task.outputs(predictor, inputs, answer, **options))
    except TextError as error:
        text = shown(inputs[error.index])  # blank texts may have been left out before it
        raise InputError(f"text {error.index + 1}, {text}, {error.reason}") from error
    if OUTPUT.value:
        _write(outputs, OUTPUT.value)
    try:
        of_bleu = {"tokenize": tokenize, "lowercase": LOWERCASE.value}
        options = {"parameters": parameters} if task.metric == "f1" else of_bleu
        result = task.score(outputs, references, **options)
        logging.info("%s %.4g", task.metric, result[task.metric])
        if task.metric == "bleu":
            language = _target_language(task, part.direction) or "de"  # as `_tokenizer` warns
            result |= _extra_scores(inputs, outputs, references, baseline, tokenize, language)
        return result
    except Exception:
        if not OUTPUT.value:
            file, path = tempfile.mkstemp(prefix="outputs-", suffix=".txt")
            os.close(file)
            _write(outputs, path)
            logging.error("The scoring failed; what was scored is kept in %s", path)
        raise


def _read_examples(task):
    """Returns the texts to score, a list of `_Examples`."""
    from pipelines.experiment import choose_split
    from t2t_keras.data.files import require_regular

    directions = _directions(task)
    names = ", ".join(direction.name for direction in directions if direction)
    if REFERENCE.value:
        scored = {"source": SOURCE.value or "", "reference": ",".join(REFERENCE.value)}
        if len({(d.source, d.target) for d in directions if d}) > 1:
            raise InputError(
                f"the run has the directions {names}: give --source_language and --target_language."
            )
        if len(REFERENCE.value) > 1 and task.metric != "bleu":
            raise InputError("several --reference are only for translation: give one.")
        # Each is read with the source, whose lines it must have.
        if SOURCE.value and len(REFERENCE.value) > 1:
            require_regular(SOURCE.value, "the source of several references is")
        pairs = [task.examples_of_files(SOURCE.value, path) for path in REFERENCE.value]
        inputs, references = pairs[0]
        if len(pairs) > 1:
            references = [lines for _, lines in pairs]
        scored |= _direction_record(task, directions[0])
        return [_Examples(scored, directions[0], inputs, references)]
    scored = {"split": choose_split(task, SPLIT.value)}
    if directions == [None]:
        return [_Examples(scored, None, *task.evaluation_examples(scored["split"]))]
    if len(directions) > 1 and (OUTPUT.value or BASELINE.value):
        is_one_pair = app.language_pair(LANGUAGES)
        one = "--config.data.folder" if is_one_pair else "--source_language, --target_language"
        raise InputError(
            f"--output and --baseline are for one corpus, and {names} are several: give {one}, or "
            "--source and --reference."
        )
    split = scored["split"]
    return [
        _Examples(scored | _direction_record(task, d), d, *task.direction_examples(split, d))
        for d in directions
    ]


def _directions(task):
    """Returns the `Direction`s to score, by the flags or all; [None] for a run of one corpus."""
    from pipelines.directions import directions_of

    trained, given = directions_of(task.config), app.language_pair(LANGUAGES)
    if not given:
        return trained or [None]
    source, target = given
    same = [d for d in trained if (d.source, d.target) == (source, target)]
    # data.folder names one text, whatever the corpora of the run are.
    return (same[:1] if task.config.data.get("folder") else same) or [
        Direction(f"{source}-{target}", "", source, target)
    ]


def _direction_record(task, direction):
    """Returns a dict to print: a direction's name, and whether it is zero-shot."""
    from pipelines.directions import directions_of

    if direction is None:
        return {}
    trained = directions_of(task.config)
    is_zero_shot = bool(trained) and direction not in trained
    return {"direction": direction.name} | ({"zero_shot": True} if is_zero_shot else {})


def _target_language(task, direction):
    return direction.target if direction else task.config.data.get("target_language")


def _write(outputs, path):
    with app.line_writer(path) as write:
        for output in outputs:
            write(" ".join(output.splitlines()))


def _read_baseline(count, errors):
    """Returns the translations of the baseline; None without --baseline."""
    if not BASELINE.value:
        return None
    baseline = [line.decode() for line in app.read_lines(BASELINE.value, errors)]
    if len(baseline) != count:
        raise InputError(
            f"--baseline={BASELINE.value} has {len(baseline)} lines and the references {count}: "
            "give translations of the same lines."
        )
    return baseline


def _tokenizer(task, direction):
    """Returns sacreBLEU's tokenizer: --tokenize, or the tokenizer of the target language.

    Before anything is translated, it raises InputError if a score can't be computed here.
    """
    from t2t_keras.evaluation.text import compound_split_bleu, make_bleu

    if task.metric != "bleu":
        return None
    language = _target_language(task, direction)
    usual = task.bleu_tokenizer(language)
    if TOKENIZE.value is None and not language:
        logging.warning(
            "BLEU with --tokenize=%s, as the target language is unknown: for one without spaces "
            "between words give zh, ja-mecab, ko-mecab or char",
            usual,
        )
    if TOKENIZE.value is None and usual != "13a":
        logging.info("BLEU with --tokenize=%s, for the target language", usual)
    if TOKENIZE.value == "13a" != usual:
        logging.warning(
            "13a does not split the words of the target language: --tokenize=%s does", usual
        )
    make_bleu(TOKENIZE.value or usual, LOWERCASE.value)
    if COMPOUND_SPLIT.value:
        if not language:
            logging.warning("--compound_split by the rules of German: the language is unknown")
        compound_split_bleu(["a"], ["a"], language or "de")
    return TOKENIZE.value or usual


def _extra_scores(sources, translations, references, baseline, tokenize, language):
    """Returns chrF++, TER and the scores that flags ask for, a dict."""
    from t2t_keras.evaluation.text import (
        bleu_by_length,
        compound_split_bleu,
        further_scores,
        paired_bootstrap,
    )

    result = further_scores(translations, references, tokenize, LOWERCASE.value)
    if baseline is not None:
        comparison = paired_bootstrap(translations, baseline, references, tokenize, LOWERCASE.value)
        result["comparison"] = dataclasses.asdict(comparison)
    if BY_LENGTH.value:
        groups = bleu_by_length(sources, translations, references, tokenize, LOWERCASE.value)
        result["by_length"] = [dataclasses.asdict(group) for group in groups]
    if COMPOUND_SPLIT.value:
        result["compound_split_bleu"] = compound_split_bleu(translations, references, language)
    return result


if __name__ == "__main__":
    app.take("workdir")
    app.run(main, headings=HEADINGS)
