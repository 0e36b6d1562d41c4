"""Every accepted difference, by its name in docs/differences.md.

A rule says which parts of the two answers it explains: `status`, `code`, `body`, or a header.
"""

from programs import QUEUES

WHOLE = ["status", "code", "body", "x-ms-popreceipt", "x-ms-time-next-visible"]
WHOLE += ["x-ms-approximate-messages-count", "x-ms-meta"]
BARE = ["status", "code", "body", "x-ms-request-id", "x-ms-client-request-id"]
# Kew's errors for a request before it looks at the resource.
OF_THE_REQUEST = {
    "InvalidQueryParameterValue", "OutOfRangeQueryParameterValue", "InvalidXmlDocument",
    "InvalidXmlNodeValue", "UnsupportedXmlNode", "RequestBodyTooLarge", "InvalidMetadata",
    "MissingRequiredQueryParameter", "MissingRequiredXmlNode", "MetadataTooLarge", "OutOfRangeInput",
    "InvalidResourceName", "UnsupportedHttpVerb",
}
OF_AZURITE = OF_THE_REQUEST | {"QueueNotFound", "MessageNotFound", "PopReceiptMismatch"}
RULES = []


def rule(name):
    def add(check):
        RULES.append((name, check))
        return check

    return add


@rule("version-of-answers")
def version_of_answers(_request, _kew, _azurite):
    return ["x-ms-version"]


@rule("client-request-id")
def client_request_id(request, kew, azurite):
    sent = request.headers.get("x-ms-client-request-id", "")
    long_one = len(sent) > 1024 and "x-ms-client-request-id" not in kew.compared
    on_error = not azurite.ok() and "x-ms-client-request-id" not in azurite.compared
    return ["x-ms-client-request-id"] if long_one or on_error else []


@rule("bare-errors")
def bare_errors(_request, kew, azurite):
    return BARE if azurite.status == 400 and azurite.code is None and not kew.ok() else []


@rule("no-authorization")
def no_authorization(request, kew, azurite):
    both = (kew.code, azurite.code) == ("NoAuthenticationInformation", "AuthenticationFailed")
    return WHOLE if request.key is None and both else []


@rule("old-dates")
def old_dates(request, kew, _azurite):
    return WHOLE + BARE if "old date" in request.odd and kew.code == "AuthenticationFailed" else []


@rule("versions")
def versions(request, kew, azurite):
    """A version that never existed, and features that a version does not have yet."""
    refused = kew.code in ("InvalidHeaderValue", "FeatureVersionMismatch")
    old = request.headers["x-ms-version"] < "2017-07-29"
    limits = kew.code in OF_THE_REQUEST | {"RequestBodyTooLarge"}
    shapes = kew.ok() and request.kind in ("put", "list", "get", "peek", "properties", "update")
    # Azurite refuses a parameter that the version does not have, before it looks for the queue.
    absent = kew.code == "QueueNotFound" and azurite.code in OF_THE_REQUEST
    if "version" in request.odd and (refused or old and (limits or shapes or absent)):
        return WHOLE + BARE
    return []


@rule("order-of-checks")
def order_of_checks(_request, kew, azurite):
    """Which of two mistakes is reported."""
    ours = kew.code in OF_THE_REQUEST and azurite.code in OF_AZURITE
    return ["status", "code"] if ours and kew.code != azurite.code else []


@rule("receipts-that-are-none")
def receipts_that_are_none(request, kew, azurite):
    told = kew.code in ("InvalidQueryParameterValue", "MessageNotFound")
    theirs = azurite.code in ("PopReceiptMismatch", "MessageNotFound")
    return ["status", "code"] if request.message is not None and told and theirs else []


@rule("integers")
def integers(request, kew, azurite):
    odd = {"1.5", "", "abc"} & {value for _, value in request.query}
    return WHOLE if odd and kew.code == "InvalidQueryParameterValue" and azurite.ok() else []


@rule("hidden-until-expiry")
def hidden_until_expiry(request, kew, azurite):
    hidden = request.kind == "put" and "visibilitytimeout" in dict(request.query)
    return WHOLE if hidden and kew.code == "InvalidQueryParameterValue" and azurite.ok() else []


@rule("signatures-of-old-versions")
def signatures_of_old_versions(request, _kew, azurite):
    """Up to 2014-02-14 the length of an empty body is signed, up to 2015-12-11 no empty header is."""
    old = request.headers["x-ms-version"] < "2016-05-31"
    return WHOLE if old and request.key and azurite.code == "AuthenticationFailed" else []


@rule("times-of-policies")
def times_of_policies(request, kew, azurite):
    """The same policies, by the day: Kew shows times with seven digits, Azurite shows them unchanged."""
    def days(element):
        tag, attributes, text, children = element
        text = text[:10] if tag in ("Start", "Expiry") else text
        return tag, attributes, text, [days(child) for child in children]

    if request.kind != "acl" or not (kew.body and azurite.body):
        return []
    return ["body"] if days(kew.body) == days(azurite.body) else []


@rule("text-size")
def text_size(request, kew, azurite):
    if azurite.code != "RequestBodyTooLarge" or len(request.body) < 65536:
        return []
    return WHOLE if kew.ok() or kew.status == 404 else []


@rule("markup-in-texts")
def markup_in_texts(request, kew, azurite):
    nested = b"<b>" in request.body and azurite.status == 400 and kew.status in (201, 204)
    return WHOLE + BARE if nested else []


@rule("strict-xml")
def strict_xml(request, kew, azurite):
    told = kew.code in OF_THE_REQUEST and ("Xml" in kew.code)
    return WHOLE if request.body and told and azurite.ok() else []


@rule("metadata-checks")
def metadata_checks(_request, kew, azurite):
    told = kew.code in ("InvalidMetadata", "MetadataTooLarge", "EmptyMetadataKey")
    return WHOLE + BARE if told and (azurite.ok() or azurite.status == 409) else []


@rule("list-elements")
def list_elements(request, kew, azurite):
    """The same except for Prefix and MaxResults, which Azurite adds, and empty Metadata."""
    if request.kind != "list" or not (kew.ok() and azurite.ok()):
        return []
    invented = ("Prefix", "MaxResults", "Marker")
    ours, theirs = ([part for part in answer.body[3] if part[0] not in invented]
                    for answer in (kew, azurite))
    return ["body"] if ours == theirs else []


@rule("list-markers")
def list_markers(request, kew, azurite):
    """The marker of the next page is the service's own; both must have one, or none. Azurite's is a number that counts
    from the first queue it ever made, and where that is the next one it writes 0 as no marker."""
    if request.kind != "list" or not (kew.ok() and azurite.ok()):
        return []
    parts = [{part[0]: part for part in answer.body[3]} for answer in (kew, azurite)]
    ours, theirs = (one.get("NextMarker", ("", {}, ""))[2] for one in parts)
    is_zero = not theirs and ours.endswith(f"/{QUEUES[0]}")
    same = parts[0]["Queues"] == parts[1]["Queues"]
    return ["body"] if same and (is_zero or bool(ours) == bool(theirs)) else []


@rule("service-defaults")
def service_defaults(request, kew, azurite):
    """The same CORS rules; Azurite starts with other logging settings, which have no effect."""
    if request.kind != "properties" or not (kew.ok() and azurite.ok()):
        return []
    ours, theirs = ([sorted(rule[3]) for part in answer.body[3] if part[0] == "Cors" for rule in part[3]]
                    for answer in (kew, azurite))
    return ["body"] if ours == theirs else []
