# The common part of the programs that try Kew with other libraries, besides ../common.sh, ../servicebus.sh and
# ../junit.sh, which are used as in the suites. docs/use-with.md says what each of them shows. Sourced in the folder of a
# program.

source ../../common.sh
source ../../servicebus.sh

# The queues and topics that the programs find. Some of them create more.
bus_config() {
    cat <<'END'
{ "UserConfig": { "Namespaces": [ {
  "Name": "sbemulatorns",
  "Queues": [ { "Name": "orders" }, { "Name": "other-orders" },
    { "Name": "brief", "Properties": { "LockDuration": "PT5S" } } ],
  "Topics": [
    { "Name": "news", "Subscriptions": [ { "Name": "mail" } ] },
    { "Name": "chats", "Subscriptions": [ { "Name": "mail", "Properties": { "RequiresSession": true } } ] },
    { "Name": "briefs", "Subscriptions": [ { "Name": "mail", "Properties": { "LockDuration": "PT5S" } } ] }
  ]
} ] } }
END
}

# Starts kew, and names it as users do.
serve() {
    serve_bus
    export AZURE_STORAGE_CONNECTION_STRING=$KEW_QUEUE_CONNECTION_STRING
    export SERVICEBUS_CONNECTION_STRING=$KEW_BUS_CONNECTION_STRING
}

# Runs the tests of a Go module in this folder, with the packages of its environment.
run_go() {
    local folder=$1 binary=$target/conformance/$suite.test output=$target/conformance/$suite.log status=0
    mkdir -p "$target/conformance"
    (cd "$folder" && go vet ./... && go test -c -o "$binary" .)
    serve
    # Programs in Go trust the authorities of this file, in place of the system's.
    SSL_CERT_FILE=$KEW_TEST_TLS/ca.pem timeout --kill-after=10 "$PATIENCE" \
        "$binary" -test.v -test.timeout "${PATIENCE}s" "${@:2}" >"$output" 2>&1 || status=$?
    # Libraries log much.
    ((status == 0)) || cat "$output"
    ran_by_go "$output"
    exit "$status"
}

# Runs the scenarios in Python in this folder, with the Python of $packages.
run_python() {
    local report=$target/conformance/$suite.xml status=0
    mkdir -p "$target/conformance"
    rm -f "$report"
    serve
    PYTHONPATH=$(realpath ../python)${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 \
        timeout --kill-after=10 "$PATIENCE" "$packages/venv/bin/python" -m pytest -c ../python/pytest.ini --rootdir=. \
        -o faulthandler_timeout=120 --junitxml="$report" "$@" . || status=$?
    [[ ! -s $report ]] || ran_by_report "$report"
    exit "$status"
}

# Runs the scenarios in Java in this folder, with the packages of its environment.
run_java() {
    source ../../junit.sh
    sources_in=(src ../java)
    packages_of=$suite
    serve
    run_junit -Djava.util.logging.config.file=../java/logging.properties "$@"
}
