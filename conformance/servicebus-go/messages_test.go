package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

func TestSendReceiveComplete(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		send(t, client, queue, text("one"), text("two"))
		receiver := newReceiver(t, client, queue)
		messages := take(t, receiver, 2)
		equal(t, "bodies", bodies(messages), "one two")
		first, second := messages[0], messages[1]
		// This SDK counts the current delivery itself.
		equal(t, "delivery count", first.DeliveryCount, 1)
		equal(t, "state", first.State, azservicebus.MessageStateActive)
		if *first.SequenceNumber >= *second.SequenceNumber || first.LockToken == second.LockToken {
			t.Fatalf("%v, %v", first, second)
		}
		if time.Since(*first.EnqueuedTime).Abs() > time.Minute || time.Until(*first.LockedUntil) < 30*time.Second {
			t.Fatalf("enqueued at %v, locked until %v", first.EnqueuedTime, first.LockedUntil)
		}
		if first.MessageID == "" {
			t.Fatal("no id")
		}
		for _, message := range messages {
			must(t, receiver.CompleteMessage(ctx, message, nil))
		}
		isEmpty(t, receiver)
	})
}

func TestPropertiesComeBack(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		properties := map[string]any{
			"text": "ä", "truth": true, "bytes": []byte{0, 255}, "time": time.UnixMilli(1_700_000_000_123).UTC(),
			"int8": int8(-1), "int16": int16(-2), "int32": int32(-3), "int64": int64(-1 << 62),
			"uint8": uint8(1), "uint16": uint16(2), "uint32": uint32(3), "uint64": uint64(1 << 63),
			"float32": float32(1.5), "float64": -2.25, "uuid": amqp.UUID{1, 2, 3}, "none": nil,
		}
		sent := &azservicebus.Message{
			Body: []byte("x"), MessageID: to.Ptr("id"), Subject: to.Ptr("s"), ContentType: to.Ptr("c"),
			CorrelationID: to.Ptr("k"), To: to.Ptr("t"), ReplyTo: to.Ptr("r"), PartitionKey: to.Ptr("p"),
			ReplyToSessionID: to.Ptr("rs"), SessionID: to.Ptr("p"), TimeToLive: to.Ptr(5 * time.Minute),
			ApplicationProperties: properties,
		}
		send(t, client, queue, sent)
		got := takeOne(t, newReceiver(t, client, queue))
		equal(t, "how many", len(got.ApplicationProperties), len(properties))
		for name, value := range properties {
			found := got.ApplicationProperties[name]
			equal(t, name, fmt.Sprintf("%T %v", found, found), fmt.Sprintf("%T %v", value, value))
		}
		equal(t, "id", got.MessageID, "id")
		for _, pair := range [][2]*string{
			{got.Subject, sent.Subject}, {got.ContentType, sent.ContentType},
			{got.CorrelationID, sent.CorrelationID}, {got.To, sent.To}, {got.ReplyTo, sent.ReplyTo},
			{got.PartitionKey, sent.PartitionKey}, {got.ReplyToSessionID, sent.ReplyToSessionID},
			{got.SessionID, sent.SessionID},
		} {
			if pair[0] == nil || *pair[0] != *pair[1] {
				t.Fatalf("got %+v", got)
			}
		}
		equalAt(t, "life", got.TimeToLive, *sent.TimeToLive)
	})
}

func TestBodiesOfEveryKindComeBack(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		sender, receiver := newSender(t, client, queue), newReceiver(t, client, queue)
		for _, body := range []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("one"), []byte("two"), {}}},
			{Sequence: [][]any{{"one", int64(2)}, {true}}},
			{Value: map[any]any{"key": "value", int64(2): []byte{3}}},
			{Value: "text"},
		} {
			sent := &azservicebus.AMQPAnnotatedMessage{
				Body:               body,
				Footer:             map[any]any{"footer": "f"},
				MessageAnnotations: map[any]any{"x-opt-own": "a"},
				Header:             &azservicebus.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7},
				Properties: &azservicebus.AMQPAnnotatedMessageProperties{
					MessageID: uint64(1), UserID: []byte("u"), ContentEncoding: to.Ptr("e"), GroupSequence: to.Ptr(uint32(4)),
				},
			}
			must(t, sender.SendAMQPAnnotatedMessage(ctx, sent, nil))
			got := drop(t, receiver).RawAMQPMessage
			if !reflect.DeepEqual(got.Body, body) {
				t.Fatalf("got %#v, expected %#v", got.Body, body)
			}
			if fmt.Sprint(got.Footer) != fmt.Sprint(sent.Footer) || got.MessageAnnotations["x-opt-own"] != "a" {
				t.Fatalf("footer %v, annotations %v", got.Footer, got.MessageAnnotations)
			}
			equal(t, "priority", got.Header.Priority, 7)
			equal(t, "id", got.Properties.MessageID, any(uint64(1)))
			equal(t, "user", string(got.Properties.UserID), "u")
			equalAt(t, "encoding", got.Properties.ContentEncoding, "e")
			equalAt(t, "group sequence", got.Properties.GroupSequence, 4)
		}
	})
}

