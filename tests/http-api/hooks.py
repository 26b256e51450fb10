"""What schemathesis has to know of the API beside its description.

Each hook says something that OpenAPI cannot say. None of them switches a check off, and rules for
valid requests are applied to valid requests alone: what is generated to be refused stays as it is.
"""

import json

import requests
import schemathesis

MAX_BYTES = 256


def is_meant_to_be_accepted(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    if is_meant_to_be_accepted(case):
        start_fits_together(case)
        lines_say_it_themselves(case)
        texts_are_measured_in_bytes(case)
        whole_numbers_have_no_point(case)
    if case.path == "/stream":
        kwargs["hooks"] = {"response": read_the_beginning}


def start_fits_together(case):
    """`ts` goes with `from=ts`, which needs it; `afterId` likewise."""
    if case.path not in ("/replay", "/stream") or not isinstance(case.query, dict):
        return
    query = case.query
    start = query.get("from") or next((name for name in ("ts", "afterId") if name in query), None)
    for name, value in (("ts", 0), ("afterId", "order-1")):
        if start == name:
            query.setdefault(name, value)
        else:
            query.pop(name, None)


def lines_say_it_themselves(case):
    """The parameters and headers of a single payload are not for lines."""
    if case.media_type != "application/x-ndjson":
        return
    for name in ("key", "id", "ts"):
        (case.query or {}).pop(name, None)
    (case.headers or {}).pop("X-Event-Trace", None)


def texts_are_measured_in_bytes(case):
    """Keys and ids have at most 256 bytes; a schema counts characters."""
    cut_members(case.query, ("key", "id", "afterId"))
    if case.media_type == "application/x-ndjson" and isinstance(case.body, list):
        for event in case.body:
            cut_members(event, ("key", "id"))
            if isinstance(event, dict) and isinstance(event.get("caused_by"), list):
                event["caused_by"] = [cut(id) for id in event["caused_by"]]


def cut_members(values, names):
    for name in names:
        if isinstance(values, dict) and isinstance(values.get(name), str):
            values[name] = cut(values[name])


def cut(text):
    return text.encode()[:MAX_BYTES].decode(errors="ignore")


def whole_numbers_have_no_point(case):
    """They are written without one; to a schema 5.0 is a whole number, too."""
    if isinstance(case.body, (dict, list)):
        case.body = without_points(case.body)


def without_points(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: without_points(member) for name, member in value.items()}
    return [without_points(item) for item in value] if isinstance(value, list) else value


@schemathesis.serializer("application/x-ndjson")
def as_lines(context, value):
    """One event a line. What is no list (and so to be refused) is the only line."""
    lines = value if isinstance(value, list) else [value]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


@schemathesis.deserializer("application/x-ndjson")
def of_lines(context, response):
    return [json.loads(line) for line in response.content.splitlines()]


def read_the_beginning(response, *args, **kwargs):
    """A stream has no end: what comes until its first event, or until it is quiet, is looked at, and then
    the connection is closed."""
    if response.headers.get("Content-Type") != "text/event-stream" or response.request.method != "GET":
        return
    response.raw.connection.sock.settimeout(0.2)
    response._content = b""
    try:
        for chunk in response.iter_content(chunk_size=None):
            response._content += chunk
            if b"data:" in chunk:
                break
    except requests.exceptions.ConnectionError:
        pass
    response._content_consumed = True
    response.raw.close()
