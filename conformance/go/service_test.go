package conformance

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"
)

func days(count int32) *azqueue.RetentionPolicy {
	return &azqueue.RetentionPolicy{Enabled: to.Ptr(true), Days: &count}
}

func metrics(count int32) *azqueue.Metrics {
	return &azqueue.Metrics{
		Version: to.Ptr("1.0"), Enabled: to.Ptr(true), IncludeAPIs: to.Ptr(true), RetentionPolicy: days(count),
	}
}

func settings() *azqueue.SetPropertiesOptions {
	return &azqueue.SetPropertiesOptions{
		Logging: &azqueue.Logging{
			Version: to.Ptr("1.0"), Delete: to.Ptr(true), Read: to.Ptr(true), Write: to.Ptr(false), RetentionPolicy: days(365),
		},
		HourMetrics:   metrics(3),
		MinuteMetrics: metrics(1),
		CORS: []*azqueue.CORSRule{
			{
				AllowedOrigins: to.Ptr("https://app.example,https://other.example"), AllowedMethods: to.Ptr("GET,PUT"),
				AllowedHeaders: to.Ptr("x-ms-meta-*,content-type"), ExposedHeaders: to.Ptr("x-ms-*"), MaxAgeInSeconds: seconds(60),
			},
			{
				AllowedOrigins: to.Ptr("*"), AllowedMethods: to.Ptr("GET"), AllowedHeaders: to.Ptr("x"),
				ExposedHeaders: to.Ptr("x"), MaxAgeInSeconds: seconds(0),
			},
		},
	}
}

// These settings belong to the account, so the doors take turns.
func TestTheServicesProperties(t *testing.T) {
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			service := door.service(t)
			set := func(changed *azqueue.SetPropertiesOptions) {
				t.Helper()
				_, err := service.SetProperties(ctx, changed)
				must(t, err)
			}
			expect := func(expected *azqueue.SetPropertiesOptions) {
				t.Helper()
				read, err := service.GetServiceProperties(ctx, nil)
				must(t, err)
				got, err := json.Marshal(azqueue.SetPropertiesOptions{
					CORS: read.CORS, HourMetrics: read.HourMetrics, Logging: read.Logging, MinuteMetrics: read.MinuteMetrics,
				})
				must(t, err)
				wanted, err := json.Marshal(expected)
				must(t, err)
				equal(t, "properties", string(got), string(wanted))
			}
			set(settings())
			expect(settings())
			changed := settings()
			changed.MinuteMetrics = metrics(9)
			set(&azqueue.SetPropertiesOptions{MinuteMetrics: metrics(9)})
			expect(changed)
			_, err := service.SetProperties(ctx, &azqueue.SetPropertiesOptions{HourMetrics: metrics(366)})
			refusedWith(t, 400, err)
			expect(changed)
		})
	}
}

func TestStatistics(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		secondary, err := azqueue.NewServiceClientWithSharedKeyCredential(
			door.urlAt(port(), "-secondary"), credential(), door.options())
		must(t, err)
		statistics, err := secondary.GetStatistics(ctx, nil)
		must(t, err)
		equal(t, "status", string(*statistics.GeoReplication.Status), "live")
		near(t, "last sync", *statistics.GeoReplication.LastSyncTime, time.Now().Add(-2*time.Second))
		_, err = door.service(t).GetStatistics(ctx, nil)
		refused(t, 400, queueerror.InvalidQueryParameterValue, err)
	})
}

func TestTheSecondaryReadsAndDoesNotWrite(t *testing.T) {
	eachDoor(t, func(t *testing.T, door Door) {
		queue := door.fresh(t)
		send(t, queue, "text")
		address := door.urlAt(port(), "-secondary") + "/" + nameOf(queue)
		secondary, err := azqueue.NewQueueClientWithSharedKeyCredential(address, credential(), door.options())
		must(t, err)
		equal(t, "count", countOf(t, secondary), 1)
		equal(t, "visible", len(peek(t, secondary)), 1)
		refused(t, 403, queueerror.InsufficientAccountPermissions, enqueue(secondary, nil))
		refused(t, 403, queueerror.InsufficientAccountPermissions, dequeue(secondary, nil))
	})
}
