package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

func metadata(pairs ...string) map[string]*string {
	made := map[string]*string{}
	for at := 0; at < len(pairs); at += 2 {
		made[pairs[at]] = to.Ptr(pairs[at+1])
	}
	return made
}

// With lower-case names: net/http changes the case of headers.
func plain(metadata map[string]*string) map[string]string {
	made := map[string]string{}
	for name, value := range metadata {
		made[strings.ToLower(name)] = *value
	}
	return made
}

func expectMetadata(t *testing.T, got map[string]*string, expected map[string]*string) {
	t.Helper()
	if !maps.Equal(plain(got), plain(expected)) {
		t.Fatalf("got %v, expected %v", plain(got), plain(expected))
	}
}

func metadataOf(t *testing.T, queue *azqueue.QueueClient) map[string]*string {
	t.Helper()
	properties, err := queue.GetProperties(ctx, nil)
	must(t, err)
	return properties.Metadata
}

func countOf(t *testing.T, queue *azqueue.QueueClient) int32 {
	t.Helper()
	properties, err := queue.GetProperties(ctx, nil)
	must(t, err)
	return *properties.ApproximateMessagesCount
}

func listed(t *testing.T, service *azqueue.ServiceClient, options azqueue.ListQueuesOptions) [][]*azqueue.Queue {
	t.Helper()
	var pages [][]*azqueue.Queue
	for pager := service.NewListQueuesPager(&options); pager.More(); {
		page, err := pager.NextPage(ctx)
		must(t, err)
		pages = append(pages, page.Queues)
	}
	return pages
}

func namesOf(pages [][]*azqueue.Queue) []string {
	var found []string
	for _, page := range pages {
		for _, queue := range page {
			found = append(found, *queue.Name)
		}
	}
	return found
}

func TestCreateAndDelete(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.absent(t)
		created, err := queue.Create(ctx, nil)
		must(t, err)
		if *created.RequestID == "" || *created.Version == "" || created.Date.IsZero() {
			t.Fatalf("incomplete: %v", created)
		}
		_, err = queue.Delete(ctx, nil)
		must(t, err)
		_, err = queue.GetProperties(ctx, nil)
		refused(t, 404, queueerror.QueueNotFound, err)
		_, err = queue.Delete(ctx, nil)
		refused(t, 404, queueerror.QueueNotFound, err)
	})
}

func TestCreateAgain(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.absent(t)
		green := metadata("colour", "green")
		for range 2 {
			_, err := queue.Create(ctx, &azqueue.CreateOptions{Metadata: green})
			must(t, err)
		}
		for _, other := range []map[string]*string{
			metadata("colour", "blue"), nil, metadata("colour", "green", "size", "1"),
		} {
			_, err := queue.Create(ctx, &azqueue.CreateOptions{Metadata: other})
			refused(t, 409, queueerror.QueueAlreadyExists, err)
		}
		expectMetadata(t, metadataOf(t, queue), green)
	})
}

func TestACreatedAgainQueueIsEmpty(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		_, err := queue.EnqueueMessage(ctx, "old", nil)
		must(t, err)
		_, err = queue.Delete(ctx, nil)
		must(t, err)
		_, err = queue.Create(ctx, nil)
		must(t, err)
		equal(t, "count", countOf(t, queue), 0)
	})
}

func TestNamesThatAreNotAllowed(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		for _, name := range []string{"ab", strings.Repeat("a", 64)} {
			_, err := door.service(t).CreateQueue(ctx, name, nil)
			refused(t, 400, queueerror.OutOfRangeInput, err)
		}
		for _, name := range []string{"Abc", "a--b", "-abc", "abc-", "a_b", "aüb"} {
			_, err := door.service(t).CreateQueue(ctx, name, nil)
			refused(t, 400, queueerror.InvalidResourceName, err)
		}
	})
}

func TestMetadata(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		set := func(metadata map[string]*string) error {
			_, err := queue.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: metadata})
			return err
		}
		given := metadata("FooBar", "a  b", "_x1", "y", "signs", "a=b;c,d/e", "a_b", "1", "ab", "2")
		must(t, set(given))
		expectMetadata(t, metadataOf(t, queue), given)
		pages := listed(t, door.service(t), azqueue.ListQueuesOptions{
			Prefix: to.Ptr(nameOf(queue)), Include: azqueue.ListQueuesInclude{Metadata: true},
		})
		expectMetadata(t, pages[0][0].Metadata, given)
		must(t, set(nil))
		expectMetadata(t, metadataOf(t, queue), nil)

		full := metadata("k", strings.Repeat("v", 8191))
		must(t, set(full))
		refused(t, 400, queueerror.MetadataTooLarge, set(metadata("k", strings.Repeat("v", 8192))))
		refused(t, 400, "InvalidMetadata", set(metadata("1bad", "v")))
		expectMetadata(t, metadataOf(t, queue), full)
	})
}

func TestTheCountIncludesHiddenMessages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		_, err := queue.EnqueueMessage(ctx, "now", nil)
		must(t, err)
		later := &azqueue.EnqueueMessageOptions{VisibilityTimeout: seconds(600)}
		_, err = queue.EnqueueMessage(ctx, "later", later)
		must(t, err)
		_, err = queue.DequeueMessage(ctx, nil)
		must(t, err)
		equal(t, "count", countOf(t, queue), 2)
		_, err = queue.ClearMessages(ctx, nil)
		must(t, err)
		equal(t, "count", countOf(t, queue), 0)
	})
}

func TestListInPages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		service, prefix := door.service(t), newName()+"-"
		var expected []string
		for _, end := range []string{"3", "1", "6", "5", "0", "4", "2"} {
			_, err := service.CreateQueue(ctx, prefix+end, nil)
			must(t, err)
			expected = append(expected, prefix+end)
		}
		slices.Sort(expected)
		for _, size := range []int32{1, 2, 7, 5000} {
			pages := listed(t, service, azqueue.ListQueuesOptions{Prefix: &prefix, MaxResults: &size})
			for _, page := range pages {
				if len(page) > int(size) {
					t.Fatalf("a page of %d with %d", size, len(page))
				}
			}
			if got := namesOf(pages); !slices.Equal(got, expected) {
				t.Fatalf("in pages of %d: %v", size, got)
			}
		}
		for _, odd := range []string{"a+b", "a b", "a%2Bb", "a/b", "ä", "a=b&c=d", "'"} {
			pages := listed(t, service, azqueue.ListQueuesOptions{Prefix: &odd})
			equal(t, "queues with "+odd, len(namesOf(pages)), 0)
		}
		none := int32(0)
		pager := service.NewListQueuesPager(&azqueue.ListQueuesOptions{MaxResults: &none})
		_, err := pager.NextPage(ctx)
		refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
	})
}
