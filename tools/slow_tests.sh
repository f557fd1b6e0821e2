#!/usr/bin/env bash
# The slow tests that fit into a budget; the others are listed, and are run at other commits:
# bash tools/slow_tests.sh [minutes, 40 by default] [pytest arguments]
set -euo pipefail
EXTRA=test
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"

"$PYTHON" -m pytest -n 2 --dist=loadfile --no-loadscope-reorder -m slow -p tests.slow_budget \
    --minutes="${1:-40}" --durations=15 "${@:2}"
