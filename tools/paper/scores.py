"""The scores of a run: measured now, or read from what pipelines.evaluate printed."""

import json

from absl import flags, logging

from pipelines import app
from pipelines.app import read_lines
from pipelines.tasks import make_task
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import map_by_length

SCORES = flags.DEFINE_string(
    "scores",
    "",
    "File whose last line is the JSON of pipelines.evaluate; empty: the run is scored.",
)
SPLIT = flags.DEFINE_string("split", "", "Split to score; empty: the config's test split.")
SENTENCES = flags.DEFINE_integer(
    "sentences", None, "Sentences to score, the first ones; default: all.", lower_bound=1
)
DECODING = app.define_decoding()
SCORE_FLAGS = ("scores", "split", "sentences", *DECODING._fields)


def read_scores(metric):
    """Returns the scores of --scores, a dict, None without the flag.

    Args:
        metric: a key that they must have.

    Raises:
        InputError: if the file's last line is not JSON with the metric.
    """
    if not SCORES.value:
        return None
    *_, last = [b"", *read_lines(SCORES.value)]
    try:
        scores = json.loads(last)
    except ValueError:
        scores = None
    if not isinstance(scores, dict) or metric not in scores:
        raise InputError(
            f"--scores is {SCORES.value}, whose last line is not JSON with {metric!r}: give the "
            "output of pipelines.evaluate."
        )
    return scores | {"of": SCORES.value}


def measure_scores(workdir):
    """Scores a run on --split, whole or its first --sentences.

    Args:
        workdir: `Workdir`.

    Returns:
        The scores of its task, "sentences" among them; under "of" the split's name.
    """
    config = workdir.load_config()
    task, split = make_task(config), SPLIT.value or config.data.test_split
    inputs, references = task.evaluation_examples(split, SENTENCES.value)
    logging.info("Scoring %d sentences of %s", len(inputs), split)
    predict = workdir.load_predictor(**DECODING.values())
    scores = task.score(list(map_by_length(predict, inputs)), references)
    return scores | {"sentences": len(inputs), "of": split}
