#!/usr/bin/env bash
# matrix.sh SUITE [PYTEST ARGUMENTS]: `make demo` and `make test` on another Debian release, as a newcomer would run them.
# A chroot of the release, made once and kept in MATRIX_FOLDER; in it a new clone of this tree, as it is committed.
# Needs root, debootstrap and util-linux. What it starts lives in namespaces of its own and ends with it.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-} arguments=${2:-}
folder=${MATRIX_FOLDER:-/var/cache/delaystore-matrix}
root=$folder/$suite

fail() {
    echo "make matrix: $*" >&2
    exit 2
}

[[ $suite =~ ^[a-z]+$ ]] || fail "name one of Debian's releases: make matrix SUITE=bookworm, SUITE=trixie or SUITE=forky"
[ "$(id -u)" = 0 ] || fail "a chroot needs root: sudo make matrix SUITE=$suite"
command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"
command -v unshare >/dev/null || fail "unshare is not installed: apt-get install util-linux"

# Mounts and processes in namespaces of their own: none is left behind, however this ends.
if [ -z "${MATRIX_INSIDE:-}" ]; then
    MATRIX_INSIDE=yes exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

# Debian's mirror as this machine's own apt knows it.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p')
    found=${found%%$'\n'*}
    echo "${found:-http://deb.debian.org/debian}"
}

# A chroot of the release. One that was not finished is made anew.
make_root() {
    local script=/usr/share/debootstrap/scripts/$suite log=$folder/$suite.log
    [ -e "$root/.made" ] && return
    [ -e "$script" ] || script=${script%/*}/sid
    rm -rf "$root"
    mkdir -p "$folder"
    echo "Making a chroot of Debian $suite in $root ..."
    if ! debootstrap --variant=minbase "$suite" "$root" "$(mirror)" "$script" >"$log" 2>&1; then
        echo "... once more without checking its signature: this machine does not know the keys of $suite"
        rm -rf "$root"
        if ! debootstrap --no-check-gpg --variant=minbase "$suite" "$root" "$(mirror)" "$script" >"$log" 2>&1; then
            tail -n 5 "$log" >&2
            fail "debootstrap failed; is $suite a release of Debian? All it said is in $log"
        fi
    fi
    configure_apt
    touch "$root/.made"
}

configure_apt() {
    local proxy=''
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    {
        echo 'Acquire::Check-Valid-Until "false";' # a mirror may be older than its list says it is good for
        echo 'APT::Install-Recommends "false";'
        [ -z "$proxy" ] || echo "Acquire::http::Proxy \"$proxy\";"
    } >"$root/etc/apt/apt.conf.d/80matrix"
    echo "deb $(mirror) $suite main" >"$root/etc/apt/sources.list"
}

# What the machine has of a network, and no more: names, certificates, where pip and npm look.
share_network() {
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/machine.crt"
}

mount_system() {
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/run"
}

# Run a command inside, with nothing of this machine's environment but where pip and npm look.
inside() {
    local kept=() name
    for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_DEFAULT_TIMEOUT npm_config_registry; do
        [ -z "${!name:-}" ] || kept+=("$name=${!name}")
    done
    [ ! -e "$root/etc/ssl/machine.crt" ] || kept+=(PIP_CERT=/etc/ssl/machine.crt NODE_EXTRA_CA_CERTS=/etc/ssl/machine.crt)
    chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CI=true \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${kept[@]}" "$@"
}

# MySQL is in Debian's unstable release only, and its package excludes MariaDB's: so its files go to a folder of their own.
install_mysql() {
    [ ! -e "$root/opt/mysql/usr/sbin/mysqld" ] || return 0
    echo "deb $(mirror) unstable main" >"$root/etc/apt/sources.list.d/unstable.list"
    printf 'Package: *\nPin: release a=unstable\nPin-Priority: 50\n' >"$root/etc/apt/preferences.d/unstable"
    inside apt-get -qq update
    # shellcheck disable=SC2016 # the shell inside expands it
    inside sh -euc 'cd /tmp; apt-get -qq download mysql-server-core/unstable
        libraries=$(dpkg-deb --field mysql-server-core_*.deb Depends | tr , "\n" | sed "s/^ *//; s/[ :].*//" | grep ^lib)
        apt-get -qq -y install $libraries
        dpkg-deb --extract mysql-server-core_*.deb /opt/mysql' >/dev/null
}

make_root
share_network
mount_system
inside sh -c 'apt-get -qq update && apt-get -qq -y install ca-certificates git make procps python3' >/dev/null
[ "$suite" != forky ] || install_mysql

[ -z "$(git status --porcelain)" ] || echo "Note: what is not committed is not tested."
rm -rf "$root/root/delaystore"
git clone --quiet --no-hardlinks . "$root/root/delaystore"
inside make --no-print-directory -C /root/delaystore demo
inside make --no-print-directory -C /root/delaystore test ARGS="$arguments"
# on Debian's newest Python a release of SQLAlchemy that is older need not work
[ "$suite" = forky ] || inside make --no-print-directory -C /root/delaystore test-sqlalchemy ARGS="$arguments"
[ "$suite" != forky ] || inside make --no-print-directory -C /root/delaystore test-mysql ARGS="$arguments"
