"""Every documented error of these operations: status and code, as the SDK shows them."""

import base64

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.rest import HttpRequest
from azure.storage.queue._shared.response_handlers import process_storage_error

FOREIGN_ID = "00000000-0000-0000-0000-000000000000"
TIMEOUT_MAX = 604800


def expect_info(caught, **expected):
    info = caught.value.additional_info
    assert {key: info.get(key) for key in expected} == expected


OPERATIONS = {
    "delete-queue": lambda q: q.delete_queue(),
    "properties": lambda q: q.get_queue_properties(),
    "set-metadata": lambda q: q.set_queue_metadata({"a": "b"}),
    "send": lambda q: q.send_message("text"),
    "receive": lambda q: q.receive_message(),
    "peek": lambda q: q.peek_messages(),
    "clear": lambda q: q.clear_messages(),
    "update": lambda q: q.update_message(FOREIGN_ID, receipt(), visibility_timeout=1),
    "delete": lambda q: q.delete_message(FOREIGN_ID, receipt()),
}


def receipt():
    """A receipt in the right form that belongs to no message."""
    return base64.b64encode(bytes(16)).decode()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_every_operation_on_an_absent_queue(absent, refused, operation):
    with refused(404, "QueueNotFound", ResourceNotFoundError):
        operation(absent)


@pytest.mark.parametrize("seconds", [-1, TIMEOUT_MAX + 1])
def test_send_with_a_bad_delay(queue, refused, seconds):
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        queue.send_message("text", visibility_timeout=seconds, time_to_live=-1)
    expect_info(
        caught,
        queryparametername="visibilitytimeout",
        queryparametervalue=str(seconds),
        minimumallowed="0",
        maximumallowed=str(TIMEOUT_MAX),
    )


@pytest.mark.parametrize(
    "delay, ttl", [(10, 10), (11, 10), (TIMEOUT_MAX, None), (TIMEOUT_MAX, TIMEOUT_MAX)]
)
def test_send_with_a_delay_that_outlasts_the_message(queue, refused, delay, ttl):
    with refused(400, "InvalidQueryParameterValue") as caught:
        queue.send_message("text", visibility_timeout=delay, time_to_live=ttl)
    expect_info(
        caught,
        queryparametername="visibilitytimeout",
        reason="messagettl must be greater than visibilitytimeout",
    )


@pytest.mark.parametrize("ttl", [0, -2, -604800])
def test_send_with_a_bad_time_to_live(queue, refused, ttl):
    with refused(400, "InvalidQueryParameterValue") as caught:
        queue.send_message("text", time_to_live=ttl)
    expect_info(caught, queryparametername="messagettl", queryparametervalue=str(ttl))


@pytest.mark.parametrize("count", [0, -1, 33, 100])
def test_receive_with_a_bad_count(queue, refused, count):
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        list(queue.receive_messages(messages_per_page=count))
    expect_info(
        caught,
        queryparametername="numofmessages",
        queryparametervalue=str(count),
        minimumallowed="1",
        maximumallowed="32",
    )


@pytest.mark.parametrize("seconds", [0, -1, TIMEOUT_MAX + 1])
def test_receive_with_a_bad_visibility(queue, refused, seconds):
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        queue.receive_message(visibility_timeout=seconds)
    expect_info(caught, queryparametername="visibilitytimeout", minimumallowed="1")


@pytest.mark.parametrize("seconds", [-1, TIMEOUT_MAX + 1])
def test_update_with_a_bad_visibility(queue, refused, seconds):
    sent = queue.send_message("text")
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        queue.update_message(sent, visibility_timeout=seconds)
    expect_info(caught, queryparametername="visibilitytimeout", minimumallowed="0")
    queue.delete_message(sent)


@pytest.mark.parametrize("bad", ["invalid", "x", "????", "a b c"])
def test_a_receipt_that_is_none(queue, refused, bad):
    sent = queue.send_message("text")
    for operation in [
        lambda: queue.delete_message(sent.id, bad),
        lambda: queue.update_message(sent.id, bad, visibility_timeout=1),
    ]:
        with refused(400, "InvalidQueryParameterValue") as caught:
            operation()
        expect_info(
            caught, queryparametername="popreceipt", reason="Invalid pop receipt format"
        )
    queue.delete_message(sent)


