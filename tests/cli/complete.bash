# bash has no function for the completions of a line. This script calls the completion in the same way as readline.
. "$SCRIPT"
COMP_LINE="$LINE"; COMP_POINT=${#LINE}
read -r -a COMP_WORDS <<< "$LINE"
[[ "$LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { echo OPTION "$@"; }
[[ "$(complete -p posd)" == "complete -o nosort -F _posd_completion posd" ]] || exit 9
_posd_completion posd "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
