"""What the binaries need to know of each task, chosen by `config.task` in one place.

A task has the same methods as `translation.Task`, those of `TextTask` and `SequenceTask` among
them; the binaries know no other difference.
"""

from pipelines.tasks import classification, parsing, translation
from t2t_keras.errors import InputError

TASKS = {
    "translation": translation.Task,
    "parsing": parsing.Task,
    "classification": classification.Task,
}


def make_task(config):
    """Returns the task that config.task names.

    Raises:
        InputError: if there is none of the name.
    """
    name = config.get("task", "translation")
    if name not in TASKS:
        raise InputError(f"task is {name!r}: give one of {', '.join(TASKS)}.")
    return TASKS[name](config)
