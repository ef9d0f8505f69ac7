#!/usr/bin/env bash
# make-venv.sh PYTHON DIRECTORY: a virtual environment with a pip that knows dependency groups.
set -euo pipefail
# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/apt.sh"
python=$1 directory=$2

if ! command -v "$python" >/dev/null; then
    echo "$python is not installed: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$python is $("$python" -V 2>&1), and Python 3.11 or newer is needed; name one: make PYTHON=python3.11" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if ! can_install; then
        echo "$python cannot make virtual environments: install the package $package" >&2
        exit 1
    fi
    install_packages "$package"
fi
"$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
