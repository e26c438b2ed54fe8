#!/bin/sh
# Make build/venv (the published service, its client, and delegation) and build/venv-0.2.32 (an older client).
# Safe to run again: does nothing when the wanted versions are there.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-/usr/bin/python3}

make_venv() { # DIR VERSION [PACKAGE==VERSION...]
	dir=$1 version=$2
	shift 2
	if [ -x "$dir/bin/python" ] && "$dir/bin/python" - "pydantic-ai-backend==$version" "$@" <<'PY' 2>/dev/null
import importlib.metadata as m, sys
import fastapi, uvicorn, httpx, pytest, pydantic_ai.workspaces.conformance
sys.exit(any(m.version(name) != version for name, version in (x.split("==") for x in sys.argv[1:])))
PY
	then
		echo "setup-venv: $dir already has pydantic-ai-backend $version"
		return
	fi
	echo "setup-venv: making $dir with pydantic-ai-backend $version"
	mkdir -p "$(dirname "$dir")"
	"$python" -m venv "$dir"
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check \
		"pydantic-ai-backend[server,workspaces,console]==$version" 'pydantic-ai-slim==2.68.0' httpx pytest "$@"
}

make_venv "${GARRET_VENV:-$root/build/venv}" 0.2.37 subagents-pydantic-ai==0.2.25
make_venv "$root/build/venv-0.2.32" 0.2.32