func TestBatches(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		sender := newSender(t, client, queue)
		batch, err := sender.NewMessageBatch(ctx, nil)
		must(t, err)
		var sent []string
		for ; ; sent = append(sent, fmt.Sprint(len(sent))) {
			message := text(fmt.Sprint(len(sent)))
			message.ApplicationProperties = map[string]any{"fill": strings.Repeat("x", 10_000)}
			if err := batch.AddMessage(message, nil); errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			} else {
				must(t, err)
			}
		}
		// A batch may be as large as a message.
		if batch.NumBytes() < 1_000_000 || batch.NumBytes() > 1<<20 {
			t.Fatalf("%d bytes", batch.NumBytes())
		}
		must(t, sender.SendMessageBatch(ctx, batch, nil))
		receiver := newReceiver(t, client, queue)
		equal(t, "bodies", bodies(take(t, receiver, len(sent))), strings.Join(sent, " "))
		isEmpty(t, receiver)
	})
}

func TestLargeMessages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		body := bytes.Repeat([]byte("kew!"), 250_000)
		send(t, client, queue, &azservicebus.Message{Body: body})
		if got := drop(t, newReceiver(t, client, queue)); !bytes.Equal(got.Body, body) {
			t.Fatalf("%d bytes came back", len(got.Body))
		}
		err := newSender(t, client, queue).SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 1<<20)}, nil)
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			t.Fatal(err)
		}
	})
}

func TestReceiveAndDelete(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		send(t, client, queue, text("one"), text("two"))
		receiver := newReceiverWith(t, client, queue, azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		})
		equal(t, "bodies", bodies(take(t, receiver, 2)), "one two")
		receiver.Close(ctx)
		isEmpty(t, newReceiver(t, client, queue))
	})
}

func TestAbandonedMessagesCountAndEndInTheDeadLetters(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("thrice")
		send(t, client, queue, &azservicebus.Message{
			Body: []byte("x"), ApplicationProperties: map[string]any{"kept": "yes", "tried": int64(-1)},
		})
		receiver := newReceiver(t, client, queue)
		for count := range int64(3) {
			message := takeOne(t, receiver)
			equal(t, "delivery count", message.DeliveryCount, uint32(count+1))
			equal(t, "property", message.ApplicationProperties["tried"], any(count-1))
			must(t, receiver.AbandonMessage(ctx, message, &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"tried": count},
			}))
		}
		isEmpty(t, receiver)
		letters := newDeadLetterReceiver(t, client, queue)
		letter := drop(t, letters)
		equalAt(t, "reason", letter.DeadLetterReason, "MaxDeliveryCountExceeded")
		equal(t, "property", letter.ApplicationProperties["kept"], any("yes"))
		equal(t, "property", letter.ApplicationProperties["tried"], any(int64(2)))
		isEmpty(t, letters)
	})
}

func TestDeadLetters(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		send(t, client, queue, text("one"), text("two"))
		receiver := newReceiver(t, client, queue)
		messages := take(t, receiver, 2)
		must(t, receiver.DeadLetterMessage(ctx, messages[0], &azservicebus.DeadLetterOptions{
			Reason: to.Ptr("no good"), ErrorDescription: to.Ptr("at all"),
			PropertiesToModify: map[string]any{"seen": true},
		}))
		must(t, receiver.DeadLetterMessage(ctx, messages[1], nil))
		isEmpty(t, receiver)
		letters := newDeadLetterReceiver(t, client, queue)
		peeked, err := letters.PeekMessages(ctx, 10, nil)
		must(t, err)
		equal(t, "peeked", bodies(peeked), "one two")
		found := take(t, letters, 2)
		equalAt(t, "reason", found[0].DeadLetterReason, "no good")
		equalAt(t, "description", found[0].DeadLetterErrorDescription, "at all")
		equal(t, "property", found[0].ApplicationProperties["seen"], any(true))
		// A dead letter cannot be dead-lettered again, and an abandoned one stays there.
		refusedAs(t, amqp.ErrCondNotAllowed, letters.DeadLetterMessage(ctx, found[0], nil))
		must(t, letters.AbandonMessage(ctx, found[1], nil))
		equal(t, "again", bodies([]*azservicebus.ReceivedMessage{drop(t, letters)}), "two")
		must(t, letters.CompleteMessage(ctx, found[0], nil))
		isEmpty(t, letters)
	})
}

