#!/usr/bin/env bash
# charge.sh AMOUNT: charge a card and wait for the outcome, with curl and jq.
# charge.sh: finish the payment that a crash left open.
#
# It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
# 5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
set -Eeuo pipefail
trap 'exit 1' ERR # jq and the like have codes of their own

socket=${POSD_SOCKET:-/run/posd/till.sock}
open=${TILL_DIR:-.}/open-payment # the payment without an outcome: its id, when the id was made, and its request

call() { # METHOD PATH [JSON]: sets $status and $body; status 000 means that no whole answer came, or none of posd
  local reply
  if reply=$(curl -s --unix-socket "$socket" -X "$1" "http://posd/v1/transactions/$id$2" -w '\n%{http_code}' \
    ${3:+-H 'content-type: application/json' -d "$3"}) && jq -e '.code // .display' <<<"${reply%$'\n'*}" &>/dev/null; then
    status=${reply##*$'\n'} body=${reply%$'\n'*}
  else
    status=000 body='{}'
  fi
}

field() { jq -r "$1 // empty" <<<"$body"; }

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
  jq -cn --arg id "$(cat /proc/sys/kernel/random/uuid)" --arg made "$(date -u +%FT%T.%3NZ)" --arg amount "$1" \
    '{id: $id, made: $made, request: {amount: {subtotal_iva0: $amount}}}' >"$open.new"
  sync "$open.new"
  mv "$open.new" "$open"
  sync "${TILL_DIR:-.}"
fi
id=$(jq -r .id "$open")
made=$(jq -r '.made // empty' "$open")
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

for ((attempt = 1; ; attempt++)); do
  call PUT "" "$request"
  [[ $status != 20? ]] || break
  step=$(field .next_step) gone=$(field .records_missing_until)
  # Was nothing ever sent under this id? posd knows, or the till, whose id is newer than the records that a restore lost.
  never_started=$(field .never_started)
  [[ -z $gone || ! $made > $gone ]] || never_started=true
  if [[ $step == new_id_ok ]] || [[ $never_started == true && ($step != same_call || $attempt -ge 3) ]]; then
    settled "NOT PAID: $(field .detail)" 3
  elif [[ $status != 000 && $step != same_call ]]; then # ask_person, or an earlier call may have started it
    call_supervisor "$(field .detail)"
  fi
  show "$(jq -r '.detail // "One moment, please"' <<<"$body")" # the same call with the same id is always safe
  sleep "$(jq '.retry_after_seconds // 1' <<<"$body")"
done

show "$(field .display.text)"
while call GET "/outcome?timeout=2"; do # returns with the outcome; the 2 seconds are for what is shown, they decide nothing
  case $status in
    200) break ;;
    202) show "$(field .display.text)" ;; # where the next step is ask_person, it sends for the supervisor
    404 | 410) call_supervisor "$(field .detail)" ;;
    *) show "One moment, please. The payment goes on." && sleep 1 ;; # posd restarts: nothing is lost
  esac
done

case $(field .next_step) in
  done)
    authorized=$(field .authorized_amount) ticket=$(field .ticket_number)
    code=6 # a gift card had less on it, and the text says so
    if jq -en --argjson paid "${authorized:-$amount}" --arg asked "$amount" '$paid == ($asked | tonumber)' >/dev/null; then
      code=0
    fi
    settled "$(field .display.text), ticket $ticket" $code
    ;;
  new_id_ok) settled "$(field .display.text): $(field .result) $(field .failure_reason.message)" 3 ;;
  *)
    call GET ""
    call_supervisor "$(field '[.attention[]?.detail] | join("; ")')"
    ;;
esac
