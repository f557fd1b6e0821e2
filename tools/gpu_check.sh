#!/usr/bin/env bash
# What this library does on one GPU, in one table: bash tools/gpu_check.sh [MINUTES]
# First it installs the extras gpu, test and bench (PyTorch); MINUTES (8) begin after that. Tests (without
# TF32), grammar_en_de and, if $T2T_SHARED_DATA has multi30k/raw, Multi30k run together, for 5/8 of
# MINUTES at most. Then come training of base beside PyTorch and search beside transformers, one
# measurement at a time. It fails if a part fails or takes longer. Figures and logs: ./gpu_check, or
# $GPU_CHECK_FOLDER. Without a GPU it ends with code 2.
# $GPU_CHECK_REHEARSAL, a folder of a small corpus: the smallest sizes, on any device.
set -uo pipefail
MINUTES=${1:-8} FOLDER=$(realpath -m "${GPU_CHECK_FOLDER:-gpu_check}")
REHEARSAL=${GPU_CHECK_REHEARSAL:-} MULTI30K=${T2T_SHARED_DATA:-}/multi30k/raw
if [ -z "$REHEARSAL" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "error: nvidia-smi finds no GPU: run this on a machine that has one." >&2
    exit 2
fi
if [ -z "${PYTHON:-}" ]; then
    EXTRA=gpu,test,bench
    source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
SEES='import tensorflow as tf, sys; sys.exit(not tf.config.list_physical_devices("GPU"))'
if [ -z "$REHEARSAL" ] && ! "$PYTHON" -c "$SEES" 2>/dev/null; then
    echo "error: TensorFlow does not see the GPU: pip install '.[gpu]'." >&2
    exit 2
fi
if [ -e "$FOLDER" ]; then
    echo "error: $FOLDER exists: remove it, or name another folder in GPU_CHECK_FOLDER." >&2
    exit 1
fi
mkdir -p "$FOLDER"
export TF_FORCE_GPU_ALLOW_GROWTH=true TF_CPP_MIN_LOG_LEVEL=2
BEGAN=$SECONDS LOCK=$FOLDER/lock

# part UNTIL NAME COMMAND…: runs a command until that second at most; notes its time and its code.
part() {
    local left=$((BEGAN + $1 - SECONDS)) name=$2 began=$SECONDS status=0
    shift 2
    timeout --kill-after=10 $((left > 1 ? left : 1)) "$@" \
        >"$FOLDER/$name.out" 2>"$FOLDER/$name.log" || status=$?
    echo "$name $((SECONDS - began)) $status" >>"$FOLDER/parts"
}

# recipe NAME FLAG…, in the background: trains with a config and evaluates on its test split. Until its
# end it shares the lock, so that nothing is measured beside it.
recipe() {
    local name=$1
    shift
    exec 9>>"$LOCK"
    flock --shared 9
    part $TOGETHER "$name" "$PYTHON" -m pipelines.train --workdir="$FOLDER/runs/$name" "$@" &&
        grep -q "^$name .* 0$" "$FOLDER/parts" &&
        part $TOGETHER "$name.test" "$PYTHON" -m pipelines.evaluate \
            --workdir="$FOLDER/runs/$name" --split=test
}

# benchmark COMMAND PEER FLAG…: the contestants of a table, with the peer if it is installed.
benchmark() {
    local command=$1 peer=$2
    shift 2
    "$PYTHON" -c "import $peer" 2>/dev/null || peer=
    part $((MINUTES * 60)) "$command" "$PYTHON" tools/benchmark.py "$command" --peers=$peer \
        --lock="$LOCK" --output_dir="$FOLDER" "$@"
}

TESTS=(-n 4 tests/ops tests/layers tests/models tests/decoding tests/training)
GRAMMAR=(--config=grammar_en_de "--config.data.tfds_data_dir=$FOLDER/datasets")
TRAIN=(--sizes=paper --rounds=1 --repeats=20)
SEARCH=(--cases=base:32:4,base:256:4,base:1024:4 --rounds=1 --repeats=3)
if [ -n "$REHEARSAL" ]; then
    TESTS=(tests/ops/test_reshape.py)
    GRAMMAR=(--config=multi30k_en_de "--config.data.folder=$REHEARSAL" --config.data.test_split=test
        --config.model.vocab_size=330
        --config.model.num_encoder_layers=1 --config.model.num_decoder_layers=1 --config.knn.k=0
        --config.train.mixed_precision= --config.train.steps=2 --config.train.log_every=1
        --config.train.validation_sentences=0 --config.decode.beam_size=1)
    TRAIN=(--quick --threads=1) SEARCH=(--quick --threads=1)
fi
TOGETHER=$((MINUTES * 60 * 5 / 8))
part $TOGETHER tests flock --shared "$LOCK" \
    "$PYTHON" -m pytest -q --gpu -p no:cacheprovider "${TESTS[@]}" &
recipe grammar "${GRAMMAR[@]}" &
if [ -d "$MULTI30K" ] && [ -z "$REHEARSAL" ]; then
    recipe multi30k --config=multi30k_en_de --config.data.folder="$MULTI30K" \
        --config.train.micro_batches=1 --config.train.parallel_micro_batches=1 &
fi
benchmark train torch "${TRAIN[@]}"
benchmark generate transformers "${SEARCH[@]}"
wait

"$PYTHON" - "$FOLDER" <<'TABLE'
import csv, json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
rows = [line.split() for line in (folder / "parts").read_text().splitlines()]


def figures(name):
    """Returns what a part has found, a line each."""
    if name == "tests":
        yield (folder / "tests.out").read_text().strip().splitlines()[-1]
    elif name.endswith(".test"):
        scores = json.loads((folder / f"{name}.out").read_text().splitlines()[-1])
        yield ", ".join(f"{key} {scores[key]:.4g}" for key in ("bleu", "exact", "sentences"))
    elif name in ("train", "generate"):
        for heading, contest in json.loads((folder / f"benchmark_{name}.json").read_text()).items():
            for row in contest if isinstance(contest, list) else []:
                kept = {k: v for k, v in row.items() if k not in ("", "from", "to") and v is not None}
                found = (f"{k} {v:,.4g}" if v < 1e4 else f"{k} {v:,.0f}" for k, v in kept.items())
                yield f"{heading}, {row['']}: {', '.join(found)}"
    else:
        with open(folder / "runs" / name / "metrics.csv") as file:
            speeds = [row["tokens_per_second"] for row in csv.DictReader(file)]
        yield f"target tokens/s {float([s for s in speeds if s][-1]):,.0f}"


for name, seconds, code in rows:
    print(f"{name:16}{seconds:>5} s  {'done' if code == '0' else 'FAILED with code ' + code}")
    for line in figures(name) if code == "0" else [f"see {folder / name}.log"]:
        print(f"{'':8}{line}")
if not any(name.startswith("multi30k") for name, *_ in rows):
    print("multi30k        left out: there is no $T2T_SHARED_DATA/multi30k/raw")
sys.exit(any(code != "0" for *_, code in rows))
TABLE
