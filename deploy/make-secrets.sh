#!/usr/bin/env bash
# Makes the passwords of compose.yaml in deploy/secrets, each at random; leaves alone what is there already.
# Only you may enter the folder. The files can be read by whoever is handed one, as a container is.
set -euo pipefail
folder=${1:-$(dirname "$0")/secrets}

if [ -e "$folder" ]; then
    echo "$folder is there already; remove it to make others (and the volumes, which know the former ones)" >&2
    exit 2
fi

password() {
    head -c 256 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 32
}

database=$(password) broker=$(password) page=$(password)
mkdir -m 700 "$folder"
printf '%s' "$database" >"$folder/postgresql"
printf 'default_user = delaystore\ndefault_pass = %s\n' "$broker" >"$folder/rabbitmq.conf"
printf 'postgresql+psycopg://delaystore:%s@postgresql/delaystore\n' "$database" >"$folder/store"
printf 'amqp://delaystore:%s@rabbitmq\n' "$broker" >"$folder/transport"
printf 'admin:operate:%s\n' "$page" >"$folder/users"
chmod 444 "$folder"/*
echo "made $folder: log in to http://127.0.0.1:8765/ as admin, with the password in $folder/users"
