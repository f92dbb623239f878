# Completion of orc for bash: source <(orc completion bash)

_orc() {
    local answer line
    COMPREPLY=()
    answer=$(orc __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    while IFS= read -r line; do
        case $line in
            :0) compopt -o default 2>/dev/null ;;
            :*) ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done <<<"$answer"
}

complete -F _orc orc
