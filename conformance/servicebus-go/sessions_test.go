package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

func inSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func accept(t *testing.T, client *azservicebus.Client, queue, session string) *azservicebus.SessionReceiver {
	t.Helper()
	limited, cancel := contextFor(patience)
	defer cancel()
	receiver, err := client.AcceptSessionForQueue(limited, queue, session, nil)
	must(t, err)
	return receiver
}

func acceptNext(t *testing.T, client *azservicebus.Client, queue string) *azservicebus.SessionReceiver {
	t.Helper()
	limited, cancel := contextFor(patience)
	defer cancel()
	receiver, err := client.AcceptNextSessionForQueue(limited, queue, nil)
	must(t, err)
	return receiver
}

func TestSessionsAreAcceptedByOne(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		send(t, client, queue, inSession("b", "1"), inSession("a", "2"), inSession("b", "3"), inSession("", "4"))
		first := acceptNext(t, client, queue)
		equal(t, "session", first.SessionID(), "b")
		if until := time.Until(first.LockedUntil()); until < 30*time.Second || until > 90*time.Second {
			t.Fatalf("locked for %v", until)
		}
		_, err := client.AcceptSessionForQueue(ctx, queue, "b", nil)
		refusedAs(t, "com.microsoft:session-cannot-be-locked", err)

		messages := take(t, first, 2)
		equal(t, "in order", bodies(messages), "1 3")
		equal(t, "session of a message", *messages[0].SessionID, "b")
		must(t, first.AbandonMessage(ctx, messages[0], nil))
		equal(t, "again", string(takeOne(t, first).Body), "1")
		second := acceptNext(t, client, queue)
		equal(t, "next", second.SessionID(), "a")
		equal(t, "body", string(drop(t, second).Body), "2")
		// A released session is available at once, and the deliveries of its messages were not counted.
		must(t, first.Close(ctx))
		again := accept(t, client, queue, "b")
		messages = take(t, again, 2)
		equal(t, "in order", bodies(messages), "1 3")
		equal(t, "delivery count", messages[1].DeliveryCount, 1)
		equal(t, "empty id", string(drop(t, accept(t, client, queue, "")).Body), "4")
	})
}

func TestSessionState(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		receiver := accept(t, client, queue, "s")
		state, err := receiver.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "at first", len(state), 0)
		must(t, receiver.SetSessionState(ctx, []byte("so far"), nil))
		must(t, receiver.Close(ctx))
		receiver = accept(t, client, queue, "s")
		state, err = receiver.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "kept", string(state), "so far")
		must(t, receiver.SetSessionState(ctx, nil, nil))
		state, err = receiver.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "cleared", len(state), 0)
	})
}

func TestNoSessionIsATimeout(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := fresh("session")
		const waiting = 8
		// The SDK retries within its time, so on a busy machine either side may time out first. Of several waiting
		// receivers, at least one gets the server's error, or of some that wait after them.
		var client *azservicebus.Client
		told := 0
		for round := 0; told == 0; round++ {
			if round == 3 {
				t.Fatal("the server said nothing")
			}
			client = door.client(t)
			told = toldOfNoSession(t, client, queue, waiting)
		}
		if told < waiting {
			// It may have dropped its connection with what it gave up.
			client = door.client(t)
		}
		// The connection still works.
		send(t, client, queue, inSession("s", "x"))
		equal(t, "session", acceptNext(t, client, queue).SessionID(), "s")
	})
}

