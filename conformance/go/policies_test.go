package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

var (
	policyStarts  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	policyExpires = time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC)
)

func identifier(id, permission string) *azqueue.SignedIdentifier {
	return &azqueue.SignedIdentifier{ID: &id, AccessPolicy: &azqueue.AccessPolicy{
		Start: to.Ptr(policyStarts), Expiry: to.Ptr(policyExpires), Permission: &permission,
	}}
}

func setPolicies(queue *azqueue.QueueClient, identifiers ...*azqueue.SignedIdentifier) error {
	_, err := queue.SetAccessPolicy(ctx, &azqueue.SetAccessPolicyOptions{QueueACL: identifiers})
	return err
}

func expectPolicies(t *testing.T, queue *azqueue.QueueClient, expected ...*azqueue.SignedIdentifier) {
	t.Helper()
	read, err := queue.GetAccessPolicy(ctx, nil)
	must(t, err)
	equal(t, "policies", len(read.SignedIdentifiers), len(expected))
	for at, got := range read.SignedIdentifiers {
		equal(t, "id", *got.ID, *expected[at].ID)
		equal(t, "permission", *got.AccessPolicy.Permission, *expected[at].AccessPolicy.Permission)
		equal(t, "start", got.AccessPolicy.Start.Unix(), expected[at].AccessPolicy.Start.Unix())
		equal(t, "expiry", got.AccessPolicy.Expiry.Unix(), expected[at].AccessPolicy.Expiry.Unix())
	}
}

func TestPolicies(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		expectPolicies(t, queue)
		var five []*azqueue.SignedIdentifier
		for _, id := range []string{"a", "b", "with space & <signs>", "ä", strings.Repeat("x", 64)} {
			five = append(five, identifier(id, "raup"))
		}
		must(t, setPolicies(queue, five...))
		expectPolicies(t, queue, five...)
		must(t, setPolicies(queue, identifier("only", "r")))
		expectPolicies(t, queue, identifier("only", "r"))
		must(t, setPolicies(queue))
		expectPolicies(t, queue)
	})
}

func TestAPolicyWithPartsAbsent(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		must(t, setPolicies(queue, &azqueue.SignedIdentifier{
			ID: to.Ptr("a"), AccessPolicy: &azqueue.AccessPolicy{Permission: to.Ptr("p")},
		}))
		read, err := queue.GetAccessPolicy(ctx, nil)
		must(t, err)
		policy := read.SignedIdentifiers[0].AccessPolicy
		equal(t, "permission", *policy.Permission, "p")
		if policy.Start != nil || policy.Expiry != nil {
			t.Fatalf("got %v", policy)
		}
	})
}

func TestPoliciesThatAreNotAllowed(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		must(t, setPolicies(queue, identifier("kept", "raup")))
		var six []*azqueue.SignedIdentifier
		for _, id := range strings.Split("123456", "") {
			six = append(six, identifier(id, "r"))
		}
		refused(t, 400, queueerror.InvalidXMLDocument, setPolicies(queue, six...))
		long := identifier(strings.Repeat("x", 65), "r")
		refused(t, 400, queueerror.InvalidXMLDocument, setPolicies(queue, long))
		refusedWith(t, 400, setPolicies(queue, identifier("letters", "rw")))
		expectPolicies(t, queue, identifier("kept", "raup"))
		refused(t, 404, queueerror.QueueNotFound, setPolicies(door.absent(t), identifier("a", "r")))
	})
}
