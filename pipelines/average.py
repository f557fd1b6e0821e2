"""Averages the weights of the last checkpoints (paper, section 6.1).

python -m pipelines.average --workdir=runs/grammar --last=5
"""

from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError

WORKDIR = app.define_workdir()
LAST = flags.DEFINE_integer(
    "last", 5, "Number of checkpoints to average, the newest ones.", lower_bound=1
)


def main():
    from pipelines.workdir import Workdir
    from t2t_keras.training.checkpoint_files import (
        average_path,
        checkpoint_paths,
        remove_unfinished,
        step_of,
    )
    from t2t_keras.training.checkpoints import average_checkpoints

    workdir = Workdir(WORKDIR.value)
    workdir.load_config()
    with workdir.lock():
        remove_unfinished(workdir.checkpoints)
        paths = checkpoint_paths(workdir.checkpoints)
        if len(paths) < LAST.value:
            raise InputError(
                f"{workdir.checkpoints} holds {len(paths)} checkpoints, fewer than --last="
                f"{LAST.value}: train longer, or average fewer."
            )
        paths = paths[-LAST.value :]
        average = average_checkpoints(paths, average_path(workdir.checkpoints, step_of(paths[-1])))
    logging.info("Averaged %s", ", ".join(path.name for path in paths))
    print(average)


if __name__ == "__main__":
    app.require("workdir")
    app.run(main, gpu=False)
