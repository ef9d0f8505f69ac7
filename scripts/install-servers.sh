#!/usr/bin/env bash
# Installs what the tests start for themselves, where it is missing: PostgreSQL, pgbouncer, RabbitMQ, MariaDB, haproxy,
# Prometheus with its promtool; libfaketime, which shifts their clocks; Java with PostgreSQL's JDBC driver, for Spark and
# what it is compared with; curl and Node, for commands in the documents; systemd, which verifies units; and Chromium, with a
# font, which looks at the web page.
# No service is started or left enabled. Where nothing can be installed it says what to install, and fails if CI=true.
set -euo pipefail
# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/apt.sh"

# Whether a program exists: on PATH, in the directories given, or where PATH of an ordinary user does not look.
has() {
    local program=$1 folder
    shift
    command -v "$program" >/dev/null && return
    for folder in "$@" /usr/sbin /usr/local/sbin; do
        [ -x "$folder/$program" ] && return
    done
    return 1
}

packages=() services=()
if ! has initdb /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; then
    packages+=(postgresql) services+=(postgresql)
fi
if ! has rabbitmq-server /usr/lib/rabbitmq/bin; then
    packages+=(rabbitmq-server) services+=(rabbitmq-server)
fi
if ! has mariadbd || ! has mariadb-install-db; then
    packages+=(mariadb-server) services+=(mariadb)
fi
if ! has pgbouncer; then
    packages+=(pgbouncer) services+=(pgbouncer)
fi
if ! has haproxy; then
    packages+=(haproxy) services+=(haproxy)
fi
if ! has prometheus || ! has promtool; then
    packages+=(prometheus) services+=(prometheus)
fi
if ! has faketime; then
    packages+=(faketime)
fi
if ! has java; then
    packages+=(default-jre-headless)
fi
if ! [ -e /usr/share/java/postgresql.jar ]; then
    packages+=(libpostgresql-jdbc-java)
fi
if ! has chromium; then
    packages+=(chromium)
fi
if ! compgen -G '/usr/share/fonts/*/dejavu*/DejaVuSans.ttf' >/dev/null; then
    packages+=(fonts-dejavu-core) # the pictures of the pages are drawn with it
fi
if ! has curl; then
    packages+=(curl)
fi
if ! has systemd-analyze; then
    packages+=(systemd) # it verifies units
fi
if ! has npm; then
    packages+=(nodejs npm) # a producer in the documents is no Python program
fi
[ ${#packages[@]} -gt 0 ] || exit 0

if can_install; then
    install_packages "${packages[@]}"
    if [ ${#services[@]} -gt 0 ] && command -v systemctl >/dev/null; then
        as_root systemctl disable --quiet "${services[@]}" 2>/dev/null || true # no systemd here: nothing is enabled
    fi
else
    echo "Missing servers: install the packages ${packages[*]} (Debian's names) to run the tests that need them." >&2
    [ "${CI:-}" != true ]
fi
