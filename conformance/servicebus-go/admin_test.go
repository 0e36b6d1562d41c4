package conformance

import (
	"errors"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

// A client for administration, which is over HTTPS only.
func administrator(t *testing.T) (*admin.Client, Door) {
	t.Helper()
	t.Parallel()
	if os.Getenv("KEW_BUS_HTTPS") == "" {
		t.Skip("no port 443")
	}
	door := Door{name: "amqps"}
	client, err := admin.NewClientFromConnectionString(door.connectionString(), administratorOptions())
	must(t, err)
	return client, door
}

func administratorOptions() *admin.ClientOptions {
	return &admin.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}},
			Retry:     policy.RetryOptions{MaxRetries: -1},
		},
	}
}

func refusedWith(t *testing.T, status int, err error) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		t.Fatalf("expected %d, got %v", status, err)
	}
	equal(t, "status", response.StatusCode, status)
}

func TestQueuesAreAdministered(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const name = "X.Made.By/Go"
		asked := admin.QueueProperties{
			LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(4)), RequiresSession: to.Ptr(true),
			DefaultMessageTimeToLive: to.Ptr("PT1H"), DeadLetteringOnMessageExpiration: to.Ptr(true),
			UserMetadata: to.Ptr("a < b & c"), AutoDeleteOnIdle: to.Ptr("PT10M"),
		}
		made, err := client.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &asked})
		must(t, err)
		equalAt(t, "lock", made.LockDuration, "PT30S")
		_, err = client.CreateQueue(ctx, name, nil)
		refusedWith(t, http.StatusConflict, err)

		got, err := client.GetQueue(ctx, name, nil)
		must(t, err)
		equalAt(t, "deliveries", got.MaxDeliveryCount, int32(4))
		equalAt(t, "sessions", got.RequiresSession, true)
		equalAt(t, "life", got.DefaultMessageTimeToLive, "PT1H")
		equalAt(t, "metadata", got.UserMetadata, "a < b & c")
		equalAt(t, "status", got.Status, admin.EntityStatusActive)

		change := got.QueueProperties
		change.MaxDeliveryCount = to.Ptr(int32(9))
		change.Status = to.Ptr(admin.EntityStatusSendDisabled)
		changed, err := client.UpdateQueue(ctx, name, change, nil)
		must(t, err)
		equalAt(t, "deliveries", changed.MaxDeliveryCount, int32(9))
		bus := door.client(t)
		refusedAs(t, "com.microsoft:entity-disabled", newSender(t, bus, name).SendMessage(ctx, inSession("s", "x"), nil))
		change.RequiresSession = to.Ptr(false)
		_, err = client.UpdateQueue(ctx, name, change, nil)
		refusedWith(t, http.StatusBadRequest, err)

		change.RequiresSession, change.Status = to.Ptr(true), to.Ptr(admin.EntityStatusActive)
		_, err = client.UpdateQueue(ctx, name, change, nil)
		must(t, err)
		send(t, bus, name, inSession("s", "x"), inSession("t", "y"))
		counts, err := client.GetQueueRuntimeProperties(ctx, name, nil)
		must(t, err)
		equal(t, "active", counts.ActiveMessageCount, 2)

		_, err = client.DeleteQueue(ctx, name, nil)
		must(t, err)
		gone, err := client.GetQueue(ctx, name, nil)
		if err != nil || gone != nil {
			t.Fatalf("it is there: %v, %v", gone, err)
		}
		_, err = client.DeleteQueue(ctx, name, nil)
		refusedWith(t, http.StatusNotFound, err)
		refusedAsMissing(t, newSender(t, door.client(t), name).SendMessage(ctx, text("x"), nil))
	})
}

