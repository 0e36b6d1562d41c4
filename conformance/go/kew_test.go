// Package conformance runs the Go SDK against the real binary.
package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

const patience = 30 * time.Second

var (
	ctx   = context.Background()
	facts = map[string]string{}
	names atomic.Int64

	// For scenarios about the server: the test must see answers that a retry would hide.
	noRetries = policy.RetryOptions{MaxRetries: -1}

	// Every scenario runs through each of these.
	doors = []Door{
		{name: "http-path", scheme: "http"},
		{name: "http-host", scheme: "http", host: "queue.localhost"},
		{name: "https-path", scheme: "https"},
		{name: "https-host", scheme: "https", host: "queue.localhost"},
	}
)

func TestMain(m *testing.M) {
	status, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// Runs kew as a process on a free port while the scenarios run.
func withServer(scenarios func() int) (int, error) {
	directory, err := os.MkdirTemp("", "kew-go-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(directory)
	// It keeps its log, which the suite checks at its end.
	kew := exec.Command(os.Getenv("KEW_BINARY"), arguments(directory)...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KEW_") {
			kew.Env = append(kew.Env, variable)
		}
	}
	output, err := kew.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := kew.Start(); err != nil {
		return 1, err
	}
	late := time.AfterFunc(patience, func() { kew.Process.Kill() })
	lines := bufio.NewScanner(output)
	for facts["KEW_READY"] == "" && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		facts[name] = strings.ReplaceAll(value, "'", "")
	}
	late.Stop()
	if facts["KEW_READY"] == "" {
		kew.Process.Kill()
		kew.Wait()
		return 1, errors.New("kew did not become ready")
	}
	status := scenarios()
	kew.Process.Signal(syscall.SIGTERM)
	late = time.AfterFunc(patience, func() { kew.Process.Kill() })
	defer late.Stop()
	return status, kew.Wait()
}

func arguments(directory string) []string {
	return []string{
		"serve", "--data-dir", filepath.Join(directory, "data"), "--queue-listen", "127.0.0.1:0",
		"--tls-cert", certificate("server.pem"), "--tls-key", certificate("server.key"),
	}
}

func certificate(name string) string {
	return filepath.Join(os.Getenv("KEW_TEST_TLS"), name)
}

// Door is one way to the server: the options of the SDK's client.
type Door struct {
	name   string
	scheme string
	// The part of the host's name after the account, if the account is in the host and not in the path.
	host string
}

// Runs a scenario once through each door.
func eachDoor(t *testing.T, scenario func(t *testing.T, door Door)) {
	t.Helper()
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, door)
		})
	}
}

// The same through the doors of one scheme.
func eachDoorOver(t *testing.T, scheme string, scenario func(t *testing.T, door Door)) {
	t.Helper()
	for _, door := range doors {
		if door.scheme == scheme {
			t.Run(door.name, func(t *testing.T) {
				t.Parallel()
				scenario(t, door)
			})
		}
	}
}

func port() string {
	_, port, err := net.SplitHostPort(facts["KEW_QUEUE_LISTEN"])
	if err != nil {
		panic(err)
	}
	return port
}

func credential() *azqueue.SharedKeyCredential {
	parts := map[string]string{}
	for _, part := range strings.Split(facts["KEW_QUEUE_CONNECTION_STRING"], ";") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	key, err := azqueue.NewSharedKeyCredential(parts["AccountName"], parts["AccountKey"])
	if err != nil {
		panic(err)
	}
	return key
}

// The address of the account or, with a suffix, of its secondary; without a slash at its end.
func (d Door) urlAt(port, suffix string) string {
	account := credential().AccountName() + suffix
	if d.host != "" {
		return fmt.Sprintf("%s://%s.%s:%s", d.scheme, account, d.host, port)
	}
	return fmt.Sprintf("%s://127.0.0.1:%s/%s", d.scheme, port, account)
}

func (d Door) url() string {
	return d.urlAt(port(), "")
}

func (d Door) options() *azqueue.ClientOptions {
	return d.optionsWith(noRetries)
}

func (d Door) optionsWith(retries policy.RetryOptions) *azqueue.ClientOptions {
	return &azqueue.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: client, Retry: retries},
	}
}

// One client, so one pool of connections. It resolves all names under localhost to this machine, which not
// every resolver does, and trusts the authority that signed the server's certificate.
var client = newClient()

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, ".localhost") {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	pem, err := os.ReadFile(certificate("ca.pem"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		panic("no certificate of the authority")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	return &http.Client{Transport: transport}
}

func (d Door) service(t *testing.T) *azqueue.ServiceClient {
	t.Helper()
	service, err := azqueue.NewServiceClientWithSharedKeyCredential(d.url(), credential(), d.options())
	must(t, err)
	return service
}

// A name that no other queue has.
func newName() string {
	return fmt.Sprintf("scenario-%d", names.Add(1))
}

// A client of a queue that does not exist.
func (d Door) absent(t *testing.T) *azqueue.QueueClient {
	t.Helper()
	return d.service(t).NewQueueClient(newName())
}

// A client of a new, empty queue.
func (d Door) fresh(t *testing.T) *azqueue.QueueClient {
	t.Helper()
	queue := d.absent(t)
	_, err := queue.Create(ctx, nil)
	must(t, err)
	return queue
}

// A client with only the credential in the address.
func (d Door) bySAS(t *testing.T, address string) *azqueue.QueueClient {
	t.Helper()
	queue, err := azqueue.NewQueueClientWithNoCredential(address, d.options())
	must(t, err)
	return queue
}

func nameOf(queue *azqueue.QueueClient) string {
	return queue.URL()[strings.LastIndexByte(queue.URL(), '/')+1:]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, expected T) {
	t.Helper()
	if got != expected {
		t.Fatalf("%s: got %v, expected %v", what, got, expected)
	}
}

// Expects an error with this status and code, as the SDK shows it.
func refused(t *testing.T, status int, code queueerror.Code, err error) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		t.Fatalf("expected %s, got %v", code, err)
	}
	equal(t, "status", response.StatusCode, status)
	if !queueerror.HasCode(err, code) {
		t.Fatalf("expected %s, got %v", code, err)
	}
	for _, header := range []string{"x-ms-error-code", "x-ms-request-id", "x-ms-version"} {
		// A bearer challenge has no version.
		if response.RawResponse.Header.Get(header) == "" && status != http.StatusUnauthorized {
			t.Fatalf("%s is missing: %v", header, err)
		}
	}
}

// Retries until the condition is true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func seconds(count int32) *int32 {
	return to.Ptr(count)
}
