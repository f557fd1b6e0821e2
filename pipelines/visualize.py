r"""Attention visualization of a trained translator: figures, an interactive page, word alignment.

python -m pipelines.visualize --workdir=runs/grammar --sentence="The old dog sees a cat." \
    --output=attention
python -m pipelines.visualize --workdir=runs/grammar --split=test --output=attention
python -m pipelines.visualize --workdir=runs/grammar --source=text.en --reference=text.de \
    --output=attention

--sentence draws figures 3 to 5 of the paper, every layer and head as matrices (PNG and SVG), and
attention.html, which needs no server. --split measures each head over a part of the run's
corpus. --source and --reference align two files word by word, in Pharaoh format (i-j, source word
and target word, counted from 0), into alignment.txt.
"""

import json
import os

from absl import flags, logging

from pipelines import app
from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError

WORKDIR = app.define_workdir()
OUTPUT = app.define_path("output", "Folder for the pictures, tables and the page.", "folder")
SENTENCE = flags.DEFINE_string("sentence", "", "Sentence to draw; empty: none.")
TRANSLATION = flags.DEFINE_string(
    "translation", "", "Translation of --sentence; empty: the model's own."
)
WORD = flags.DEFINE_string("word", "", "Word of figures 3 and 4; empty: one with clear attention.")
LAYER = flags.DEFINE_integer(
    "layer",
    None,
    "Encoder layer of figures 3 to 5, counted from 1; default: the last but one, as in the paper.",
    1,
)
SPLIT = flags.DEFINE_string(
    "split",
    "",
    "Split of the run's corpus on which to measure the heads: train, validation, test, or another "
    "of its names; empty: none.",
)
SENTENCES = flags.DEFINE_integer(
    "sentences", 500, "Pairs of --split to measure, the first ones.", lower_bound=1
)
SOURCE = app.define_path("source", "Text file to align, a sentence a line; default: none.")
REFERENCE = app.define_path("reference", "Translations of --source, line by line; default: none.")
ALIGN_LAYER = flags.DEFINE_integer(
    "align_layer",
    None,
    "Decoder layer whose cross-attention aligns, counted from 1; default: the last.",
    1,
)
DECODING = app.define_decoding(without=("protected_pattern",), ensembles=False)
OF_SEARCH = [DECODING[name] for name in DECODING.keys() - {"checkpoint", "max_source_length"}]
LANGUAGES = app.define_languages()
override_data = app.define_data_fields()


def main():
    from pipelines.corpora import Direction
    from pipelines.directions import check_languages
    from pipelines.experiment import choose_split
    from pipelines.tasks import make_task
    from pipelines.workdir import Workdir

    if not (SENTENCE.value or SPLIT.value or SOURCE.value or REFERENCE.value):
        raise InputError("nothing to show: give --sentence, --split, or --source and --reference.")
    for flag, needed in (
        *((flag, SENTENCE) for flag in (TRANSLATION, WORD, LAYER, *OF_SEARCH)),
        (SENTENCES, SPLIT),
        (ALIGN_LAYER, SOURCE),
    ):
        if flag.present and not needed.value:
            raise InputError(
                f"--{flag.name} is for --{needed.name}: give it too, or leave --{flag.name} out."
            )
    workdir = Workdir(WORKDIR.value)
    translator = load_translator(workdir)
    check_languages(translator, app.given(LANGUAGES))
    config = workdir.load_config()
    override_data(config)
    task = make_task(config)
    if SPLIT.value:
        split = choose_split(task, SPLIT.value)
        if languages := app.language_pair(LANGUAGES):
            direction = Direction("-".join(languages), "", *languages)
            examples = task.direction_examples(split, direction, SENTENCES.value)
        else:
            examples = task.evaluation_examples(split, SENTENCES.value)
    if SOURCE.value or REFERENCE.value:
        pairs = task.examples_of_files(SOURCE.value, REFERENCE.value)
    if SENTENCE.value:
        translation = TRANSLATION.value
        translation = translation or translator([SENTENCE.value], **app.given(LANGUAGES))[0]
        show_sentence(translator, WORKDIR.value, SENTENCE.value, translation, OUTPUT.value)
    if SPLIT.value:
        show_heads(translator, *examples, OUTPUT.value)
    if SOURCE.value or REFERENCE.value:
        show_alignment(translator, *pairs, OUTPUT.value)


