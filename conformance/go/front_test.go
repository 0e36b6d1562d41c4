package conformance

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

const busyBody = `<?xml version="1.0" encoding="utf-8"?><Error><Code>ServerBusy</Code>` +
	`<Message>The server is currently unable to receive requests.</Message></Error>`

var busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n" +
	"Retry-After: 0\r\nContent-Type: application/xml\r\nConnection: close\r\n" +
	fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(busyBody), busyBody)

// A proxy before the server: counts connections, and answers the first requests itself.
type front struct {
	listener    net.Listener
	busy        int64
	connections atomic.Int64
}

func newFront(t *testing.T, busy int64) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &front{listener: listener, busy: busy}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(connection)
		}
	}()
	return f
}

func (f *front) port() string {
	_, port, _ := net.SplitHostPort(f.listener.Addr().String())
	return port
}

func (f *front) serve(client net.Conn) {
	defer client.Close()
	if f.connections.Add(1) <= f.busy {
		client.Read(make([]byte, 65536))
		io.WriteString(client, busyAnswer)
		return
	}
	kew, err := net.Dial("tcp", "127.0.0.1:"+port())
	if err != nil {
		return
	}
	defer kew.Close()
	go func() {
		io.Copy(kew, client)
		kew.Close()
	}()
	io.Copy(client, kew)
}
