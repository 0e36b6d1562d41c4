package conformance

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestTopicsAndSubscriptionsAreAdministered(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const topic = "x-topic-of-go"
		const never = "P10675199DT2H48M5.4775807S"
		made, err := client.CreateTopic(ctx, topic, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
			UserMetadata: to.Ptr("a < b & c"), MaxSizeInMegabytes: to.Ptr(int32(2048)),
		}})
		must(t, err)
		equal(t, "name", made.TopicName, topic)
		equalAt(t, "idle", made.AutoDeleteOnIdle, never)
		_, err = client.CreateTopic(ctx, topic, nil)
		refusedWith(t, http.StatusConflict, err)
		_, err = client.CreateQueue(ctx, topic, nil)
		refusedWith(t, http.StatusConflict, err)
		change := made.TopicProperties
		change.DefaultMessageTimeToLive, change.AutoDeleteOnIdle = to.Ptr("PT1H"), to.Ptr("PT10M")
		change.SupportOrdering = to.Ptr(false)
		changed, err := client.UpdateTopic(ctx, topic, change, nil)
		must(t, err)
		got, err := client.GetTopic(ctx, strings.ToUpper(topic), nil)
		must(t, err)
		same(t, got.TopicProperties, changed.TopicProperties)
		equalAt(t, "metadata", got.UserMetadata, "a < b & c")
		equalAt(t, "size", got.MaxSizeInMegabytes, 2048)
		equalAt(t, "life", got.DefaultMessageTimeToLive, "PT1H")
		equalAt(t, "idle", got.AutoDeleteOnIdle, "PT10M")
		equalAt(t, "order", got.SupportOrdering, false)
		for what, change := range map[string]func(*admin.TopicProperties){
			"idle":       func(it *admin.TopicProperties) { it.AutoDeleteOnIdle = to.Ptr("PT4M59S") },
			"duplicates": func(it *admin.TopicProperties) { it.RequiresDuplicateDetection = to.Ptr(true) },
			"partitions": func(it *admin.TopicProperties) { it.EnablePartitioning = to.Ptr(true) },
			"status":     func(it *admin.TopicProperties) { it.Status = to.Ptr(admin.EntityStatusReceiveDisabled) },
		} {
			t.Run(what, func(t *testing.T) {
				refusedWith(t, http.StatusBadRequest, changeTopic(t, client, topic, change))
			})
		}
		_, err = client.UpdateTopic(ctx, topic+"-missing", change, nil)
		refusedWith(t, http.StatusNotFound, err)

		asked := admin.SubscriptionProperties{
			LockDuration: to.Ptr("PT5S"), MaxDeliveryCount: to.Ptr(int32(1)), RequiresSession: to.Ptr(true),
			DefaultMessageTimeToLive: to.Ptr("PT2H"), DeadLetteringOnMessageExpiration: to.Ptr(true),
			EnableDeadLetteringOnFilterEvaluationExceptions: to.Ptr(false), AutoDeleteOnIdle: to.Ptr("PT5M"),
			EnableBatchedOperations: to.Ptr(false), UserMetadata: to.Ptr("mine"), Status: to.Ptr(admin.EntityStatusActive),
		}
		_, err = client.CreateSubscription(ctx, topic, "Sub", &admin.CreateSubscriptionOptions{Properties: &asked})
		must(t, err)
		_, err = client.CreateSubscription(ctx, topic, "SUB", nil)
		refusedWith(t, http.StatusConflict, err)
		_, err = client.CreateSubscription(ctx, topic, strings.Repeat("x", 51), nil)
		refusedWith(t, http.StatusBadRequest, err)
		_, err = client.CreateSubscription(ctx, topic+"-missing", "s", nil)
		refusedWith(t, http.StatusNotFound, err)
		shown, err := client.GetSubscription(ctx, topic, "sub", nil)
		must(t, err)
		same(t, shown.SubscriptionProperties, asked)
		refusedWith(t, http.StatusBadRequest, changeSubscription(
			t, administratorWith(t, admin.EntityStatusSendDisabled), topic, "sub", func(*admin.SubscriptionProperties) {}))
		for what, change := range map[string]func(*admin.SubscriptionProperties){
			"idle":       func(it *admin.SubscriptionProperties) { it.AutoDeleteOnIdle = to.Ptr("PT4M59S") },
			"short lock": func(it *admin.SubscriptionProperties) { it.LockDuration = to.Ptr("PT4S") },
			"long lock":  func(it *admin.SubscriptionProperties) { it.LockDuration = to.Ptr("PT5M1S") },
			"deliveries": func(it *admin.SubscriptionProperties) { it.MaxDeliveryCount = to.Ptr(int32(0)) },
			"sessions":   func(it *admin.SubscriptionProperties) { it.RequiresSession = to.Ptr(false) },
			"metadata":   func(it *admin.SubscriptionProperties) { it.UserMetadata = to.Ptr(strings.Repeat("x", 1025)) },
			"forwarding": func(it *admin.SubscriptionProperties) { it.ForwardTo = to.Ptr(topic + "-missing") },
		} {
			t.Run(what, func(t *testing.T) {
				refusedWith(t, http.StatusBadRequest, changeSubscription(t, client, topic, "sub", change))
			})
		}
		must(t, changeSubscription(t, client, topic, "sub", func(it *admin.SubscriptionProperties) {
			it.MaxDeliveryCount, it.ForwardDeadLetteredMessagesTo = to.Ptr(int32(7)), to.Ptr(topic)
		}))
		shown, err = client.GetSubscription(ctx, topic, "sub", nil)
		must(t, err)
		equalAt(t, "deliveries", shown.MaxDeliveryCount, 7)
		if !strings.HasSuffix(*shown.ForwardDeadLetteredMessagesTo, "/"+topic) {
			t.Fatal(*shown.ForwardDeadLetteredMessagesTo)
		}

		_, err = client.DeleteSubscription(ctx, topic, "SUB", nil)
		must(t, err)
		_, err = client.DeleteSubscription(ctx, topic, "sub", nil)
		refusedWith(t, http.StatusNotFound, err)
		createSubscription(t, client, topic, "other", admin.SubscriptionProperties{})
		// It takes its subscriptions with it.
		_, err = client.DeleteTopic(ctx, topic, nil)
		must(t, err)
		gone, err := client.GetTopic(ctx, topic, nil)
		if err != nil || gone != nil {
			t.Fatalf("it is there: %v, %v", gone, err)
		}
		left, err := client.GetSubscription(ctx, topic, "other", nil)
		if err != nil || left != nil {
			t.Fatalf("it is there: %v, %v", left, err)
		}
		refusedAsMissing(t, newSender(t, door.client(t), topic).SendMessage(ctx, text("x"), nil))
	})
}

