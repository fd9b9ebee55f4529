"""What `posd explain` says of codes beside what other tables say of them already, which `table` collects.

`docs/codes.md` and posd-codes(7) are made of it. In texts ID, SERIAL, CODE and NAME stand for what a person fills in.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Text(NamedTuple):
    """What is said of a code.

    `means`: what it is. `comes`: how it comes about. `money`: whether money is at stake. `do`: what to do, and
    `commands` to type, in their order. `see`: the heading in docs/operations.md, empty where there is none.
    """

    means: str = ""
    comes: str = ""
    money: str = ""
    do: str = ""
    commands: tuple[str, ...] = ()
    see: str = ""


NOT_SENT = "No. Nothing of this call was sent or recorded: no customer was charged by it."
NO_ABORT = "The payment goes on: the customer may be charged. Only its outcome tells."
NO_MONEY = "No."
PRINTS = "No: a print job moves no money."
_SHOW = ("posd show ID",)

#: Of problems: means and comes are those of `posd.base.problems`.
PROBLEMS: Mapping[str, Text] = {
    "malformed_json": Text(money=NOT_SENT, do="The till has to send JSON: tell its vendor."),
    "invalid_request": Text(money=NOT_SENT, do="Correct the field that the message names; of a till, tell its vendor."),
    "unknown_terminal": Text(
        money=NOT_SENT,
        do="Correct the serial in the till's settings, or add the terminal to the configuration ([[terminals]]):",
        commands=("posd terminals",),
    ),
    "terminal_offline": Text(
        money=NOT_SENT,
        do="Look whether the terminal is on and in this network:",
        commands=("posd terminals", "posd doctor"),
        see="The terminal cannot be found",
    ),
    "identity_conflict": Text(
        money=NOT_SENT,
        do="Look at the terminal and its address, and say which device it is:",
        commands=("posd terminals identity SERIAL",),
        see="Two devices claim to be one terminal",
    ),
    "terminal_busy": Text(
        money="No, for this call: nothing of it was sent. The payment that holds the terminal is another matter.",
        do="Look at the payment that the message names. Wait for its end, or stop it:",
        commands=("posd show ID", "posd abort ID"),
        see="The terminal is busy, and no customer pays",
    ),
    "id_reused": Text(
        money="No, for this call. The payment that the id belongs to stands as it is, and may be charged.",
        do="It is a fault of the till, which used one id for two payments: look at the first, and tell its vendor:",
        commands=_SHOW,
    ),
    "sale_conflict": Text(
        money="No, for this call. The other payment of the sale may be paid already: do not charge again.",
        do="Look at the payment that the message names. A payment in parts says so (--repeat):",
        commands=_SHOW,
    ),
    "already_derived": Text(
        money="No, for this call. The other operation may have done it already.",
        do="Look at the one that the message names:",
        commands=_SHOW,
    ),
    "chain_conflict": Text(
        money="No, for this call. The other operation may move money.",
        do="Look at the one that the message names; wait for it, or abort it. What a void has ended stays ended:",
        commands=_SHOW,
    ),
    "amount_exceeds": Text(
        money=NOT_SENT, do="Correct the amount. What the original allows is in the message:", commands=_SHOW
    ),
    "expired": Text(
        money=NOT_SENT, do="Ask the customer whether the payment is still wanted; then it is a new payment, a new id."
    ),
    "unknown_original": Text(
        money=NOT_SENT,
        do="Look at the original; where posd does not know it, name the acquirer's reference instead of it:",
        commands=("posd show ID", "posd void --reference UUID"),
    ),
    "restore_unseen": Text(
        money="This call sent nothing. But the id may have been sent before the database lost it: do not charge again "
        "before a person has looked.",
        do="Compare the payments since then with the terminals; then say that you have looked:",
        commands=("posd status", "posd restore --seen --operator NAME"),
        see="The database was restored",
    ),
    "not_found": Text(
        money="It says nothing of money: posd knows no such id.",
        do="Check the id, and see whether the database was restored:",
        commands=("posd list", "posd status"),
        see="The database was restored",
    ),
    "pruned": Text(
        money="It ended as the message says. Where that is approved the customer was charged: do not charge again.",
        do="A new payment takes a new id.",
    ),
    "past_point_of_no_return": Text(
        money="The bank was asked: the customer may be charged.",
        do="Wait for the outcome, and void it if need be:",
        commands=("posd await ID", "posd void ID"),
        see="It hangs at the bank",
    ),
    "already_final": Text(money="It has ended, and its outcome says how.", do="Look at it:", commands=_SHOW),
    "nothing_running": Text(
        money="It is no proof: the customer may be charged all the same.",
        do="posd asks the terminal by itself. Ask it at once. Where it does not know the payment either, look at its "
        "journal and at the acquirer's records, and settle the payment:",
        commands=("posd reconcile ID", "posd resolve ID RESULT"),
        see="Abort does nothing",
    ),
    "clock_unsure": Text(
        money="No. Payments go on; only what needs the time is refused, and was not sent.",
        do="Compare the clock of this machine with another one. Set it, or say that it is right:",
        commands=("posd clock", "posd clock confirm --operator NAME"),
        see="The clock is wrong",
    ),
    "not_abortable": Text(
        money=NO_ABORT, do="End it on the terminal itself, and wait for the outcome:", commands=("posd await ID",)
    ),
    "call_outstanding": Text(
        money="It is not known yet whether the terminal took the payment.", do="Repeat the command in half a minute."
    ),
    "not_configured": Text(
        money=NOT_SENT,
        do="See what the terminal is said to take; a row can be set in the configuration:",
        commands=("posd config show --profile",),
    ),
    "queue_full": Text(
        money=PRINTS,
        do="See what waits, and for which terminal:",
        commands=("posd print-jobs --open",),
        see="A print job is stuck",
    ),
    "limit_reached": Text(
        money=NOT_SENT,
        do="Find the program and what it does without end: the log names its process and user. The same call is taken "
        "again later:",
        commands=("posd logs --event limit.reached",),
    ),
    "storage_unavailable": Text(
        money=NOT_SENT,
        do="Look at the disk of the database, and free it where it is full:",
        commands=("posd status", "posd doctor"),
        see="The disk is full",
    ),
    "draining": Text(
        money=NOT_SENT,
        do="The till asks again by itself. Where it stays so, posd does not start:",
        commands=("systemctl status posd",),
        see="posd does not start",
    ),
    "forbidden": Text(
        money=NOT_SENT, do="Call it as a member of the group posd-admin, over the admin socket, or with sudo."
    ),
    "method_not_allowed": Text(money=NOT_SENT, do="It is a fault of the till: tell its vendor."),
    "request_timeout": Text(
        money=NOT_SENT, do="Repeat the call. If it comes again, look whether this machine is overloaded."
    ),
    "payload_too_large": Text(money=NOT_SENT, do="It is a fault of the till: tell its vendor."),
    "unsupported_media_type": Text(money=NOT_SENT, do="It is a fault of the till: tell its vendor."),
    "internal_error": Text(
        money="It may have been sent: the customer may be charged.",
        do="The till repeats the same call with the same id, never under a new one. Report the fault with its line in "
        "the log:",
        commands=("posd logs --event posd.internal_error",),
    ),
}

#: Of the attentions of a payment: what to do is in `posd.cli.app.advice`.
ATTENTION: Mapping[str, Text] = {
    "in_doubt": Text(
        "It is not known whether the terminal took the payment.",
        "The request was sent, and no answer that counts came: the network broke, the terminal took too long, or posd "
        "was stopped in that moment.",
        "The customer may be charged: do not take the card again until this is settled.",
        see="The payment is in doubt",
    ),
    "gap": Text(
        "An event of the terminal is missing between those that came.",
        "The terminal sends its events one after the other, and one of them was lost on the way or is late.",
        "The outcome counts once it is there; the missing event changes nothing of it.",
    ),
    "stalled": Text(
        "The terminal has been silent for long about a payment that it took.",
        "It waits for the card or the PIN, it is switched off, or its network is away.",
        "At the bank (APPROVAL_REQUESTED) the customer may be charged; before the card is read, not yet.",
        see="It hangs at the bank",
    ),
    "no_callback": Text(
        "The terminal took the payment, and no event of it has come.",
        "The terminal does not reach this machine (network, firewall), or does not trust posd's certificate.",
        "The customer may be charged: only the terminal knows.",
        see="The terminal does not trust posd",
    ),
    "orphan": Text(
        "A genuine payment that this database did not know.",
        "The database was restored from a backup, or this machine is a clone of another one.",
        "Its outcome is real: the customer was charged where it says approved.",
        see="The machine was cloned",
    ),
    "serial_mismatch": Text(
        "Another terminal answered than the one that was asked.",
        "The addresses of two terminals are swapped, or an address belongs to another device now.",
        "The payment ran on another terminal: perhaps another customer paid it.",
        see="The wrong device answers",
    ),
    "event_id_reused": Text(
        "The terminal used one event id for two different messages.",
        "A fault of the terminal. The first message was applied, the second is kept only.",
        "What the second message says of the payment may be true, and does not count.",
    ),
    "unknown_status": Text(
        "The terminal sent a status that this version of posd does not know.",
        "The software of the terminal is newer than posd.",
        "The outcome may be behind it: the customer may be charged.",
    ),
    "illegal_transition": Text(
        "The terminal broke the order of its own states.",
        "It gave up after the bank was asked, which it must not do.",
        "The customer may be charged all the same.",
        see="The terminal says approved, the till does not",
    ),
    "conflicting_final": Text(
        "The terminal reported two different ends of one payment; the first one stands.",
        "A fault of the terminal, or the customer was charged twice.",
        "Two approvals with two references: charged twice.",
        see="Was the customer charged twice?",
    ),
    "outcome_corrected": Text(
        "The outcome that the till was told first was wrong, and was corrected.",
        "A refusal, a proof or a person's word said how it ended, and later the terminal said otherwise.",
        "If it was not charged first and is approved now, and the customer paid again: charged twice.",
        see="Was the customer charged twice?",
    ),
    "missing_reference": Text(
        "The payment is approved, and the acquirer's reference is missing.",
        "The approval of the terminal came without it.",
        "The customer was charged; a void, a capture or a refund by reference is not possible.",
    ),
    "amount_differs": Text(
        "The approved amount is not the one that was asked for.",
        "The bank approved a part, a tip was added at the terminal, or the terminal counts in another unit.",
        "The customer was charged another amount than asked for.",
    ),
    "quarantined_event": Text(
        "A genuine message of the terminal could not be used, and was set aside.",
        "Its form is broken, or it contradicts the configuration (another merchant, say).",
        "The outcome may be in it.",
    ),
    "address_changed": Text(
        "This machine's address changed while the payment ran.",
        "The network gave this machine another address: the terminal sends its events to the old one.",
        "Until the outcome is known the customer may be charged. posd asks the terminal for it.",
        see="The terminal got another address",
    ),
    "identity_conflict": Text(
        "It is not sure which device is the terminal, so that nothing is sent to it for this payment.",
        "Two devices answer under one serial, or the terminal moved and cannot prove who it is.",
        "The customer may be charged: what the terminal reports by itself still counts.",
        see="Two devices claim to be one terminal",
    ),
    "released": Text(
        "A person freed the terminal of this payment, which is still open.",
        "posd release, or the till's call for it.",
        "Whether the customer was charged is open.",
    ),
    "event_limit": Text(
        "The terminal sends events of this payment without end, and posd keeps no more of them.",
        "A fault of the terminal.",
        "How the payment ends still gets in.",
    ),
    "damaged_event": Text(
        "A message of the terminal was read although a part of it could not be.",
        "Bytes of it were damaged; the detail names the part.",
        "What the outcome needs was whole.",
    ),
    "approval_unlikely": Text(
        "The approval contradicts what was asked for: less than half or more than twice the sum, another currency, "
        "another operation, or a date more than a day away.",
        "The terminal's clock, currency or amounts are set wrongly, or it approved something else.",
        "The approval counts: the customer was charged, and perhaps another sum.",
    ),
}

#: Of the attentions of a print job: what to do is in `posd.cli.printing.progress`.
PRINT_ATTENTION: Mapping[str, Text] = {
    "in_doubt": Text(
        "It is not known whether the terminal took the print job.",
        "It was sent, and no answer that counts came.",
        see="Printed twice, or not at all?",
    ),
    "print_stuck": Text(
        "The terminal took the print job long ago and has not ended it.",
        "Its printer has no paper, is open or jammed, or the terminal is off.",
        see="A print job is stuck",
    ),
    "quarantined_event": Text(
        "A message of the terminal about the print job could not be used, and was set aside.",
        "Its form is broken.",
    ),
    "unknown_status": Text(
        "The terminal reports a state of the print job that this version does not know.",
        "The software of the terminal is newer than posd.",
    ),
    "id_mismatch": Text(
        "The terminal called the print job by two ids of its own.",
        "A fault of the terminal: what it said may be of another job.",
    ),
    "conflicting_final": Text(
        "The terminal reported two different ends of the print job; the first one stands.", "A fault of the terminal."
    ),
    "outcome_corrected": Text(
        "The end that was stated first was wrong, and was corrected.",
        "A refusal or a person's word said how it ended, and later the terminal said otherwise.",
    ),
    "orphan": Text(
        "This database did not know the print job.",
        "The database was restored from a backup, or this machine is a clone of another one.",
    ),
}

#: Of what a till shows: means is the text itself (`posd.payments.display`).
DISPLAY: Mapping[str, Text] = {
    "sending": Text(
        comes="The payment is recorded, and the request is on its way to the terminal.",
        money="The customer may be charged soon: do not charge again.",
        do="Wait.",
    ),
    "present_card": Text(
        comes="The terminal took the payment and shows what it wants.",
        money="Nothing is charged before a card is read.",
        do="Follow the terminal's screen. To stop it:",
        commands=("posd abort ID",),
    ),
    "card_read": Text(
        comes="The card was presented; the customer may have to enter the PIN.",
        money="The customer may be charged soon: do not charge again.",
        do="Wait.",
    ),
    "asking_bank": Text(
        comes="The terminal asked the bank; it can no longer be aborted.",
        money="The customer may be charged: do not charge again.",
        do="Wait.",
        see="It hangs at the bank",
    ),
    "looking": Text(
        comes="posd cannot say how it stands just now, and asks the terminal for it.",
        money="The customer may be charged: do not charge again.",
        do="Wait, and look at the terminal's screen.",
    ),
    "paid": Text(
        comes="A charge, a capture or a tip was approved.",
        money="The customer was charged the amount that is shown.",
        do="Nothing more to do.",
    ),
    "reserved": Text(
        comes="A pre-authorization or a re-authorization was approved.",
        money="The amount is reserved on the card; nothing is charged before it is captured.",
        do="Capture it to charge the customer, or void it to give it up:",
        commands=("posd capture ID AMOUNT", "posd void ID"),
    ),
    "reversed": Text(
        comes="A void or a refund was approved.",
        money="The customer gets the money back.",
        do="Nothing more to do.",
    ),
    "not_paid": Text(
        comes="It was declined, rejected, canceled, or provably never started.",
        money="No. The customer was not charged by it.",
        do="To try again, start a new payment.",
    ),
    "call_supervisor": Text(
        comes="The payment is in doubt for longer than a moment, the terminal gives no account of one that it took "
        "more than 15 minutes ago, or what the terminal said contradicts itself.",
        money="It is not certain: the customer may be charged. Do not charge again.",
        do="A person looks at the payment, and does what stands there:",
        commands=("posd list --attention", "posd show ID"),
        see="The payment is in doubt",
    ),
}

#: Of `next_step`: what to do is in `posd.cli.app.advice`.
NEXT_STEPS: Mapping[str, Text] = {
    "wait": Text(
        "The payment is open and goes on.",
        "The terminal works on it, or posd asks the terminal for it.",
        "The customer may be charged: do not charge again.",
    ),
    "done": Text(
        "The payment is approved, and nothing contradicts that.",
        "The terminal said so, or a person did.",
        "The customer was charged (a reservation: it is reserved; a void or a refund: the money goes back).",
    ),
    "new_id_ok": Text(
        "The payment has ended, and nobody was charged by it.",
        "It was declined, rejected, canceled, or provably never started.",
        "No. The till may start again, under a new id.",
    ),
    "ask_person": Text(
        "The till cannot go on by itself: a person has to look.",
        "The payment is in doubt for longer than a moment, the terminal gives no account of one that it took more than "
        "15 minutes ago, or what the terminal said contradicts itself.",
        "The customer may be charged: do not charge again before that is settled.",
        see="The payment is in doubt",
    ),
}

#: Of results: means is in `posd.cli.payments.words`.
RESULTS: Mapping[str, Text] = {
    "approved": Text(comes="The bank approved it.", money="The customer was charged.", do="Nothing more to do."),
    "declined": Text(comes="The bank said no.", money="No.", do="Another card, or another way to pay: a new payment."),
    "rejected": Text(
        comes="The terminal ended it before the bank was asked: a card that it cannot read, a wrong PIN, a time-out.",
        money="No, unless the bank was asked before (reached_acquirer is then not false).",
        do="To try again, start a new payment.",
    ),
    "canceled": Text(
        comes="The customer or the cashier ended it at the terminal, or an abort did.",
        money="No, unless the bank was asked before (reached_acquirer is then not false).",
        do="To try again, start a new payment.",
    ),
    "not_started": Text(
        comes="The terminal refused the request, it was provably never sent, or it is proved that the terminal never "
        "ran it.",
        money="No.",
        do="Mend what its reason names; to try again, start a new payment.",
    ),
}

PHASES: Mapping[str, Text] = {
    "starting": Text(
        "The request is on its way to the terminal.",
        "The till has just started it.",
        "The customer may be charged: do not charge again.",
        "Wait half a minute.",
        see="The payment hangs at starting",
    ),
    "in_doubt": Text(
        "It is not known whether the terminal took it.",
        "The request was sent, and no answer that counts came.",
        "The customer may be charged: do not charge again.",
        "posd asks the terminal by itself. Look at its screen; ask it at once:",
        ("posd reconcile ID",),
        "The payment is in doubt",
    ),
    "active": Text(
        "The terminal has it and works on it.",
        "The terminal acknowledged it, or an event of it came.",
        "The customer may be charged soon: do not charge again.",
        "Follow the terminal's screen, and wait for the outcome:",
        ("posd await ID",),
    ),
    "final": Text(
        "It has ended; the outcome says how.",
        "The terminal said so, it is proved, or a person said so.",
        "As the outcome says.",
        "Look at the outcome:",
        _SHOW,
    ),
}

#: Of the states of the terminal: means is in `posd.cli.payments.words`.
STATUS: Mapping[str, Text] = {
    "TERMINAL_ACKNOWLEDGED": Text(
        money="Not yet: nothing is charged before a card is read.", do="Follow the terminal."
    ),
    "CARD_PRESENTED": Text(money="Not yet; it can be at any moment.", do="Wait."),
    "APPROVAL_REQUESTED": Text(
        money="The customer may be charged: do not charge again.", do="Wait.", see="It hangs at the bank"
    ),
    "TERMINAL_CANCELED": Text(money="No, unless the bank was asked before.", do="To try again, start a new payment."),
    "TERMINAL_REJECTED": Text(money="No, unless the bank was asked before.", do="To try again, start a new payment."),
    "DECLINED": Text(money="No.", do="Another card, or another way to pay: a new payment."),
    "APPROVAL": Text(money="The customer was charged.", do="Nothing more to do."),
}

#: Of evidence: means is in `posd.cli.payments.words`.
EVIDENCE: Mapping[str, Text] = {
    "event": Text(comes="An event of the terminal states the end.", money="It is the terminal's word: it counts."),
    "search": Text(
        comes="posd asked the terminal, and its answer states the end; or it found nothing, as a part of a proof.",
        money="It is the terminal's word: it counts.",
    ),
    "refusal": Text(
        comes="The terminal answered the request by an error (HTTP 3xx or 4xx).",
        money="No, as far as the terminal tells: an event that comes later corrects it.",
    ),
    "unsent": Text(comes="No connection to the terminal came about.", money="No."),
    "abort": Text(comes="The terminal was asked twice for an abort, as a part of a proof.", money="No."),
    "operator": Text(
        comes="posd resolve.", money="A person said so. What the terminal says later counts more, and corrects it."
    ),
}

#: Codes of posd's own in `failure_reason` (its `type` is `posd`).
FAILURES: Mapping[str, Text] = {
    "refused": Text(
        "The terminal refused the request.",
        "It answered by an error: it is busy, it does not know the call, or the request is not as it wants it.",
        "No. The terminal says that it does not run it.",
        "Look at what it answered; then start a new payment:",
        _SHOW,
    ),
    "unsent": Text(
        "The request was never sent.",
        "No connection to the terminal came about: it is off, its address is wrong, or its certificate is not trusted.",
        "No.",
        "See why, and start a new payment:",
        ("posd terminals", "posd doctor"),
        "The terminal cannot be found",
    ),
    "proved_not_started": Text(
        "It is proved that the terminal never ran the payment.",
        "Twice, with a pause, the terminal ran nothing and a search did not find it, by operations that are known to "
        "work.",
        "No.",
        "To try again, start a new payment.",
    ),
    "resolved": Text(
        "A person said that the payment did not start.",
        "posd resolve ID not_started.",
        "No, by that person's word.",
        "To try again, start a new payment.",
    ),
}

#: Codes in `failure_reason` that the simulated terminal sends. Those of a real one are its own and the acquirer's.
SIMULATED: Mapping[str, Text] = {
    "05": Text(
        "The bank declines and gives no reason (do not honor).",
        "A code of the bank, in ISO 8583.",
        "No.",
        "Another card, or another way to pay.",
    ),
    "51": Text(
        "The card has not enough money (insufficient funds).",
        "A code of the bank, in ISO 8583.",
        "No.",
        "Another card, or another way to pay.",
    ),
    "CARD_WAIT_EXHAUSTED": Text(
        "No card was presented in time.",
        "The terminal waits for a card for so long only.",
        "No.",
        "Start a new payment.",
    ),
    "PIN_WAIT_EXHAUSTED": Text(
        "The PIN was not entered in time.", "The terminal waits for it for so long only.", "No.", "Start a new payment."
    ),
}

HEALTH: Mapping[str, Text] = {
    "ok": Text("All is as it should be.", "Every check is ok.", NO_MONEY, "Nothing."),
    "degraded": Text(
        "Payments go on, and something needs a person soon.",
        "At least one check is degraded.",
        "Payments can be made; what is degraded may delay their outcomes.",
        "Do what the check says:",
        ("posd status",),
    ),
    "failing": Text(
        "Payments cannot be made.",
        "At least one check is failing.",
        "New payments are refused, and not sent. Those that are open go on at the terminal.",
        "Do what the check says:",
        ("posd status", "posd doctor"),
    ),
}

_CHECK = ("posd status", "posd doctor")

#: The checks of GET /v1/health, which `posd status` shows.
CHECKS: Mapping[str, Text] = {
    "storage": Text(
        "Whether the database can be read and written.",
        "The disk is full or broken, or the database file was moved under posd.",
        "New payments are refused and not sent. Those that are open go on, and are asked for.",
        "Free the disk, or put the file back; the check says which:",
        _CHECK,
        "The disk is full",
    ),
    "webhook_listener": Text(
        "Whether terminals can call back.",
        "The listener does not accept connections, or was away for longer than terminals send an event again.",
        "Open payments may be charged without an event: posd asks the terminals.",
        "Look at what is open, and ask for each:",
        ("posd list --open", "posd reconcile ID"),
        "The network was away",
    ),
    "certificate": Text(
        "Whether the certificate that terminals see is good.",
        "It ends soon or has ended, does not fit this machine's addresses, or a terminal refuses it.",
        "A terminal that refuses it sends no events: outcomes come late, by a search.",
        "See what is wrong, and make a new one:",
        ("posd tls status", "posd tls renew"),
        "A certificate ends soon",
    ),
    "discovery": Text(
        "Whether announcements of terminals are heard (mDNS).",
        "The network of this machine is away, or its port is in use.",
        "No. Terminals with a base_url in the configuration work.",
        "Look at the network of this machine:",
        ("posd doctor",),
        "The terminal cannot be found",
    ),
    "clock": Text(
        "Whether the clock of this machine is believed.",
        "It jumped, went back, or stands before this version of posd was made.",
        "No. Payments go on; nothing is removed and no certificate is made until it is believed.",
        "Compare it with another clock. Set it, or say that it is right:",
        ("posd clock", "posd clock confirm --operator NAME"),
        "The clock is wrong",
    ),
    "restore": Text(
        "Whether the database can have forgotten payments, and a person has looked at it.",
        "The database was restored from a backup, or has gone back in time (a snapshot of the machine, say).",
        "Payments that it has forgotten may be charged: do not charge again for them.",
        "Compare the payments since then with the terminals; then say that you have looked:",
        ("posd status", "posd restore --seen --operator NAME"),
        "The database was restored",
    ),
    "identity": Text(
        "Whether it is sure which device is each terminal.",
        "Two devices answer under one serial, or a terminal moved and cannot prove who it is.",
        "Nothing is sent to that terminal. What is open on it may be charged.",
        "Look at the terminal and its address, and say which device it is:",
        ("posd terminals identity SERIAL",),
        "Two devices claim to be one terminal",
    ),
    "configuration": Text(
        "Whether the configuration that is in force is the one in the files.",
        "The files were changed and have a mistake, so posd refused them; or a part of them counts after a restart.",
        "No. Payments go on with the configuration before. After a restart posd would not start with a mistake.",
        "Mend the file and the line that the check names; then:",
        ("posd config check", "systemctl reload posd"),
        "posd does not start",
    ),
}

_DOCTOR = ("posd doctor",)

#: The checks of `posd doctor`.
DOCTOR: Mapping[str, Text] = {
    "configuration": Text(
        "Whether the configuration file can be read, and is right.",
        do="Correct what it names; then:",
        commands=("posd config check",),
        see="posd does not start",
    ),
    "daemon": Text(
        "Whether posd runs and answers.",
        do="Start it, and see why it ended:",
        commands=("systemctl start posd", "posd logs -p error"),
        see="posd does not start",
    ),
    "files": Text("Whether keys and files are there, whole, and closed to others.", do="Do what the finding says."),
    "access": Text("Whether tills and operators may open the sockets.", do="Do what the finding says."),
    "database": Text(
        "Whether the database is whole, and fits this version.",
        do="Check it in full:",
        commands=("posd verify",),
        see="The database is damaged",
    ),
    "disk": Text("Whether the disk of the database has room.", do="Free the disk.", see="The disk is full"),
    "port": Text(
        "Whether the port of the webhook listener is posd's.",
        do="Stop what else listens there, or set webhooks.listen to another port.",
        see="posd does not start",
    ),
    "firewall": Text(
        "Whether a firewall of this machine keeps terminals out.",
        do="Open the port for the terminals' network.",
        see="The terminal does not trust posd",
    ),
    "mdns": Text(
        "Whether announcements of terminals can be heard.",
        do="Look at the network, or give each terminal a base_url.",
        see="The terminal cannot be found",
    ),
    "certificate": Text(
        "Whether the certificate is good, and is what the listener shows.",
        do="Make a new one:",
        commands=("posd tls renew",),
        see="A certificate ends soon",
    ),
    "terminal": Text(
        "Whether each terminal can be reached, and shows the certificate that is expected.",
        do="See where it is:",
        commands=("posd terminals",),
        see="The terminal cannot be found",
    ),
    "callback": Text(
        "Whether each terminal could reach the address that posd gives it for its events.",
        do="Do what the finding says.",
        see="The terminal does not trust posd",
    ),
    "clock": Text(
        "Whether the clock of this machine agrees with those of the terminals.",
        do="Set the clock, or look why it is not believed:",
        commands=("posd clock",),
        see="The clock is wrong",
    ),
}

_STRANGER = "Nothing, where it is rare. Many of them: find the device at that address."

#: What the listener on the LAN refuses (the log event listener.refused).
REFUSED: Mapping[str, Text] = {
    "accept_failed": Text(
        "A connection could not be accepted.",
        "The system has no descriptors or memory left.",
        do="Look at what else runs on this machine.",
    ),
    "too_many_connections": Text(
        "An address, or all of them, have too many connections.",
        "A flood, or a device that opens connections without end.",
        do=_STRANGER,
    ),
    "unproven_cut": Text(
        "A connection that has shown no valid token was cut for a new one.", "Many strangers at once.", do=_STRANGER
    ),
    "tls_handshake_failed": Text(
        "A device began TLS and did not end it.",
        "It does not trust the certificate, or it is no terminal.",
        do=_STRANGER,
        see="The terminal does not trust posd",
    ),
    "connection_broke": Text(
        "A connection ended in the middle.", "The network, or a device that was switched off.", do=_STRANGER
    ),
    "untaken_answer": Text("A device did not read the answer.", "It is slow, or no terminal.", do=_STRANGER),
    "unknown_path": Text("A call of a path that posd does not have.", "A scanner, or a browser.", do=_STRANGER),
    "wrong_token": Text(
        "A callback without the right token.",
        "A stranger; or a terminal that runs a payment of another posd, or of another callback key.",
        do="See which device is at that address, and whether the database or its key was replaced:",
        commands=("posd terminals", "posd status"),
        see="The callback key is missing",
    ),
    "no_room": Text(
        "There was no room for the body of a callback.",
        "Many large bodies at once.",
        do="Nothing: terminals send again.",
    ),
    "slow_body": Text(
        "The body of a callback did not come in time.", "A slow network.", do="Nothing: terminals send again."
    ),
}
#: Whether money is at stake with them.
REFUSED_MONEY = "No payment is lost: terminals send an event again, and posd asks for what does not come."

#: Why the clock is not believed (`posd clock`, the log event clock.unsure).
DOUBTS: Mapping[str, str] = {
    "before_build": "The clock stands before the day on which this version of posd was made.",
    "behind": "The clock stands before a time that posd has seen already.",
    "stepped_back": "The clock went back while posd ran.",
    "stepped_ahead": "The clock jumped ahead while posd ran, and nothing confirms the new time.",
    "far_ahead": "The clock is far ahead of the last time that was believed, and nothing confirms it.",
}

_MOVES_NONE = "No payment is sent or lost by it."
_OPEN_ONES = (
    "Payments that are open go on at the terminal, and are taken up at the next start: the customer may be charged."
)

#: Of log events with a warning or an error: the event, or its first part -> whether money is at stake.
EVENTS: Mapping[str, str] = {
    "posd": _OPEN_ONES,
    "posd.library": _MOVES_NONE,
    "posd.internal_error": "What was acknowledged is on disk. A call that starts something may have been sent.",
    "config": "No. posd goes on with the configuration that it has.",
    "log": "As with the lines before it.",
    "payment": "It may be: what posd show ID says of the payment counts.",
    "webhook": "How a payment ended may be in what was refused: posd asks the terminal for it.",
    "print": PRINTS,
    "listener": REFUSED_MONEY,
    "limit": "No. What was refused was not sent.",
    "stream": "No. The payment goes on; the program can read its outcome again.",
    "metrics": NO_MONEY,
    "certificate": "A terminal that does not trust it sends no events: outcomes come late, by a search.",
    "discovery": _MOVES_NONE,
    "interfaces": _MOVES_NONE,
    "terminal.commission_lapsed": "No. A payment in doubt waits for a person until it is commissioned again.",
    "terminal": "Nothing is sent to that terminal. What is open on it may be charged.",
    "clock": "No. Payments go on.",
    "store": "What posd has answered is on disk. What cannot be recorded is not sent.",
    "store.restored": "Payments that the database has forgotten may be charged: do not charge again for them.",
    "store.gone_back": "Payments that the database has forgotten may be charged: do not charge again for them.",
    "store.difference": "What a till was told of this payment may have been wrong.",
    "store.damaged": "Payments in the damaged part may be charged: do not charge again for them.",
    "store.file_moved": "New payments are refused and not sent. Those that are open go on at the terminal.",
    "witness": NO_MONEY,
}
