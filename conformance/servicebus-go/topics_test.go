package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

// Runs a scenario through each door, with a topic of its own.
func eachTopic(t *testing.T, name string, scenario func(t *testing.T, client *admin.Client, door Door, topic string)) {
	t.Helper()
	client, _ := administrator(t)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			topic := fmt.Sprintf("x-%s-of-go-over-%s", name, door.name)
			_, err := client.CreateTopic(ctx, topic, nil)
			must(t, err)
			scenario(t, client, door, topic)
			_, err = client.DeleteTopic(ctx, topic, nil)
			must(t, err)
		})
	}
}

// A subscription that has this rule and no other.
func subscribe(
	t *testing.T, client *admin.Client, topic, name string, filter admin.RuleFilter, action admin.RuleAction,
) {
	t.Helper()
	_, err := client.CreateSubscription(ctx, topic, name, &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{
			DefaultRule: &admin.RuleProperties{Name: "r", Filter: filter, Action: action},
		},
	})
	must(t, err)
}

func newSubscriptionReceiver(
	t *testing.T, client *azservicebus.Client, topic, name string, sub azservicebus.SubQueue,
) *azservicebus.Receiver {
	t.Helper()
	receiver, err := client.NewReceiverForSubscription(topic, name, &azservicebus.ReceiverOptions{SubQueue: sub})
	must(t, err)
	return receiver
}

func TestEachSubscriptionGetsACopyOfItsOwn(t *testing.T) {
	eachTopic(t, "copied", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		for _, name := range []string{"one", "two"} {
			_, err := manager.CreateSubscription(ctx, topic, name, nil)
			must(t, err)
		}
		client := door.client(t)
		send(t, client, topic, text("a"), text("b"))
		counts, err := manager.GetSubscriptionRuntimeProperties(ctx, topic, "one", nil)
		must(t, err)
		equal(t, "count", counts.ActiveMessageCount, 2)
		one := newSubscriptionReceiver(t, client, topic, "one", 0)
		copies := take(t, one, 2)
		equal(t, "bodies", bodies(copies), "a b")
		must(t, one.CompleteMessage(ctx, copies[0], nil))
		must(t, one.DeadLetterMessage(ctx, copies[1], &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "one", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "b")
		equalAt(t, "reason", letter.DeadLetterReason, "why")
		// The copies of the other subscription are still there.
		two := newSubscriptionReceiver(t, client, topic, "two", 0)
		equal(t, "bodies", bodies(take(t, two, 2)), "a b")

		// A subscription is received from, and a topic is sent to.
		refusedAs(t, amqp.ErrCondNotAllowed,
			newSender(t, client, topic+"/Subscriptions/one").SendMessage(ctx, text("x"), nil))
		_, err = newReceiver(t, client, topic).ReceiveMessages(ctx, 1, nil)
		refusedAs(t, amqp.ErrCondNotAllowed, err)
	})
}

func TestSessionsOfASubscription(t *testing.T) {
	eachTopic(t, "sessions", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		_, err := manager.CreateSubscription(ctx, topic, "s", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{RequiresSession: to.Ptr(true)},
		})
		must(t, err)
		client := door.client(t)
		in := func(body, session string) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(session)}
		}
		send(t, client, topic, in("a", "first"), in("b", "second"), text("without"))
		named, err := client.AcceptSessionForSubscription(ctx, topic, "s", "second", nil)
		must(t, err)
		equal(t, "body", string(drop(t, named).Body), "b")
		next, err := client.AcceptNextSessionForSubscription(ctx, topic, "s", nil)
		must(t, err)
		equal(t, "session", next.SessionID(), "first")
		equal(t, "body", string(drop(t, next).Body), "a")
		must(t, next.SetSessionState(ctx, []byte("state"), nil))
		state, err := next.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "state", string(state), "state")
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "s", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "without")
	})
}

// The values of properties, parameters and filters are those that this SDK sends.
func TestFiltersSelectByTheValuesOfTheSDK(t *testing.T) {
	eachTopic(t, "filtered", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		when := time.Date(2020, 7, 5, 11, 12, 13, 0, time.UTC)
		filters := map[string]admin.RuleFilter{
			"whole":    &admin.SQLFilter{Expression: "whole = 3 AND small = 4 AND part = 1.5"},
			"flag":     &admin.SQLFilter{Expression: "flag = TRUE AND color LIKE 'r%'"},
			"when":     &admin.SQLFilter{Expression: "at = @at", Parameters: map[string]any{"@at": when}},
			"number":   &admin.SQLFilter{Expression: "whole > @low", Parameters: map[string]any{"@low": int64(2)}},
			"property": &admin.CorrelationFilter{ApplicationProperties: map[string]any{"color": "red", "whole": int64(3)}},
			"system":   &admin.CorrelationFilter{Subject: to.Ptr("order"), ContentType: to.Ptr("text/plain")},
		}
		for name, filter := range filters {
			subscribe(t, manager, topic, name, filter, nil)
		}
		subscribe(t, manager, topic, "nothing", &admin.FalseFilter{}, nil)
		client := door.client(t)
		send(t, client, topic, &azservicebus.Message{
			Body: []byte("yes"), Subject: to.Ptr("order"), ContentType: to.Ptr("text/plain"),
			ApplicationProperties: map[string]any{
				"whole": int64(3), "small": int32(4), "part": 1.5, "flag": true, "color": "red", "at": when,
			},
		}, text("no"))
		peeked := func(name string) string {
			messages, err := newSubscriptionReceiver(t, client, topic, name, 0).PeekMessages(ctx, 10, nil)
			must(t, err)
			return bodies(messages)
		}
		for name := range filters {
			equal(t, name, peeked(name), "yes")
		}
		equal(t, "nothing", peeked("nothing"), "")
	})
}

func TestActionsChangeCopies(t *testing.T) {
	eachTopic(t, "changed", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		action := &admin.SQLAction{
			Expression: "SET whole = whole + @more; SET sys.Label = 'changed'; REMOVE color",
			Parameters: map[string]any{"@more": int64(10)},
		}
		subscribe(t, manager, topic, "s", &admin.SQLFilter{Expression: "color = 'red'"}, action)
		for _, name := range []string{"plain", "also-plain"} {
			_, err := manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{Name: to.Ptr(name)})
			must(t, err)
		}
		subscribe(t, manager, topic, "fails", &admin.SQLFilter{Expression: "10 / (whole - 1) > 0"}, nil)
		client := door.client(t)
		send(t, client, topic, &azservicebus.Message{
			Body: []byte("x"), ApplicationProperties: map[string]any{"color": "red", "whole": int64(1)},
		})
		// Both rules without an action give one copy.
		copies := take(t, newSubscriptionReceiver(t, client, topic, "s", 0), 2)
		equal(t, "properties", fmt.Sprint(copies[0].ApplicationProperties), "map[color:red whole:1]")
		equal(t, "changed", fmt.Sprint(copies[1].ApplicationProperties), "map[RuleName:r whole:11]")
		equalAt(t, "subject", copies[1].Subject, "changed")
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "fails", azservicebus.SubQueueDeadLetter))
		equalAt(t, "reason", letter.DeadLetterReason, "FilterException")
	})
}
