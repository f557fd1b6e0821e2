#!/usr/bin/env bash
# From nothing to a served translation: bash tools/quickstart.sh [WORKDIR]
# Installs, trains on the built-in corpus, evaluates on unseen sentences, exports a SavedModel and
# translates with it in a process that knows TensorFlow only. Started again, it goes on where it was.
set -euo pipefail
WORKDIR=$(realpath -m "${1:-quickstart}")
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"

step() { printf '\n== %s (%d:%02d)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

# bfloat16 products double the speed where the processor has them and crawl where it has not.
PRECISION=false
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null; then PRECISION=true; fi

step "Train on the built-in English-German corpus"
"$PYTHON" -m pipelines.train --config=pipelines/configs/grammar_en_de.py \
    --workdir="$WORKDIR/run" --config.data.tfds_data_dir="$WORKDIR/datasets" \
    --config.train.mixed_precision=$PRECISION

step "Evaluate on unseen sentences"
"$PYTHON" -m pipelines.evaluate --workdir="$WORKDIR/run" --split=test

step "Evaluate on sentences longer than any seen in training"
"$PYTHON" -m pipelines.evaluate --workdir="$WORKDIR/run" --split=test_long

step "Export a SavedModel"
SAVED_MODEL=$("$PYTHON" -m pipelines.export --workdir="$WORKDIR/run" --output="$WORKDIR/export" | tail -n 1)

step "Translate with the SavedModel, in a process without t2t_keras"
"$PYTHON" tools/saved_model_translate.py "$SAVED_MODEL" <<'SENTENCES'
The old dog sees a cat.
Because the teacher was tired, he did not call the students.
Which house does your sister want to buy?
Unfortunately, the boy whom Anna visits gets up at seven o'clock.
The king who had two small birds decided to open the window.
SENTENCES

step "Done"
cat <<EOT
  run (checkpoints, metrics.csv, TensorBoard logs)  $WORKDIR/run
  SavedModel                                        $SAVED_MODEL
  corpus                                            $WORKDIR/datasets
Translate more, one sentence a line:
  $PYTHON -m pipelines.translate --saved_model=$SAVED_MODEL
EOT
