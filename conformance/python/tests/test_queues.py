"""Queues: create, delete, list, metadata, count."""

import itertools

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError


def names(queues):
    return [queue.name for queue in queues]


def test_create_and_delete(absent, refused):
    absent.create_queue()
    assert absent.get_queue_properties().name == absent.queue_name
    absent.delete_queue()
    with refused(404, "QueueNotFound", ResourceNotFoundError):
        absent.get_queue_properties()


def test_create_again_with_the_same_metadata(absent):
    absent.create_queue(metadata={"colour": "green"})
    # The service answers 204, which the SDK shows as an error without a code.
    with pytest.raises(ResourceExistsError) as caught:
        absent.create_queue(metadata={"colour": "green"})
    assert caught.value.status_code == 204


def test_create_again_with_other_metadata(absent, refused):
    absent.create_queue(metadata={"colour": "green"})
    for other in [{"colour": "blue"}, {}, {"colour": "green", "size": "1"}]:
        with refused(409, "QueueAlreadyExists", ResourceExistsError):
            absent.create_queue(metadata=other)
    assert absent.get_queue_properties().metadata == {"colour": "green"}


def test_a_deleted_queue_can_be_created_again_and_is_empty(queue):
    queue.send_message("old")
    queue.delete_queue()
    queue.create_queue()
    assert queue.get_queue_properties().approximate_message_count == 0
    assert queue.peek_messages() == []


@pytest.mark.parametrize("name", ["abc", "a" * 63, "a-1-b", "123", "0-a"])
def test_good_names(service, name):
    with service.create_queue(name) as queue:
        assert queue.get_queue_properties().name == name
        queue.delete_queue()


@pytest.mark.parametrize("name", ["ab", "a" * 64])
def test_names_of_bad_length(service, refused, name):
    with refused(400, "OutOfRangeInput"):
        service.create_queue(name)


@pytest.mark.parametrize("name", ["Abc", "a--b", "-abc", "abc-", "a_b", "a.b", "aüb"])
def test_names_with_bad_characters(service, refused, name):
    with refused(400, "InvalidResourceName"):
        service.create_queue(name)


def test_list_is_sorted_and_has_the_prefix(service, name):
    made = [f"{name}-{suffix}" for suffix in ["b", "a", "c", "a1", "a-1"]]
    for each in made:
        service.create_queue(each)
    assert names(service.list_queues(name_starts_with=name)) == sorted(made)
    assert names(service.list_queues(name_starts_with=f"{name}-a")) == sorted(
        [f"{name}-a", f"{name}-a1", f"{name}-a-1"]
    )
    assert names(service.list_queues(name_starts_with=f"{name}-z")) == []
    assert set(made) <= set(names(service.list_queues()))


@pytest.mark.parametrize("size", [1, 2, 5, 7, 8, 5000])
def test_list_in_pages(service, name, size):
    made = [f"{name}-{number}" for number in [3, 1, 6, 5, 0, 4, 2]]
    for each in made:
        service.create_queue(each)
    pages = service.list_queues(name_starts_with=name, results_per_page=size).by_page()
    # One page more than possible, so that a list without an end does not block the run.
    pages = [names(page) for page in itertools.islice(pages, len(made) + 1)]
    assert sum(pages, []) == sorted(made)
    assert all(len(page) <= size for page in pages)


def test_list_goes_on_from_a_token(service, name):
    for number in range(4):
        service.create_queue(f"{name}-{number}")
    first = service.list_queues(name_starts_with=name, results_per_page=3).by_page()
    assert len(names(next(first))) == 3
    rest = service.list_queues(name_starts_with=name, results_per_page=3)
    rest = rest.by_page(continuation_token=first.continuation_token)
    assert names(next(rest)) == [f"{name}-3"]
    assert not rest.continuation_token


def test_list_survives_a_queue_deleted_between_pages(service, name):
    for number in range(4):
        service.create_queue(f"{name}-{number}")
    pages = service.list_queues(name_starts_with=name, results_per_page=2).by_page()
    found = names(next(pages))
    service.delete_queue(f"{name}-2")
    for page in itertools.islice(pages, 4):
        found += names(page)
    assert found == [f"{name}-{number}" for number in [0, 1, 3]]


def test_list_with_metadata(service, name):
    service.create_queue(f"{name}-a", metadata={"colour": "green", "size": "1"})
    service.create_queue(f"{name}-b")
    listed = service.list_queues(name_starts_with=name, include_metadata=True)
    assert [(q.name, q.metadata or {}) for q in listed] == [
        (f"{name}-a", {"colour": "green", "size": "1"}),
        (f"{name}-b", {}),
    ]
    plain = service.list_queues(name_starts_with=name)
    assert [q.metadata or {} for q in plain] == [{}, {}]


@pytest.mark.parametrize("size", [0, -1])
def test_list_with_a_bad_page_size(service, refused, size):
    with refused(400, "OutOfRangeQueryParameterValue") as caught:
        next(service.list_queues(results_per_page=size).by_page())
    info = caught.value.additional_info
    assert info["queryparametername"] == "maxresults"
    assert info["queryparametervalue"] == str(size)
    assert info["minimumallowed"] == "1"


def test_metadata_is_replaced_and_cleared(queue):
    assert queue.get_queue_properties().metadata == {}
    queue.set_queue_metadata({"colour": "green", "size": "1"})
    assert queue.get_queue_properties().metadata == {"colour": "green", "size": "1"}
    queue.set_queue_metadata({"shape": "round"})
    assert queue.get_queue_properties().metadata == {"shape": "round"}
    queue.set_queue_metadata()
    assert queue.get_queue_properties().metadata == {}


def test_metadata_values_are_kept(queue):
    metadata = {"spaces": "a  b   c", "signs": "a=b;c,d/e", "Mixed_Case1": "x", "_": "y"}
    queue.set_queue_metadata(metadata)
    kept = queue.get_queue_properties().metadata
    assert {key.lower(): value for key, value in kept.items()} == {
        key.lower(): value for key, value in metadata.items()
    }


def test_metadata_of_8_kib_fits_and_more_does_not(queue, refused):
    full = {"k": "v" * (8192 - 1)}
    queue.set_queue_metadata(full)
    assert queue.get_queue_properties().metadata == full
    with refused(400, "MetadataTooLarge"):
        queue.set_queue_metadata({"k": "v" * 8192})
    assert queue.get_queue_properties().metadata == full


@pytest.mark.parametrize("key", ["1bad", "a-b", "a.b"])
def test_metadata_with_a_bad_name(queue, refused, key):
    with refused(400, "InvalidMetadata"):
        queue.set_queue_metadata({key: "value"})


def test_metadata_with_an_empty_name(queue, refused):
    with refused(400, "EmptyMetadataKey"):
        queue.set_queue_metadata({"": "value"})


def test_the_count_includes_hidden_messages(queue):
    def count():
        return queue.get_queue_properties().approximate_message_count

    assert count() == 0
    for _ in range(3):
        queue.send_message("x")
    queue.send_message("later", visibility_timeout=600)
    assert count() == 4
    received = queue.receive_message(visibility_timeout=600)
    assert count() == 4
    queue.delete_message(received)
    assert count() == 3
    queue.clear_messages()
    assert count() == 0
