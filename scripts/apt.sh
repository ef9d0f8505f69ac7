# shellcheck shell=bash
# Sourced by the scripts beside it: installing Debian packages without starting any service.

# Whether packages can be installed here without asking anybody.
can_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Install the packages named; their output is shown only if that fails.
install_packages() {
    local log
    log=$(mktemp)
    echo "Installing $* with apt-get ..."
    if ! apt_get update >"$log" 2>&1 || ! without_services apt_get install --no-install-recommends "$@" >>"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@"
}

# Run a command while Debian's policy-rc.d forbids packages to start their services.
without_services() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    "$@" || status=$?
    as_root rm -f "$policy"
    return "$status"
}
