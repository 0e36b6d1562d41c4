package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
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
	eachTopicThrough(t, doors, name, scenario)
}

func eachTopicThrough(
	t *testing.T, doors []Door, name string,
	scenario func(t *testing.T, client *admin.Client, door Door, topic string),
) {
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

func peeked(
	t *testing.T, client *azservicebus.Client, topic, name string, sub azservicebus.SubQueue,
) string {
	t.Helper()
	messages, err := newSubscriptionReceiver(t, client, topic, name, sub).PeekMessages(ctx, 20, nil)
	must(t, err)
	return bodies(messages)
}

var deleting = &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}

// Takes so many messages of a subscription for good.
func copies(t *testing.T, client *azservicebus.Client, topic, name string, count int) []*azservicebus.ReceivedMessage {
	t.Helper()
	receiver, err := client.NewReceiverForSubscription(topic, name, deleting)
	must(t, err)
	defer receiver.Close(ctx)
	return take(t, receiver, count)
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
		for _, name := range []string{"s", "t"} {
			_, err := manager.CreateSubscription(ctx, topic, name, &admin.CreateSubscriptionOptions{
				Properties: &admin.SubscriptionProperties{RequiresSession: to.Ptr(true)},
			})
			must(t, err)
		}
		client := door.client(t)
		send(t, client, topic, inSession("first", "a"), inSession("second", "b"), inSession("first", "c"), text("without"))
		named, err := client.AcceptSessionForSubscription(ctx, topic, "s", "second", nil)
		must(t, err)
		_, err = client.AcceptSessionForSubscription(ctx, topic, "s", "second", nil)
		refusedAs(t, "com.microsoft:session-cannot-be-locked", err)
		equal(t, "body", string(drop(t, named).Body), "b")
		next, err := client.AcceptNextSessionForSubscription(ctx, topic, "s", nil)
		must(t, err)
		equal(t, "session", next.SessionID(), "first")
		equal(t, "bodies", bodies(take(t, next, 2)), "a c")
		must(t, next.SetSessionState(ctx, []byte("state"), nil))
		state, err := next.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "state", string(state), "state")
		// The sessions of the other subscription are its own.
		other, err := client.AcceptSessionForSubscription(ctx, topic, "t", "first", nil)
		must(t, err)
		state, err = other.GetSessionState(ctx, nil)
		must(t, err)
		equal(t, "other state", string(state), "")
		equal(t, "other bodies", bodies(take(t, other, 2)), "a c")
		for _, name := range []string{"s", "t"} {
			letter := drop(t, newSubscriptionReceiver(t, client, topic, name, azservicebus.SubQueueDeadLetter))
			equal(t, "letter", string(letter.Body), "without")
			equalAt(t, "reason", letter.DeadLetterReason, "Session id is null.")
		}
	})
}

func TestTheDefaultRuleIsARuleLikeOthers(t *testing.T) {
	eachTopic(t, "default", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		_, err := manager.CreateSubscription(ctx, topic, "s", nil)
		must(t, err)
		rule, err := manager.GetRule(ctx, topic, "s", "$Default", nil)
		must(t, err)
		sameRule(t, rule.RuleProperties, admin.RuleProperties{Name: "$Default", Filter: &admin.TrueFilter{}})
		client := door.client(t)
		about := func(subject, body string) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), Subject: &subject}
		}
		send(t, client, topic, text("all"))
		_, err = manager.DeleteRule(ctx, topic, "s", "$default", nil)
		must(t, err)
		send(t, client, topic, text("none"))
		_, err = manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{
			Name: to.Ptr("$Default"), Filter: &admin.CorrelationFilter{Subject: to.Ptr("yes")},
		})
		must(t, err)
		send(t, client, topic, about("yes", "selected"), about("no", "not"))
		_, err = manager.UpdateRule(ctx, topic, "s", admin.RuleProperties{
			Name: "$Default", Filter: &admin.SQLFilter{Expression: "sys.Label = 'no'"},
		})
		must(t, err)
		send(t, client, topic, about("yes", "not"), about("no", "updated"))
		equal(t, "bodies", peeked(t, client, topic, "s", 0), "all selected updated")
	})
}