func TestALostLockIsTold(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("brief")
		send(t, client, queue, text("x"))
		receiver, other := newReceiver(t, client, queue), newReceiver(t, client, queue)
		message := takeOne(t, receiver)
		// It is delivered again when the lock has expired.
		again := takeOne(t, other)
		equal(t, "delivery count", again.DeliveryCount, 2)
		equal(t, "number", *again.SequenceNumber, *message.SequenceNumber)
		if time.Now().Before(message.LockedUntil.Add(-50 * time.Millisecond)) {
			t.Fatalf("it came before %v", message.LockedUntil)
		}
		refused(t, azservicebus.CodeLockLost, receiver.CompleteMessage(ctx, message, nil))
		refused(t, azservicebus.CodeLockLost, receiver.RenewMessageLock(ctx, message, nil))
		must(t, other.CompleteMessage(ctx, again, nil))
	})
}

func TestARenewedLockHolds(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("renewed")
		send(t, client, queue, text("x"))
		receiver := newReceiver(t, client, queue)
		message := takeOne(t, receiver)
		first := *message.LockedUntil
		for time.Now().Before(first.Add(time.Second)) {
			before := *message.LockedUntil
			time.Sleep(time.Second)
			must(t, receiver.RenewMessageLock(ctx, message, nil))
			if !message.LockedUntil.After(before) {
				t.Fatalf("%v is not after %v", message.LockedUntil, before)
			}
		}
		must(t, receiver.CompleteMessage(ctx, message, nil))
		isEmpty(t, receiver)
	})
}

// The lock belongs to the queue and not to the link: it holds after the connection is closed.
func TestALockOutlivesItsConnection(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("renewed")
		send(t, client, queue, text("x"))
		gone := door.client(t)
		message := takeOne(t, newReceiver(t, gone, queue))
		must(t, gone.Close(ctx))
		receiver := newReceiver(t, client, queue)
		opened(t, receiver)
		isEmpty(t, receiver)
		equal(t, "delivery count", drop(t, receiver).DeliveryCount, 2)
		if time.Now().Before(message.LockedUntil.Add(-50 * time.Millisecond)) {
			t.Fatalf("it came before %v", message.LockedUntil)
		}
	})
}

func TestExpiry(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, dropping, keeping := door.client(t), fresh("fading"), fresh("expiring")
		// An hour is more than the queue allows.
		hour := &azservicebus.Message{Body: []byte("x"), TimeToLive: to.Ptr(time.Hour)}
		send(t, client, dropping, hour)
		send(t, client, keeping, &azservicebus.Message{Body: []byte("y"), TimeToLive: to.Ptr(time.Second)})
		letters := newDeadLetterReceiver(t, client, keeping)
		equalAt(t, "reason", drop(t, letters).DeadLetterReason, "TTLExpiredException")
		receiver := newReceiver(t, client, dropping)
		eventually(t, "it expires", func() bool {
			found, err := receiver.PeekMessages(ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(0))})
			must(t, err)
			return len(found) == 0
		})
		isEmpty(t, receiver)
		isEmpty(t, newDeadLetterReceiver(t, client, dropping))
	})
}

func TestDuplicates(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("unique")
		message := func(id, body string) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), MessageID: &id}
		}
		send(t, client, queue, message("a", "1"), message("a", "2"), message("b", "3"), message("b", "4"))
		receiver := newReceiver(t, client, queue)
		equal(t, "bodies", bodies(take(t, receiver, 2)), "1 3")
		isEmpty(t, receiver)
	})
}