func TestLinksThatAreThereHearOfChanges(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const name = "x-changed-by-go"
		_, err := client.CreateQueue(ctx, name, nil)
		must(t, err)
		setStatus := func(status admin.EntityStatus) {
			_, err := client.UpdateQueue(ctx, name, admin.QueueProperties{Status: &status}, nil)
			must(t, err)
		}
		bus := door.client(t)
		sender := newSender(t, bus, name)
		must(t, sender.SendMessage(ctx, text("before"), nil))
		setStatus(admin.EntityStatusSendDisabled)
		refusedAs(t, "com.microsoft:entity-disabled", sender.SendMessage(ctx, text("meanwhile"), nil))
		equal(t, "body", string(drop(t, newReceiver(t, bus, name)).Body), "before")
		setStatus(admin.EntityStatusActive)
		// This SDK treats that as the end of the sender.
		send(t, bus, name, text("after"))
		equal(t, "body", string(drop(t, newReceiver(t, bus, name)).Body), "after")

		// The error of a waiting receiver when the queue is changed.
		waitingHears := func(change func()) error {
			t.Helper()
			receiver := newReceiver(t, door.client(t), name)
			// Its link is open then.
			send(t, bus, name, text("opening"))
			drop(t, receiver)
			told := make(chan error)
			go func() {
				limited, cancel := contextFor(patience)
				defer cancel()
				_, err := receiver.ReceiveMessages(limited, 1, nil)
				told <- err
			}()
			time.Sleep(100 * time.Millisecond)
			change()
			return <-told
		}
		heard := waitingHears(func() { setStatus(admin.EntityStatusReceiveDisabled) })
		refusedAs(t, "com.microsoft:entity-disabled", heard)
		setStatus(admin.EntityStatusActive)
		heard = waitingHears(func() {
			_, err := client.DeleteQueue(ctx, name, nil)
			must(t, err)
		})
		// A receiver that did not wait yet opens its link again, and gets the same error when it puts its token.
		if code := new(azservicebus.Error); errors.As(heard, &code) && code.Code == azservicebus.CodeNotFound {
			refusedAsMissing(t, heard)
		} else {
			refusedAs(t, amqp.ErrCondNotFound, heard)
		}
	})
}

func TestAFullQueueTakesNoMoreUntilSomethingIsTakenOut(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const name = "x-filled-by-go"
		_, err := client.CreateQueue(ctx, name, &admin.CreateQueueOptions{
			Properties: &admin.QueueProperties{MaxSizeInMegabytes: to.Ptr(int32(1))},
		})
		must(t, err)
		bus := door.client(t)
		sender := newSender(t, bus, name)
		send := func() error {
			batch, err := sender.NewMessageBatch(ctx, nil)
			must(t, err)
			for range 5 {
				must(t, batch.AddMessage(&azservicebus.Message{Body: make([]byte, 100_000)}, nil))
			}
			return sender.SendMessageBatch(ctx, batch, nil)
		}
		for range 10 {
			if err = send(); err != nil {
				break
			}
		}
		refusedAs(t, "amqp:resource-limit-exceeded", err)
		take(t, newReceiverWith(t, bus, name, azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		}), 5)
		must(t, sender.SendMessage(ctx, text("fits"), nil))
		_, err = client.DeleteQueue(ctx, name, nil)
		must(t, err)
	})
}

func TestQueuesAreListedInPages(t *testing.T) {
	client, _ := administrator(t)
	t.Run("https", func(t *testing.T) {
		seen := map[string]bool{}
		pages := 0
		for pager := client.NewListQueuesPager(nil); pager.More(); pages++ {
			page, err := pager.NextPage(ctx)
			must(t, err)
			for _, queue := range page.Queues {
				if seen[queue.QueueName] && queue.QueueName < "x" && queue.QueueName >= "a" {
					t.Fatalf("%s twice", queue.QueueName)
				}
				seen[queue.QueueName] = true
			}
		}
		if !seen["plain-1"] || !seen["plain-100"] || pages < 5 {
			t.Fatalf("%d queues in %d pages", len(seen), pages)
		}
	})
}

func TestRulesOfAQueue(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		const key = "bm9ib2R5IGtub3dzIHRoaXMga2V5LCBvZiBjb3Vyc2U="
		_, err := client.CreateQueue(ctx, "x-with-rules", &admin.CreateQueueOptions{
			Properties: &admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{{
				KeyName: to.Ptr("senders"), AccessRights: []admin.AccessRight{admin.AccessRightSend},
				PrimaryKey: to.Ptr(key), SecondaryKey: to.Ptr(key),
			}}},
		})
		must(t, err)
		got, err := client.GetQueue(ctx, "x-with-rules", nil)
		must(t, err)
		equal(t, "rules", len(got.AuthorizationRules), 1)
		equalAt(t, "name", got.AuthorizationRules[0].KeyName, "senders")
		endpoint, _, _ := strings.Cut(door.connectionString(), ";")
		bus := door.clientWith(t, endpoint+";SharedAccessKeyName=senders;SharedAccessKey="+key)
		send(t, bus, "x-with-rules", text("x"))
		if _, err := newReceiver(t, bus, "x-with-rules").ReceiveMessages(ctx, 1, nil); err == nil {
			t.Fatal("it was received")
		}
	})
}

