#!/usr/bin/env bash
# From nothing to a served translation: bash tools/quickstart.sh [WORKDIR]
# Installs, trains on the built-in corpus, evaluates on unseen sentences, exports a SavedModel and
# translates with it in a process that knows TensorFlow only. About ten minutes on two cores.
set -euo pipefail
WORKDIR=$(realpath -m "${1:-quickstart}")
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"

step() { printf '\n== %s\n' "$1"; }

step "Train on the built-in English-German corpus (resumes if it was interrupted)"
"$PYTHON" -m pipelines.train --config=pipelines/configs/grammar_en_de.py \
    --workdir="$WORKDIR/run" --config.data.tfds_data_dir="$WORKDIR/datasets"

step "Evaluate on unseen sentences"
"$PYTHON" -m pipelines.evaluate --workdir="$WORKDIR/run" --split=test

step "Evaluate on sentences longer than any seen in training"
"$PYTHON" -m pipelines.evaluate --workdir="$WORKDIR/run" --split=test_long

step "Export a SavedModel"
"$PYTHON" -m pipelines.export --workdir="$WORKDIR/run" --output="$WORKDIR/export"
SAVED_MODEL=$WORKDIR/export/$(ls "$WORKDIR/export" | grep -E '^[0-9]+$' | sort -n | tail -n 1)

step "Translate with the SavedModel, without t2t_keras"
"$PYTHON" tools/saved_model_translate.py "$SAVED_MODEL" <<'SENTENCES'
SENTENCES

cat <<EOT

Done.
  checkpoints, logs, curves  $WORKDIR/run
  SavedModel                 $SAVED_MODEL
  corpus                     $WORKDIR/datasets
Translate more:
  $PYTHON -m pipelines.translate --saved_model=$SAVED_MODEL
EOT