func TestForwarding(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("forwarding")
		send(t, client, queue, text("x"))
		forwarded := partner(queue, "forwarded")
		receiver := newReceiver(t, client, forwarded)
		message := takeOne(t, receiver)
		equal(t, "body", string(message.Body), "x")
		must(t, receiver.DeadLetterMessage(ctx, message, &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
		letter := drop(t, newReceiver(t, client, partner(queue, "letters")))
		equalAt(t, "reason", letter.DeadLetterReason, "why")
		equalAt(t, "source", letter.DeadLetterSource, forwarded)
		// There is no receiver on a queue that forwards everything.
		_, err := newReceiver(t, client, queue).ReceiveMessages(ctx, 1, nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
	})
}

func TestTooManyHops(t *testing.T) {
	client := doors[0].client(t)
	send(t, client, "hop-1", text("x"))
	letter := drop(t, newDeadLetterReceiver(t, client, "hop-5"))
	equalAt(t, "reason", letter.DeadLetterReason, "MaxTransferHopCountExceeded")
}

func TestCompetingReceiversShareMessages(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		const count = 300
		var wait sync.WaitGroup
		var mutex sync.Mutex
		seen := map[string]int{}
		for range 3 {
			wait.Add(1)
			receiver := newReceiver(t, door.client(t), queue)
			go func() {
				defer wait.Done()
				for {
					mutex.Lock()
					isDone := len(seen) == count
					mutex.Unlock()
					if isDone {
						return
					}
					limited, cancel := contextFor(moment)
					found, _ := receiver.ReceiveMessages(limited, 10, nil)
					cancel()
					for _, message := range found {
						mutex.Lock()
						seen[string(message.Body)]++
						mutex.Unlock()
						if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
							t.Error(err)
						}
					}
				}
			}()
		}
		sender := newSender(t, client, queue)
		for number := range count {
			must(t, sender.SendMessage(ctx, text(fmt.Sprint(number)), nil))
		}
		wait.Wait()
		for body, times := range seen {
			equal(t, body, times, 1)
		}
	})
}

// More than a sender's first credit.
func TestASenderGetsMoreCredit(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		sender := newSender(t, client, queue)
		const count, atOnce = 10_000, 50
		failed := make(chan error, atOnce)
		for worker := range atOnce {
			go func() {
				for range count / atOnce {
					if err := sender.SendMessage(ctx, text(fmt.Sprint(worker)), nil); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for range atOnce {
			must(t, <-failed)
		}
		receiver := newReceiverWith(t, client, queue, azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		})
		for range count / 1_000 {
			take(t, receiver, 1_000)
		}
		isEmpty(t, receiver)
	})
}

func TestAReceiverThatWaitsIsServedAtOnce(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("plain")
		sender, receiver := newSender(t, client, queue), newReceiver(t, client, queue)
		opened(t, receiver)
		isEmpty(t, receiver)
		var fastest time.Duration = patience
		for range 10 {
			came := make(chan time.Time)
			go func() {
				limited, cancel := contextFor(patience)
				defer cancel()
				defer close(came)
				// The frame may have none.
				for limited.Err() == nil {
					if found, _ := receiver.ReceiveMessages(limited, 1, nil); len(found) == 1 {
						came <- time.Now()
						return
					}
				}
			}()
			// The link has credit by then.
			time.Sleep(20 * time.Millisecond)
			must(t, sender.SendMessage(ctx, text("x"), nil))
			sent := time.Now()
			at, ok := <-came
			if !ok {
				t.Fatal("it did not come")
			}
			fastest = min(fastest, at.Sub(sent))
		}
		// This SDK waits 20 ms for more after a message has arrived; the rest is the server's time.
		if fastest > (20+50)*time.Millisecond {
			t.Fatalf("%v after the send", fastest)
		}
	})
}

func TestWhatIsNotThere(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client := door.client(t)
		_, err := newReceiver(t, client, "absent").ReceiveMessages(ctx, 1, nil)
		refusedAsMissing(t, err)
		refusedAsMissing(t, newSender(t, client, "absent").SendMessage(ctx, text("x"), nil))
		_, err = newReceiver(t, client, "absent").PeekMessages(ctx, 1, nil)
		refusedAsMissing(t, err)
	})
}

func TestWrongKeysAreRefused(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		wrong := strings.Replace(door.connectionString(), "SharedAccessKey=", "SharedAccessKey=x", 1)
		client := door.clientWith(t, wrong)
		refused(t, azservicebus.CodeUnauthorizedAccess, newSender(t, client, "plain-1").SendMessage(ctx, text("x"), nil))
		_, err := newReceiver(t, client, "plain-1").ReceiveMessages(ctx, 1, nil)
		refused(t, azservicebus.CodeUnauthorizedAccess, err)
	})
}
