#!/usr/bin/env bash
# charge.sh AMOUNT: charge a card and wait for the outcome, with curl and jq.
# charge.sh: settle the payment that a crash left open.
#
# The program prints what the cashier should see. Exit codes:
# 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
# 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
# 2 wrong usage; 1 the program failed, and the payment may be open.
set -Eeuo pipefail
trap 'exit 1' ERR # jq and the like have codes of their own

socket=${POSD_SOCKET:-/run/posd/till.sock}
open=${TILL_DIR:-.}/open-payment # the payment without an outcome: its id, when the id was made, and its request

exec 9>"$open.lock" # one run at a time; the lock is released when this program ends, also by a crash
flock -n 9 || { echo "${1:+$1 WAS NOT CHARGED: }another charge of this till is running"; exit 5; }

call() { # METHOD PATH [JSON]: sets $status and $body; status 000 means that no whole answer came, or none of posd
  local reply
  if reply=$(curl -s -m 30 --unix-socket "$socket" -X "$1" "http://posd/v1/transactions/$id$2" -w '\n%{http_code}' \
    ${3:+-H 'content-type: application/json' -d "$3"}) && jq -e '.code // .display' <<<"${reply%$'\n'*}" &>/dev/null; then
    status=${reply##*$'\n'} body=${reply%$'\n'*}
  else
    status=000 body='{}'
  fi
}

now() { date -u +%FT%T.%3NZ; }

field() { jq -r "$1 // empty" <<<"$body"; }

shown=
show() { # say it once
  [[ $1 == "$shown" ]] || echo "$1"
  shown=$1
}

if [[ -e $open ]]; then
  not_yet=${1:-} # its turn comes when that one is settled
  may_be_started=yes
  echo "First, the payment of $(jq -r .request.amount.subtotal_iva0 "$open") that was left open:"
else
  not_yet='' may_be_started=''
  [[ $# == 1 ]] || { echo "usage: charge.sh AMOUNT" >&2; exit 2; }
  # Id and request are on disk before the call.
  jq -cn --arg id "$(cat /proc/sys/kernel/random/uuid)" --arg made "$(now)" --arg amount "$1" \
    '{id: $id, made: $made, request: {amount: {subtotal_iva0: $amount}}}' >"$open.new"
  sync "$open.new"
  mv "$open.new" "$open"
  sync "${TILL_DIR:-.}"
fi
id=$(jq -r .id "$open")
made=$(jq -r '.made // empty' "$open")
request=$(jq -c .request "$open")
amount=$(jq -r .request.amount.subtotal_iva0 "$open")

end() { # WORDS CODE: print the result and exit; a payment that an operator has to check stays stored
  show "$1"
  [[ $2 != 4 ]] || exit 4
  rm "$open" # a till books the result first
  [[ -z $not_yet ]] || { echo "$not_yet WAS NOT CHARGED: the payment that was left open was settled instead"; exit 5; }
  exit "$2"
}

# Ask for the outcome. Start the payment only if posd says that it was never started.
for ((tries = 0; ; )); do
  if [[ $may_be_started ]]; then
    call GET "/outcome?timeout=2" # 2 seconds until the text is shown again
  else
    call PUT "" "$request"
  fi
  text=$(field .display.text) detail=$(field .detail) step=$(field .next_step)
  never_started=$(field .never_started) lost_until=$(field .records_missing_until)
  # No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
  [[ -z $lost_until || ! $made > $lost_until || $made > $(now) ]] || never_started=true

  if [[ $may_be_started && $status == 200 ]]; then
    case $step in
      done)
        paid=$(field .authorized_amount) tip=$(field .tip) code=6 # a gift card had less money, and the text says so
        [[ $paid && $(jq -n "$paid - ${tip:-0} - $amount | fabs < 0.00005") != true ]] || code=0
        end "$text, ticket $(field .ticket_number)" "$code"
        ;;
      new_id_ok) end "$text: $(field .result) $(field .failure_reason.message)" 3 ;;
      *) end "$text (payment $id)" 4 ;;
    esac
  elif [[ $status == 20? ]]; then
    may_be_started=yes
    show "$text"
  elif [[ $may_be_started && $never_started ]]; then
    may_be_started=
  else
    wait=
    if [[ $status == 000 || $step == same_call || ($may_be_started && $status == @(429|5??)) ]]; then wait=yes; fi
    if [[ $never_started ]] && [[ -z $wait || $((++tries)) == 3 ]]; then end "NOT PAID: $detail" 3; fi
    [[ $wait ]] || end "CALL THE SUPERVISOR: $detail (payment $id)" 4
    may_be_started=yes
    show "${detail:-One moment, please}" # posd restarts, or the terminal is busy
    sleep "$(jq '.retry_after_seconds // 1' <<<"$body")"
  fi
done
