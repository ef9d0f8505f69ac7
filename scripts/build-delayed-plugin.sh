#!/bin/sh
# Compile RabbitMQ's delayed-message plugin from its sources, for the RabbitMQ that is installed here.
#   scripts/build-delayed-plugin.sh SOURCES FOLDER
# SOURCES: a checkout of rabbitmq-delayed-message-exchange, of the branch of this RabbitMQ's release (v3.10.x).
# FOLDER: where the plugin goes; DELAYSTORE_TEST_DELAYED_PLUGIN names it for tests and benchmarks.
set -eu
sources=$1
folder=$2
name=rabbitmq_delayed_message_exchange
plugins=$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins)
release=$(basename "$(dirname "$plugins")" | sed 's/rabbitmq_server-//')
ebin=$folder/$name-$release/ebin
mkdir -p "$ebin"
ERL_LIBS=$plugins erlc +debug_info -o "$ebin" "$sources"/src/*.erl
modules=$(cd "$sources/src" && for each in *.erl; do printf '%s,' "${each%.erl}"; done)
cat >"$ebin/$name.app" <<APP
{application, $name, [
    {description, "RabbitMQ Delayed Message Exchange"},
    {vsn, "$release"},
    {id, "build"},
    {modules, [${modules%,}]},
    {registered, []},
    {mod, {rabbit_delayed_message_app, []}},
    {env, []},
    {applications, [kernel, stdlib, rabbit_common, rabbit]},
    {broker_version_requirements, []}
]}.
APP
echo "$folder"
