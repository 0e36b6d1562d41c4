# The common part of the Service Bus suites, besides common.sh, which is sourced before: a server with the queues and
# topics of a configuration file. Each scenario takes a queue of the kind that it needs for itself.

QUEUES_OF_A_KIND=100

# The kinds and their settings. Queues are named KIND-1 to KIND-100. Queues that scenarios create and delete have names
# from x on, so that they do not move the pages of lists in which other scenarios look for these queues. Locks whose end
# a scenario awaits are short. Locks that a scenario renews are a little longer, because a busy machine or disk may
# stall for some seconds.
bus_config() {
    local kind number separator=
    local -A kinds=(
        [plain]=''
        [session]='"RequiresSession": true'
        [thrice]='"MaxDeliveryCount": 3'
        [brief]='"LockDuration": "PT10S"'
        [brief-session]='"RequiresSession": true, "LockDuration": "PT10S"'
        [renewed]='"LockDuration": "PT15S"'
        [renewed-session]='"RequiresSession": true, "LockDuration": "PT15S"'
        [unique]='"RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT20S"'
        [fading]='"DefaultMessageTimeToLive": "PT2S"'
        [expiring]='"DeadLetteringOnMessageExpiration": true'
        [forwarding]='"ForwardTo": "forwarded-N"'
        [forwarded]='"ForwardDeadLetteredMessagesTo": "letters-N"'
        [letters]=''
    )
    echo '// Queues of the scenarios, by what is special about them.'
    echo '{ "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns", "Queues": ['
    for kind in "${!kinds[@]}"; do
        for ((number = 1; number <= QUEUES_OF_A_KIND; number++)); do
            echo "$separator{ \"Name\": \"$kind-$number\", \"Properties\": {${kinds[$kind]//-N/-$number}} }"
            separator=', '
        done
    done
    # Five hops, one more than a message may take.
    for ((number = 1; number <= 6; number++)); do
        echo "$separator{ \"Name\": \"hop-$number\", \"Properties\": {"
        ((number == 6)) || echo "\"ForwardTo\": \"hop-$((number + 1))\""
        echo '} }'
    done
    echo '], "Topics": ['
    separator=
    # One for each way to the server.
    for kind in amqp amqps websockets; do
        echo "$separator{ \"Name\": \"configured-$kind\", \"Properties\": {"
        echo '"DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": true }, "Subscriptions": ['
        echo '{ "Name": "all", "Properties": { "DefaultMessageTimeToLive": "PT30M", "MaxDeliveryCount": 3 } },'
        echo '{ "Name": "red", "Rules": [ { "Name": "color", "Properties": { "FilterType": "Correlation",'
        echo '"CorrelationFilter": { "Label": "order", "Properties": { "color": "red" } } } } ] },'
        echo '{ "Name": "large", "Rules": [ { "Name": "size", "Properties": { "FilterType": "Sql",'
        echo '"SqlFilter": { "SqlExpression": "size > 5" }, "Action": { "SqlExpression": "SET size = 5" } } } ] } ] }'
        separator=', '
    done
    echo '] } ] } }'
}

# Starts kew on a free port. It also binds the ports that SDKs insist on for TLS, on an address of this run's own,
# KEW_BUS_HOST: 5671 and, if the user may, 443. Its certificate is also for the name KEW_BUS_NAME, which scenarios
# resolve themselves. Exports the variables that kew prints.
serve_bus() {
    local line variable
    KEW_BUS_HOST=127.$((RANDOM % 200 + 20)).$((RANDOM % 256)).$((RANDOM % 254 + 1))
    export KEW_BUS_HOST KEW_BUS_NAME=kew.example.net
    "$KEW_BINARY" tls init --force --dir "$KEW_TEST_TLS" --host "$KEW_BUS_HOST" --host "$KEW_BUS_NAME" >/dev/null
    local listen=(--bus-listen 127.0.0.1:0 --bus-listen "$KEW_BUS_HOST:5671")
    # Empty if the user may not bind port 443.
    KEW_BUS_HTTPS=
    if [[ $(id -u) == 0 ]] || (($(</proc/sys/net/ipv4/ip_unprivileged_port_start) <= 443)); then
        listen+=(--bus-listen "$KEW_BUS_HOST:443")
        KEW_BUS_HTTPS=yes
    else
        skip "WebSockets, administration, Celery and Kombu" "this user may not listen on port 443; run as root, \
or allow it: sysctl net.ipv4.ip_unprivileged_port_start=443"
    fi
    export KEW_BUS_HTTPS
    bus_directory=$(mktemp -d)
    bus_config >"$bus_directory/Config.json"
    # For suites of several processes.
    export KEW_BUS_TAKEN=$bus_directory/taken
    mkdir "$KEW_BUS_TAKEN"
    coproc KEW {
        binary=$KEW_BINARY
        tls=$KEW_TEST_TLS
        for variable in "${!KEW_@}"; do
            unset "$variable"
        done
        exec "$binary" serve --data-dir "$bus_directory/data" --queue-listen 127.0.0.1:0 \
            "${listen[@]}" --import "$bus_directory/Config.json" \
            --tls-cert "$tls/server.pem" --tls-key "$tls/server.key"
    }
    bus_server=$KEW_PID
    while read -r -t 60 -u "${KEW[0]}" line; do
        # The values are in the form that a shell reads.
        eval "export $line"
        if [[ $line == KEW_READY=* ]]; then
            bus_memory=$(memory_of_bus)
            return
        fi
    done
    echo "the server did not become ready" >&2
    exit 1
}

# The memory of the server, now and at most.
memory_of_bus() {
    awk '/^Vm(RSS|HWM):/ { printf "%s%s %s %s", separator, $1, $2, $3; separator = ", " }' "/proc/$bus_server/status"
}

# Ends the server; end_suite checks how it ended.
before_the_end() {
    local status=0
    if [[ -n ${bus_server:-} ]]; then
        # A leak would show in a long run.
        if [[ -n ${KEW_SOAK_SECONDS:-} ]]; then
            echo "the server's memory: ${bus_memory:-none} at the start; $(memory_of_bus || true) at the end"
        fi
        kill "$bus_server" 2>/dev/null || true
        wait "$bus_server" || status=$?
        if ((status)); then
            echo "the server ended with status $status" >&2
        fi
    fi
    rm -rf "${bus_directory:-}"
    return "$status"
}
