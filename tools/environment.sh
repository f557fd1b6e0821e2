# Sourced by the scripts of this folder: makes the virtual environment of the project, once for
# each change of setup.cfg, and sets PYTHON to its interpreter. T2T_VENV names another place.
# EXTRA names an extra of setup.cfg that the script needs; it is empty for none.

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$(realpath -m "${T2T_VENV:-$REPOSITORY/.venv}")  # the scripts change the folder
PYTHON=$VENV/bin/python

if ! "$PYTHON" -c "" 2>/dev/null; then
    if ! python3 -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; then
        echo "error: python3 is $(python3 --version 2>&1): put Python 3.10 to 3.13 on the PATH." >&2
        exit 1
    fi
    echo "Making the virtual environment $VENV"
    python3 -m venv "$VENV"
fi
# The stamp holds what was installed: the state of the files, then the extras.
STAMP="$(cat "$REPOSITORY/setup.cfg" "$REPOSITORY/pyproject.toml" | cksum) $REPOSITORY"
INSTALLED=$(cat "$VENV/t2t_keras.stamp" 2>/dev/null || true)
if [[ $INSTALLED != "$STAMP"* || $INSTALLED != *"[$EXTRA]"* ]]; then
    echo "Installing t2t_keras and what it needs from PyPI: a minute, 0.7 GB to download, 2.6 GB on disk"
    "$PYTHON" -m pip install -qq --upgrade pip # the one of early Python 3.10s searches for hours
    # Modules are compiled when they are first imported: most never are.
    "$PYTHON" -m pip install -qq --no-compile -e "$REPOSITORY${EXTRA:+[$EXTRA]}"
    [[ $INSTALLED == "$STAMP"* ]] || INSTALLED="$STAMP []"
    echo "$INSTALLED [$EXTRA]" > "$VENV/t2t_keras.stamp"
fi
# Where bytecode may not be written, every process compiles TensorFlow's modules anew: ten seconds.
unset PYTHONDONTWRITEBYTECODE
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2} # TensorFlow's own start-up messages
