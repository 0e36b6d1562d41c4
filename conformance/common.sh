# What every suite starts with. Sourced in the folder of the suite.
#
# KEW_BINARY names another kew to test.

# Seconds that the scenarios of one suite may take. Those that hold for as long as they are asked to, which
# conformance/soak does, take KEW_SOAK_SECONDS of them; 20, if it is not set.
PATIENCE=$((420 + ${KEW_SOAK_SECONDS:-0}))

repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
target=${CARGO_TARGET_DIR:-$repository/target}
KEW_BINARY=${KEW_BINARY:-$target/release/kew}
if [[ ! -x $KEW_BINARY ]]; then
    echo "$KEW_BINARY is absent; build it: cargo build --release --locked -p kew" >&2
    exit 1
fi
KEW_BINARY=$(realpath "$KEW_BINARY")
export KEW_BINARY

# An authority of the suite's own, which it is told to trust, and a certificate by it.
KEW_TEST_TLS=$target/conformance/tls/$(basename "$PWD")
export KEW_TEST_TLS
rm -rf "$KEW_TEST_TLS"
"$KEW_BINARY" tls init --dir "$KEW_TEST_TLS" >/dev/null

# Ends the run with status 77, which ./test reports by name, if a program is missing.
need() {
    if ! command -v "$1" >/dev/null; then
        echo "$1 is missing; this suite needs $2" >&2
        exit 77
    fi
}
