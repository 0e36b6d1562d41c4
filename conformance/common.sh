# The beginning of every suite. Sourced in the folder of the suite; arguments of its run select scenarios.
#
# KEW_BINARY names another kew to test. With KEW_STRICT=1 or CI=true, scenarios that cannot run on this machine fail
# instead of being skipped.

# Seconds that the scenarios of one suite may take on a busy machine. The long scenarios, which conformance/soak runs,
# take KEW_SOAK_SECONDS of them, or 20 if it is not set.
PATIENCE=$((900 + ${KEW_SOAK_SECONDS:-0}))

suite=$(basename "$PWD")
is_whole=$(($# == 0))
# The parts that ran, if a suite ran only some. Each part has a line SUITE/PART in scenarios.txt.
ran_parts=()
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
target=$(realpath -m "${CARGO_TARGET_DIR:-$repository/target}")
source "$repository/conformance/servers.sh"
KEW_BINARY=${KEW_BINARY:-$target/release/kew}
if [[ ! -x $KEW_BINARY ]]; then
    echo "$KEW_BINARY is absent; build it: cargo build --release --locked -p kew" >&2
    exit 1
fi
KEW_BINARY=$(realpath "$KEW_BINARY")
watch_servers "$suite"

# Servers keep their data in memory if there is room for it. Otherwise scenarios would depend on how long a disk takes
# to sync, which on a busy machine can be longer than a lock lasts. Other tests show that data survive on a disk.
free_kib=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1 || true)
if [[ -w /dev/shm ]] && ((${free_kib:-0} > 2 << 20)); then
    export TMPDIR=/dev/shm
fi

# An authority that the suite trusts, and a certificate by it.
KEW_TEST_TLS=$target/conformance/tls/$suite
export KEW_TEST_TLS
rm -rf "$KEW_TEST_TLS"
"$KEW_BINARY" tls init --dir "$KEW_TEST_TLS" >/dev/null

# Ends the run with status 77, which ./test reports by name, if a program is missing.
need() {
    if ! command -v "$1" >/dev/null; then
        skip "all of it" "$1 is missing; install $2"
        exit 77
    fi
}

# Prints the folder of packages that suites share; ./environment lists the folders.
environment() {
    "$repository/conformance/environment" "$1"
}

# Node looks for packages in the folders above a program, and not in others.
link_packages() {
    local packages=$1/node_modules link=$2/node_modules
    if [[ $(readlink "$link") != "$packages" ]]; then
        # Packages that npm has installed here earlier would hide newer ones.
        [[ -L $link ]] || rm -rf "$link"
        ln -s "$packages" "$link.$$"
        mv -T "$link.$$" "$link"
    fi
}

skipped_here=()
# Reports that a part of the suite cannot run on this machine. Under KEW_STRICT=1 or CI=true the suite fails.
skip() {
    if is_strict; then
        echo "$suite: $1 cannot run: $2" >&2
        exit 1
    fi
    echo "SKIPPED $suite: $1: $2"
    skipped_here+=("$1")
}

# Records how many scenarios passed, failed and were skipped by the runner. Every suite calls this once.
ran() {
    declare -g passed=$1 failed=$2 skipped=${3:-0}
}

# Reads a report in the format of JUnit, which pytest --junitxml also writes.
ran_by_report() {
    local suites name
    local -A counts=()
    suites=$(grep -oE '<testsuite [^>]*>' "$1" || true)
    for name in tests errors failures skipped; do
        [[ $suites =~ \ $name=\"([0-9]+)\" ]] || return 0
        counts[$name]=${BASH_REMATCH[1]}
    done
    local bad=$((counts[errors] + counts[failures]))
    ran $((counts[tests] - counts[skipped] - bad)) "$bad" "${counts[skipped]}"
}

# Reads the output of go test -v. A scenario is one test through one door: a line that is indented once.
ran_by_go() {
    local good bad left
    good=$(grep -c '^    --- PASS:' "$1" || true)
    bad=$(grep -c '^    --- FAIL:' "$1" || true)
    left=$(grep -c '^ *--- SKIP:' "$1" || true)
    ran "$good" "$bad" "$left"
}

# Shows the output of the suite's own runner, and reads the total in its last line.
ran_by_itself() {
    local total
    grep -vE '^[0-9]+ passed, [0-9]+ failed' "$1" || true
    total=$(tail -n 1 "$1")
    if [[ $total =~ ^([0-9]+)' passed, '([0-9]+)' failed'(', '([0-9]+)' skipped')?$ ]]; then
        ran "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}"
    fi
}

# The end of every suite. It fails if a server did not end cleanly, if any scenario failed, or if fewer scenarios ran
# than scenarios.txt records.
end_suite() {
    local status=$?
    trap - EXIT
    if ((status == 77)); then
        exit 77
    fi
    if declare -F before_the_end >/dev/null; then
        before_the_end || status=1
    fi
    check_servers || status=1
    count_scenarios || status=1
    exit "$status"
}
trap end_suite EXIT

count_scenarios() {
    local recorded all
    if [[ -z ${passed:-} ]]; then
        echo "$suite: no scenario ran to its end"
        return 1
    fi
    echo "$passed passed, $failed failed"
    if ((failed || passed + ${#skipped_here[@]} == 0)); then
        return 1
    fi
    if ((is_whole + ${#ran_parts[@]})); then
        if ((skipped)); then
            echo "$suite: $skipped scenarios were skipped"
            ! is_strict || return 1
        fi
        all=$((passed + failed))
        recorded=$(recorded_scenarios)
        echo "scenarios $suite${ran_parts[*]:+/}${ran_parts[*]} $all"
        if ((all < ${recorded:-1000000} && ${#skipped_here[@]} == 0)); then
            echo "$suite: $all scenarios ran, and conformance/scenarios.txt has ${recorded:-no line for it}"
            return 1
        elif ((all > ${recorded:-0})); then
            echo "$suite: $all is more than conformance/scenarios.txt has: record it"
        fi
    fi
}

# Prints how many scenarios the suite has, or only its parts that ran. Prints nothing if one of them is not recorded.
recorded_scenarios() {
    awk -v names="$(printf "$suite%s " "${ran_parts[@]/#/\/}")" '
        BEGIN { left = split(names, wanted, " "); for (at in wanted) counts[wanted[at]]++ }
        $1 in counts { all += $2; left-- }
        END { if (!left) print all }
    ' "$repository/conformance/scenarios.txt"
}