// How many of several receivers that wait in vain get the server's error.
func toldOfNoSession(t *testing.T, client *azservicebus.Client, queue string, waiting int) int {
	t.Helper()
	failed := make(chan error, waiting)
	began := time.Now()
	for range waiting {
		go func() {
			limited, cancel := contextFor(6 * time.Second)
			defer cancel()
			_, err := client.AcceptNextSessionForQueue(limited, queue, nil)
			failed <- err
		}()
	}
	told := 0
	for range waiting {
		err := <-failed
		if waited := time.Since(began); err == nil || waited < 4*time.Second {
			t.Fatalf("%v after %v", err, waited)
		}
		var known *azservicebus.Error
		if errors.As(err, &known) && known.Code == azservicebus.CodeConnectionLost {
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		refused(t, azservicebus.CodeTimeout, err)
		told++
	}
	return told
}

func TestAWaitForASessionEndsWithAMessage(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		accepted := make(chan string)
		go func() {
			limited, cancel := contextFor(patience)
			defer cancel()
			if receiver, err := client.AcceptNextSessionForQueue(limited, queue, nil); err == nil {
				accepted <- receiver.SessionID()
			}
			close(accepted)
		}()
		time.Sleep(moment)
		send(t, door.client(t), queue, inSession("late", "x"))
		equal(t, "session", <-accepted, "late")
	})
}

func TestSessionLocksAreRenewedAndLost(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("renewed-session")
		send(t, client, queue, inSession("s", "x"))
		receiver := acceptNext(t, client, queue)
		takeOne(t, receiver)
		first := receiver.LockedUntil()
		for time.Now().Before(first.Add(time.Second)) {
			before := receiver.LockedUntil()
			time.Sleep(time.Second)
			must(t, receiver.RenewSessionLock(ctx, nil))
			if !receiver.LockedUntil().After(before) {
				t.Fatalf("%v is not after %v", receiver.LockedUntil(), before)
			}
		}
		// Now it expires, and the next receiver gets it.
		next := acceptNext(t, door.client(t), queue)
		equal(t, "session", next.SessionID(), "s")
		again := takeOne(t, next)
		equal(t, "delivery count", again.DeliveryCount, 2)
		must(t, next.CompleteMessage(ctx, again, nil))
	})
}

func TestDeferredAndPeekedMessagesOfASession(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		send(t, client, queue, inSession("a", "1"), inSession("b", "2"), inSession("a", "3"))
		receiver := accept(t, client, queue, "a")
		// The SDK peeks in the whole queue, also from a session.
		peeked, err := receiver.PeekMessages(ctx, 10, nil)
		must(t, err)
		equal(t, "peeked in the queue", bodies(peeked), "1 2 3")
		message := takeOne(t, receiver)
		must(t, receiver.DeferMessage(ctx, message, nil))
		equal(t, "what is next", string(takeOne(t, receiver).Body), "3")
		deferred, err := receiver.ReceiveDeferredMessages(ctx, []int64{*message.SequenceNumber}, nil)
		must(t, err)
		equal(t, "deferred", bodies(deferred), "1")
		must(t, receiver.CompleteMessage(ctx, deferred[0], nil))
	})
}

func TestSessionsAreListed(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		list := func(options *azservicebus.ListSessionsOptions) int {
			pager, count := client.NewListSessionsForQueuePager(queue, options), 0
			for pager.More() {
				page, err := pager.NextPage(ctx)
				must(t, err)
				count += len(page.Sessions)
			}
			return count
		}
		equal(t, "of an empty queue", list(nil), 0)
		sender := newSender(t, client, queue)
		batch, err := sender.NewMessageBatch(ctx, nil)
		must(t, err)
		// More than one page of the service.
		for number := range 130 {
			must(t, batch.AddMessage(inSession(fmt.Sprintf("s%03d", number), "x"), nil))
		}
		must(t, sender.SendMessageBatch(ctx, batch, nil))
		equal(t, "with messages", list(nil), 130)
		before := time.Now().Add(-time.Minute)
		equal(t, "with new states", list(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &before}), 0)
		must(t, accept(t, client, queue, "s005").SetSessionState(ctx, []byte("x"), nil))
		equal(t, "with a new state", list(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &before}), 1)
	})
}

