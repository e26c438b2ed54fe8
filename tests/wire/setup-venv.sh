#!/bin/sh
# Make build/venv with the published service, for the differential test.
# Safe to run again: does nothing when the wanted version is there.
set -eu

want='pydantic-ai-backend[server,workspaces,console]==0.2.37'
version=0.2.37
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${GARRET_VENV:-$root/build/venv}
python=${PYTHON:-/usr/bin/python3}

have() {
	[ -x "$venv/bin/python" ] && "$venv/bin/python" - "$version" <<'PY' 2>/dev/null
import importlib.metadata as m, sys
import fastapi, uvicorn, httpx  # the parts the test needs
sys.exit(m.version("pydantic-ai-backend") != sys.argv[1])
PY
}

if have; then
	echo "setup-venv: $venv already has pydantic-ai-backend $version"
	exit 0
fi
echo "setup-venv: making $venv with $python"
mkdir -p "$(dirname "$venv")"
"$python" -m venv "$venv"
echo "setup-venv: installing $want httpx"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$want" httpx
have || {
	echo "setup-venv: $venv still lacks pydantic-ai-backend $version" >&2
	exit 1
}
echo "setup-venv: $venv is ready"
