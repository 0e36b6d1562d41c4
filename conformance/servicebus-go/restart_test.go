package conformance

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A server for a single scenario, which is ended and restarted.
type restartable struct {
	connectionString string
	tell             io.Writer
	says             *bufio.Reader
}

func serve(t *testing.T, queues string) *restartable {
	t.Helper()
	command := exec.Command("../restarting", queues)
	command.Stderr = os.Stderr
	tell, err := command.StdinPipe()
	must(t, err)
	says, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() {
		tell.Close()
		command.Wait()
	})
	server := &restartable{tell: tell, says: bufio.NewReader(says)}
	server.connectionString = server.hear(t)
	return server
}

func (s *restartable) hear(t *testing.T) string {
	t.Helper()
	line, err := s.says.ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line)
}

func (s *restartable) restart(t *testing.T, signal string) {
	t.Helper()
	_, err := fmt.Fprintln(s.tell, signal)
	must(t, err)
	equal(t, "answer", s.hear(t), "ready")
}

// One sender and one receiver throughout: the SDK must do everything else.
func TestClientsGoOnWhenTheServerComesBack(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"TERM", "KILL"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			server := serve(t, `[{"Name": "q", "Properties": {"LockDuration": "PT5S"}}]`)
			var mutex sync.Mutex
			sent, seen := map[string]bool{}, map[string]bool{}
			note := func(into map[string]bool, body string) {
				mutex.Lock()
				defer mutex.Unlock()
				into[body] = true
			}
			count := func(of map[string]bool) int {
				mutex.Lock()
				defer mutex.Unlock()
				return len(of)
			}
			connect := func() *azservicebus.Client {
				client, err := azservicebus.NewClientFromConnectionString(server.connectionString, &azservicebus.ClientOptions{
					RetryOptions: azservicebus.RetryOptions{
						MaxRetries: 30, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond,
					},
				})
				must(t, err)
				t.Cleanup(func() { client.Close(ctx) })
				return client
			}
			// Each of the waits below has its own time-out.
			limited, cancel := contextFor(5 * patience)
			defer cancel()
			done := make(chan struct{})
			var wait sync.WaitGroup
			sender := newSender(t, connect(), "q")
			wait.Add(1)
			go func() {
				defer wait.Done()
				for limited.Err() == nil {
					select {
					case <-done:
						return
					case <-time.After(10 * time.Millisecond):
					}
					body := fmt.Sprint(count(sent))
					if err := sender.SendMessage(limited, text(body), nil); err != nil {
						t.Error(err)
						return
					}
					note(sent, body)
				}
			}()
			receiver := newReceiver(t, connect(), "q")
			go func() {
				for limited.Err() == nil {
					messages, err := receiver.ReceiveMessages(limited, 5, nil)
					if err != nil && limited.Err() == nil {
						t.Error(err)
						return
					}
					for _, message := range messages {
						note(seen, string(message.Body))
						// This SDK may wait forever for answers on a connection that is closed. If it fails, the message is
						// delivered again, or has been completed.
						short, cancel := contextFor(2 * time.Second)
						receiver.CompleteMessage(short, message, nil)
						cancel()
					}
				}
			}()
			areMore := func() {
				t.Helper()
				sentBefore, seenBefore := count(sent), count(seen)
				eventually(t, "more messages", func() bool {
					return count(sent) >= sentBefore+20 && count(seen) >= seenBefore+20
				})
			}
			areMore()
			for range 2 {
				server.restart(t, signal)
				areMore()
			}
			close(done)
			wait.Wait()
			// Some may have arrived twice.
			eventually(t, "the last messages", func() bool {
				mutex.Lock()
				defer mutex.Unlock()
				for body := range sent {
					if !seen[body] {
						return false
					}
				}
				return true
			})
		})
	}
}
