package conformance

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

const (
	limit     = 65536
	foreignID = "00000000-0000-0000-0000-000000000000"
)

// A receipt in the right form that belongs to no message.
var foreignReceipt = base64.StdEncoding.EncodeToString(make([]byte, 16))

func send(t *testing.T, queue *azqueue.QueueClient, text string) *azqueue.EnqueuedMessage {
	t.Helper()
	sent, err := queue.EnqueueMessage(ctx, text, nil)
	must(t, err)
	equal(t, "messages", len(sent.Messages), 1)
	return sent.Messages[0]
}

func receive(t *testing.T, queue *azqueue.QueueClient, count, visibility int32) []*azqueue.DequeuedMessage {
	t.Helper()
	received, err := queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
		NumberOfMessages: &count, VisibilityTimeout: &visibility,
	})
	must(t, err)
	return received.Messages
}

func peek(t *testing.T, queue *azqueue.QueueClient) []string {
	t.Helper()
	count := int32(32)
	peeked, err := queue.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: &count})
	must(t, err)
	var texts []string
	for _, message := range peeked.Messages {
		texts = append(texts, textOf(message.MessageText))
	}
	return texts
}

// The SDK returns no text for an empty element.
func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func update(queue *azqueue.QueueClient, id, receipt, text string, visibility int32) (azqueue.UpdateMessageResponse, error) {
	options := &azqueue.UpdateMessageOptions{VisibilityTimeout: &visibility}
	return queue.UpdateMessage(ctx, id, receipt, text, options)
}

func remove(queue *azqueue.QueueClient, id, receipt string) error {
	_, err := queue.DeleteMessage(ctx, id, receipt, nil)
	return err
}

func near(t *testing.T, what string, got, expected time.Time) {
	t.Helper()
	if difference := got.Sub(expected).Abs(); difference > 20*time.Second {
		t.Fatalf("%s: got %v, expected about %v", what, got, expected)
	}
}

func TestSendAndReceiveAnswerWithEverything(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		sent := send(t, queue, "text")
		near(t, "insertion", *sent.InsertionTime, time.Now())
		equal(t, "life", sent.ExpirationTime.Sub(*sent.InsertionTime), 7*24*time.Hour)
		equal(t, "delay", sent.TimeNextVisible.Sub(*sent.InsertionTime), 0)
		received := receive(t, queue, 1, 60)[0]
		equal(t, "id", *received.MessageID, *sent.MessageID)
		equal(t, "text", *received.MessageText, "text")
		equal(t, "count", *received.DequeueCount, 1)
		equal(t, "insertion", received.InsertionTime.Unix(), sent.InsertionTime.Unix())
		equal(t, "expiry", received.ExpirationTime.Unix(), sent.ExpirationTime.Unix())
		near(t, "next visible", *received.TimeNextVisible, time.Now().Add(time.Minute))
		if *received.PopReceipt == "" || *received.PopReceipt == *sent.PopReceipt {
			t.Fatalf("receipt: %s", *received.PopReceipt)
		}
	})
}

func TestTexts(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		for _, text := range []string{
			`<a href="x" b='y'>&amp; &lt; &#65; ]]> <![CDATA[x]]> <!-- c --></a>`,
			"äöü ß 中文 العربية 🐦🦆 𝄞 e\u0301 \U0010fffd",
			"  \t text \t  ", "   ", "one\ntwo\n\nthree\n", "one\r\ntwo\r", "a+b %2B %zz ?&=#",
			`{"a": [1, 2.5, null]}`, "", strings.Repeat("x", limit),
			strings.Repeat("<", limit), strings.Repeat("🐦", limit/4),
		} {
			sent := send(t, queue, text)
			if got := peek(t, queue); len(got) != 1 || got[0] != text {
				t.Fatalf("got %.100q, expected %.100q", got, text)
			}
			updated, err := update(queue, *sent.MessageID, *sent.PopReceipt, text, 0)
			must(t, err)
			received := receive(t, queue, 1, 600)[0]
			if textOf(received.MessageText) != text {
				t.Fatalf("got %.100q, expected %.100q", textOf(received.MessageText), text)
			}
			refused(t, 404, queueerror.MessageNotFound, remove(queue, *sent.MessageID, *updated.PopReceipt))
			must(t, remove(queue, *received.MessageID, *received.PopReceipt))
		}
	})
}