@pytest.mark.parametrize("foreign", [FOREIGN_ID, "not-a-guid"])
def test_a_message_id_that_does_not_exist(queue, refused, foreign):
    sent = queue.send_message("text")
    for operation in [
        lambda: queue.delete_message(foreign, sent.pop_receipt),
        lambda: queue.update_message(foreign, sent.pop_receipt, visibility_timeout=1),
    ]:
        with refused(404, "MessageNotFound", ResourceNotFoundError):
            operation()
    queue.delete_message(sent)


class Raw:
    """Sends requests that the SDK would not build, signed by the SDK."""

    def __init__(self, queue):
        self.queue = queue

    def __call__(self, method, path="", query="", body=None, headers=()):
        url = self.queue.primary_endpoint + path + (f"?{query}" if query else "")
        headers = {"x-ms-version": "2026-10-06", **dict(headers)}
        if body is not None:
            headers.setdefault("Content-Type", "application/xml")
        request = HttpRequest(method, url, headers=headers, content=body)
        response = self.queue._client.send_request(request)
        try:
            response.raise_for_status()
        except HttpResponseError as error:
            process_storage_error(error)
        return response


@pytest.fixture
def raw(queue):
    return Raw(queue)


MESSAGE = b"<QueueMessage><MessageText>x</MessageText></QueueMessage>"
ENTITIES = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'

