#!/usr/bin/env bash
# From nothing to a served translation: bash tools/quickstart.sh [WORKDIR]
# Installs, trains on the built-in corpus, evaluates on unseen sentences, exports a SavedModel and
# translates with it in a process that knows TensorFlow only. Started again, it resumes.
set -euo pipefail
WORKDIR=$(realpath -m "${1:-quickstart}")
EXTRA=
echo "This takes about 10 minutes on two cores (AVX2), less with AVX-512, 2 GB of memory and 200 MB of disk in $WORKDIR."
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"
mkdir -p "$WORKDIR"

CHILD=
trap '[ -z "$CHILD" ] || kill "$CHILD" 2>/dev/null || true' EXIT

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# progress LOG: prints the last training step of a log with the time left, or nothing.
progress() {
    tail -c 2000 "$1" | grep -oE 'step [0-9]+/[0-9]+ .*left [0-9:]+' | tail -n 1 |
        sed -E 's/^(step [0-9/]+) .*(accuracy [0-9.]+) .*(left .*)/\1, \2, \3/'
}

# run NAME TITLE COMMAND…: runs a command into $WORKDIR/NAME.out, its messages into NAME.log.
run() {
    local name=$1 title=$2 log=$WORKDIR/$1.log started=$SECONDS status=0 shown=0 now
    shift 2
    { "$@" >"$WORKDIR/$name.out" 2>"$log" <&3 & } 3<&0
    CHILD=$!
    while kill -0 "$CHILD" 2>/dev/null; do
        now=$((SECONDS - started))
        if [ -t 1 ]; then
            printf '\r\e[K%-46s %5s %s' "$title" "$(clock $now)" "$(progress "$log")"
        elif [ $((now - shown)) -ge 30 ]; then
            shown=$now
            printf '%-46s %5s %s\n' "$title …" "$(clock $now)" "$(progress "$log")"
        fi
        sleep 0.5
    done
    wait "$CHILD" || status=$?
    CHILD=
    [ ! -t 1 ] || printf '\r\e[K'
    printf '%-46s %5s\n' "$title" "$(clock $((SECONDS - started)))"
    if [ "$status" != 0 ]; then
        tail -n 20 "$log" >&2
        echo "error: this step ended with code $status; all its messages are in $log." >&2
        exit "$status"
    fi
}

# bfloat16 products double the speed where the processor has them and crawl where it has not.
PRECISION=
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null; then PRECISION=bfloat16; fi

run train "Train on the built-in English-German corpus" \
    "$PYTHON" -m pipelines.train --config=pipelines/configs/grammar_en_de.py \
    --workdir="$WORKDIR/run" --config.data.tfds_data_dir="$WORKDIR/datasets" \
    --config.train.mixed_precision="$PRECISION" --config.train.log_every=20
run test "Evaluate on unseen sentences" \
    "$PYTHON" -m pipelines.evaluate --workdir="$WORKDIR/run" --split=test
run export "Export a SavedModel" \
    "$PYTHON" -m pipelines.export --workdir="$WORKDIR/run" --output="$WORKDIR/export"
SAVED_MODEL=$(tail -n 1 "$WORKDIR/export.out")
run translate "Translate in a process without t2t_keras" \
    "$PYTHON" tools/saved_model_translate.py "$SAVED_MODEL" <<'SENTENCES'
The old dog sees a cat.
Because the teacher was tired, he did not call the students.
Which house does your sister want to buy?
Unfortunately, the boy gets up at seven o'clock.
The king who bought two old books gave the queen a picture.
SENTENCES

"$PYTHON" - "$WORKDIR" <<'TABLE'
import json, sys

with open(f"{sys.argv[1]}/test.out") as file:
    scores = json.loads(file.read().splitlines()[-1])
print(f"\n{'':32}sentences  exact    BLEU")
print(f"{'unseen':32}{scores['sentences']:9,}  {scores['exact']:5.1%}  {scores['bleu']:6.2f}")
TABLE
echo
cat "$WORKDIR/translate.out"
cat <<EOT

$(clock $SECONDS) minutes in all. The run with its checkpoints and curves is in $WORKDIR/run.
Translate more, one sentence a line:
  $PYTHON -m pipelines.translate --saved_model=$SAVED_MODEL
EOT