func same[T any](t *testing.T, got, expected T) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("%+v, expected %+v", got, expected)
	}
}

// The SDK never sends the status of a subscription. This adds it.
type statusAdder struct{ status admin.EntityStatus }

func (adder statusAdder) Do(request *policy.Request) (*http.Response, error) {
	if request.Body() != nil {
		body, err := io.ReadAll(request.Body())
		if err != nil {
			return nil, err
		}
		const end = "</SubscriptionDescription>"
		text := strings.Replace(string(body), end, fmt.Sprintf("<Status>%s</Status>%s", adder.status, end), 1)
		if err := request.SetBody(readSeekCloser{strings.NewReader(text)}, "application/atom+xml"); err != nil {
			return nil, err
		}
	}
	return request.Next()
}

type readSeekCloser struct{ *strings.Reader }

func (readSeekCloser) Close() error { return nil }

func administratorWith(t *testing.T, status admin.EntityStatus) *admin.Client {
	t.Helper()
	options := administratorOptions()
	options.PerCallPolicies = []policy.Policy{statusAdder{status}}
	client, err := admin.NewClientFromConnectionString(Door{name: "amqps"}.connectionString(), options)
	must(t, err)
	return client
}

func TestASubscriptionThatIsNotReceivedFrom(t *testing.T) {
	manager, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const topic = "x-not-received-of-go"
		createTopics(t, manager, topic)
		createSubscription(t, manager, topic, "s", admin.SubscriptionProperties{})
		bus := door.client(t)
		setStatus := func(status admin.EntityStatus) {
			t.Helper()
			must(t, changeSubscription(t, administratorWith(t, status), topic, "s", func(*admin.SubscriptionProperties) {}))
			got, err := manager.GetSubscription(ctx, topic, "s", nil)
			must(t, err)
			equalAt(t, "status", got.Status, status)
		}
		for _, status := range []admin.EntityStatus{admin.EntityStatusReceiveDisabled, admin.EntityStatusDisabled} {
			// The error of a receiver that waits when the status changes.
			receiver := newSubscriptionReceiver(t, door.client(t), topic, "s", 0)
			send(t, bus, topic, text("opening"))
			drop(t, receiver)
			told := make(chan error)
			go func() {
				limited, cancel := contextFor(patience)
				defer cancel()
				_, err := receiver.ReceiveMessages(limited, 1, nil)
				told <- err
			}()
			setStatus(status)
			refusedAs(t, "com.microsoft:entity-disabled", <-told)
			_, err := newSubscriptionReceiver(t, bus, topic, "s", 0).ReceiveMessages(ctx, 1, nil)
			refusedAs(t, "com.microsoft:entity-disabled", err)
			_, err = manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{Name: to.Ptr("r")})
			refusedWith(t, http.StatusForbidden, err)
			_, err = manager.DeleteRule(ctx, topic, "s", "$Default", nil)
			refusedWith(t, http.StatusForbidden, err)
			// It gets copies nevertheless.
			send(t, bus, topic, text(string(status)))
			counts, err := manager.GetSubscriptionRuntimeProperties(ctx, topic, "s", nil)
			must(t, err)
			equal(t, "active", counts.ActiveMessageCount, 1)
			setStatus(admin.EntityStatusActive)
			equal(t, "after", bodies(copies(t, bus, topic, "s", 1)), string(status))
		}
	})
}

