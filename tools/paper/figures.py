"""The paper's figures 3 to 5, and figures that show its formulas at work.

python tools/paper/figures.py --workdir=runs/grammar --output_dir=DIR
python tools/paper/figures.py --quick --output_dir=DIR

--workdir is a trained translator; with --quick and no --workdir, a tiny one is trained first. Its
test split shows what each head does, and is aligned word by word. The rest needs no model:
positional encoding (section 3.5), PE(pos + k) as a linear function of PE(pos), the learning rate
(5.3), and q · k with and without the scaling by √d_k (3.2.1).
"""

import os

import numpy as np
from report import OUTPUT_DIR, QUICK, save_picture, save_tables
from absl import flags, logging
from formula_plots import (
    draw_learning_rates,
    draw_positions,
    draw_score_scale,
    draw_shift,
)
from score_scale import measure_scores
from sinusoid_shift import rotation, shift_error, shift_errors, solve_shift
from small_runs import SENTENCE, grammar_folder, trained, translation_config

from pipelines import app, visualize
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError

MODEL_DIM = flags.DEFINE_integer(
    "model_dim", 512, "d_model of the figures of positions, an even number.", 8
)
OFFSET = flags.DEFINE_integer("offset", 10, "k of PE(pos + k) = M_k PE(pos).", lower_bound=1)
POSITIONS = flags.DEFINE_integer("positions", 2_000, "Positions that M_k is tried on.", 100)
LEARNING_STEPS = flags.DEFINE_integer("learning_steps", 40_000, "Steps of the learning rate.", 100)

_SEEN_DIM = 32  # d_model of the M_k that is drawn
_WIDTHS = [2**i for i in range(1, 10)]  # d_k


def main():
    if MODEL_DIM.value % 2:
        raise InputError(f"--model_dim is {MODEL_DIM.value}: give an even number.")
    workdir = find_run()
    save_picture(draw_positions(), "positions")
    save_picture(draw_learning_rates(LEARNING_STEPS.value), "learning_rate")
    parts = {
        f"PE(pos + k) = M_k PE(pos), k = {OFFSET.value}": shift_figure(),
        "Scores of standard normal queries and keys": scale_figure(),
    }
    save_tables("figures", "Figures: positions, learning rate, scaling", parts)
    if workdir:
        show_attention(workdir)


def find_run():
    """Returns the `Workdir` whose attention to draw, None without."""
    if visualize.WORKDIR.value:
        return Workdir(visualize.WORKDIR.value)
    if not QUICK.value:
        logging.info("No --workdir: no pictures of attention")
        return None
    folder = grammar_folder(os.path.join(OUTPUT_DIR.value, "corpus"))
    path = os.path.join(OUTPUT_DIR.value, "figures_run")
    return trained(translation_config(folder, steps=1_000), path)


def shift_figure():
    """Draws M_k and its errors; returns rows of errors.

    M_k is solved from the even positions up to --positions and tried on all.
    """
    offset, positions = OFFSET.value, np.arange(POSITIONS.value)
    rows = []
    for model_dim in (_SEEN_DIM, MODEL_DIM.value):
        solved = solve_shift(model_dim, offset, positions[::2])
        turned = rotation(model_dim, offset)
        rows.append(
            {
                "d_model": model_dim,
                "greatest error of the solved M_k": shift_error(solved, offset, positions),
                "of rotations in closed form": shift_error(turned, offset, positions),
                "greatest difference between the two": float(np.abs(solved - turned).max()),
                "without M_k (the identity)": shift_error(np.eye(model_dim), offset, positions),
            }
        )
    seen = solve_shift(_SEEN_DIM, offset, positions[::2])
    errors = {
        name: (positions, np.maximum.accumulate(shift_errors(matrix, offset, positions)))
        for name, matrix in (
            ("M_k", seen),
            ("the identity instead", np.eye(_SEEN_DIM)),
        )
    }
    save_picture(draw_shift(seen, offset, errors, MODEL_DIM.value), "position_shift")
    return rows


def scale_figure():
    """Draws how q · k and softmax's gradient go with d_k; returns rows of the figures."""
    unscaled, scaled = (
        [measure_scores(width, scaled) for width in _WIDTHS] for scaled in (False, True)
    )
    save_picture(draw_score_scale(_WIDTHS, unscaled, scaled), "score_scale")
    return [
        {
            "d_k": width,
            "variance of q·k": one.variance,
            "variance of q·k / √d_k": other.variance,
            "gradient of softmax(q·k)": one.gradient,
            "gradient of softmax(q·k / √d_k)": other.gradient,
            "largest weight of softmax(q·k)": one.largest,
            "largest weight of softmax(q·k / √d_k)": other.largest,
        }
        for width, one, other in zip(_WIDTHS, unscaled, scaled, strict=True)
    ]


def show_attention(workdir):
    """Draws figures 3 to 5, the matrices and the page of a sentence; measures the heads, aligns."""
    folder, config = OUTPUT_DIR.value, workdir.load_config()
    translator = visualize.load_translator(workdir)
    sentence = visualize.SENTENCE.value or SENTENCE
    translation = visualize.TRANSLATION.value or translator([sentence])[0]
    visualize.show_sentence(translator, str(workdir.path), sentence, translation, folder)
    split = visualize.SPLIT.value or config.data.test_split
    pairs = make_task(config).evaluation_examples(split, visualize.SENTENCES.value)
    visualize.show_heads(translator, *pairs, folder)
    visualize.show_alignment(translator, *pairs, folder)


if __name__ == "__main__":
    # Of visualize, those that choose the translator and what is drawn.
    app.take("quick", "workdir", "sentence", "translation", "word", "layer", "align_layer")
    app.take("split", "sentences", *visualize.DECODING._fields)
    app.require("output_dir")
    app.run(main)
