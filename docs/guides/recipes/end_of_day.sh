#!/usr/bin/env bash
# end_of_day.sh [YYYY-MM-DD]: the exact total of the day, and the payments that prevent closing it.
#
# posd computes the total, as in `posd report`. Exit codes: 0 the day can be closed; 4 an operator has to check payments.
set -Eeuo pipefail
trap 'exit 1' ERR # jq and the like have codes of their own

zone=${MERCHANT_TIMEZONE:-America/Guayaquil}
day=${1:-$(TZ=$zone date +%F)}
midnight() { # a day of daylight saving can begin at 01:00
  for hour in 00:00 01:00; do
    if date -u -d "TZ=\"$zone\" $1 $hour" +%FT%TZ 2>/dev/null; then return; fi
  done
  return 1
}

report=$(curl -fsSG --unix-socket "${POSD_SOCKET:-/run/posd/till.sock}" "http://posd/v1/report?amounts=text" \
  --data-urlencode timezone="$zone" -d since="$(midnight "$day")" -d until="$(midnight "$(date -u -d "$day 1 day" +%F)")")
jq -r '
  (.by_type[] | "\(.type): \(.total) \(.currency)"),
  (.by_currency[] | "total: \(.total) \(.currency)"),
  (.in_question[] | "NOT CLEAR: posd show \(.)"),
  (.attention_elsewhere | select(. > 0) | "NOT CLEAR: \(.) on other days, posd list --attention")' <<<"$report"
if [[ $(jq '.in_question == [] and .attention_elsewhere == 0' <<<"$report") != true ]]; then exit 4; fi
