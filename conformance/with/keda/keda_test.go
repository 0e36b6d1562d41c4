// Package keda runs scalers of KEDA against the real binary, which the script beside it has started. A scaler gets the
// metadata that the YAML file of a ScaledObject would have.
package keda

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"

	"kew/conformance/with/keda/scalers"
)

var ctx = context.Background()

// Runs kew's own command line.
func kew(t *testing.T, arguments ...string) {
	t.Helper()
	output, err := exec.Command(os.Getenv("KEW_BINARY"), arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("kew %v: %v: %s", arguments, err, output)
	}
}

type settings = map[string]string

// What KEDA gives a scaler: the trigger's metadata, and the variables of the environment of the workload.
func config(connection string, metadata settings) *scalersconfig.ScalerConfig {
	return &scalersconfig.ScalerConfig{
		ScalableObjectName: "orders",
		GlobalHTTPTimeout:  10 * time.Second,
		TriggerMetadata:    metadata,
		ResolvedEnv:        settings{"CONNECTION": connection},
		AuthParams:         settings{},
	}
}

// Asks the scaler for the length, and whether it would start the first instance.
func expect(t *testing.T, scaler scalers.Scaler, err error, length int64, isActive bool) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	values, active, err := scaler.GetMetricsAndActivity(ctx, "length")
	if err != nil {
		t.Fatal(err)
	}
	if got := values[0].Value.Value(); got != length || active != isActive {
		t.Fatalf("the scaler reads %d and active: %v; expected %d and %v", got, active, length, isActive)
	}
}

func TestStorageQueues(t *testing.T) {
	for _, door := range []string{"http", "https"} {
		t.Run(door, func(t *testing.T) {
			connection := os.Getenv("KEW_QUEUE_CONNECTION_STRING")
			if door == "https" {
				connection = os.Getenv("KEW_QUEUE_CONNECTION_STRING_TLS")
			}
			for _, strategy := range []string{"all", "visibleonly"} {
				name := fmt.Sprintf("keda-%s-%s", door, strategy)
				kew(t, "queue", "create", name)
				scaler, err := scalers.NewAzureQueueScaler(config(connection, settings{
					"queueName": name, "queueLength": "2", "queueLengthStrategy": strategy,
					"connectionFromEnv": "CONNECTION",
				}))
				expect(t, scaler, err, 0, false)
				for _, text := range []string{"one", "two", "three"} {
					kew(t, "queue", "send", name, text)
				}
				expect(t, scaler, err, 3, true)
				// A message that is hidden counts only as one of all.
				kew(t, "queue", "receive", name)
				if strategy == "all" {
					expect(t, scaler, err, 3, true)
				} else {
					expect(t, scaler, err, 2, true)
				}
			}
		})
	}
}

func TestServiceBus(t *testing.T) {
	connection := os.Getenv("KEW_BUS_CONNECTION_STRING_TLS")
	t.Run("queue", func(t *testing.T) {
		kew(t, "bus", "create", "keda-a")
		kew(t, "bus", "create", "keda-b")
		one, err := scalers.NewAzureServiceBusScaler(config(connection, settings{
			"queueName": "keda-a", "messageCount": "2", "connectionFromEnv": "CONNECTION",
		}))
		expect(t, one, err, 0, false)
		kew(t, "bus", "send", "keda-a", "one", "two")
		kew(t, "bus", "send", "keda-b", "three")
		expect(t, one, err, 2, true)
		both, err := scalers.NewAzureServiceBusScaler(config(connection, settings{
			"queueName": "keda-.", "useRegex": "true", "operation": "sum", "connectionFromEnv": "CONNECTION",
		}))
		expect(t, both, err, 3, true)
	})
	t.Run("subscription", func(t *testing.T) {
		kew(t, "bus", "topic", "create", "keda-news")
		kew(t, "bus", "subscription", "create", "keda-news/subscriptions/mail")
		one, err := scalers.NewAzureServiceBusScaler(config(connection, settings{
			"topicName": "keda-news", "subscriptionName": "mail", "connectionFromEnv": "CONNECTION",
		}))
		expect(t, one, err, 0, false)
		kew(t, "bus", "send", "keda-news", "hello")
		expect(t, one, err, 1, true)
		all, err := scalers.NewAzureServiceBusScaler(config(connection, settings{
			"topicName": "keda-news", "subscriptionName": ".*", "useRegex": "true", "operation": "max",
			"connectionFromEnv": "CONNECTION",
		}))
		expect(t, all, err, 1, true)
	})
	// The emulator's string works, too, because every listener also speaks TLS.
	t.Run("emulator", func(t *testing.T) {
		kew(t, "bus", "create", "keda-emulator")
		kew(t, "bus", "send", "keda-emulator", "one")
		scaler, err := scalers.NewAzureServiceBusScaler(config(os.Getenv("KEW_BUS_CONNECTION_STRING"), settings{
			"queueName": "keda-emulator", "connectionFromEnv": "CONNECTION",
		}))
		expect(t, scaler, err, 1, true)
	})
}
