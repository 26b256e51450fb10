"""What schemathesis needs to know about the API beyond its description.

Each hook expresses something that OpenAPI cannot. No hook disables a check, and rules for valid
requests apply to valid requests only: requests generated to be rejected stay as they are.
"""

import json
import time

import requests
import schemathesis

MAX_BYTES = 256


def is_valid_request(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    if is_valid_request(case):
        make_start_consistent(case)
        drop_single_event_fields(case)
        limit_text_in_bytes(case)
        keep_times_out_of_the_future(case)
        write_integers_without_fraction(case)
    if case.path == "/stream":
        kwargs["hooks"] = {"response": read_first_events}


def make_start_consistent(case):
    """`ts` requires `from=ts` and vice versa; the same holds for `afterId` and `seq`."""
    if case.path not in ("/replay", "/stream") or not isinstance(case.query, dict):
        return
    query = case.query
    start = query.get("from") or next((name for name in ("ts", "afterId", "seq") if name in query), None)
    for name, value in (("ts", 0), ("afterId", "order-1"), ("seq", 1)):
        if start == name:
            query.setdefault(name, value)
        else:
            query.pop(name, None)


def drop_single_event_fields(case):
    """Query parameters and event headers apply to a single payload only."""
    if case.media_type != "application/x-ndjson":
        return
    for name in ("key", "id", "ts"):
        (case.query or {}).pop(name, None)
    (case.headers or {}).pop("X-Event-Trace", None)


def limit_text_in_bytes(case):
    """Keys and ids have at most 256 bytes; a schema counts characters instead."""
    truncate_fields(case.query, ("key", "id", "afterId", "after"))
    truncate_fields(case.body, ("afterId", "after"))
    truncate_list(case.body, "ids")
    if case.media_type == "application/x-ndjson" and isinstance(case.body, list):
        for event in case.body:
            truncate_fields(event, ("key", "id"))
            truncate_list(event, "caused_by")


def keep_times_out_of_the_future(case):
    """An event may be at most a day ahead of the server's clock; a schema has no clock."""
    if not case.path.startswith("/publish/"):
        return
    events = case.body if isinstance(case.body, list) else []
    latest = int(time.time() * 1000)
    for values in [case.query, *events]:
        if isinstance(values, dict) and values.get("ts") is not None:
            values["ts"] = min(int(values["ts"]), latest)


def truncate_fields(values, names):
    for name in names:
        if isinstance(values, dict) and isinstance(values.get(name), str):
            values[name] = truncate(values[name])


def truncate_list(values, name):
    if isinstance(values, dict) and isinstance(values.get(name), list):
        values[name] = [truncate(item) if isinstance(item, str) else item for item in values[name]]


def truncate(text):
    return text.encode()[:MAX_BYTES].decode(errors="ignore")


def write_integers_without_fraction(case):
    """To a schema, 5.0 is an integer as well; the server requires 5."""
    if isinstance(case.body, (dict, list)):
        case.body = without_fraction(case.body)


def without_fraction(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: without_fraction(field) for name, field in value.items()}
    return [without_fraction(item) for item in value] if isinstance(value, list) else value


@schemathesis.serializer("application/x-ndjson")
def to_lines(context, value):
    """One event per line. A value that is not a list, which must be rejected, becomes the only line."""
    lines = value if isinstance(value, list) else [value]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


@schemathesis.deserializer("application/x-ndjson")
def from_lines(context, response):
    return [json.loads(line) for line in response.content.splitlines()]


def read_first_events(response, *args, **kwargs):
    """Reads an endless stream up to its first event, or until it is silent, and closes the connection."""
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
