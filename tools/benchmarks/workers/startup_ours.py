"""Start-up time to the first translation: `pipelines.translate` on one line, exported model."""

import pathlib
import subprocess
import sys
import time

import ours
from common import answer

from t2t_keras import export_saved_model


def measure(folder, size, beam, threads):
    export = pathlib.Path(folder) / f"{size}_text_{beam}"
    if not export.exists():
        translator = ours.endless_translator(size, beam, source_length=25, target_length=30)
        export_saved_model(translator, export, signatures=["serving_default"], verify=False)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pipelines.translate", f"--saved_model={export}"],
        input=b"w1 w2 w3\n",
        capture_output=True,
        check=True,
    )
    return {"seconds": time.perf_counter() - start}


answer(measure)