BAD_BODIES = {
    "no-xml": b"hello",
    "cut-off": MESSAGE[:-5],
    "two-roots": MESSAGE + MESSAGE,
    "unknown-entity": MESSAGE.replace(b">x<", b">&nbsp;<"),
    "entity-bomb": ENTITIES + MESSAGE.replace(b">x<", b">&b;<"),
    "bad-reference": MESSAGE.replace(b">x<", b">&#1;<"),
    "not-utf-8": MESSAGE.replace(b">x<", b">\xff<"),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_body_that_is_no_xml(raw, refused, body):
    with refused(400, "InvalidXmlDocument"):
        raw("POST", "/messages", body=body)
    assert raw.queue.get_queue_properties().approximate_message_count == 0


INCOMPLETE_BODIES = {
    "another-root": (b"<Other/>", "InvalidXmlDocument"),
    "another-element": (b"<QueueMessage><Other/></QueueMessage>", "UnsupportedXmlNode"),
    "no-text": (b"<QueueMessage/>", "MissingRequiredXmlNode"),
}


@pytest.mark.parametrize("body, code", INCOMPLETE_BODIES.values(), ids=INCOMPLETE_BODIES.keys())
def test_a_body_without_a_message(raw, refused, body, code):
    with refused(400, code):
        raw("POST", "/messages", body=body)


ACCEPTED_BODIES = {
    "mark": (b"\xef\xbb\xbf" + MESSAGE, "x"),
    "declaration": (b'<?xml version="1.0" encoding="utf-8"?>' + MESSAGE, "x"),
    "character-data": (MESSAGE.replace(b">x<", b"><![CDATA[<&>]]><"), "<&>"),
    "references": (MESSAGE.replace(b">x<", b">&#65;&#x42;&#x1F426;&apos;&quot;<"), "AB🐦'\""),
    "line-ends": (MESSAGE.replace(b">x<", b">a\r\nb\rc<"), "a\nb\nc"),
    "white-space": (MESSAGE.replace(b"><", b">\n  <"), "x"),
}


@pytest.mark.parametrize("body, text", ACCEPTED_BODIES.values(), ids=ACCEPTED_BODIES.keys())
def test_unusual_bodies_that_are_right(raw, body, text):
    assert raw("POST", "/messages", body=body).status_code == 201
    assert raw.queue.receive_message().content == text


BAD_QUERIES = {
    "count": ("GET", "/messages", "numofmessages=abc", "numofmessages"),
    "peek": ("GET", "/messages", "peekonly=maybe", "peekonly"),
    "visibility": ("GET", "/messages", "visibilitytimeout=1.5", "visibilitytimeout"),
    "time-to-live": ("POST", "/messages", "messagettl=soon", "messagettl"),
    "delay": ("POST", "/messages", "visibilitytimeout=", "visibilitytimeout"),
    "timeout": ("GET", "/messages", "timeout=-1", "timeout"),
}


@pytest.mark.parametrize(
    "method, path, query, parameter", BAD_QUERIES.values(), ids=BAD_QUERIES.keys()
)
def test_a_query_value_of_the_wrong_kind(raw, refused, method, path, query, parameter):
    with refused(400, "InvalidQueryParameterValue") as caught:
        raw(method, path, query, body=MESSAGE if method == "POST" else None)
    expect_info(caught, queryparametername=parameter)


@pytest.mark.parametrize(
    "method, query, parameter",
    [
        ("DELETE", "", "popreceipt"),
        ("PUT", "visibilitytimeout=1", "popreceipt"),
        ("PUT", "popreceipt={}", "visibilitytimeout"),
    ],
)
def test_a_query_parameter_that_is_missing(raw, refused, method, query, parameter):
    with refused(400, "MissingRequiredQueryParameter") as caught:
        raw(method, f"/messages/{FOREIGN_ID}", query.format(receipt()))
    expect_info(caught, queryparametername=parameter)


def test_query_names_know_no_case(raw):
    for number in range(3):
        raw.queue.send_message(str(number))
    response = raw("GET", "/messages", "NumOfMessages=3&PeekOnly=True")
    assert response.text().count("<QueueMessage>") == 3


def test_a_bad_marker(raw):
    service = raw.queue.primary_endpoint.rpartition("/")[0]
    request = HttpRequest(
        "GET",
        f"{service}/?comp=list&marker=%2F%2F%3F%2F",
        headers={"x-ms-version": "2026-10-06"},
    )
    response = raw.queue._client.send_request(request)
    assert response.status_code == 400
    assert response.headers["x-ms-error-code"] == "InvalidMarker"


@pytest.mark.parametrize(
    "method, path, allowed",
    [("PATCH", "/messages", "DELETE, GET, POST"), ("POST", "", "DELETE, GET, HEAD, PUT")],
)
def test_a_verb_that_the_resource_does_not_know(raw, refused, method, path, allowed):
    with refused(405, "UnsupportedHttpVerb") as caught:
        raw(method, path, body=MESSAGE)
    assert caught.value.response.headers["Allow"] == allowed


def test_a_component_that_does_not_exist(raw, refused):
    with refused(400, "InvalidQueryParameterValue") as caught:
        raw("GET", query="comp=nonsense")
    expect_info(caught, queryparametername="comp", queryparametervalue="nonsense")


def test_a_parameter_that_comes_twice(raw, refused):
    with refused(400, "InvalidQueryParameterValue") as caught:
        raw("GET", "/messages", "numofmessages=1&NumOfMessages=2")
    expect_info(caught, queryparametername="NumOfMessages")


def test_the_digest_of_a_body_is_checked(raw, refused):
    with refused(400, "Md5Mismatch"):
        digest = base64.b64encode(bytes(16)).decode()
        raw("POST", "/messages", body=MESSAGE, headers={"Content-MD5": digest})
    with refused(400, "InvalidMd5"):
        raw("POST", "/messages", body=MESSAGE, headers={"Content-MD5": "nonsense"})
    assert raw.queue.get_queue_properties().approximate_message_count == 0


def test_newer_versions_are_served_and_echoed(raw):
    for version in ["2026-10-06", "2099-01-01"]:
        response = raw("GET", "/messages", headers={"x-ms-version": version})
        assert response.headers["x-ms-version"] == version


@pytest.mark.parametrize("version", ["nonsense", "2001-01-01", "2026-13-01"])
def test_a_version_that_is_none(raw, refused, version):
    with refused(400, "InvalidHeaderValue") as caught:
        raw("GET", "/messages", headers={"x-ms-version": version})
    expect_info(caught, headername="x-ms-version", headervalue=version)


def test_the_request_id_of_the_client_comes_back(raw, refused):
    name = "x-ms-client-request-id"
    response = raw("GET", "/messages")
    assert response.headers[name] == response.request.headers[name]
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        raw("GET", "/messages", "numofmessages=0")
    response = caught.value.response
    assert response.headers[name] == response.request.headers[name]


def test_a_head_request_has_no_body(raw, queue):
    queue.set_queue_metadata({"colour": "green"})
    response = raw("HEAD", query="comp=metadata")
    assert response.headers["x-ms-meta-colour"] == "green"
    assert response.content == b""
    queue.delete_queue()
    with pytest.raises(ResourceNotFoundError) as caught:
        raw("HEAD", query="comp=metadata")
    assert caught.value.status_code == 404
    assert caught.value.response.headers["x-ms-error-code"] == "QueueNotFound"