func TestEachFieldOfACorrelationFilter(t *testing.T) {
	eachTopic(t, "fields", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		// Each sets one field of a filter and of a message.
		fields := map[string]func(filter *admin.CorrelationFilter, message *azservicebus.Message, value *string){
			"correlation": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) {
				f.CorrelationID, m.CorrelationID = v, v
			},
			"message": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) { f.MessageID, m.MessageID = v, v },
			"to":      func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) { f.To, m.To = v, v },
			"reply":   func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) { f.ReplyTo, m.ReplyTo = v, v },
			"subject": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) { f.Subject, m.Subject = v, v },
			"session": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) { f.SessionID, m.SessionID = v, v },
			"reply-session": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) {
				f.ReplyToSessionID, m.ReplyToSessionID = v, v
			},
			"content": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) {
				f.ContentType, m.ContentType = v, v
			},
			"property": func(f *admin.CorrelationFilter, m *azservicebus.Message, v *string) {
				f.ApplicationProperties = map[string]any{"n": int64(len(*v))}
				m.ApplicationProperties = map[string]any{"n": int64(len(*v)), "color": "red"}
			},
		}
		var names []string
		whole, filter := text("whole"), &admin.CorrelationFilter{}
		for name, set := range fields {
			names = append(names, name)
			set(filter, whole, to.Ptr("x"))
			one := &admin.CorrelationFilter{}
			set(one, &azservicebus.Message{}, to.Ptr("x"))
			subscribe(t, manager, topic, name, one, nil)
		}
		slices.Sort(names)
		subscribe(t, manager, topic, "all", filter, nil)
		subscribe(t, manager, topic, "case", &admin.CorrelationFilter{Subject: to.Ptr("X")}, nil)
		property := map[string]any{"n": "1"}
		subscribe(t, manager, topic, "text", &admin.CorrelationFilter{ApplicationProperties: property}, nil)
		// Each message but the first differs in one field.
		messages := []*azservicebus.Message{whole}
		for _, name := range names {
			message := *whole
			message.Body = []byte(name)
			fields[name](&admin.CorrelationFilter{}, &message, to.Ptr("other"))
			messages = append(messages, &message)
		}
		client := door.client(t)
		send(t, client, topic, messages...)
		for _, name := range names {
			others := slices.DeleteFunc(slices.Clone(names), func(it string) bool { return it == name })
			equal(t, name, peeked(t, client, topic, name, 0), "whole "+strings.Join(others, " "))
		}
		equal(t, "all", peeked(t, client, topic, "all", 0), "whole")
		equal(t, "case", peeked(t, client, topic, "case", 0), "")
		equal(t, "text", peeked(t, client, topic, "text", 0), "")
	})
}

// Filters and the messages that each selects, which the suites of all languages have.
type filterTable struct {
	Messages []struct {
		Body, Subject, MessageID, CorrelationID, To, ReplyTo, ContentType, SessionID, ReplyToSessionID *string
		ApplicationProperties                                                                          map[string]any
	}
	Selects map[string]map[string][]string
}

func (table filterTable) messages() (messages []*azservicebus.Message) {
	for _, it := range table.Messages {
		for name, value := range it.ApplicationProperties {
			if number, isNumber := value.(float64); isNumber && number == float64(int64(number)) {
				it.ApplicationProperties[name] = int64(number)
			}
		}
		messages = append(messages, &azservicebus.Message{
			Body: []byte(*it.Body), Subject: it.Subject, MessageID: it.MessageID, CorrelationID: it.CorrelationID,
			To: it.To, ReplyTo: it.ReplyTo, ContentType: it.ContentType, SessionID: it.SessionID,
			ReplyToSessionID: it.ReplyToSessionID, ApplicationProperties: it.ApplicationProperties,
		})
	}
	return messages
}

// Each filter is a rule with an action, which gives a copy with the name of the rule.
func TestWhatSQLFiltersSelect(t *testing.T) {
	source, err := os.ReadFile("../filters.json")
	must(t, err)
	// What a filter selects does not depend on the way to the server.
	eachTopicThrough(t, doors[:1], "selected", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		var table filterTable
		must(t, json.Unmarshal(source, &table))
		subscribe(t, manager, topic, "s", &admin.FalseFilter{}, nil)
		expected, found, filters := map[string][]string{}, map[string][]string{}, map[string]string{}
		count := 0
		for _, group := range table.Selects {
			for filter, selected := range group {
				rule := fmt.Sprintf("r%d", len(filters))
				_, err := manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{
					Name: &rule, Filter: &admin.SQLFilter{Expression: filter},
					Action: &admin.SQLAction{Expression: "SET seen = TRUE"},
				})
				must(t, err)
				filters[rule] = filter
				expected[filter], found[filter] = selected, []string{}
				count += len(selected)
			}
		}
		client := door.client(t)
		send(t, client, topic, table.messages()...)
		receiver, err := client.NewReceiverForSubscription(topic, "s", deleting)
		must(t, err)
		for _, message := range take(t, receiver, count) {
			equal(t, "seen", message.ApplicationProperties["seen"], any(true))
			filter := filters[message.ApplicationProperties["RuleName"].(string)]
			found[filter] = append(found[filter], string(message.Body))
		}
		if !reflect.DeepEqual(found, expected) {
			t.Fatalf("%v, expected %v", found, expected)
		}
		counts, err := manager.GetSubscriptionRuntimeProperties(ctx, topic, "s", nil)
		must(t, err)
		equal(t, "left", counts.TotalMessageCount, 0)
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
		for name := range filters {
			equal(t, name, peeked(t, client, topic, name, 0), "yes")
		}
		equal(t, "nothing", peeked(t, client, topic, "nothing", 0), "")
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
		for _, rule := range []admin.CreateRuleOptions{
			{Name: to.Ptr("second"), Action: &admin.SQLAction{Expression: "SET sys.To = 'there'"}},
			{
				Name: to.Ptr("unused"), Filter: &admin.SQLFilter{Expression: "color = 'blue'"},
				Action: &admin.SQLAction{Expression: "SET a = 1"},
			},
		} {
			_, err := manager.CreateRule(ctx, topic, "s", &rule)
			must(t, err)
		}
		client := door.client(t)
		send(t, client, topic, &azservicebus.Message{
			Body: []byte("x"), ApplicationProperties: map[string]any{"color": "red", "whole": int64(1)},
		})
		// The rules without an action give one copy, and each other rule gives its own.
		copies := copies(t, client, topic, "s", 3)
		equal(t, "properties", fmt.Sprint(copies[0].ApplicationProperties), "map[color:red whole:1]")
		equal(t, "changed", fmt.Sprint(copies[1].ApplicationProperties), "map[RuleName:r whole:11]")
		equalAt(t, "subject", copies[1].Subject, "changed")
		equal(t, "second", fmt.Sprint(copies[2].ApplicationProperties), "map[RuleName:second color:red whole:1]")
		equalAt(t, "to", copies[2].To, "there")
		equal(t, "rest", peeked(t, client, topic, "s", 0), "")
	})
}

