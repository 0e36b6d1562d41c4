//! The bytes of the interface, beside those that its documentation gives: the client of the other tests is made from the
//! same file as the scaler, so it would not see a wrong number of a field.

use kew_cluster::protocol::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
};
use prost::Message;

/// A field with a text or a message: its number, its type 2, its length.
fn long(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    [&[number << 3 | 2, length], content].concat()
}

/// A field with a whole number below 128.
fn short(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A field with a number of 64 bits.
fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

#[test]
fn fields_have_the_numbers_of_keda() {
    let object = ScaledObjectRef {
        name: "worker".to_owned(),
        namespace: "billing".to_owned(),
        scaler_metadata: [("group".to_owned(), "b".to_owned())].into(),
    };
    let entry = [long(1, b"group"), long(2, b"b")].concat();
    let bytes = [long(1, b"worker"), long(2, b"billing"), long(3, &entry)].concat();
    assert_eq!(object.encode_to_vec(), bytes);
    let request = GetMetricsRequest {
        scaled_object_ref: Some(object),
        metric_name: "m".to_owned(),
    };
    assert_eq!(
        request.encode_to_vec(),
        [long(1, &bytes), long(2, b"m")].concat()
    );
    assert_eq!(
        IsActiveResponse { result: true }.encode_to_vec(),
        short(1, 1)
    );
    let spec = MetricSpec {
        metric_name: "m".to_owned(),
        target_size: 7,
        target_size_float: 1.5,
    };
    let bytes = [long(1, b"m"), short(2, 7), double(3, 1.5)].concat();
    let metric_specs = vec![spec];
    assert_eq!(
        GetMetricSpecResponse { metric_specs }.encode_to_vec(),
        long(1, &bytes)
    );
    let value = MetricValue {
        metric_name: "m".to_owned(),
        metric_value: 7,
        metric_value_float: 1.5,
    };
    let metric_values = vec![value];
    assert_eq!(
        GetMetricsResponse { metric_values }.encode_to_vec(),
        long(1, &bytes)
    );
}

/// KEDA calls these paths.
#[test]
fn methods_have_the_names_of_keda() {
    let file = include_str!("../../proto/externalscaler.proto");
    assert!(file.contains("package externalscaler;") && file.contains("service ExternalScaler {"));
    for name in ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"] {
        assert!(file.contains(&format!("rpc {name}(")), "{name}");
    }
}
