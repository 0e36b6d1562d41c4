// Package dapr runs components of Dapr against the real binary, which the script beside it has started. A component
// gets the metadata that its YAML file would have.
package dapr

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dapr/components-contrib/bindings"
	"github.com/dapr/components-contrib/bindings/azure/servicebusqueues"
	"github.com/dapr/components-contrib/bindings/azure/storagequeues"
	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/topics"
	"github.com/dapr/kit/logger"
)

const patience = 30 * time.Second

var log = logger.NewLogger("dapr")

// What the YAML file of a component has below spec.metadata.
type settings = map[string]string

// The two ways to Service Bus. With TLS, Dapr creates what does not exist. Without TLS it cannot, because its client for
// administration speaks HTTPS only.
var busDoors = map[string]settings{
	"amqp": {
		"connectionString":        os.Getenv("KEW_BUS_CONNECTION_STRING"),
		"disableEntityManagement": "true",
	},
	"amqps": {
		"connectionString": os.Getenv("KEW_BUS_CONNECTION_STRING_TLS"),
	},
}

func eachBusDoor(t *testing.T, scenario func(t *testing.T, door string, component metadata.Base)) {
	for door, common := range busDoors {
		t.Run(door, func(t *testing.T) {
			scenario(t, door, component(common, settings{}))
		})
	}
}

func component(common, own settings) metadata.Base {
	all := maps.Clone(common)
	maps.Copy(all, own)
	return metadata.Base{Name: "kew", Properties: all}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Waits for a text that a handler gets, in any order and more than once if the component repeats it.
func expect(t *testing.T, got <-chan string, wanted ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, text := range wanted {
		missing[text] = true
	}
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case text := <-got:
			delete(missing, text)
		case <-deadline:
			t.Fatalf("did not arrive: %v", missing)
		}
	}
}

// Waits until the server has no message there any more, not even a locked one.
func emptied(t *testing.T, service, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		output, err := exec.Command(os.Getenv("KEW_BINARY"), service, "show", "--json", name).Output()
		must(t, err)
		var counts struct {
			Active      int `json:"active_messages"`
			Approximate int `json:"approximate_message_count"`
		}
		must(t, json.Unmarshal(output, &counts))
		if counts.Active+counts.Approximate == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("messages are left in %s: %s", name, output)
		}
	}
}

// Sends a message with a binding, and receives it with the same.
func sendAndReceive(t *testing.T, binding bindings.InputOutputBinding, settings metadata.Base, service string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	must(t, binding.Init(ctx, bindings.Metadata{Base: settings}))
	got := make(chan string, 10)
	must(t, binding.Read(ctx, func(_ context.Context, read *bindings.ReadResponse) ([]byte, error) {
		got <- string(read.Data)
		return nil, nil
	}))
	_, err := binding.Invoke(ctx, &bindings.InvokeRequest{Operation: bindings.CreateOperation, Data: []byte("hello")})
	must(t, err)
	expect(t, got, "hello")
	emptied(t, service, settings.Properties["queueName"])
	cancel()
	must(t, binding.Close())
}

func TestBindingOfStorageQueues(t *testing.T) {
	for _, door := range []string{"http", "https"} {
		t.Run(door, func(t *testing.T) {
			account := parts(os.Getenv("KEW_QUEUE_CONNECTION_STRING"))
			if door == "https" {
				account = parts(os.Getenv("KEW_QUEUE_CONNECTION_STRING_TLS"))
			}
			sendAndReceive(t, storagequeues.NewAzureStorageQueues(log), component(settings{}, settings{
				"accountName": account["AccountName"],
				"accountKey":  account["AccountKey"],
				// Dapr adds the account to the address.
				"queueEndpoint":   strings.TrimSuffix(account["QueueEndpoint"], "/"+account["AccountName"]),
				"queueName":       "orders-" + door,
				"pollingInterval": "100ms",
			}), "queue")
		})
	}
}

func TestBindingOfServiceBusQueues(t *testing.T) {
	eachBusDoor(t, func(t *testing.T, door string, component metadata.Base) {
		component.Properties["queueName"] = "orders"
		if door == "amqps" {
			component.Properties["queueName"] = "made-by-dapr"
		}
		sendAndReceive(t, servicebusqueues.NewAzureServiceBusQueues(log), component, "bus")
	})
}

// Publishes three messages, of which the handler refuses one at first.
func publishAndSubscribe(t *testing.T, bus pubsub.PubSub, settings metadata.Base, topic string, perMessage, perSubscription settings) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	must(t, bus.Init(ctx, pubsub.Metadata{Base: settings}))
	got := make(chan string, 10)
	refused := false
	must(t, bus.Subscribe(ctx, pubsub.SubscribeRequest{Topic: topic, Metadata: perSubscription},
		func(_ context.Context, message *pubsub.NewMessage) error {
			text := string(message.Data)
			if text == "two" && !refused {
				refused = true
				return fmt.Errorf("not yet")
			}
			got <- text
			return nil
		}))
	for _, text := range []string{"one", "two", "three"} {
		must(t, bus.Publish(ctx, &pubsub.PublishRequest{Topic: topic, Data: []byte(text), Metadata: perMessage}))
	}
	expect(t, got, "one", "two", "three")
	entity := topic
	if subscription := settings.Properties["consumerID"]; subscription != "" {
		entity += "/subscriptions/" + subscription
	}
	emptied(t, "bus", entity)
	cancel()
	must(t, bus.Close())
}

func TestPubSubWithQueues(t *testing.T) {
	eachBusDoor(t, func(t *testing.T, door string, component metadata.Base) {
		topic := "queue-of-dapr"
		if door == "amqp" {
			topic = "other-orders"
		}
		publishAndSubscribe(t, queues.NewAzureServiceBusQueues(log), component, topic, nil, nil)
	})
}

func TestPubSubWithTopics(t *testing.T) {
	eachBusDoor(t, func(t *testing.T, door string, component metadata.Base) {
		topic := "topic-of-dapr"
		if door == "amqp" {
			topic = "news"
		}
		component.Properties["consumerID"] = "mail"
		publishAndSubscribe(t, topics.NewAzureServiceBusTopics(log), component, topic, nil, nil)
	})
}

func TestPubSubWithSessions(t *testing.T) {
	eachBusDoor(t, func(t *testing.T, door string, component metadata.Base) {
		topic := "sessions-of-dapr"
		component.Properties["consumerID"] = "mail"
		if door == "amqp" {
			topic = "chats"
		}
		publishAndSubscribe(t, topics.NewAzureServiceBusTopics(log), component, topic,
			settings{"SessionId": "one"}, settings{"requireSessions": "true", "maxConcurrentSessions": "2"})
	})
}

// The parts of a connection string.
func parts(connection string) settings {
	all := settings{}
	for _, part := range strings.Split(connection, ";") {
		if name, value, found := strings.Cut(part, "="); found {
			all[name] = value
		}
	}
	return all
}
