# One check for every server under test, whatever the language of the harness that starts it. Sourced, with $target set
# and the real kew in $KEW_BINARY.

# Whether nothing may be skipped.
is_strict() {
    [[ ${KEW_STRICT:-} == 1 || ${CI:-} == true ]]
}

# Replaces KEW_BINARY by a script that writes the log of each server it starts to KEW_SERVER_LOGS, as PID-START.log: the
# system may use a PID again, but not with the same start time. A harness that ends a server by a signal other than TERM
# first creates a file PID.killed there.
watch_servers() {
    KEW_SERVER_LOGS=$target/conformance/servers/$1
    rm -rf "$KEW_SERVER_LOGS"
    mkdir -p "$KEW_SERVER_LOGS"
    KEW_SERVER_LOGS=$(realpath "$KEW_SERVER_LOGS")
    # The script replaces itself by kew, so that signals reach kew.
    cat >"$KEW_SERVER_LOGS/kew" <<END
#!/bin/sh
if [ "\$1" = serve ]; then
    own='$KEW_SERVER_LOGS'/\$\$
    # An earlier server had this PID.
    if [ -e "\$own.killed" ]; then
        for log in "\$own"-*.log; do
            touch "\${log%.log}.killed"
        done
        rm "\$own.killed"
    fi
    exec '$KEW_BINARY' "\$@" 2>>"\$own-\$(cut -d ' ' -f 22 /proc/\$\$/stat).log"
fi
exec '$KEW_BINARY' "\$@"
END
    chmod +x "$KEW_SERVER_LOGS/kew"
    KEW_BINARY=$KEW_SERVER_LOGS/kew
    export KEW_BINARY KEW_SERVER_LOGS
}

# Whether a server still runs, given as PID-START.
is_running() {
    [[ -n ${1#*-} && $(cut -d ' ' -f 22 "/proc/${1%-*}/stat" 2>/dev/null) == "${1#*-}" ]]
}

# Whether all servers ended as they should: none panicked or logged an error, each stopped in order or was killed by its
# scenario, and none still runs. Shows the logs of the others.
check_servers() {
    local log name pid faults deadline=$((SECONDS + 30)) status=0
    for log in "$KEW_SERVER_LOGS"/*.log; do
        [[ -e $log ]] || continue
        name=$(basename "$log" .log)
        pid=${name%-*}
        # A server that is stopping may take a moment.
        while is_running "$name" && ((SECONDS < deadline)); do
            sleep 0.05
        done
        faults=$(grep -E 'panicked at|^[^ ]+ +ERROR |"level":"ERROR"' "$log" || true)
        if is_running "$name"; then
            faults+=$'\nit still runs'
            kill -KILL "$pid" || true
        elif [[ ! -e ${log%.log}.killed && ! -e $KEW_SERVER_LOGS/$pid.killed ]] && ! tail -n 1 "$log" | grep -qE ' INFO stopped$'; then
            faults+=$'\nit did not stop in order'
        fi
        if [[ -n $faults ]]; then
            echo "--- a server logged:"
            tail -n 100 "$log"
            echo "--- the server did not end well: $faults"
            status=1
        fi
    done >&2
    return "$status"
}
