#!/usr/bin/env bash
# Refuse commit subjects of more than 72 characters, of commits since this rule is there.
set -euo pipefail
cd "$(dirname "$0")/.."
git rev-parse --verify --quiet HEAD >/dev/null 2>&1 || exit 0 # a copy without history, as in a source distribution
git log --since=2026-11-29T00:00:00Z --format='%h %s' HEAD | awk '
    length($0) - length($1) - 1 > 72 { print "commit subject over 72 characters: " $0; found = 1 }
    END { exit found }'
