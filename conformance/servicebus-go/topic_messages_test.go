package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

func colored(color string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(color), ApplicationProperties: map[string]any{"color": color}}
}

func byColor(color string) *admin.CorrelationFilter {
	return &admin.CorrelationFilter{ApplicationProperties: map[string]any{"color": color}}
}

func inOrderOfTheTopic(messages []*azservicebus.ReceivedMessage) string {
	var all []string
	for _, it := range messages {
		all = append(all, fmt.Sprintf("%s:%d:%d", it.Body, *it.SequenceNumber, *it.EnqueuedSequenceNumber))
	}
	return strings.Join(all, " ")
}

func createTopics(t *testing.T, manager *admin.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := manager.CreateTopic(ctx, name, nil)
		must(t, err)
		t.Cleanup(func() { manager.DeleteTopic(ctx, name, nil) })
	}
}

func createQueue(t *testing.T, manager *admin.Client, name string, properties admin.QueueProperties) {
	t.Helper()
	_, err := manager.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &properties})
	must(t, err)
	t.Cleanup(func() { manager.DeleteQueue(ctx, name, nil) })
}

func createSubscription(
	t *testing.T, manager *admin.Client, topic, name string, properties admin.SubscriptionProperties,
) {
	t.Helper()
	_, err := manager.CreateSubscription(ctx, topic, name, &admin.CreateSubscriptionOptions{Properties: &properties})
	must(t, err)
}

// Changes some settings of a topic.
func changeTopic(t *testing.T, manager *admin.Client, topic string, change func(*admin.TopicProperties)) error {
	t.Helper()
	got, err := manager.GetTopic(ctx, topic, nil)
	must(t, err)
	change(&got.TopicProperties)
	_, err = manager.UpdateTopic(ctx, topic, got.TopicProperties, nil)
	return err
}

func changeSubscription(
	t *testing.T, manager *admin.Client, topic, name string, change func(*admin.SubscriptionProperties),
) error {
	t.Helper()
	got, err := manager.GetSubscription(ctx, topic, name, nil)
	must(t, err)
	change(&got.SubscriptionProperties)
	_, err = manager.UpdateSubscription(ctx, topic, name, got.SubscriptionProperties, nil)
	return err
}

func TestScheduledMessagesUseTheRulesOfTheirTime(t *testing.T) {
	eachTopic(t, "scheduled", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		createSubscription(t, manager, topic, "all", admin.SubscriptionProperties{})
		subscribe(t, manager, topic, "some", byColor("red"), nil)
		waiting := func(expected int32) {
			t.Helper()
			counts, err := manager.GetTopicRuntimeProperties(ctx, topic, nil)
			must(t, err)
			equal(t, "waiting", counts.ScheduledMessageCount, expected)
		}
		client := door.client(t)
		sender := newSender(t, client, topic)
		never := []*azservicebus.Message{text("never"), text("ever")}
		numbers, err := sender.ScheduleMessages(ctx, never, time.Now().Add(time.Hour), nil)
		must(t, err)
		equal(t, "numbers", fmt.Sprint(numbers), "[1 2]")
		waiting(2)
		must(t, sender.CancelScheduledMessages(ctx, numbers, nil))
		refused(t, azservicebus.CodeNotFound, sender.CancelScheduledMessages(ctx, numbers, nil))
		waiting(0)
		// What is due already does not wait.
		past := &azservicebus.Message{Body: []byte("past"), ScheduledEnqueueTime: to.Ptr(time.Now().Add(-time.Hour))}
		must(t, sender.SendMessage(ctx, past, nil))
		equal(t, "past", bodies(copies(t, client, topic, "all", 1)), "past")
		due := time.Now().Add(20 * time.Second)
		_, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{colored("red")}, due, nil)
		must(t, err)
		blue := colored("blue")
		blue.ScheduledEnqueueTime = &due
		must(t, sender.SendMessage(ctx, blue, nil))
		// A rule that changes meanwhile counts, and a subscription that is made meanwhile.
		_, err = manager.UpdateRule(ctx, topic, "some", admin.RuleProperties{Name: "r", Filter: byColor("blue")})
		must(t, err)
		createSubscription(t, manager, topic, "late", admin.SubscriptionProperties{})
		waiting(2)
		received := copies(t, client, topic, "all", 2)
		if time.Now().Before(due.Add(-50 * time.Millisecond)) {
			t.Fatalf("they came before %v", due)
		}
		// Four numbers of the topic were for schedules, one was for the past, and a message that becomes active gets a new
		// one.
		equal(t, "received", inOrderOfTheTopic(received), "red:2:6 blue:3:7")
		equal(t, "late", bodies(copies(t, client, topic, "late", 2)), "red blue")
		equal(t, "some", bodies(copies(t, client, topic, "some", 1)), "blue")
		equal(t, "rest", peeked(t, client, topic, "some", 0), "")
		waiting(0)
	})
}

