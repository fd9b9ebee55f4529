"""The payment scenarios of the catalogue, in groups by theme."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """A group of scenarios in reading order, with a sentence about the group."""

    sentence: str
    names: tuple[str, ...]


#: Title, sentence and scenarios of each theme.
_TEXT = """
# Ordinary days | Payments of every day. |
approve-contactless approve-chip-pin approve-third-presentation decline reject-before-card reject-after-card
cancel-by-cardholder wait-for-abort by-hand
# Unusual, and correct | A till that waits for the outcome handles these. One that counts events or seconds does not. |
slow-customer slow-acquirer late-decline-after-silence tap-then-chip wrong-clock extra-fields sparse-events
numbers-as-text unknown-status unknown-first-status approval-without-request decline-without-reason
# The reply to the start is lost or late | The payment is in doubt until an event or a search says whether it runs. The
first two look the same to the till, and only one of them charges the customer. |
lost-acknowledgement lost-request silent-acknowledgement cut-acknowledgement slow-acknowledgement
too-slow-acknowledgement event-before-acknowledgement final-before-acknowledgement lost-acknowledgement-and-events
lost-acknowledgement-and-all search-knows-it-waits
# The start is refused | The terminal says that it does not run the payment. That is nearly always true. |
refused-400 refused-401 refused-404 refused-409 refused-422 refused-busy refused-signature refused-in-a-wrapper
canceled-in-the-answer redirected refused-409-but-runs refused-400-but-declined
# Errors and strange replies to the start | A reply that is no acknowledgement and no refusal says nothing about the
payment. |
error-500 error-500-but-runs error-503-but-runs error-408-but-runs web-page web-page-but-runs empty-acknowledgement
acknowledgement-of-another acknowledgement-of-another-serial acknowledgement-of-another-status acknowledgement-with-202
sparse-acknowledgement error-in-the-answer approved-in-the-answer
# Events twice, out of order, late | Terminals deliver events at least once, in any order. The outcome is always that of
the final event. |
duplicated-events duplicated-final first-event-late card-late final-first reversed cards-out-of-order very-late-final
offline-burst
# Events that never arrive | posd asks the terminal by itself. If a search finds nothing, the payment stays open, and an
operator sees it. |
missing-first-event missing-card-presented missing-approval-requested missing-final missing-final-of-a-decline
only-the-final missing-all missing-all-and-search webhook-never-accepted
# Events that cannot be used | posd stores these events, reports them, and asks the terminal. |
missing-event-id missing-occurred-at missing-status missing-merchant-id missing-client-transaction-id missing-terminal
missing-serial-number event-not-json event-web-page event-empty event-of-another-payment event-of-unknown-serial
event-of-another-serial event-id-reused-by-the-approval event-id-reused-by-the-card lower-case-status
unknown-final-status
# Aborts | An abort is a request. Wait for the outcome: it can be an approval. |
abort-ignored abort-raced abort-late abort-refused abort-error abort-error-ignored abort-lost abort-silent abort-unknown
abort-at-the-pin abort-too-late abort-in-doubt abort-in-doubt-refused abort-of-lost-request abort-on-another-device
abort-empty
# Power and network | A terminal that comes back has forgotten the payment, or goes on with it. posd waits for evidence.
|
power-cut-before-the-first-event power-cut-before-the-card power-cut-after-the-card power-cut-at-the-acquirer
power-cut-before-the-first-event-remembered power-cut-before-the-card-remembered power-cut-after-the-card-remembered
power-cut-at-the-acquirer-remembered power-cut-after-the-approval power-cut-then-canceled unplugged-for-good
terminal-away moved-midway moved-and-final-missing
# Two finals, and money | The first final counts. posd shows a contradiction until an operator has acknowledged it. |
approval-after-cancellation approval-after-decline approval-after-rejection cancellation-after-approval two-approvals
two-approvals-one-event-id approval-told-twice rejected-at-the-acquirer canceled-at-the-acquirer
request-after-cancellation amount-differs approval-without-reference approval-without-response
# Searches | The approval never arrives, or an operator asks. The terminal replies like this. |
search-empty search-stale search-404 search-web-page search-another search-slow search-silent-once search-recovers
search-contradicts-approval search-contradicts-decline search-raw-response search-without-status search-paged
# Certificates | posd sends nothing to a terminal that it cannot verify. It accepts the terminal's events by their
token. |
certificate-expired certificate-changed certificate-self-signed certificate-of-another-name certificate-expires-midway
certificate-changed-midway certificate-self-signed-midway certificate-of-another-name-midway
"""
_PARTS = [block.split("|") for block in _TEXT.split("\n# ")[1:]]
THEMES = {title.strip(): Theme(" ".join(text.split()), tuple(names.split())) for title, text, names in _PARTS}

_QUICK = """
approve-contactless decline wrong-clock lost-acknowledgement cut-acknowledgement refused-409 redirected
web-page-but-runs duplicated-events only-the-final missing-card-presented event-of-another-serial wait-for-abort
abort-refused power-cut-at-the-acquirer-remembered terminal-away two-approvals amount-differs search-contradicts-decline
certificate-expired certificate-self-signed-midway error-500 missing-status
"""
#: Scenarios of the quick suite: some of each theme, most with an end that does not need a search.
QUICK = frozenset(_QUICK.split())