func TestAFilterThatFailsGivesADeadLetterIfTheSubscriptionAsksForIt(t *testing.T) {
	eachTopic(t, "failing", func(t *testing.T, manager *admin.Client, door Door, topic string) {
		for name, asks := range map[string]bool{"asks": true, "does-not": false} {
			rule := admin.RuleProperties{Name: "fails", Filter: &admin.SQLFilter{Expression: "10 / n > 0"}}
			_, err := manager.CreateSubscription(ctx, topic, name, &admin.CreateSubscriptionOptions{
				Properties: &admin.SubscriptionProperties{
					EnableDeadLetteringOnFilterEvaluationExceptions: &asks, DefaultRule: &rule,
				},
			})
			must(t, err)
		}
		client := door.client(t)
		for body, n := range map[string]int64{"bad": 0, "good": 2} {
			send(t, client, topic, &azservicebus.Message{Body: []byte(body), ApplicationProperties: map[string]any{"n": n}})
		}
		equal(t, "asks", peeked(t, client, topic, "asks", 0), "good")
		equal(t, "does not", peeked(t, client, topic, "does-not", 0), "good")
		equal(t, "no letters", peeked(t, client, topic, "does-not", azservicebus.SubQueueDeadLetter), "")
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "asks", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "bad")
		equalAt(t, "reason", letter.DeadLetterReason, "FilterException")
		if !strings.Contains(*letter.DeadLetterErrorDescription, "division by zero") {
			t.Fatal(*letter.DeadLetterErrorDescription)
		}
	})
}

func TestATopicOfTheConfigurationFile(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		client, topic := door.client(t), "configured-"+door.name
		message := func(color string, size int64) *azservicebus.Message {
			return &azservicebus.Message{
				Body: []byte(color), MessageID: &color, Subject: to.Ptr("order"),
				ApplicationProperties: map[string]any{"color": color, "size": size},
			}
		}
		send(t, client, topic, message("red", 1), message("blue", 9), message("red", 9))
		shown := func(name string) (all []string) {
			messages, err := newSubscriptionReceiver(t, client, topic, name, 0).PeekMessages(ctx, 10, nil)
			must(t, err)
			for _, it := range messages {
				all = append(all, fmt.Sprint(it.ApplicationProperties))
			}
			return all
		}
		// It drops duplicates.
		same(t, shown("all"), []string{"map[color:red size:1]", "map[color:blue size:9]"})
		same(t, shown("red"), []string{"map[color:red size:1]"})
		same(t, shown("large"), []string{"map[RuleName:size color:blue size:5]"})
		receiver := newSubscriptionReceiver(t, client, topic, "all", 0)
		for range 3 {
			first := takeOne(t, receiver)
			equal(t, "life", first.ExpiresAt.Sub(*first.EnqueuedTime), 30*time.Minute)
			must(t, receiver.AbandonMessage(ctx, first, nil))
		}
		letter := drop(t, newSubscriptionReceiver(t, client, topic, "all", azservicebus.SubQueueDeadLetter))
		equal(t, "letter", string(letter.Body), "red")
		equalAt(t, "reason", letter.DeadLetterReason, "MaxDeliveryCountExceeded")
	})
}