func TestATopicThatIsNotSentTo(t *testing.T) {
	manager, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const topic = "x-not-sent-of-go"
		createTopics(t, manager, topic)
		createSubscription(t, manager, topic, "s", admin.SubscriptionProperties{})
		bus := door.client(t)
		setStatus := func(status admin.EntityStatus) {
			t.Helper()
			must(t, changeTopic(t, manager, topic, func(it *admin.TopicProperties) { it.Status = &status }))
			got, err := manager.GetTopic(ctx, topic, nil)
			must(t, err)
			equalAt(t, "status", got.Status, status)
		}
		for _, status := range []admin.EntityStatus{admin.EntityStatusSendDisabled, admin.EntityStatusDisabled} {
			sender := newSender(t, bus, topic)
			must(t, sender.SendMessage(ctx, text(string(status)), nil))
			setStatus(status)
			refusedAs(t, "com.microsoft:entity-disabled", sender.SendMessage(ctx, text("not"), nil))
			refusedAs(t, "com.microsoft:entity-disabled", newSender(t, bus, topic).SendMessage(ctx, text("not"), nil))
			receiver := newSubscriptionReceiver(t, bus, topic, "s", 0)
			if status == admin.EntityStatusDisabled {
				_, err := receiver.ReceiveMessages(ctx, 1, nil)
				refusedAs(t, "com.microsoft:entity-disabled", err)
				_, err = manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{Name: to.Ptr("r")})
				refusedWith(t, http.StatusForbidden, err)
			} else {
				// What is there can be drained.
				equal(t, "body", string(drop(t, receiver).Body), string(status))
				_, err := manager.CreateRule(ctx, topic, "s", &admin.CreateRuleOptions{
					Name: to.Ptr("r"), Filter: &admin.FalseFilter{},
				})
				must(t, err)
			}
			// Other settings can change.
			must(t, changeSubscription(t, manager, topic, "s", func(it *admin.SubscriptionProperties) {
				it.UserMetadata = to.Ptr(string(status))
			}))
			setStatus(admin.EntityStatusActive)
			send(t, bus, topic, text("after"+string(status)))
		}
		equal(t, "bodies", peeked(t, bus, topic, "s", 0), "afterSendDisabled Disabled afterDisabled")
	})
}

func TestAFullTopicTakesNoMoreUntilSomethingIsTakenOut(t *testing.T) {
	manager, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const topic = "x-filled-topic-of-go"
		_, err := manager.CreateTopic(ctx, topic, &admin.CreateTopicOptions{
			Properties: &admin.TopicProperties{MaxSizeInMegabytes: to.Ptr(int32(1))},
		})
		must(t, err)
		for _, name := range []string{"one", "two"} {
			createSubscription(t, manager, topic, name, admin.SubscriptionProperties{})
		}
		bus := door.client(t)
		sender := newSender(t, bus, topic)
		message := &azservicebus.Message{Body: make([]byte, 100_000)}
		count := 0
		for ; count < 20 && err == nil; count++ {
			err = sender.SendMessage(ctx, message, nil)
		}
		refusedAs(t, "amqp:resource-limit-exceeded", err)
		// Each body counts once, although two subscriptions have it.
		equal(t, "messages, and one that was refused", count, 11)
		counts, err := manager.GetTopicRuntimeProperties(ctx, topic, nil)
		must(t, err)
		if size := counts.SizeInBytes; size < 1_000_000 || size > 1_100_000 {
			t.Fatalf("%d bytes", size)
		}
		for _, name := range []string{"one", "two"} {
			copies(t, bus, topic, name, 5)
		}
		must(t, sender.SendMessage(ctx, message, nil))
		_, err = manager.DeleteTopic(ctx, topic, nil)
		must(t, err)
	})
}

