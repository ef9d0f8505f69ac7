#!/usr/bin/env bash
# An environment with another release of SQLAlchemy, and for all the rest what is installed in the one for development:
# make-venv-sqlalchemy.sh DEVELOPMENT DIRECTORY RELEASE
set -euo pipefail
development=$1 directory=$2 release=$3

rm -rf "$directory"
"$development/bin/python" -m venv --without-pip "$directory"
folder() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
own=$(folder "$directory")
# behind its own folder, and read as a folder of packages: an editable installation is a .pth file in it
echo "import site; site.addsitedir('$(folder "$development")')" > "$own/development.pth"
"$development/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$own" "sqlalchemy==$release"
found=$("$directory/bin/python" -c 'import sqlalchemy; print(sqlalchemy.__version__)')
test "$found" = "$release" || { echo "SQLAlchemy is $found there, not $release" >&2; exit 1; }
