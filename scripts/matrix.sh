#!/usr/bin/env bash
# matrix.sh SUITE [PYTEST ARGUMENTS]: `make demo` and `make test` on another Debian release, as a newcomer would run them.
# MATRIX_FOLDER keeps a chroot of each release with everything that was installed in it, so a second run installs nothing.
# The tree is tested as it is committed. All output goes to a log; the failed tests alone are printed at the end.
# Needs root, debootstrap and util-linux. Mounts and processes live in namespaces of their own and end with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-} arguments=${2:-}
folder=${MATRIX_FOLDER:-/var/cache/delaystore-matrix}
root=$folder/$suite log=$folder/$suite.log
tree=$root/root/delaystore

fail() {
    echo "make matrix: $*" >&2
    exit 2
}

[[ $suite =~ ^[a-z]+$ ]] || fail "name one of Debian's releases: make matrix SUITE=bookworm, SUITE=trixie or SUITE=forky"
[ "$(id -u)" = 0 ] || fail "a chroot needs root: sudo make matrix SUITE=$suite"
command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"
command -v unshare >/dev/null || fail "unshare is not installed: apt-get install util-linux"

# However this ends, everything in the namespaces ends with it: unshare, which holds them, is killed first.
if [ -z "${MATRIX_INSIDE:-}" ]; then
    set -m # or what runs in the background would ignore SIGINT, and so would all processes of tests
    MATRIX_INSIDE=yes setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child "$0" "$@" &
    trap 'kill -KILL $!; exit 130' HUP INT TERM
    wait $! && exit || exit $?
fi

# Debian's mirror as this machine's own apt knows it.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p')
    found=${found%%$'\n'*}
    echo "${found:-http://deb.debian.org/debian}"
}

# A chroot of the release. One that was not finished is made again.
make_root() {
    local script=/usr/share/debootstrap/scripts/$suite
    [ ! -e "$root/.made" ] || return 0
    [ -e "$script" ] || script=${script%/*}/sid
    local how=(--variant=minbase --include=ca-certificates,git,make,procps,python3 "$suite" "$root" "$(mirror)" "$script")
    rm -rf "$root"
    echo "Making a chroot of Debian $suite in $root ..."
    if ! debootstrap "${how[@]}" >>"$log" 2>&1; then
        echo "... again without checking its signature, as this machine does not know the keys of $suite"
        rm -rf "$root"
        if ! debootstrap --no-check-gpg "${how[@]}" >>"$log" 2>&1; then
            tail -n 5 "$log" >&2
            fail "debootstrap failed; is $suite a release of Debian? All output is in $log"
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
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no package starts its service
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# What the machine has of a network, and no more: names, certificates, where pip and npm look.
share_network() {
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/machine.crt"
}

# /dev/shm is a memory of its own, too: what killed tests leave there goes with it.
mount_system() {
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777,size=80% tmpfs "$root/dev/shm"
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
    [ ! -e "$root/opt/mysql/.made" ] || return 0
    echo "deb $(mirror) unstable main" >"$root/etc/apt/sources.list.d/unstable.list"
    printf 'Package: *\nPin: release a=unstable\nPin-Priority: 50\n' >"$root/etc/apt/preferences.d/unstable"
    inside apt-get -qq update
    # shellcheck disable=SC2016 # the shell inside expands it
    inside sh -euc 'cd /tmp; apt-get -qq download mysql-server-core/unstable
        libraries=$(dpkg-deb --field mysql-server-core_*.deb Depends | tr , "\n" | sed "s/^ *//; s/[ :].*//" | grep ^lib)
        apt-get -qq -y install $libraries
        dpkg-deb --extract mysql-server-core_*.deb /opt/mysql
        touch /opt/mysql/.made'
}

# The tree as it is committed, over the one of the last run, whose installed packages stay.
take_tree() {
    [ -z "$(git status --porcelain)" ] || echo "Note: uncommitted changes are not tested."
    local own=(git -c safe.directory='*' -C "$tree")
    if ! "${own[@]}" rev-parse --git-dir >/dev/null 2>&1; then
        rm -rf "$tree"
        git init --quiet "$tree"
    fi
    rm -f "$tree"/.git/*.lock
    "${own[@]}" fetch --quiet --update-shallow "$PWD" HEAD
    "${own[@]}" checkout --quiet --force --detach FETCH_HEAD
    "${own[@]}" clean --quiet -ffd
    rm -rf "$tree/.pytest_cache" # what failed in an earlier run
}

# make TARGET inside; its output goes to the log, and the names of its failed tests are kept.
run() {
    echo "$(date +%H:%M) make $1"
    local before
    before=$(stat --format=%s "$log")
    if inside make --no-print-directory -C /root/delaystore "$@" >>"$log" 2>&1; then
        failed=''
        return
    fi
    failed=$(tail -c "+$((before + 1))" "$log" | grep -E '^(FAILED|ERROR) ' || tail -n 20 "$log")
    return 1
}

# As in .ci/run: what fails beside other tests, which kill and pause servers, is run once more alone.
run_tests() {
    run test ARGS="$arguments" && return
    local beside=$failed
    if run test-again ARGS="$arguments"; then
        again+=$beside$'\n'
        return
    fi
    return 1
}

mkdir -p "$folder"
exec 9>"$folder/$suite.lock"
flock --nonblock 9 || fail "another make matrix SUITE=$suite is running"
: >"$log"
echo "All output is in $log"
make_root
share_network
mount_system
inside dpkg --configure -a >>"$log" 2>&1 # an interrupted run may have left packages unconfigured
[ "$suite" != forky ] || install_mysql >>"$log" 2>&1 || fail "MySQL cannot be installed; all output is in $log"
take_tree

steps=(demo tests)
case $suite in
    bookworm) steps+=(test-sqlalchemy) ;; # the oldest that is supported, with the oldest of everything else
    forky) steps+=(test-mysql) ;;
esac
failed='' again='' failures=''
for step in "${steps[@]}"; do
    case $step in
        demo) run demo ;;
        tests) run_tests ;;
        *) run "$step" ARGS="$arguments" ;;
    esac || failures+=$failed$'\n'
done
[ -z "$again" ] || printf 'Failed beside other tests, and passed alone:\n%s' "$again"
[ -z "$failures" ] || printf 'Failed on %s:\n%s' "$suite" "$failures"
echo "$(date +%H:%M) $([ -z "$failures" ] && echo "all passed on $suite" || echo "failed on $suite"); all output is in $log"
[ -z "$failures" ]
