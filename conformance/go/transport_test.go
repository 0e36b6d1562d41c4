package conformance

import (
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

// A client whose connections go through a proxy.
func through(t *testing.T, door Door, f *front, retries policy.RetryOptions) *azqueue.QueueClient {
	t.Helper()
	address := door.urlAt(f.port(), "") + "/" + nameOf(door.fresh(t))
	queue, err := azqueue.NewQueueClientWithSharedKeyCredential(address, credential(), door.optionsWith(retries))
	must(t, err)
	return queue
}

func TestManyRequestsShareOneConnection(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		front := newFront(t, 0)
		queue := through(t, door, front, noRetries)
		for number := range 20 {
			send(t, queue, strconv.Itoa(number))
			message := receive(t, queue, 1, 600)[0]
			must(t, remove(queue, *message.MessageID, *message.PopReceipt))
			// An error keeps the connection too.
			refused(t, 404, queueerror.MessageNotFound, remove(queue, *message.MessageID, *message.PopReceipt))
		}
		equal(t, "connections", front.connections.Load(), 1)
	})
}

func TestABusyServerIsAskedAgain(t *testing.T) {
	// The busy server has no TLS.
	eachDoorOver(t, "http", func(t *testing.T, door Door) {
		front := newFront(t, 2)
		quick := policy.RetryOptions{MaxRetries: 3, RetryDelay: 10 * time.Millisecond}
		queue := through(t, door, front, quick)
		send(t, queue, "text")
		equal(t, "count", countOf(t, queue), 1)
		equal(t, "connections", front.connections.Load(), 3)
		_, err := through(t, door, newFront(t, 1), noRetries).EnqueueMessage(ctx, "text", nil)
		refusedAsBusy(t, err)
	})
}

// The simulated answer lacks some parts of the real one.
func refusedAsBusy(t *testing.T, err error) {
	t.Helper()
	if !queueerror.HasCode(err, queueerror.ServerBusy) {
		t.Fatalf("got %v", err)
	}
}

func TestCredentialsThatAreNone(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		address := door.fresh(t).URL()
		wrong, err := azqueue.NewSharedKeyCredential(credential().AccountName(), foreignReceipt)
		must(t, err)
		queue, err := azqueue.NewQueueClientWithSharedKeyCredential(address, wrong, door.options())
		must(t, err)
		_, err = queue.GetProperties(ctx, nil)
		refused(t, 403, queueerror.AuthenticationFailed, err)
		_, err = door.bySAS(t, address).GetProperties(ctx, nil)
		refused(t, 401, "NoAuthenticationInformation", err)
	})
}

func TestTheConnectionString(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		text := facts["KEW_QUEUE_CONNECTION_STRING"]
		queue, err := azqueue.NewQueueClientFromConnectionString(text, newName(), nil)
		must(t, err)
		_, err = queue.Create(ctx, nil)
		must(t, err)
		send(t, queue, "text")
		equal(t, "text", *receive(t, queue, 1, 600)[0].MessageText, "text")
	})
}
