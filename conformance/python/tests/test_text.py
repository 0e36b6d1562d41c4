"""Texts of messages, and that they come back unchanged."""

import pytest
from azure.storage.queue import (
    BinaryBase64DecodePolicy,
    BinaryBase64EncodePolicy,
    QueueClient,
    TextBase64DecodePolicy,
    TextBase64EncodePolicy,
)

LIMIT = 65536

TEXTS = {
    "markup": "<a href=\"x\" b='y'>&amp; &lt; &#65; ]]> <![CDATA[x]]> <!-- c --></a>",
    "accents": "äöü ß é ñ ł ş 中文 日本語 العربية עברית",
    "astral": "🐦🦆 𝄞 👩‍👩‍👧 \U0010fffd",
    "combining": "e\u0301 \u200b\u202e\ufeff end",
    "white-space-around": "  \t text \t  ",
    "white-space-only": "   ",
    "lines": "one\ntwo\n\nthree\n",
    "tab": "a\tb",
    "plus-and-percent": "a+b %2B %zz ?&=#",
    "json": '{"a": [1, 2.5, null, "\\u00e4"]}',
    "base64": "SGVsbG8sIHdvcmxkIQ==",
    "one": "x",
    "delete-and-next-line": "\x7f\x85",
}


def round_trip(queue, text):
    sent = queue.send_message(text)
    (peeked,) = queue.peek_messages()
    assert peeked.content == text
    received = queue.receive_message()
    assert (received.id, received.content) == (sent.id, text)
    updated = queue.update_message(received, content=text, visibility_timeout=0)
    assert queue.peek_messages()[0].content == text
    queue.delete_message(received.id, updated.pop_receipt)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_text_comes_back_as_it_was(queue, text):
    round_trip(queue, text)


def test_an_empty_text(queue):
    queue.send_message("")
    assert queue.receive_message().content == ""


@pytest.mark.parametrize(
    "text",
    ["x" * LIMIT, "ä" * (LIMIT // 2), "中" * (LIMIT // 3) + "x", "🐦" * (LIMIT // 4)],
    ids=["ascii", "two-bytes", "three-bytes", "four-bytes"],
)
def test_sixty_four_kib_fit(queue, text):
    assert len(text.encode()) == LIMIT
    round_trip(queue, text)


def test_the_limit_counts_the_text_and_not_its_escapes(queue):
    round_trip(queue, "<" * LIMIT)


@pytest.mark.parametrize("text", ["x" * (LIMIT + 1), "中" * (LIMIT // 3 + 1), "x" * 10 * LIMIT])
def test_more_does_not_fit(queue, refused, text):
    with refused(413, "RequestBodyTooLarge") as caught:
        queue.send_message(text)
    assert caught.value.additional_info["maxlimit"] == str(LIMIT)
    sent = queue.send_message("small")
    with refused(413, "RequestBodyTooLarge"):
        queue.update_message(sent, content=text, visibility_timeout=0)
    assert [message.content for message in queue.peek_messages(max_messages=32)] == ["small"]


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_characters_that_xml_forbids(queue, refused, character):
    with refused(400, "InvalidXmlDocument"):
        queue.send_message(f"a{character}b")
    assert queue.get_queue_properties().approximate_message_count == 0


def test_bytes_as_base64(door, queue):
    with QueueClient.from_connection_string(
        door.connection_string,
        queue.queue_name,
        message_encode_policy=BinaryBase64EncodePolicy(),
        message_decode_policy=BinaryBase64DecodePolicy(),
        **door.options,
    ) as binary:
        everything = bytes(range(256)) * 191
        binary.send_message(everything)
        assert binary.receive_message().content == everything


def test_text_as_base64(door, queue):
    with QueueClient.from_connection_string(
        door.connection_string,
        queue.queue_name,
        message_encode_policy=TextBase64EncodePolicy(),
        message_decode_policy=TextBase64DecodePolicy(),
        **door.options,
    ) as encoded:
        for text in ["\x00 anything \x1f", "🐦", ""]:
            encoded.send_message(text)
            message = encoded.receive_message()
            assert message.content == text
            encoded.delete_message(message)
