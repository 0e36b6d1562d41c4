# The common part of the suites in Java, besides common.sh, which is sourced before.

need java "Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)"
need javac "Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)"
need mvn "Maven (Debian: apt-get install maven)"

# The folders of their sources, and the environment with their packages.
sources_in=(src)
packages_of=java

# Compiles the scenarios and runs them, with these options of Java. The suite's own arguments, in $scenarios, select
# classes or methods: MessagesTest, or MessagesTest#expiry.
run_junit() {
    local jars classes=$target/conformance/$suite output=$target/conformance/$suite.log sources made scenario
    local reports=$target/conformance/$suite-reports status=0
    local selected=()
    jars=$(environment "$packages_of")/jars
    mapfile -t sources < <(find "${sources_in[@]}" -name '*.java' | sort)
    made=$({ echo "$jars"; javac -version; cat "${sources[@]}"; } | sha256sum)
    if [[ $(cat "$classes/made" 2>/dev/null) != "$made" ]]; then
        rm -rf "$classes"
        javac -Xlint:all -proc:none --release 17 -encoding UTF-8 -cp "$jars/*" -d "$classes" "${sources[@]}"
        echo "$made" >"$classes/made"
    fi
    # The authority of the server's certificate.
    local trust=$KEW_TEST_TLS/trust.p12
    keytool -importcert -noprompt -alias kew -file "$KEW_TEST_TLS/ca.pem" -keystore "$trust" \
        -storetype PKCS12 -storepass conformance 2>/dev/null

    for scenario in "${scenarios[@]}"; do
        [[ $scenario == *'#'* ]] || scenario+='#.*'
        selected+=("--select-class=kew.conformance.${scenario%#*}" "--include-methodname=.*[.]$scenario")
    done
    ((${#selected[@]})) || selected=("--scan-classpath=$classes")
    rm -rf "$reports"
    # The first compiler is enough, because the scenarios mostly wait.
    timeout --kill-after=10 "$PATIENCE" java "$@" -XX:TieredStopAtLevel=1 "-Djava.io.tmpdir=${TMPDIR:-/tmp}" \
        "-Djavax.net.ssl.trustStore=$trust" -Djavax.net.ssl.trustStorePassword=conformance \
        -cp "$classes:src/test/resources:$jars/*" org.junit.platform.console.ConsoleLauncher execute \
        --disable-banner --disable-ansi-colors --details=none --reports-dir="$reports" \
        "${selected[@]}" >"$output" 2>&1 || status=$?
    # The output is empty if all scenarios passed.
    cat "$output"
    [[ ! -s $reports/TEST-junit-jupiter.xml ]] || ran_by_report "$reports/TEST-junit-jupiter.xml"
    exit "$status"
}
