package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/sas"
)

func soon() time.Time { return time.Now().UTC().Add(10 * time.Minute) }
func past() time.Time { return time.Now().UTC().Add(-10 * time.Minute) }

// Expects an error with this status and any code.
func refusedWith(t *testing.T, status int, err error) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		t.Fatalf("expected %d, got %v", status, err)
	}
	equal(t, "status", response.StatusCode, status)
}

// The fields that the SDK signs, without those that a scenario leaves out.
func sign(t *testing.T, queue *azqueue.QueueClient, values sas.QueueSignatureValues) string {
	t.Helper()
	values.QueueName = nameOf(queue)
	if values.Identifier == "" && values.ExpiryTime.IsZero() {
		values.ExpiryTime = soon()
	}
	signed, err := values.SignWithSharedKey(credential())
	must(t, err)
	return queue.URL() + "?" + signed.Encode()
}

type operation func(*azqueue.QueueClient, *azqueue.EnqueuedMessage) error

func properties(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.GetProperties(ctx, nil)
	return err
}

func setMetadata(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: metadata("a", "b")})
	return err
}

func peekOne(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.PeekMessage(ctx, nil)
	return err
}

func enqueue(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.EnqueueMessage(ctx, "text", nil)
	return err
}

func updateIt(q *azqueue.QueueClient, m *azqueue.EnqueuedMessage) error {
	_, err := update(q, *m.MessageID, *m.PopReceipt, "new", 0)
	return err
}

func dequeue(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.DequeueMessage(ctx, nil)
	return err
}

func removeIt(q *azqueue.QueueClient, m *azqueue.EnqueuedMessage) error {
	return remove(q, *m.MessageID, *m.PopReceipt)
}

func clearAll(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.ClearMessages(ctx, nil)
	return err
}

func deleteQueue(q *azqueue.QueueClient, _ *azqueue.EnqueuedMessage) error {
	_, err := q.Delete(ctx, nil)
	return err
}

func TestAQueuesSignature(t *testing.T) {
	for _, row := range []struct {
		letter  string
		operate operation
	}{
		{"r", properties}, {"r", peekOne}, {"a", enqueue}, {"u", updateIt}, {"p", dequeue}, {"p", removeIt},
	} {
		eachDoor(t, func(t *testing.T, door Door) {
			queue := door.fresh(t)
			message := send(t, queue, "text")
			signed := func(letters string) *azqueue.QueueClient {
				values := sas.QueueSignatureValues{StartTime: past(), Permissions: letters}
				return door.bySAS(t, sign(t, queue, values))
			}
			others := strings.Replace("raup", row.letter, "", 1)
			err := row.operate(signed(others), message)
			refused(t, 403, queueerror.AuthorizationPermissionMismatch, err)
			must(t, row.operate(signed(row.letter), message))
		})
	}
}

func TestAQueuesSignatureAdministersNothing(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		address := sign(t, queue, sas.QueueSignatureValues{Permissions: "raup"})
		for _, operate := range []operation{setMetadata, clearAll, deleteQueue} {
			refusedWith(t, 403, operate(door.bySAS(t, address), nil))
		}
		other := strings.Replace(address, nameOf(queue), nameOf(door.fresh(t)), 1)
		refused(t, 403, queueerror.AuthenticationFailed, properties(door.bySAS(t, other), nil))
		altered := strings.Replace(
			sign(t, queue, sas.QueueSignatureValues{Permissions: "r"}), "sp=r&", "sp=raup&", 1)
		refused(t, 403, queueerror.AuthenticationFailed, properties(door.bySAS(t, altered), nil))
	})
}