// The names of all items, and the sizes of the pages.
func listed[Page, Item any](t *testing.T, pager *runtime.Pager[Page], items func(Page) []Item) ([]Item, string) {
	t.Helper()
	var all []Item
	var sizes []string
	for pager.More() {
		page, err := pager.NextPage(ctx)
		must(t, err)
		all = append(all, items(page)...)
		if size := len(items(page)); size > 0 {
			sizes = append(sizes, fmt.Sprint(size))
		}
	}
	return all, strings.Join(sizes, " ")
}

func TestListsHavePagesSettingsAndCounts(t *testing.T) {
	manager, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		// The first of all topics, so that no other scenario moves it from one page to another.
		const topic = "a-listed-topic-of-go"
		createTopics(t, manager, topic)
		var names []string
		for number := range 105 {
			name := fmt.Sprintf("s%03d", number)
			names = append(names, name)
			createSubscription(t, manager, topic, name, admin.SubscriptionProperties{UserMetadata: to.Ptr("its " + name)})
		}
		for pageSize, expected := range map[int32]string{0: "100 5", 40: "40 40 25"} {
			all, sizes := listed(t,
				manager.NewListSubscriptionsPager(topic, &admin.ListSubscriptionsOptions{MaxPageSize: pageSize}),
				func(page admin.ListSubscriptionsResponse) []admin.SubscriptionPropertiesItem {
					return page.Subscriptions
				})
			equal(t, "pages", sizes, expected)
			for number, it := range all {
				equal(t, "name", it.SubscriptionName, names[number])
				equalAt(t, "metadata", it.UserMetadata, "its "+names[number])
			}
		}
		bus := door.client(t)
		send(t, bus, topic, text("a"), text("b"), text("c"))
		receiver := newSubscriptionReceiver(t, bus, topic, "s001", 0)
		taken := take(t, receiver, 2)
		must(t, receiver.CompleteMessage(ctx, taken[0], nil))
		must(t, receiver.DeadLetterMessage(ctx, taken[1], nil))
		later := []*azservicebus.Message{text("d"), text("e")}
		_, err := newSender(t, bus, topic).ScheduleMessages(ctx, later, time.Now().Add(time.Hour), nil)
		must(t, err)
		counted, _ := listed(t, manager.NewListSubscriptionsRuntimePropertiesPager(topic, nil),
			func(page admin.ListSubscriptionsRuntimePropertiesResponse) []admin.SubscriptionRuntimePropertiesItem {
				return page.SubscriptionRuntimeProperties
			})
		for number, expected := range []string{"3 0 3", "1 1 2", "3 0 3"} {
			it := counted[number]
			found := fmt.Sprint(it.ActiveMessageCount, it.DeadLetterMessageCount, it.TotalMessageCount)
			equal(t, "counts of "+it.SubscriptionName, found, expected)
		}
		counts, err := manager.GetSubscriptionRuntimeProperties(ctx, topic, "s001", nil)
		must(t, err)
		found := fmt.Sprint(counts.ActiveMessageCount, counts.DeadLetterMessageCount, counts.TotalMessageCount,
			counts.TransferMessageCount, counts.TransferDeadLetterMessageCount)
		equal(t, "counts", found, "1 1 2 0 0")
		topics, _ := listed(t,
			manager.NewListTopicsRuntimePropertiesPager(&admin.ListTopicsRuntimePropertiesOptions{MaxPageSize: 2}),
			func(page admin.ListTopicsRuntimePropertiesResponse) []admin.TopicRuntimePropertiesItem {
				return page.TopicRuntimeProperties
			})
		times := 0
		for _, it := range topics {
			if it.TopicName == topic {
				times++
				equal(t, "subscriptions and scheduled", fmt.Sprint(it.SubscriptionCount, it.ScheduledMessageCount), "105 2")
			}
		}
		equal(t, "times", times, 1)
	})
}