def load_translator(workdir):
    """Returns the `Translator` of a `Workdir`, with the search that the flags choose."""
    task = workdir.load_config().task
    if task != "translation":
        raise InputError(
            f"{workdir.path} holds a run of task {task!r}: give the --workdir of a translation."
        )
    return workdir.load_predictor(**app.given(DECODING))


def show_sentence(translator, name, sentence, translation, folder):
    """Draws the attention of a sentence and its translation; `name` is the model's on the page."""
    from t2t_keras.analysis import plots
    from t2t_keras.analysis.attention import sentence_attention
    from t2t_keras.serving.demo.attention_page import attention_page

    attention = sentence_attention(translator, sentence, translation, **app.given(LANGUAGES))
    count = len(attention.encoder.weights)
    layer = _layer(LAYER, count, max(1, count - 1), "encoder")
    query = _query(attention.encoder, layer)
    sharp = plots.sharpest_heads(attention.encoder, layer)
    figures = {
        "figure3": plots.draw_word(attention.encoder, layer, query),
        "figure4": plots.draw_heads(attention.encoder, layer, sharp[:1], query, sharp),
        "figure5": plots.draw_heads(attention.encoder, layer, sharp),
    }
    figures |= {f"matrices_{n}": plots.draw_matrices(m) for n, m in attention._asdict().items()}
    for stem, figure in figures.items():
        for ending in ("png", "svg"):
            plots.save_figure(figure, os.path.join(folder, f"{stem}.{ending}"))
    names = {
        "encoder": ("source", "source"),
        "decoder": ("translation so far", "translation so far"),
        "cross": ("source", "translation"),
    }
    maps = [
        (m.name, names[k], m.keys, m.queries, m.weights) for k, m in attention._asdict().items()
    ]
    page = attention_page(name, sentence, translation, maps)
    write_file(os.path.join(folder, "attention.html"), page.encode())
    logging.info("%s → %s: %d pictures in %s", sentence, translation, len(figures), folder)
    print(os.path.join(folder, "attention.html"))


def show_heads(translator, sources, references, folder):
    """Measures each head over pairs of sentences; writes a picture and JSON."""
    import numpy as np

    from t2t_keras.analysis import plots
    from t2t_keras.analysis.attention import head_statistics

    statistics = head_statistics(translator, sources, references, **app.given(LANGUAGES))
    plots.save_figure(plots.draw_statistics(statistics), os.path.join(folder, "heads.png"))
    figures = {
        kind: {name: np.round(values, 4).tolist() for name, values in heads._asdict().items()}
        for kind, heads in statistics.items()
    }
    content = json.dumps({"sentences": len(sources)} | figures, indent=1)
    write_file(os.path.join(folder, "heads.json"), content.encode())
    print(os.path.join(folder, "heads.json"))


def show_alignment(translator, sources, targets, folder):
    """Aligns pairs word by word into alignment.txt, a line for each; checks --align_layer."""
    from t2t_keras.analysis.attention import align_texts, pharaoh

    layers = translator.model.config.num_decoder_layers
    layer = _layer(ALIGN_LAYER, layers, layers, "decoder")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "alignment.txt")
    with app.line_writer(path) as write:
        for pairs in align_texts(translator, sources, targets, layer, **app.given(LANGUAGES)):
            write(pharaoh(pairs))
    print(path)


def _layer(flag, count, default, stack):
    """Returns the layer of a stack that a flag names, from 0."""
    layer = flag.value or default
    if layer > count:
        raise InputError(f"--{flag.name} is {layer}: give 1 to {count}, a layer of the {stack}.")
    return layer - 1


def _query(attention, layer):
    """Returns the index of the token in figures 3 and 4."""
    from t2t_keras.analysis import plots
    from t2t_keras.analysis.attention import readable

    if not WORD.value:
        return plots.clearest_query(attention, layer)
    shown = [readable(piece) for piece in attention.queries]
    if WORD.value not in shown:
        raise InputError(f"--word is {WORD.value!r}: give one of the pieces {', '.join(shown)}.")
    return shown.index(WORD.value)


if __name__ == "__main__":
    app.require("workdir", "output")
    app.run(main)
