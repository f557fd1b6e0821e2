"""A command for the fault campaign: saves a run as a bundle, or translates a file with a bundle.

python -m tools.faults.bundle --workdir=RUN --bundle=FOLDER
python -m tools.faults.bundle --bundle=FOLDER --input=FILE --output=FILE
"""

from absl import flags

import t2t_keras as t2t
from pipelines import app
from t2t_keras.data.files import write_file

WORKDIR = app.define_workdir()
BUNDLE = flags.DEFINE_string("bundle", None, "Folder of the bundle.")
INPUT = flags.DEFINE_string("input", None, "File of texts.", allow_override=True)
OUTPUT = flags.DEFINE_string("output", None, "File of translations.", allow_override=True)


def main():
    if WORKDIR.value:
        t2t.load(WORKDIR.value).save(BUNDLE.value)
        return
    with open(INPUT.value, encoding="utf-8") as file:
        found = t2t.load(BUNDLE.value)(file.read().splitlines())
    write_file(OUTPUT.value, "".join(f"{line}\n" for line in found).encode())


if __name__ == "__main__":
    app.run(main)
