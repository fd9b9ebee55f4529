"""Calls on terminals, the feed, and the daemon itself."""

from posd.api.metrics.text import CONTENT_TYPE
from posd.api.service_documents import Change, FeedPage, Health, Terminals, Version
from posd.calls import parameters as at
from posd.calls.parameters import Parameter
from posd.calls.route import ENDS, Answer, Message, Route
from posd.calls.stream_documents import Notice
from posd.terminals.documents import Terminal

STORED = ("storage_unavailable",)

FEED = (
    Message("KIND", Change, "one change; it is called by its kind, and its id is its place"),
    Message("notice", Notice, "why the reader may have missed something; without an id"),
    *ENDS,
)

ROUTES = (
    Route(
        "GET",
        "/v1/terminals",
        "list_terminals",
        "List the terminals of the fleet: where each is, and why it cannot be reached.",
        {200: Answer("the terminals", Terminals)},
        STORED,
        query=(
            Parameter("all", at.FLAG, "`true`: announced terminals outside the fleet too", default=False),
            Parameter("check", at.FLAG, "`true`: look at those first that were not looked at just now", default=False),
        ),
    ),
    Route(
        "GET",
        "/v1/terminals/{serial}",
        "get_terminal",
        "Show a terminal.",
        {200: Answer("the terminal", Terminal)},
        ("not_found", *STORED),
    ),
    Route(
        "GET",
        "/v1/feed",
        "read_feed",
        "Read every recorded change of every payment and print job, ascending; or follow them live.",
        {200: Answer("a page", FeedPage, stream=FEED)},
        (*STORED, "draining"),
        query=(at.FEED_AFTER, at.LIMIT),
        headers=(at.LAST_FEED_ID,),
    ),
    Route(
        "GET",
        "/v1/health",
        "get_health",
        "Say whether posd is well, each check in words.",
        {200: Answer("`ok` or `degraded`: payments can be made", Health), 503: Answer("`failing`", Health)},
    ),
    Route("GET", "/v1/version", "get_version", "Say what runs here.", {200: Answer("the versions", Version)}),
    Route(
        "GET",
        "/v1/openapi.json",
        "get_openapi",
        "Describe this API: this document.",
        {200: Answer("an OpenAPI 3.1 document", dict[str, object])},
    ),
    Route(
        "GET",
        "/metrics",
        "get_metrics",
        "Show the metrics, in Prometheus' text format.",
        {200: Answer("the metrics", str, media=CONTENT_TYPE)},
    ),
)
