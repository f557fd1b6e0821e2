"""Table 2: BLEU and training cost of a run, with the paper's rows.

python tools/paper/table2.py --workdir=runs/wmt --output_dir=DIR
python tools/paper/table2.py --quick --output_dir=DIR

The cost is given twice: counted, the FLOPs of the products of a training step, in closed form over
batches of the run and once from the graph that trains; and by the paper's method, training time ×
devices × the rate that a device sustains (section 6.1). BLEU is sacreBLEU's on the test split, or
the BLEU in --scores, which pipelines.evaluate has printed. With --quick and no --workdir, a tiny
model is trained on a few sentences of the built-in corpus for some steps.
"""

import itertools

import shared
import numpy as np
import tensorflow as tf
from absl import flags
from measurement import Traced, fastest_time
from published import TABLE_2, TRAINING_HOURS

from pipelines import app
from pipelines.configs import wmt14_en_de_base, wmt14_en_de_big
from pipelines.tasks import make_task
from pipelines.train import WORKDIR
from t2t_keras.analysis import counts
from t2t_keras.data.streams import training_batches
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.training.losses import LabelSmoothedCrossEntropy

DECODING = shared.define_scores()
BATCHES = flags.DEFINE_integer("batches", 50, "Batches whose FLOPs are counted.", lower_bound=1)
DEVICES = flags.DEFINE_integer("devices", 1, "Devices that trained.", lower_bound=1)
SUSTAINED = flags.DEFINE_float(
    "sustained_flops",
    None,
    "FLOPs that a device sustains in a second; default: those of a product of float32 matrices "
    f"on this machine. The paper's: {counts.SUSTAINED_FLOPS}.",
    lower_bound=1.0,
)
LENGTH = flags.DEFINE_integer(
    "sentence_length", 28, "Tokens of a sentence in the count of the paper's own runs.", 1
)
PAPERS_DEVICES = 8
_MATRIX = 2_048  # rows and columns of the product that measures a rate


def main():
    workdir = shared.find_run(WORKDIR.value, "table2_run", shared.translation_config)
    if workdir is None:
        raise InputError("give --workdir of a run, or --quick for a tiny one of its own.")
    config = workdir.load_config()
    if config.get("task", "translation") != "translation":
        raise InputError(f"{workdir.path} holds no run of translation: give another --workdir.")
    cost = training_cost(workdir, config)
    scores = shared.read_scores("bleu") or shared.measure_scores(workdir, **app.given(DECODING))
    columns = "Model", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR"
    rows = [dict(zip(columns, row, strict=True)) for row in TABLE_2]
    languages = f"{config.data.source_language}-{config.data.target_language}"
    bleu = f"BLEU {languages}, {scores['of']}, {scores['sentences']} sentences"
    this_run = {"Model": str(workdir.path), bleu: round(scores["bleu"], 2)}
    this_run |= {name: cost[name] for name in ("FLOPs, counted", "FLOPs by time")}
    parts = {
        "The paper's rows (newstest2014)": rows,
        "This run": [this_run],
        "Signature": f"`{scores['bleu_signature']}`",
        "Its cost in detail": [{"Measure": k, "Value": v} for k, v in cost.items()],
        f"The paper's runs, counted (sentences of {LENGTH.value} tokens)": papers_costs(),
    }
    shared.save_tables("table2", "Table 2: BLEU and training cost", parts)


def training_cost(workdir, config):
    """Returns {measure: value}, the training cost of the run."""
    steps, seconds = progress(workdir)
    model_config, task = TransformerConfig(**config.model), make_task(config)
    split = workdir.tokens, config.data.train_split, task.make_batcher(replicas=1)
    batches = training_batches(*split, config.train.seed)
    shapes = [
        (*map(int, inputs["source_ids"].shape), int(inputs["target_ids"].shape[1]))
        for inputs, *_ in itertools.islice(batches, BATCHES.value)
    ]
    a_step = float(np.mean([counts.count_training_flops(model_config, *shape) for shape in shapes]))
    loss = LabelSmoothedCrossEntropy(config.train.label_smoothing)
    graph = counts.count_graph_flops(counts.trace_training(task.make_model(), loss, *shapes[0]))
    rate = SUSTAINED.value or measured_rate()
    return {
        "steps": steps,
        "hours": round(seconds / 3600, 3),
        "FLOPs of a step (mean of batches, closed form)": a_step,
        f"FLOPs of a step of {shapes[0]} (batch, source, target), closed form": float(
            counts.count_training_flops(model_config, *shapes[0])
        ),
        "the same from the graph": float(graph),
        "FLOPs, counted": steps * a_step,
        "devices": DEVICES.value,
        "sustained FLOPs a second of a device": rate,
        "FLOPs by time": counts.training_flops_by_time(seconds, DEVICES.value, rate),
        "fraction of that rate in use": steps * a_step / (seconds * DEVICES.value * rate),
    }


def progress(workdir):
    """Returns steps and seconds of training that the run's metrics tell."""
    rows = shared.metrics_rows(workdir)
    if not rows:
        raise InputError(f"{workdir.path} has no training steps: give the --workdir of a run.")
    return int(rows[-1]["step"]), float(rows[-1]["seconds"])


def measured_rate():
    """Returns the FLOPs a second of a product of float32 matrices here, the fastest of several."""
    x = tf.random.stateless_normal([_MATRIX, _MATRIX], [0, 0])
    product = tf.function(tf.matmul)
    return 2 * _MATRIX**3 / fastest_time(Traced(lambda: product(x, x).numpy(), ()))


def papers_costs():
    """Returns rows with the FLOPs of the paper's own trainings, by time and counted."""
    configs = dict(zip(TRAINING_HOURS, (wmt14_en_de_base, wmt14_en_de_big), strict=True))
    rows = []
    for name, hours in TRAINING_HOURS.items():
        config = configs[name].get_config()
        length, model = LENGTH.value, TransformerConfig(**config.model)
        batch = round(config.data.tokens_per_batch / length)
        counted = config.train.steps * counts.count_training_flops(model, batch, length, length)
        by_time = counts.training_flops_by_time(hours * 3600, PAPERS_DEVICES)
        rows.append(
            {
                "Model": name,
                "steps": config.train.steps,
                "hours on 8 P100": hours,
                "FLOPs in Table 2": {row[0]: row[3] for row in TABLE_2}[name],
                "FLOPs by time": float(by_time),
                "FLOPs, counted": float(counted),
                "counted / by time": round(counted / by_time, 2),
            }
        )
    return rows


if __name__ == "__main__":
    app.take("quick", "workdir", "scores", "split", "sentences", *DECODING)
    app.require("output_dir")
    app.run(main)