func TestTheShortestLifeCounts(t *testing.T) {
	eachTopic(t, "living", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		must(t, changeTopic(t, manager, topic, func(it *admin.TopicProperties) {
			it.DefaultMessageTimeToLive = to.Ptr("PT1H")
		}))
		for name, life := range map[string]string{"short": "PT30M", "long": "PT2H"} {
			createSubscription(t, manager, topic, name, admin.SubscriptionProperties{DefaultMessageTimeToLive: &life})
		}
		kept := admin.SubscriptionProperties{DeadLetteringOnMessageExpiration: to.Ptr(true)}
		createSubscription(t, manager, topic, "kept", kept)
		client := door.client(t)
		living := func(body string, life time.Duration) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), TimeToLive: &life}
		}
		send(t, client, topic, text("own"), living("minutes", 10*time.Minute), living("second", time.Second))
		for name, expected := range map[string]string{"short": "own 30m0s minutes 10m0s", "long": "own 1h0m0s minutes 10m0s"} {
			messages, err := newSubscriptionReceiver(t, client, topic, name, 0).PeekMessages(ctx, 2, nil)
			must(t, err)
			var lives []string
			for _, it := range messages {
				lives = append(lives, string(it.Body), it.ExpiresAt.Sub(*it.EnqueuedTime).String())
			}
			equal(t, name, strings.Join(lives, " "), expected)
		}
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "kept", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "second")
		equalAt(t, "reason", letter.DeadLetterReason, "TTLExpiredException")
		// The others did not ask for dead letters.
		for _, name := range []string{"short", "long"} {
			var counts *admin.GetSubscriptionRuntimePropertiesResponse
			eventually(t, "it expires", func() bool {
				var err error
				counts, err = manager.GetSubscriptionRuntimeProperties(ctx, topic, name, nil)
				must(t, err)
				return counts.ActiveMessageCount == 2
			})
			equal(t, "letters", counts.DeadLetterMessageCount, 0)
		}
	})
}

func TestATopicDropsDuplicatesAlsoOfWhatIsForwardedToIt(t *testing.T) {
	eachTopic(t, "repeated", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		unique, queue := topic+"-unique", topic+"-in"
		_, err := manager.CreateTopic(ctx, unique, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
			RequiresDuplicateDetection: to.Ptr(true), DuplicateDetectionHistoryTimeWindow: to.Ptr("PT1M"),
		}})
		must(t, err)
		t.Cleanup(func() { manager.DeleteTopic(ctx, unique, nil) })
		for _, name := range []string{"one", "two"} {
			createSubscription(t, manager, unique, name, admin.SubscriptionProperties{})
		}
		createQueue(t, manager, queue, admin.QueueProperties{ForwardTo: &unique})
		createSubscription(t, manager, topic, "s", admin.SubscriptionProperties{})
		named := func(id, body string) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), MessageID: &id}
		}
		client := door.client(t)
		send(t, client, unique, named("a", "1"), named("a", "2"), named("b", "3"))
		send(t, client, queue, named("b", "4"), named("c", "5"))
		for _, name := range []string{"one", "two"} {
			// A duplicate takes no number, and what was forwarded keeps that of its queue.
			equal(t, name, inOrderOfTheTopic(copies(t, client, unique, name, 3)), "1:1:1 3:2:2 5:3:2")
			equal(t, name, peeked(t, client, unique, name, 0), "")
		}
		// The other topic drops none.
		send(t, client, topic, named("a", "1"), named("a", "2"))
		equal(t, "other", peeked(t, client, topic, "s", 0), "1 2")
	})
}

