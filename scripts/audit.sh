#!/usr/bin/env bash
# Look for known weaknesses in our code (bandit) and in what is installed (pip-audit, which asks the database of OSV).
# Usage: audit.sh BIN [ARGUMENTS for pip-audit]; BIN: the folder of a virtual environment's programs.
# Exit code 1: something was found.
# Where the database cannot be reached, a line says so, and that is no failure.
set -euo pipefail

bin=$1
"$bin/bandit" --quiet --configfile pyproject.toml --recursive delaystore

report=$(mktemp)
trap 'rm -f "$report"' EXIT
found=0
said=$("$bin/pip-audit" --vulnerability-service osv --skip-editable --progress-spinner off \
    --format json --output "$report" "${@:2}" 2>&1) || found=$?
if [ "$found" = 0 ]; then
    echo "audit: nothing is known against what is installed"
elif [ -s "$report" ]; then
    echo "$said" >&2
    "$bin/python" -c '
import json, sys
for package in json.load(open(sys.argv[1]))["dependencies"]:
    for one in package.get("vulns", []):
        print(package["name"], package["version"], one["id"], "fixed in", *one["fix_versions"] or ["no version yet"])
' "$report" >&2
    exit 1
elif grep -qE 'ConnectionError|ConnectTimeout|ReadTimeout' <<<"$said"; then
    echo "audit: what is installed was not checked, as the database of vulnerabilities cannot be reached"
else
    echo "$said" >&2
    exit 1
fi
