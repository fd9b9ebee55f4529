"""What the log says, and what it never says."""

import json

from posd.base.clocks import wall
from posd.logs import output


def test_a_field_that_no_line_may_have_is_dropped_and_named() -> None:
    fields = {"event": "payment.started", "transaction": "t", "token": "secret", "reason": None}
    ((made,), _) = output.Renderer({}, wall)(output.LineSink("posd.test"), "info", fields)
    line = json.loads(made(0.0))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "payment.started",
        "logger": "posd.test",
        "transaction": "t",
        "dropped": ["token"],
    }
