package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func contextFor(duration time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, duration)
}

func TestPeekShowsAllStatesInPages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		receiver := newReceiver(t, client, queue)
		found, err := receiver.PeekMessages(ctx, 5, nil)
		must(t, err)
		equal(t, "of an empty queue", len(found), 0)

		send(t, client, queue, text("active"), text("locked"), text("deferred"))
		numbers, err := newSender(t, client, queue).ScheduleMessages(
			ctx, []*azservicebus.Message{text("scheduled")}, time.Now().Add(time.Hour), nil)
		must(t, err)
		messages := take(t, receiver, 3)
		must(t, receiver.AbandonMessage(ctx, messages[0], nil))
		must(t, receiver.DeferMessage(ctx, messages[2], nil))

		// This SDK adds one to the delivery count, even of messages that were only peeked at.
		var seen []string
		for {
			page, err := receiver.PeekMessages(ctx, 3, nil)
			must(t, err)
			if len(page) == 0 {
				break
			}
			for _, message := range page {
				seen = append(seen, fmt.Sprint(string(message.Body), message.State, message.DeliveryCount))
			}
		}
		equal(t, "seen", fmt.Sprint(seen), "[active0 2 locked0 1 deferred1 1 scheduled2 1]")
		from, err := receiver.PeekMessages(ctx, 9, &azservicebus.PeekMessagesOptions{FromSequenceNumber: messages[1].SequenceNumber})
		must(t, err)
		equal(t, "from the second", bodies(from), "locked deferred scheduled")
		equal(t, "number", *from[2].SequenceNumber, numbers[0])
	})
}

func TestScheduledMessages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		sender, receiver := newSender(t, client, queue), newReceiver(t, client, queue)
		never := []*azservicebus.Message{text("never"), text("ever")}
		numbers, err := sender.ScheduleMessages(ctx, never, time.Now().Add(time.Hour), nil)
		must(t, err)
		equal(t, "how many", len(numbers), 2)
		must(t, sender.CancelScheduledMessages(ctx, numbers, nil))
		refused(t, azservicebus.CodeNotFound, sender.CancelScheduledMessages(ctx, numbers, nil))

		past := time.Now().Add(-time.Hour)
		must(t, sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("past"), ScheduledEnqueueTime: &past}, nil))
		equal(t, "first", string(drop(t, receiver).Body), "past")
		soon := time.Now().Add(2 * time.Second)
		_, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{text("soon")}, soon, nil)
		must(t, err)
		must(t, sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: to.Ptr(soon.Add(time.Second))}, nil))
		equal(t, "second", string(drop(t, receiver).Body), "soon")
		if time.Now().Before(soon.Add(-50 * time.Millisecond)) {
			t.Fatalf("it came before %v", soon)
		}
		equal(t, "last", string(drop(t, receiver).Body), "later")
	})
}

func TestDeferredMessagesAreSettledInEveryWay(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		send(t, client, queue, text("complete"), text("abandon"), text("defer"), text("letter"))
		receiver := newReceiver(t, client, queue)
		var numbers []int64
		for _, message := range take(t, receiver, 4) {
			numbers = append(numbers, *message.SequenceNumber)
			must(t, receiver.DeferMessage(ctx, message, &azservicebus.DeferMessageOptions{
				PropertiesToModify: map[string]any{"deferred": "once"},
			}))
		}
		isEmpty(t, receiver)
		deferred := func(numbers ...int64) []*azservicebus.ReceivedMessage {
			messages, err := receiver.ReceiveDeferredMessages(ctx, numbers, nil)
			must(t, err)
			return messages
		}
		messages := deferred(numbers...)
		equal(t, "bodies", bodies(messages), "complete abandon defer letter")
		equal(t, "property", messages[0].ApplicationProperties["deferred"], any("once"))
		must(t, receiver.RenewMessageLock(ctx, messages[0], nil))
		must(t, receiver.CompleteMessage(ctx, messages[0], nil))
		must(t, receiver.AbandonMessage(ctx, messages[1], &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"abandoned": true},
		}))
		must(t, receiver.DeferMessage(ctx, messages[2], nil))
		must(t, receiver.DeadLetterMessage(ctx, messages[3], &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
		// An abandoned message is still deferred.
		isEmpty(t, receiver)
		again := deferred(numbers[1], numbers[2])
		equal(t, "delivery count", again[0].DeliveryCount, 2)
		equal(t, "property", again[0].ApplicationProperties["abandoned"], any(true))
		equalAt(t, "reason", drop(t, newDeadLetterReceiver(t, client, queue)).DeadLetterReason, "why")
		_, err := receiver.ReceiveDeferredMessages(ctx, numbers[:1], nil)
		refused(t, azservicebus.CodeNotFound, err)

		deleting := newReceiverWith(t, client, queue, azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		must(t, receiver.AbandonMessage(ctx, again[0], nil))
		gone, err := deleting.ReceiveDeferredMessages(ctx, numbers[1:2], nil)
		must(t, err)
		equal(t, "body", bodies(gone), "abandon")
		_, err = deleting.ReceiveDeferredMessages(ctx, numbers[1:2], nil)
		refused(t, azservicebus.CodeNotFound, err)
	})
}
