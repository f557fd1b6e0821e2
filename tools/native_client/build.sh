#!/bin/sh
# Builds the client against the TensorFlow that $PYTHON imports: build.sh OUTPUT
# CC and CFLAGS are honoured; nothing but a C compiler is needed, and no Python once it is built.
set -eu
if [ $# -ne 1 ]; then
  echo "usage: $0 OUTPUT" >&2
  exit 1
fi
mkdir -p "$(dirname "$1")"
source=$(dirname "$0")
# Found without an import, which would take seconds.
site=$("${PYTHON:-python}" -c '
import importlib.util, os
print(os.path.dirname(importlib.util.find_spec("tensorflow").submodule_search_locations[0]))')

# shellcheck disable=SC2086  # CFLAGS are several words
${CC:-cc} -std=c11 -O2 -Wall -Wextra ${CFLAGS:-} \
  -I"$site/tensorflow/include" -DTEXT_OPS="\"$site/tensorflow_text/python/ops\"" \
  "$source/client.c" "$source/meta_graph.c" "$source/rows.c" "$source/fail.c" -o "$1" \
  -L"$site/tensorflow" -Wl,-rpath,"$site/tensorflow" \
  -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2
