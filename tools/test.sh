#!/usr/bin/env bash
# Lint and tests, with all their set-up: bash tools/test.sh [pytest arguments]
set -euo pipefail
EXTRA=test
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"

"$PYTHON" -m ruff format --check .
"$PYTHON" -m ruff check .
# Most tests keep one core busy; those of a file share what they have made.
"$PYTHON" -m pytest -n 2 --dist=loadfile "$@"
