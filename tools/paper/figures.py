"""The paper's figures 3 to 5, and figures that show its formulas at work.

python tools/paper/figures.py --workdir=runs/grammar --output_dir=DIR
python tools/paper/figures.py --quick --output_dir=DIR

--workdir is a trained translator; with --quick and no --workdir, a tiny one is trained first. Its
test split shows what each head does, and is aligned word by word. The rest needs no model:
positional encoding (section 3.5), PE(pos + k) as a linear function of PE(pos), the learning rate
(5.3), and q · k with and without the scaling by √d_k (3.2.1).
"""

import functools

import shared
import formulas
import numpy as np
from absl import flags, logging

from pipelines import app, visualize
from pipelines.tasks import make_task
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
    make_config = functools.partial(shared.translation_config, steps=1_000)
    workdir = shared.find_run(visualize.WORKDIR.value, "figures_run", make_config)
    shared.save_picture(formulas.draw_positions(), "positions")
    shared.save_picture(formulas.draw_learning_rates(LEARNING_STEPS.value), "learning_rate")
    parts = {
        f"PE(pos + k) = M_k PE(pos), k = {OFFSET.value}": shift_figure(),
        "Scores of standard normal queries and keys": scale_figure(),
    }
    shared.save_tables("figures", "Figures: positions, learning rate, scaling", parts)
    if workdir:
        show_attention(workdir)
    else:
        logging.info("No --workdir: no pictures of attention")


def shift_figure():
    """Draws M_k and its errors; returns rows of errors.

    M_k is solved from the even positions up to --positions and tried on all.
    """
    offset, positions = OFFSET.value, np.arange(POSITIONS.value)

    def errors(matrix):
        return formulas.shift_errors(matrix, offset, positions)

    rows = []
    for model_dim in (MODEL_DIM.value, _SEEN_DIM):
        solved = formulas.solve_shift(model_dim, offset, positions[::2])
        turned = formulas.rotation(model_dim, offset)
        rows.append(
            {
                "d_model": model_dim,
                "greatest error of the solved M_k": float(errors(solved).max()),
                "of rotations in closed form": float(errors(turned).max()),
                "greatest difference between the two": float(np.abs(solved - turned).max()),
                "without M_k (the identity)": float(errors(np.eye(model_dim)).max()),
            }
        )
    matrices = {"M_k": solved, "the identity instead": np.eye(_SEEN_DIM)}
    curves = {n: (positions, np.maximum.accumulate(errors(m))) for n, m in matrices.items()}
    figure = formulas.draw_shift(solved, offset, curves, MODEL_DIM.value)
    shared.save_picture(figure, "position_shift")
    return rows[::-1]


def scale_figure():
    """Draws how q · k and softmax's gradient go with d_k; returns rows of the figures."""
    unscaled, scaled = (
        [formulas.measure_scores(width, scaled) for width in _WIDTHS] for scaled in (False, True)
    )
    shared.save_picture(formulas.draw_score_scale(_WIDTHS, unscaled, scaled), "score_scale")
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
    folder, config = shared.OUTPUT_DIR.value, workdir.load_config()
    translator = visualize.load_translator(workdir)
    sentence = visualize.SENTENCE.value or shared.SENTENCE
    translation = visualize.TRANSLATION.value or translator([sentence])[0]
    visualize.show_sentence(translator, str(workdir.path), sentence, translation, folder)
    split = visualize.SPLIT.value or config.data.test_split
    pairs = make_task(config).evaluation_examples(split, visualize.SENTENCES.value)
    visualize.show_heads(translator, *pairs, folder)
    visualize.show_alignment(translator, *pairs, folder)


if __name__ == "__main__":
    # Of visualize, those that choose the translator and what is drawn.
    app.take("quick", "workdir", "sentence", "translation", "word", "layer", "align_layer")
    app.take("split", "sentences", *visualize.DECODING)
    app.require("output_dir")
    app.run(main)