func TestTextsThatDoNotFit(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		for _, text := range []string{strings.Repeat("x", limit+1), strings.Repeat("中", limit/3+1)} {
			_, err := queue.EnqueueMessage(ctx, text, nil)
			refused(t, 413, "RequestBodyTooLarge", err)
			sent := send(t, queue, "small")
			_, err = update(queue, *sent.MessageID, *sent.PopReceipt, text, 0)
			refused(t, 413, "RequestBodyTooLarge", err)
			must(t, remove(queue, *sent.MessageID, *sent.PopReceipt))
		}
	})
}

func TestTimeToLive(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		sendFor := func(life int32) (azqueue.EnqueueMessagesResponse, error) {
			return queue.EnqueueMessage(ctx, "x", &azqueue.EnqueueMessageOptions{TimeToLive: &life})
		}
		sent, err := sendFor(-1)
		must(t, err)
		endless := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		equal(t, "expiry", sent.Messages[0].ExpirationTime.UTC(), endless)
		_, err = sendFor(1<<31 - 1)
		must(t, err)
		for _, life := range []int32{0, -2} {
			_, err = sendFor(life)
			refused(t, 400, queueerror.InvalidQueryParameterValue, err)
		}
		_, err = queue.ClearMessages(ctx, nil)
		must(t, err)
		_, err = sendFor(1)
		must(t, err)
		eventually(t, "it expires", func() bool { return len(peek(t, queue)) == 0 })
	})
}

func TestADelay(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		sendIn := func(delay, life int32) (azqueue.EnqueueMessagesResponse, error) {
			options := &azqueue.EnqueueMessageOptions{VisibilityTimeout: &delay, TimeToLive: &life}
			return queue.EnqueueMessage(ctx, "later", options)
		}
		began := time.Now()
		sent, err := sendIn(1, -1)
		must(t, err)
		message := sent.Messages[0]
		equal(t, "delay", message.TimeNextVisible.Sub(*message.InsertionTime), time.Second)
		eventually(t, "it is visible", func() bool { return len(receive(t, queue, 32, 600)) == 1 })
		equal(t, "too early", time.Since(began) < 900*time.Millisecond, false)
		for _, delay := range []int32{-1, 604801} {
			_, err = sendIn(delay, -1)
			refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
		}
		_, err = sendIn(10, 10)
		refused(t, 400, queueerror.InvalidQueryParameterValue, err)
	})
}

func TestReceiveFromOneToThirtyTwo(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		for number := range 35 {
			send(t, queue, strconv.Itoa(number))
		}
		equal(t, "first", *receive(t, queue, 1, 600)[0].MessageText, "0")
		batch := receive(t, queue, 32, 600)
		equal(t, "batch", len(batch), 32)
		for number, message := range batch {
			equal(t, "text", *message.MessageText, strconv.Itoa(number+1))
		}
		equal(t, "rest", len(receive(t, queue, 32, 600)), 2)
		equal(t, "nothing", len(receive(t, queue, 32, 600)), 0)
		for _, count := range []int32{0, 33} {
			_, err := queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &count})
			refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
			_, err = queue.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: &count})
			refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
		}
		for _, visibility := range []int32{0, 604801} {
			_, err := queue.DequeueMessage(ctx, &azqueue.DequeueMessageOptions{VisibilityTimeout: &visibility})
			refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
		}
	})
}

func TestPeekChangesNothing(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		send(t, queue, "text")
		for range 2 {
			peeked, err := queue.PeekMessage(ctx, nil)
			must(t, err)
			equal(t, "count", *peeked.Messages[0].DequeueCount, 0)
		}
		equal(t, "count", *receive(t, queue, 1, 600)[0].DequeueCount, 1)
		equal(t, "visible", len(peek(t, queue)), 0)
	})
}