func TestRulesOfASubscription(t *testing.T) {
	client, _ := administrator(t)
	t.Run("https", func(t *testing.T) {
		const topic = "x-ruled-topic-of-go"
		_, err := client.CreateTopic(ctx, topic, nil)
		must(t, err)
		values := map[string]any{
			"@text": "hello world", "@whole": int64(100), "@part": 100.25, "@flag": true,
			"@when": time.Date(2001, 1, 1, 1, 2, 3, 0, time.UTC),
		}
		first := admin.RuleProperties{
			Name: "First", Filter: &admin.SQLFilter{Expression: "MessageID = @text OR n = @whole", Parameters: values},
			Action: &admin.SQLAction{Expression: "SET a = @part SET b = @when", Parameters: values},
		}
		_, err = client.CreateSubscription(ctx, topic, "sub", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{DefaultRule: &first},
		})
		must(t, err)
		got, err := client.GetRule(ctx, topic, "sub", "first", nil)
		must(t, err)
		sameRule(t, got.RuleProperties, first)
		_, err = client.CreateRule(ctx, topic, "sub", &admin.CreateRuleOptions{Name: to.Ptr("FIRST")})
		refusedWith(t, http.StatusConflict, err)

		// Without a name it is $Default.
		made, err := client.CreateRule(ctx, topic, "sub", &admin.CreateRuleOptions{})
		must(t, err)
		sameRule(t, made.RuleProperties, admin.RuleProperties{Name: "$Default", Filter: &admin.TrueFilter{}})
		correlation := admin.RuleProperties{Name: "$Default", Filter: &admin.CorrelationFilter{
			ContentType: to.Ptr("ct"), CorrelationID: to.Ptr("c"), MessageID: to.Ptr("m"), ReplyTo: to.Ptr("r"),
			ReplyToSessionID: to.Ptr("rs"), SessionID: to.Ptr("s"), Subject: to.Ptr("l"), To: to.Ptr("t"),
			ApplicationProperties: map[string]any{"color": "red"},
		}}
		changed, err := client.UpdateRule(ctx, topic, "sub", correlation)
		must(t, err)
		sameRule(t, changed.RuleProperties, correlation)
		nothing := admin.CreateRuleOptions{Name: to.Ptr("nothing"), Filter: &admin.FalseFilter{}}
		_, err = client.CreateRule(ctx, topic, "sub", &nothing)
		must(t, err)
		names := ""
		pager := client.NewListRulesPager(topic, "sub", &admin.ListRulesOptions{MaxPageSize: 2})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			must(t, err)
			for _, rule := range page.Rules {
				names += rule.Name + " "
			}
		}
		equal(t, "names", names, "$Default First nothing ")

		_, err = client.DeleteRule(ctx, topic, "sub", "nothing", nil)
		must(t, err)
		gone, err := client.GetRule(ctx, topic, "sub", "nothing", nil)
		if err != nil || gone != nil {
			t.Fatalf("it is there: %v, %v", gone, err)
		}
		_, err = client.DeleteRule(ctx, topic, "sub", "nothing", nil)
		refusedWith(t, http.StatusNotFound, err)
		_, err = client.UpdateRule(ctx, topic, "sub", admin.RuleProperties{Name: "nothing", Filter: &admin.TrueFilter{}})
		refusedWith(t, http.StatusNotFound, err)
		_, err = client.CreateRule(ctx, topic, "sub", &admin.CreateRuleOptions{
			Name: to.Ptr("bad"), Filter: &admin.SQLFilter{Expression: "n ="},
		})
		refusedWith(t, http.StatusBadRequest, err)
		if !strings.Contains(err.Error(), "column 4") {
			t.Fatal(err)
		}
		_, err = client.CreateRule(ctx, topic, "sub", &admin.CreateRuleOptions{
			Name: to.Ptr("bad"), Action: &admin.SQLAction{Expression: "RUN everything"},
		})
		refusedWith(t, http.StatusBadRequest, err)
		_, err = client.DeleteTopic(ctx, topic, nil)
		must(t, err)
	})
}

func sameRule(t *testing.T, got, expected admin.RuleProperties) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("%+v, expected %+v", got, expected)
	}
}

func TestTheNamespace(t *testing.T) {
	client, door := administrator(t)
	t.Run("https", func(t *testing.T) {
		got, err := client.GetNamespaceProperties(ctx, nil)
		must(t, err)
		equal(t, "name", got.Name, "sbemulatorns")
		wrong := strings.Replace(door.connectionString(), "SharedAccessKey=", "SharedAccessKey=x", 1)
		stranger, err := admin.NewClientFromConnectionString(wrong, &admin.ClientOptions{
			ClientOptions: policy.ClientOptions{
				Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}},
			},
		})
		must(t, err)
		_, err = stranger.GetQueue(ctx, "plain-1", nil)
		refusedWith(t, http.StatusUnauthorized, err)
	})
}
