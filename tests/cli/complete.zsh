# zsh completes only on a terminal. Functions that write their arguments therefore replace zsh's completion system.
compdef() { :; }
_describe() { print -l -- "${(@P)3}"; }
_path_files() { print FILES; }
compadd() { print -l -- "${(@P)@[-1]}"; }
words=("${(@Q)${(z)LINE}}")
[[ "$LINE" == *" " ]] && words+=("")
CURRENT=${#words}
source "$SCRIPT"
_posd_completion