func TestWhenWhereAndHowASignatureIsGood(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		try := func(values sas.QueueSignatureValues) error {
			values.Permissions = "r"
			return properties(door.bySAS(t, sign(t, queue, values)), nil)
		}
		refused(t, 403, queueerror.AuthenticationFailed, try(sas.QueueSignatureValues{ExpiryTime: past()}))
		refused(t, 403, queueerror.AuthenticationFailed, try(sas.QueueSignatureValues{StartTime: soon().Add(-time.Minute)}))
		must(t, try(sas.QueueSignatureValues{IPRange: sas.IPRange{Start: []byte{127, 0, 0, 1}}}))
		refused(t, 403, queueerror.AuthorizationSourceIPMismatch,
			try(sas.QueueSignatureValues{IPRange: sas.IPRange{Start: []byte{192, 0, 2, 1}}}))
		must(t, try(sas.QueueSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP}))
		// The SDK's own signatures are for HTTPS only.
		address, err := queue.GetSASURL(sas.QueuePermissions{Read: true}, soon(), nil)
		must(t, err)
		err = properties(door.bySAS(t, address), nil)
		if door.scheme == "https" {
			must(t, err)
		} else {
			refused(t, 403, queueerror.AuthorizationProtocolMismatch, err)
		}
	})
}

func TestASignatureUnderAStoredPolicy(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		must(t, setPolicies(queue, identifier("stored", "ra")))
		signed := door.bySAS(t, sign(t, queue, sas.QueueSignatureValues{Identifier: "stored"}))
		must(t, enqueue(signed, nil))
		refused(t, 403, queueerror.AuthorizationPermissionMismatch, dequeue(signed, nil))
		must(t, setPolicies(queue, identifier("stored", "p")))
		must(t, dequeue(signed, nil))
		refused(t, 403, queueerror.AuthorizationPermissionMismatch, enqueue(signed, nil))
		must(t, setPolicies(queue))
		refused(t, 403, queueerror.AuthenticationFailed, dequeue(signed, nil))
	})
}

func TestAnAccountsSignature(t *testing.T) {
	for _, row := range []struct {
		kind, letter string
		operate      operation
	}{
		{"c", "r", properties}, {"c", "w", setMetadata}, {"o", "r", peekOne}, {"o", "a", enqueue},
		{"o", "u", updateIt}, {"o", "p", dequeue}, {"o", "p", removeIt}, {"o", "d", clearAll},
		{"c", "d", deleteQueue},
	} {
		eachDoor(t, func(t *testing.T, door Door) {
			queue := door.fresh(t)
			message := send(t, queue, "text")
			signed := func(kinds, letters string) *azqueue.QueueClient {
				values := sas.AccountSignatureValues{
					Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: soon(), Permissions: letters, ResourceTypes: kinds,
				}
				query, err := values.SignWithSharedKey(credential())
				must(t, err)
				return door.bySAS(t, queue.URL()+"?"+query.Encode())
			}
			others := strings.Replace("rwdlacup", row.letter, "", 1)
			err := row.operate(signed("sco", others), message)
			refused(t, 403, queueerror.AuthorizationPermissionMismatch, err)
			err = row.operate(signed(strings.Replace("sco", row.kind, "", 1), row.letter), message)
			refused(t, 403, queueerror.AuthorizationResourceTypeMismatch, err)
			must(t, row.operate(signed(row.kind, row.letter), message))
		})
	}
}

func TestAnAccountsSignatureForTheService(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		kinds := sas.AccountResourceTypes{Service: true, Container: true, Object: true}
		all := sas.AccountPermissions{Read: true, Write: true, Delete: true, List: true, Add: true, Create: true}
		address, err := door.service(t).GetSASURL(kinds, all, soon(), nil)
		must(t, err)
		service, err := azqueue.NewServiceClientWithNoCredential(address, door.options())
		must(t, err)
		name := newName()
		_, err = service.CreateQueue(ctx, name, nil)
		if door.scheme != "https" {
			refused(t, 403, queueerror.AuthorizationProtocolMismatch, err)
			return
		}
		must(t, err)
		equal(t, "queues", len(namesOf(listed(t, service, azqueue.ListQueuesOptions{Prefix: &name}))), 1)
		_, err = service.DeleteQueue(ctx, name, nil)
		must(t, err)
	})
}
