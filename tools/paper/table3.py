r"""Table 3: variations of the architecture, a training each, in the paper's layout.

python tools/paper/table3.py --quick --output_dir=DIR
python tools/paper/table3.py --config=pipelines/configs/grammar_en_de.py --steps=2000 \
    --size_factor=0.25 --layer_factor=0.5 --output_dir=DIR

The rows are those of pipelines/configs/table3.py, two more than in the paper, scaled: widths by
--size_factor, numbers of layers by --layer_factor. Vocabulary, corpus, batches, learning rate and
search come from --config. Each row is a workdir below --output_dir; started again, the tool
resumes, and --rows trains some of the rows at a time. Perplexity is per token. Perplexity and
BLEU are computed on validation sentences with the last weights, without averaging.
"""

import shared
from absl import flags
from published import TABLE_3
from sweep import measured, row_config, train_row

from pipelines import app
from pipelines.configs import grammar_en_de, table3
from pipelines.train import CONFIG
from t2t_keras.analysis.counts import count_parameters
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig

QUICK_ROWS = ["base", "A1", "C1", "D1"]
TEXT = "Training steps of each row; big has three times as many; default: the config's."
STEPS = flags.DEFINE_integer("steps", None, TEXT, lower_bound=1)
TEXT = "Widths over the paper's; default: 1/4, with --quick 1/8."
SIZE_FACTOR = flags.DEFINE_float("size_factor", None, TEXT, 1e-3)
TEXT = "Numbers of layers over the paper's; default: 1/2, with --quick 1/3."
LAYER_FACTOR = flags.DEFINE_float("layer_factor", None, TEXT, 1e-3)
ROWS = flags.DEFINE_list(
    "rows",
    None,
    f"Rows to train, out of {','.join(table3.ALL_ROWS)}; 'none': train none; default: all, with "
    f"--quick {','.join(QUICK_ROWS)}.",
)
SENTENCES = flags.DEFINE_integer(
    "sentences", None, "Validation sentences for BLEU; default: the config's.", 1
)
PUBLISHED = TABLE_3 | dict.fromkeys(table3.FURTHER_ROWS, (None, None, None))
PAPERS_VOCABULARY = 41_200
"""Ids with which the counts fit the paper's column of parameters; it names about 37,000."""


def main():
    wanted = rows_wanted()
    corpus = corpus_config()
    steps = STEPS.value or corpus.train.steps
    size = SIZE_FACTOR.value or (1 / 8 if shared.QUICK.value else 1 / 4)
    layers = LAYER_FACTOR.value or (1 / 3 if shared.QUICK.value else 1 / 2)
    configs = {row: row_config(corpus, row, steps, size, layers) for row in table3.ALL_ROWS}
    parts = {
        "Parameters of the paper's rows": parameter_rows(),
        f"The sweep: widths × {size:.3g}, layers × {layers:.3g}": [],
    }
    results = {}
    for row in table3.ALL_ROWS:
        path = shared.in_output(f"table3/{row}")
        results[row] = measured(path, configs[row])
        if results[row] is None and row in wanted:
            train_row(path, configs[row])
            results[row] = measured(path, configs[row])
    results = {row: result for row, result in results.items() if result}
    title = list(parts)[-1]
    parts[title] = [sweep_row(row, configs[row], results) for row in table3.ALL_ROWS]
    parts["What agrees"] = agreement(results)
    parts["How it was trained"] = (
        f"Validation split {corpus.data.validation_split!r} of "
        f"{corpus.data.folder or corpus.data.tfds}, {corpus.train.validation_sentences} sentences "
        f"for BLEU; vocabulary {corpus.model.vocab_size}; about {corpus.data.tokens_per_batch} "
        f"tokens a batch; warm-up {configs['base'].train.warmup_steps} steps, learning rate × "
        f"{configs['base'].train.learning_rate_scale:.3g}; no checkpoint averaging."
    )
    shared.save_tables("table3", "Table 3: variations on the Transformer architecture", parts)


def rows_wanted():
    """Returns the rows to train."""
    if ROWS.value is None:
        return QUICK_ROWS if shared.QUICK.value else list(table3.ALL_ROWS)
    wanted = [row for row in ROWS.value if row != "none"]
    for row in wanted:
        if row not in table3.ALL_ROWS:
            raise InputError(f"--rows has {row!r}: give some of {', '.join(table3.ALL_ROWS)}.")
    return wanted


def corpus_config():
    """Returns the config whose corpus, batches and learning rate all rows have."""
    if CONFIG.value is not None:
        config = CONFIG.value.copy_and_resolve_references()
    elif shared.QUICK.value:
        config = shared.translation_config(steps=250)
    else:
        config = grammar_en_de.get_config()
    config.unlock()
    if SENTENCES.value:
        config.train.validation_sentences = SENTENCES.value
    return config


def parameter_rows():
    """Rows of weights at the paper's own sizes, in millions."""
    rows = []
    for row in table3.ALL_ROWS:
        config = table3.get_config(row)
        counts = {}
        for vocabulary in (config.model.vocab_size, PAPERS_VOCABULARY):
            config.model.vocab_size = vocabulary
            counts[vocabulary] = count_parameters(TransformerConfig(**config.model)).total / 1e6
        rows.append(
            {"Row": row, "the paper, ×10⁶": PUBLISHED[row][2]}
            | {f"at {vocabulary:,} ids": round(n, 2) for vocabulary, n in counts.items()}
        )
    return rows


def sweep_row(row, config, results):
    """One line of Table 3: sizes, the paper's figures and those measured here."""
    model = TransformerConfig(**config.model)
    perplexity, bleu = results.get(row, (None, None))
    return {
        "Row": row,
        "N": model.num_encoder_layers,
        "d_model": model.model_dim,
        "d_ff": model.feed_forward_dim,
        "h": model.num_heads,
        "d_k": model.key_dim,
        "d_v": model.value_dim,
        "P_drop": model.dropout,
        "ε_ls": config.train.label_smoothing,
        "positions": model.position_embedding,
        "steps": config.train.steps,
        "params ×10⁶": round(count_parameters(model).total / 1e6, 3),
        "PPL": perplexity and round(perplexity, 3),
        "BLEU": bleu if bleu is None else round(bleu, 1),
        "the paper's PPL": PUBLISHED[row][0],
        "the paper's BLEU": PUBLISHED[row][1],
    }


def agreement(results):
    """Compares, row by row, whether a change helps or harms as it does in the paper."""
    rows = []
    for row in [row for row in results if row != "base" and row in TABLE_3 and "base" in results]:
        cells = {"Row": row}
        for place, (name, digits) in enumerate({"PPL": 3, "BLEU": 1}.items()):
            here = results[row][place] - results["base"][place]
            paper = round(TABLE_3[row][place] - TABLE_3["base"][place], 2)
            agrees = "yes" if here * paper > 0 else "no"
            cells[f"{name} − base"] = round(here, digits)
            cells[f"{name} − base in the paper"] = paper
            cells[f"{name} agrees"] = agrees if paper else "the paper sees no difference"
        rows.append(cells)
    return rows or "Train base and other rows of the paper to compare them."


if __name__ == "__main__":
    app.take("quick", "config")
    app.require("output_dir")
    app.run(main)
