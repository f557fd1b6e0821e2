import json
import pathlib

import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from tests.processes import run_python
from tests.tasks import tiny

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "serving_load.py"


def load_test(folder, export, code=0, **flags):
    (folder / "lines").write_text("\n".join([*tiny.LINES, "word " * 100]))
    flags |= {"saved_model": export, "input": folder / "lines", "concurrency": "1,4"}
    return run_python(TOOL, *(f"--{name}={value}" for name, value in flags.items()), code=code)


@pytest.mark.slow
def test_answers_under_load_are_right_and_the_figures_are_consistent(tmp_path):
    export = str(tmp_path / "1")
    export_saved_model(tiny.translator(), export, signatures=["serving_default"], verify=False)
    output = tmp_path / "load.json"
    run = load_test(tmp_path, export, seconds=0.3, requests=100, growth=200, output=output)
    figures = json.loads(output.read_text())
    cases = [(mode, count) for mode in ("single", "batched") for count in (1, 4)]
    assert [(row["requests"], row["concurrency"]) for row in figures["load"]] == cases
    for row in figures["load"]:
        assert 0 < row["p50 ms"] <= row["p95 ms"] <= row["p99 ms"]
        # Little's law: in the mean a client waits concurrency / throughput; half wait p50 or less.
        assert row["p50 ms"] <= 2 * 1000 * row["concurrency"] / row["answers/s"]
    for row in figures["load"] + figures["memory"]:
        assert row["wrong"] == 0
    assert [len(row["MiB"]) for row in figures["memory"]] == [20, 20]
    assert run.stdout.count("| batched |") == 3


class Faulty(tf.Module):
    """Never gives the same score again, and keeps two megabytes of every request."""

    def __init__(self):
        super().__init__()
        self.count = tf.Variable(0.0)
        self.kept = tf.Variable(tf.zeros([0]), shape=[None])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate(self, text):
        self.kept.assign(tf.concat([self.kept, tf.ones([500_000])], axis=0))
        score = tf.fill(tf.shape(text), self.count.assign_add(1.0))
        return {"translation": text, "score": score}


@pytest.mark.slow
def test_wrong_answers_and_growing_memory_are_told(tmp_path):
    model = Faulty()
    export = str(tmp_path / "1")
    tf.saved_model.save(model, export, signatures={"serving_default": model.translate})
    run = load_test(tmp_path, export, seconds=0.01, requests=40, soak_concurrency=1, code=1)
    assert "answers were not those to the same lines one at a time" in run.stderr
    assert "error: memory grew by" in run.stderr
