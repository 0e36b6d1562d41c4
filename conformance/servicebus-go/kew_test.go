// Package conformance runs the Go SDK of Service Bus against the real binary, which the script beside
// it has started.
package conformance

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
)

const (
	patience = 30 * time.Second
	// For messages that should not arrive.
	moment = time.Second
)

var (
	ctx = context.Background()

	// For scenarios about the server: the test must see answers that a retry would hide.
	noRetries = azservicebus.RetryOptions{MaxRetries: -1}

	// Every scenario runs through each of these.
	doors = everyDoor()

	// How long the scenarios with a requested duration run.
	soak = soakTime()

	taken   = map[string]int{}
	takenMu sync.Mutex
)

func soakTime() time.Duration {
	seconds, err := strconv.Atoi(os.Getenv("KEW_SOAK_SECONDS"))
	if err != nil {
		seconds = 20
	}
	return time.Duration(seconds) * time.Second
}

// Door is one way to the server: the options of the SDK's client.
type Door struct {
	name string
}

func everyDoor() []Door {
	doors := []Door{{name: "amqp"}, {name: "amqps"}}
	if os.Getenv("KEW_BUS_HTTPS") != "" {
		doors = append(doors, Door{name: "websockets"})
	}
	return doors
}

func eachDoor(t *testing.T, scenario func(t *testing.T, door Door)) {
	t.Helper()
	t.Parallel()
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, door)
		})
	}
}

func (d Door) connectionString() string {
	plain := os.Getenv("KEW_BUS_CONNECTION_STRING")
	if d.name == "amqp" {
		return plain
	}
	_, rest, _ := strings.Cut(plain, ";")
	rest = strings.Replace(rest, "UseDevelopmentEmulator=true;", "", 1)
	return fmt.Sprintf("Endpoint=sb://%s/;%s", os.Getenv("KEW_BUS_HOST"), rest)
}

func (d Door) options() *azservicebus.ClientOptions {
	options := &azservicebus.ClientOptions{RetryOptions: noRetries, TLSConfig: trusting}
	if d.name == "websockets" {
		options.NewWebSocketConn = dialWebSocket
	}
	return options
}

func dialWebSocket(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	socket, _, err := websocket.Dial(ctx, args.Host, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}},
		Subprotocols: []string{"amqp"},
	})
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
}

// Trusts the authority that signed the server's certificate.
var trusting = newTrust()

func newTrust() *tls.Config {
	pem, err := os.ReadFile(filepath.Join(os.Getenv("KEW_TEST_TLS"), "ca.pem"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		panic("no certificate of the authority")
	}
	return &tls.Config{RootCAs: roots}
}

func (d Door) client(t *testing.T) *azservicebus.Client {
	t.Helper()
	return d.clientWith(t, d.connectionString())
}

func (d Door) clientWith(t *testing.T, connectionString string) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, d.options())
	must(t, err)
	t.Cleanup(func() { client.Close(ctx) })
	return client
}

// An empty queue of this kind that no other scenario uses.
func fresh(kind string) string {
	takenMu.Lock()
	defer takenMu.Unlock()
	taken[kind]++
	return fmt.Sprintf("%s-%d", kind, taken[kind])
}

// The related queue of another kind.
func partner(queue, kind string) string {
	return kind + queue[strings.LastIndexByte(queue, '-'):]
}

// The common methods of all kinds of receivers.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

func newSender(t *testing.T, client *azservicebus.Client, queue string) *azservicebus.Sender {
	t.Helper()
	sender, err := client.NewSender(queue, nil)
	must(t, err)
	return sender
}

func newReceiver(t *testing.T, client *azservicebus.Client, queue string) *azservicebus.Receiver {
	t.Helper()
	return newReceiverWith(t, client, queue, azservicebus.ReceiverOptions{})
}

func newReceiverWith(
	t *testing.T, client *azservicebus.Client, queue string, options azservicebus.ReceiverOptions,
) *azservicebus.Receiver {
	t.Helper()
	receiver, err := client.NewReceiverForQueue(queue, &options)
	must(t, err)
	return receiver
}

func newDeadLetterReceiver(t *testing.T, client *azservicebus.Client, queue string) *azservicebus.Receiver {
	t.Helper()
	return newReceiverWith(t, client, queue, azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func send(t *testing.T, client *azservicebus.Client, queue string, messages ...*azservicebus.Message) {
	t.Helper()
	sender := newSender(t, client, queue)
	defer sender.Close(ctx)
	for _, message := range messages {
		must(t, sender.SendMessage(ctx, message, nil))
	}
}

func text(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

// This many messages, in the order of arrival.
func take(t *testing.T, from receiver, count int) []*azservicebus.ReceivedMessage {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var messages []*azservicebus.ReceivedMessage
	for len(messages) < count {
		found, err := from.ReceiveMessages(limited, count-len(messages), nil)
		if err != nil {
			t.Fatalf("%d of %d messages, then %v", len(messages), count, err)
		}
		messages = append(messages, found...)
	}
	slices.SortFunc(messages, func(a, b *azservicebus.ReceivedMessage) int {
		return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber)
	})
	return messages
}

func takeOne(t *testing.T, from receiver) *azservicebus.ReceivedMessage {
	t.Helper()
	return take(t, from, 1)[0]
}

// Receives a message and completes it.
func drop(t *testing.T, from receiver) *azservicebus.ReceivedMessage {
	t.Helper()
	message := takeOne(t, from)
	must(t, from.CompleteMessage(ctx, message, nil))
	return message
}

// Has the links of a receiver opened: one whose wait is cancelled before loses its connection.
func opened(t *testing.T, receiver *azservicebus.Receiver) {
	t.Helper()
	_, err := receiver.PeekMessages(ctx, 1, nil)
	must(t, err)
}

func isEmpty(t *testing.T, from receiver) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	messages, err := from.ReceiveMessages(limited, 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("expected nothing, got %v, %v", messages, err)
	}
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

// The same for a value that may be absent.
func equalAt[T comparable](t *testing.T, what string, got *T, expected T) {
	t.Helper()
	if got == nil {
		t.Fatalf("%s: absent, expected %v", what, expected)
	}
	equal(t, what, *got, expected)
}

func bodies(messages []*azservicebus.ReceivedMessage) string {
	var all []string
	for _, message := range messages {
		all = append(all, string(message.Body))
	}
	return strings.Join(all, " ")
}

// Expects an error with this code of the SDK.
func refused(t *testing.T, code azservicebus.Code, err error) {
	t.Helper()
	var known *azservicebus.Error
	if !errors.As(err, &known) {
		t.Fatalf("expected %s, got %v", code, err)
	}
	equal(t, "code", known.Code, code)
}

// Expects an error of the server that the SDK has no code for.
func refusedAs(t *testing.T, condition amqp.ErrCond, err error) {
	t.Helper()
	var known *amqp.Error
	if !errors.As(err, &known) {
		t.Fatalf("expected %s, got %v", condition, err)
	}
	equal(t, "condition", known.Condition, condition)
}

// The entity did not exist when its token was put.
func refusedAsMissing(t *testing.T, err error) {
	t.Helper()
	var known *azservicebus.Error
	if !errors.As(err, &known) {
		t.Fatalf("expected %s, got %v", azservicebus.CodeNotFound, err)
	}
	equal(t, "code", known.Code, azservicebus.CodeNotFound)
}

// Retries until the condition is true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
