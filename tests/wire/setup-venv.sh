#!/bin/sh
# Make build/venv (the published service and its client) and build/venv-0.2.32 (an older client).
# Safe to run again: does nothing when the wanted versions are there.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-/usr/bin/python3}

make_venv() { # DIR VERSION
	if [ -x "$1/bin/python" ] && "$1/bin/python" - "$2" <<'PY' 2>/dev/null
import importlib.metadata as m, sys
import fastapi, uvicorn, httpx, pytest, pydantic_ai.workspaces.conformance
sys.exit(m.version("pydantic-ai-backend") != sys.argv[1])
PY
	then
		echo "setup-venv: $1 already has pydantic-ai-backend $2"
		return
	fi
	echo "setup-venv: making $1 with pydantic-ai-backend $2"
	mkdir -p "$(dirname "$1")"
	"$python" -m venv "$1"
	"$1/bin/python" -m pip install --quiet --disable-pip-version-check \
		"pydantic-ai-backend[server,workspaces,console]==$2" 'pydantic-ai-slim==2.68.0' httpx pytest
}

make_venv "${GARRET_VENV:-$root/build/venv}" 0.2.37
make_venv "$root/build/venv-0.2.32" 0.2.32
