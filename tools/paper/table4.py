"""Table 4: F1 of constituency parsing, with the paper's rows.

python tools/paper/table4.py --workdir=runs/wsj --output_dir=DIR
python tools/paper/table4.py --scores=scores.json --output_dir=DIR
python tools/paper/table4.py --quick --output_dir=DIR

With --workdir, a run of pipelines/configs/wsj_parsing.py or the like is scored on its test split;
--scores is the output of pipelines.evaluate for such a run. With --quick and neither, a tiny parser
is trained on random trees of a small grammar. It tests the tool; its F1 means nothing for English.
"""

import shared
from published import TABLE_4

from pipelines import app
from pipelines.train import WORKDIR
from t2t_keras.errors import InputError

DECODING = shared.define_scores()


def main():
    scores = shared.read_scores("f1")
    if scores is None:
        workdir = shared.find_run(WORKDIR.value, "table4_run", shared.parsing_config)
        if workdir is None:
            raise InputError("give --workdir of a parsing, --scores, or --quick for a tiny run.")
        task = workdir.load_config().get("task")
        if task != "parsing":
            raise InputError(
                f"{workdir.path} holds a run of task {task!r}: give the --workdir of a parsing."
            )
        scores = shared.measure_scores(workdir, **app.given(DECODING))
        scores["of"] = f"{WORKDIR.value or 'random trees of a small grammar'}, {scores['of']}"
    rows = [
        {"Parser": parser, "Training": training, "F1 on WSJ 23": f1, "F1 here": None}
        for parser, training, f1 in TABLE_4
    ]
    here = f"{scores['of']}, {scores['sentences']} sentences"
    mine = {"Parser": "this run", "Training": here, "F1 on WSJ 23": None}
    rows.append(mine | {"F1 here": round(scores["f1"], 2)})
    figures = [
        {"Measure": name, "Value": value}
        for name, value in scores.items()
        if isinstance(value, int | float | str)
    ]
    parts = {"F1": rows, "All measures of this run": figures}
    shared.save_tables("table4", "Table 4: English constituency parsing", parts)


if __name__ == "__main__":
    app.take("quick", "workdir", "scores", "split", "sentences", *DECODING)
    app.require("output_dir")
    app.run(main)
