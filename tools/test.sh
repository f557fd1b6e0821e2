#!/usr/bin/env bash
# Lint and tests, with all their set-up: bash tools/test.sh [pytest arguments]
# The slow tests are those of bash tools/test.sh -m slow
set -euo pipefail
EXTRA=test
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$REPOSITORY"

"$PYTHON" -m ruff format --check .
"$PYTHON" -m ruff check .
# Most tests keep one core busy. A worker without work takes half of what the other has left.
"$PYTHON" -m pytest -n 2 --dist=worksteal "$@"