func TestStaleReceipts(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		send(t, queue, "text")
		first := receive(t, queue, 1, 1)[0]
		var again []*azqueue.DequeuedMessage
		eventually(t, "it is visible", func() bool {
			again = receive(t, queue, 1, 600)
			return len(again) == 1
		})
		second := again[0]
		equal(t, "count", *second.DequeueCount, 2)
		refused(t, 404, queueerror.MessageNotFound, remove(queue, *first.MessageID, *first.PopReceipt))
		_, err := update(queue, *first.MessageID, *first.PopReceipt, "stolen", 0)
		refused(t, 404, queueerror.MessageNotFound, err)
		must(t, remove(queue, *second.MessageID, *second.PopReceipt))
		refused(t, 404, queueerror.MessageNotFound, remove(queue, *second.MessageID, *second.PopReceipt))
	})
}

func TestUpdate(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		sent := send(t, queue, "old")
		id := *sent.MessageID
		updated, err := update(queue, id, *sent.PopReceipt, "new", 60)
		must(t, err)
		near(t, "next visible", *updated.TimeNextVisible, time.Now().Add(time.Minute))
		_, err = update(queue, id, *sent.PopReceipt, "x", 0)
		refused(t, 404, queueerror.MessageNotFound, err)
		// Without a text the SDK sends an empty one: it has no other update.
		emptied, err := update(queue, id, *updated.PopReceipt, "", 0)
		must(t, err)
		if got := peek(t, queue); !slices.Equal(got, []string{""}) {
			t.Fatalf("got %q", got)
		}
		for _, visibility := range []int32{-1, 604801} {
			_, err = update(queue, id, *emptied.PopReceipt, "x", visibility)
			refused(t, 400, queueerror.OutOfRangeQueryParameterValue, err)
		}
		received := receive(t, queue, 1, 600)[0]
		equal(t, "insertion", received.InsertionTime.Unix(), sent.InsertionTime.Unix())
		equal(t, "expiry", received.ExpirationTime.Unix(), sent.ExpirationTime.Unix())
	})
}

func TestReceiptsAndIDsThatAreNone(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		sent := send(t, queue, "text")
		id, receipt := *sent.MessageID, *sent.PopReceipt
		refused(t, 400, queueerror.InvalidQueryParameterValue, remove(queue, id, "invalid"))
		refused(t, 404, queueerror.MessageNotFound, remove(queue, id, foreignReceipt))
		refused(t, 404, queueerror.MessageNotFound, remove(queue, foreignID, receipt))
		refused(t, 404, queueerror.MessageNotFound, remove(queue, "not-a-guid", receipt))
		must(t, remove(queue, id, receipt))
	})
}

func TestClearTakesHiddenMessagesToo(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		send(t, queue, "held")
		held := receive(t, queue, 1, 600)[0]
		_, err := queue.ClearMessages(ctx, nil)
		must(t, err)
		equal(t, "count", countOf(t, queue), 0)
		refused(t, 404, queueerror.MessageNotFound, remove(queue, *held.MessageID, *held.PopReceipt))
	})
}

func TestEveryOperationOnAnAbsentQueue(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.absent(t)
		for name, operation := range map[string]func() error{
			"send":     func() error { _, err := queue.EnqueueMessage(ctx, "x", nil); return err },
			"receive":  func() error { _, err := queue.DequeueMessage(ctx, nil); return err },
			"peek":     func() error { _, err := queue.PeekMessage(ctx, nil); return err },
			"clear":    func() error { _, err := queue.ClearMessages(ctx, nil); return err },
			"update":   func() error { _, err := update(queue, foreignID, foreignReceipt, "x", 0); return err },
			"delete":   func() error { return remove(queue, foreignID, foreignReceipt) },
			"metadata": func() error { _, err := queue.SetMetadata(ctx, nil); return err },
		} {
			t.Run(name, func(t *testing.T) { refused(t, 404, queueerror.QueueNotFound, operation()) })
		}
	})
}
