"""Access policies, and signatures that use them."""

from datetime import datetime, timezone

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.queue import AccessPolicy, QueueClient, generate_queue_sas

STARTS = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
EXPIRES = datetime(2099, 12, 31, tzinfo=timezone.utc)


def policy(permission="raup"):
    return AccessPolicy(permission=permission, start=STARTS, expiry=EXPIRES)


def described(policies):
    """Without fractions, which the server sends and the SDK does not."""
    shown = {}
    for identifier, one in policies.items():
        times = [str(time).replace("+00:00", "Z").replace(" ", "T") for time in (one.start, one.expiry)]
        shown[identifier] = [one.permission, *(time.replace(".0000000", "") for time in times)]
    return shown


def test_a_new_queue_has_none(queue):
    assert queue.get_queue_access_policy() == {}


def test_five_are_kept_replaced_and_cleared(queue):
    five = {key: policy() for key in ["a", "b", "with space & <signs>", "ä", "x" * 64]}
    queue.set_queue_access_policy(dict(five))
    assert described(queue.get_queue_access_policy()) == described(
        {key: policy() for key in five}
    )
    queue.set_queue_access_policy({"only": policy("r")})
    assert list(queue.get_queue_access_policy()) == ["only"]
    queue.set_queue_access_policy({})
    assert queue.get_queue_access_policy() == {}


def test_parts_can_be_absent(queue):
    queue.set_queue_access_policy({"a": AccessPolicy(permission="p"), "b": AccessPolicy(expiry=EXPIRES)})
    read = queue.get_queue_access_policy()
    assert (read["a"].permission, read["a"].start, read["a"].expiry) == ("p", None, None)
    assert read["b"].permission is None and read["b"].expiry


def test_what_is_not_allowed_changes_nothing(queue):
    queue.set_queue_access_policy({"kept": policy()})
    # The SDK itself refuses six.
    for bad, code in [
        ({"x" * 65: policy()}, "InvalidXmlDocument"),
        ({"letters": policy("rw")}, "InvalidXmlNodeValue"),
    ]:
        with pytest.raises(HttpResponseError) as caught:
            queue.set_queue_access_policy(bad)
        assert (caught.value.status_code, caught.value.error_code) == (400, code)
    assert list(queue.get_queue_access_policy()) == ["kept"]


def test_of_a_queue_that_is_not_there(absent, refused):
    with refused(404, "QueueNotFound", ResourceNotFoundError):
        absent.get_queue_access_policy()
    with refused(404, "QueueNotFound", ResourceNotFoundError):
        absent.set_queue_access_policy({"a": policy()})


def test_a_signature_under_a_stored_policy_ends_with_the_policy(door, queue, refused):
    sas = generate_queue_sas(door.account, queue.queue_name, door.key, policy_id="stored")
    with QueueClient(door.url(), queue.queue_name, credential=sas, **door.options) as signed:
        queue.set_queue_access_policy({"stored": policy("ra")})
        signed.send_message("text")
        with refused(403, "AuthorizationPermissionMismatch"):
            signed.receive_message()
        queue.set_queue_access_policy({"stored": policy("p")})
        assert signed.receive_message().content == "text"
        with refused(403, "AuthorizationPermissionMismatch"):
            signed.send_message("text")
        queue.set_queue_access_policy({})
        with refused(403, "AuthenticationFailed"):
            signed.receive_message()


def test_policies_outlive_a_crash(restartable, name):
    def connect():
        return QueueClient.from_connection_string(restartable.connection_string, name, retry_total=0)

    with connect() as queue:
        queue.create_queue()
        queue.set_queue_access_policy({"kept": policy("r")})
    restartable.kill()
    restartable.start()
    with connect() as queue:
        assert described(queue.get_queue_access_policy()) == described({"kept": policy("r")})
