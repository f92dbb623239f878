# Completion of orc for fish: orc completion fish | source

function __orc_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (orc __complete $words[2..-1] 2>/dev/null)
        switch $line
            case ':0'
                __fish_complete_path (commandline -ct)
            case ':*'
            case '*'
                echo $line
        end
    end
end

complete -c orc -f -a '(__orc_complete)'
