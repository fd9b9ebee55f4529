#!/usr/bin/env bash
# charge.sh AMOUNT: charge a card and wait for the outcome, with curl and jq.
# charge.sh: finish the payment that a crash left open.
#
# It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
# 5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
set -Eeuo pipefail
trap 'exit 1' ERR # jq and the like have codes of their own

socket=${POSD_SOCKET:-/run/posd/till.sock}
open=${TILL_DIR:-.}/open-payment # the payment that has no outcome yet: its id and its request

call() { # METHOD PATH [JSON]: sets $status and $body; status 000 means that no whole answer came
  local reply
  if reply=$(curl -s --unix-socket "$socket" -X "$1" "http://posd/v1/transactions/$id$2" -w '\n%{http_code}' \
    ${3:+-H 'content-type: application/json' -d "$3"}); then
    status=${reply##*$'\n'} body=${reply%$'\n'*}
  else
    status=000 body='{}'
  fi
}

field() { jq -r "$1 // empty" <<<"$body" 2>/dev/null || true; }

shown=
show() { # say it once
  [[ $1 == "$shown" ]] || echo "$1"
  shown=$1
}

if [[ -e $open ]]; then
  not_yet=${1:-} # its turn comes when that one is settled
  echo "First, the payment of $(jq -r .request.amount.subtotal_iva0 "$open") that was left open:"
else
  not_yet=
  [[ $# == 1 ]] || { echo "usage: charge.sh AMOUNT" >&2; exit 2; }
  # Id and request are on disk before the call, so that the same call can be repeated after any failure.
  jq -cn --arg id "$(cat /proc/sys/kernel/random/uuid)" --arg amount "$1" \
    '{id: $id, request: {amount: {subtotal_iva0: $amount}}}' >"$open.new"
  sync "$open.new"
  mv "$open.new" "$open"
  sync "${TILL_DIR:-.}"
fi
id=$(jq -r .id "$open")
request=$(jq -c .request "$open")
amount=$(jq -r .request.amount.subtotal_iva0 "$open")

settled() { # WORDS CODE: its end is known
  echo "$1"
  rm "$open"
  [[ -z $not_yet ]] || { echo "$not_yet WAS NOT CHARGED: it was the turn of the payment that was left open"; exit 5; }
  exit "$2"
}

call_supervisor() { # WHY: it stays open
  echo "CALL THE SUPERVISOR: $1"
  exit 4
}

while call PUT "" "$request"; do
  code=$(field .code)
  case $status/$code in
    20?/*) break ;;
    503/draining) ;;
    409/id_reused | 410/pruned | 503/storage_unavailable) # an earlier call may have started it: never another id now
      call_supervisor "$(field .detail)"
      ;;
    4??/?* | 50[13]/?*) # a refusal of posd: nothing was sent, nothing is recorded
      settled "NOT PAID: $(field .detail)" 3
      ;;
  esac
  show "One moment, please" # no answer, or none of posd: the same call with the same id is always safe
  sleep 1
done

until [[ $(field .phase) == final ]]; do
  if [[ $status == 2?? ]]; then
    show "$(field .display.text)" # where the next step is ask_person, it sends for the supervisor
  elif [[ $status == 404 || $status == 410 ]]; then
    call_supervisor "posd does not know the payment $id any more"
  else
    show "One moment, please. The payment goes on." # posd restarts: nothing is lost
    sleep 1
  fi
  call GET "/outcome?timeout=2" # returns with the outcome; the 2 seconds are for what is shown, they decide nothing
  call GET ""
done

case $(field .next_step) in
  done)
    authorized=$(field .outcome.authorized_amount) ticket=$(field .outcome.ticket_number)
    code=6 # a gift card had less on it, and the text says so
    if jq -en --argjson paid "${authorized:-$amount}" --arg asked "$amount" '$paid == ($asked | tonumber)' >/dev/null; then
      code=0
    fi
    settled "$(field .display.text), ticket $ticket" $code
    ;;
  new_id_ok) settled "$(field .display.text): $(field .outcome.result) $(field .outcome.failure_reason.message)" 3 ;;
  *) call_supervisor "$(field '[.attention[].detail] | join("; ")')" ;;
esac
