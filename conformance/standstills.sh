# Says when nothing ran on this machine for more than two seconds, which on a virtual one happens: locks are lost by
# it, and times are over. Sourced.
watch_standstills() {
    local last=${EPOCHREALTIME/[^0-9]/} now
    while sleep 0.2; do
        now=${EPOCHREALTIME/[^0-9]/}
        if ((now - last > 2000000)); then
            echo "$(((now - last) / 1000)) ms until $(date +%T)"
        fi
        last=$now
    done
}
