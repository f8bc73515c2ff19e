#!/bin/bash
# Make .venv in this checkout with slurmmiles, its trainer and CPU wheels (no CUDA); --dev adds what the tests need.
# PYTHON=... chooses the interpreter (3.11: the CPU trainer's packages are pinned for it).
set -euo pipefail
case "${1:-}" in "" | --dev) ;; *) echo "usage: requirements/install.sh [--dev]" >&2; exit 2 ;; esac
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
VENV=${VENV:-.venv}
TORCH=torch==2.13.0

"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "requirements/install.sh: $PYTHON is $("$PYTHON" -V 2>&1), and the CPU trainer's packages are pinned for Python 3.11; set PYTHON=/path/to/python3.11" >&2
  exit 2
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
PIP=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check)

if ! "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
  case "$(uname -sm)" in
    "Linux x86_64") # the plain name brings several GB of CUDA; uv knows where the CPU build is published
      "${PIP[@]}" "$TORCH+cpu" 2>/dev/null || {
        "${PIP[@]}" uv
        "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --torch-backend cpu "$TORCH"
      } ;;
    *) "${PIP[@]}" "$TORCH" ;;
  esac
fi
"${PIP[@]}" -e ".${1:+[dev]}"
"${PIP[@]}" --no-deps -r requirements/cpu.txt

if [ "${1:-}" = --dev ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
  && ! command -v slurmctld >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    slurm-wlm munge iproute2 util-linux shellcheck >/dev/null
fi
echo "installed into $VENV: $("$VENV/bin/slurmmiles" --version), $("$VENV/bin/python" -c 'import torch; print("torch", torch.__version__)')"