// A queue to a topic, whose subscriptions forward to a queue and to a topic, whose dead letters go to a third topic.
func TestQueuesAndSubscriptionsForwardToTopicsAndQueues(t *testing.T) {
	eachTopic(t, "forwarding", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		into, out, end, dead := topic+"-in", topic+"-out", topic+"-end", topic+"-dead"
		createQueue(t, manager, into, admin.QueueProperties{ForwardTo: &topic})
		createQueue(t, manager, out, admin.QueueProperties{})
		createTopics(t, manager, end, dead)
		createSubscription(t, manager, topic, "all", admin.SubscriptionProperties{})
		createSubscription(t, manager, topic, "to-queue", admin.SubscriptionProperties{ForwardTo: &out})
		createSubscription(t, manager, topic, "to-topic", admin.SubscriptionProperties{
			ForwardTo: &end,
			DefaultRule: &admin.RuleProperties{
				Name: "r", Filter: byColor("red"), Action: &admin.SQLAction{Expression: "SET seen = 1"},
			},
		})
		createSubscription(t, manager, end, "last", admin.SubscriptionProperties{ForwardDeadLetteredMessagesTo: &dead})
		createSubscription(t, manager, dead, "letters", admin.SubscriptionProperties{})
		client := door.client(t)
		send(t, client, into, text("first"), colored("red"), colored("blue"))
		equal(t, "all", inOrderOfTheTopic(copies(t, client, topic, "all", 3)), "first:1:1 red:2:2 blue:3:3")
		equal(t, "out", bodies(take(t, newReceiverWith(t, client, out, *deleting), 3)), "first red blue")
		last := newSubscriptionReceiver(t, client, end, "last", 0)
		red := take(t, last, 1)
		equal(t, "last", inOrderOfTheTopic(red), "red:1:2")
		equal(t, "properties", fmt.Sprint(red[0].ApplicationProperties), "map[RuleName:r color:red seen:1]")
		must(t, last.DeadLetterMessage(ctx, red[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
		letter := copies(t, client, dead, "letters", 1)[0]
		equal(t, "letter", string(letter.Body), "red")
		equalAt(t, "reason", letter.DeadLetterReason, "why")
		equal(t, "source", strings.ToLower(*letter.DeadLetterSource), end+"/subscriptions/last")
		equal(t, "rest", peeked(t, client, end, "last", 0), "")
		// What forwards is not received from.
		_, err := newSubscriptionReceiver(t, client, topic, "to-topic", 0).ReceiveMessages(ctx, 1, nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
	})
}

func TestADestinationThatTakesNothingMakesDeadLettersAtTheSource(t *testing.T) {
	eachTopic(t, "refusing", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		disabled, gone, missing := topic+"-disabled", topic+"-gone", topic+"-missing"
		createTopics(t, manager, disabled, gone)
		createSubscription(t, manager, topic, "disabled", admin.SubscriptionProperties{ForwardTo: &disabled})
		createSubscription(t, manager, topic, "gone", admin.SubscriptionProperties{ForwardTo: &gone})
		_, err := manager.CreateSubscription(ctx, topic, "s", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{ForwardTo: &missing},
		})
		refusedWith(t, http.StatusBadRequest, err)
		must(t, changeTopic(t, manager, disabled, func(it *admin.TopicProperties) {
			it.Status = to.Ptr(admin.EntityStatusSendDisabled)
		}))
		_, err = manager.DeleteTopic(ctx, gone, nil)
		must(t, err)
		client := door.client(t)
		send(t, client, topic, text("x"))
		for _, name := range []string{"disabled", "gone"} {
			letter := drop(t, newSubscriptionReceiver(t, client, topic, name, azservicebus.SubQueueDeadLetter))
			equal(t, "letter", string(letter.Body), "x")
			equalAt(t, "reason", letter.DeadLetterReason, "ForwardingDestinationUnavailable")
		}
		// A subscription that forwards no more keeps what it gets.
		must(t, changeSubscription(t, manager, topic, "gone", func(it *admin.SubscriptionProperties) { it.ForwardTo = nil }))
		send(t, client, topic, text("y"))
		equal(t, "kept", bodies(copies(t, client, topic, "gone", 1)), "y")
	})
}

func TestFourHopsThroughTopics(t *testing.T) {
	eachTopic(t, "circling", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		back := topic + "-back"
		createTopics(t, manager, back)
		for _, name := range []string{topic, back} {
			createSubscription(t, manager, name, "all", admin.SubscriptionProperties{})
		}
		createSubscription(t, manager, topic, "there", admin.SubscriptionProperties{ForwardTo: &back})
		createSubscription(t, manager, back, "again", admin.SubscriptionProperties{ForwardTo: &topic})
		client := door.client(t)
		send(t, client, topic, text("x"))
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "there", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "x")
		equalAt(t, "reason", letter.DeadLetterReason, "MaxTransferHopCountExceeded")
		// It was here, there, here, there and here.
		equal(t, "here", peeked(t, client, topic, "all", 0), "x x x")
		equal(t, "there", peeked(t, client, back, "all", 0), "x x")
	})
}
