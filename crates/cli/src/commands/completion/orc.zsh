#compdef orc
# Completion of orc for zsh: orc completion zsh > a folder of $fpath, as _orc

_orc() {
    local answer line
    local -a found
    local files=0
    answer=$(orc __complete "${(@)words[2,CURRENT]}" 2>/dev/null) || return
    for line in "${(@f)answer}"; do
        case $line in
            :0) files=1 ;;
            :*) ;;
            # _describe splits a word from its description at the first colon.
            *) found+=("${${line//:/\\:}/$'\t'/:}") ;;
        esac
    done
    (( $#found )) && _describe -t orc orc found
    (( files )) && _files
    return 0
}

if [ "$funcstack[1]" = "_orc" ]; then
    _orc "$@"
else
    compdef _orc orc
fi