func TestWhatDoesNotFitSessionsIsRefused(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, sessions, plain := door.client(t), fresh("session"), fresh("plain")
		_, err := newReceiver(t, client, sessions).ReceiveMessages(ctx, 1, nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
		err = newSender(t, client, sessions).SendMessage(ctx, text("x"), nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
		_, err = client.AcceptSessionForQueue(ctx, plain, "s", nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
		_, err = client.AcceptSessionForQueue(ctx, "absent", "s", nil)
		refusedAsMissing(t, err)
	})
}

// Many receivers, few sessions: messages of each session arrive in order, and no connection is lost.
func TestManyReceiversOfFewSessions(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, queue := door.client(t), fresh("session")
		const sessions, each, pumps = 3, 40, 16
		sender := newSender(t, client, queue)
		for number := range each {
			for session := range sessions {
				must(t, sender.SendMessage(ctx, inSession(fmt.Sprint(session), fmt.Sprint(number)), nil))
			}
		}
		type came struct{ session, body string }
		all := make(chan came, sessions*each)
		done, stop := context.WithCancel(ctx)
		defer stop()
		consumer := door.client(t)
		for range pumps {
			go func() {
				for done.Err() == nil {
					limited, cancel := context.WithTimeout(done, 10*time.Second)
					receiver, err := consumer.AcceptNextSessionForQueue(limited, queue, nil)
					cancel()
					if err != nil {
						continue
					}
					limited, cancel = context.WithTimeout(done, patience)
					messages, _ := receiver.ReceiveMessages(limited, 5, nil)
					cancel()
					for _, message := range messages {
						if receiver.CompleteMessage(ctx, message, nil) == nil {
							all <- came{receiver.SessionID(), string(message.Body)}
						}
					}
					receiver.Close(ctx)
				}
			}()
		}
		next := map[string]int{}
		for range sessions * each {
			select {
			case message := <-all:
				equal(t, "session "+message.session, message.body, fmt.Sprint(next[message.session]))
				next[message.session]++
			case <-time.After(patience):
				t.Fatalf("only %v", next)
			}
		}
	})
}

// For the requested duration: many receivers wait for few sessions, take turns, and keep their connection.
func TestSoakManyReceiversOfFewSessions(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := fresh("session")
		const sessions, pumps = 3, 16
		// Without a deadline, because the SDK would send it to the server.
		done, stop := context.WithCancel(ctx)
		defer time.AfterFunc(soak, stop).Stop()
		type came struct{ session, body string }
		all := make(chan came, 1_000)
		consumer := door.client(t)
		report := func(err error) {
			if err != nil && done.Err() == nil {
				t.Error(err)
				stop()
			}
		}
		var wait sync.WaitGroup
		for range pumps {
			wait.Go(func() {
				for done.Err() == nil {
					// This SDK closes everyone's connection if a wait is cancelled at the wrong moment: none is cancelled
					// before the end.
					receiver, err := consumer.AcceptNextSessionForQueue(done, queue, nil)
					if err != nil {
						report(err)
						continue
					}
					limited, cancel := contextFor(time.Second)
					messages, err := receiver.ReceiveMessages(limited, 5, nil)
					cancel()
					if !errors.Is(err, context.DeadlineExceeded) {
						report(err)
					}
					for _, message := range messages {
						report(receiver.CompleteMessage(ctx, message, nil))
						if done.Err() == nil {
							all <- came{receiver.SessionID(), string(message.Body)}
						}
					}
					receiver.Close(ctx)
				}
			})
		}
		go func() {
			wait.Wait()
			close(all)
		}()
		sender := newSender(t, door.client(t), queue)
		wait.Go(func() {
			for number := 0; done.Err() == nil; number++ {
				session := fmt.Sprint(number % sessions)
				report(sender.SendMessage(ctx, inSession(session, fmt.Sprint(number/sessions)), nil))
				time.Sleep(20 * time.Millisecond)
			}
		})
		next := map[string]int{}
		for message := range all {
			if message.body != fmt.Sprint(next[message.session]) {
				t.Errorf("session %s: %s instead of %d", message.session, message.body, next[message.session])
			}
			next[message.session]++
		}
		equal(t, "sessions", len(next), sessions)
		for session, count := range next {
			// How many there is time for is the machine's affair.
			if count < 2 {
				t.Errorf("only %d messages of session %s", count, session)
			}
		}
	})
}
