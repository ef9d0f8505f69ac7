#!/usr/bin/env bash
# make-dist.sh PYTHON: the source distribution and, made of that, the wheel, in dist/. Both are looked into, and the
# wheel is installed into an environment of its own, and run.
set -euo pipefail
python=$1
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
install() { "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"; }

rm -rf build dist ./*.egg-info  # a list of files in there would be taken up again
"$python" -m venv "$work/build"
install "$work/build" 'setuptools>=77'
"$work/build/bin/python" -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
rm -rf ./*.egg-info
"$work/build/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist dist/*.tar.gz

tar --list --file dist/*.tar.gz | sed 's,^[^/]*/,,' >"$work/files"
for file in README.md Makefile pyproject.toml docs/index.md examples/send_and_dispatch.py scripts/apt.sh .ci/run \
    tests/conftest.py tests/unit/compiled_sql/store_sqlite.sql benchmarks/__main__.py delaystore/py.typed; do
    grep --quiet --line-regexp --fixed-strings "$file" "$work/files" || { echo "$file is not in the sdist" >&2; exit 1; }
done
if grep '__pycache__' "$work/files"; then
    echo "the sdist holds compiled files" >&2
    exit 1
fi

"$python" -m venv "$work/fresh"
install "$work/fresh" "$(echo dist/*.whl)[cli]"
test -f "$work"/fresh/lib/python*/site-packages/delaystore/integrations/django/templates/delaystore/admin/change_list.html ||
    { echo "the wheel has no templates" >&2; exit 1; }
for file in templates/overview.html static/delaystore.css static/mark.svg; do
    test -f "$work"/fresh/lib/python*/site-packages/delaystore/server/web/$file || { echo "the wheel has no $file" >&2; exit 1; }
done
cd "$work"  # where no package lies beside
fresh/bin/delaystore --version
fresh/bin/python -m delaystore demo --messages 50 --seconds 0.5
