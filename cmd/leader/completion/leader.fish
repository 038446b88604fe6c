# fish completion of leader: leader completion fish >~/.config/fish/completions/leader.fish
function __leader_is -d 'The subcommand is one of these, "" if there is none yet'
    set -l words (commandline -opc)
    not contains -- -- $words
    and contains -- "$words[2]" $argv
end
function __leader_runs -d 'What follows -- is a command of its own'
    contains -- -- (commandline -opc)
end
function __leader_command
    set -l words (commandline -opc)
    set -l line
    while test "$words[1]" != --
        set -e words[1]
    end
    for word in $words[2..]
        set -a line (string escape -- $word)
    end
    complete -C (string join -- ' ' $line (commandline -ct))
end
complete -c leader -f
complete -c leader -n __leader_runs -a '(__leader_command)'
complete -c leader -n '__leader_is ""' -a run -d 'Run a command while this process leads'
complete -c leader -n '__leader_is ""' -a status -d 'Show who leads what'
complete -c leader -n '__leader_is ""' -a check -d 'Find out whether locks work on this database'
complete -c leader -n '__leader_is ""' -a terminate -d 'End the session of a holder that does not answer'
complete -c leader -n '__leader_is ""' -a resign -d 'Ask the holder of a name to hand it over'
complete -c leader -n '__leader_is ""' -a key -d 'Print the lock that a name means'
complete -c leader -n '__leader_is ""' -a completion -d 'Print the script that completes commands in a shell'
complete -c leader -n '__leader_is ""' -a version -d 'Print the version'
complete -c leader -n '__leader_is ""' -a help -d 'Tell about a command'
complete -c leader -n '__leader_is run status check terminate resign' -l db -r -F -d 'The database: a URL or a file'
complete -c leader -n '__leader_is run status check terminate resign' -l namespace -x -d 'Of the names'
complete -c leader -n '__leader_is run terminate resign' -l name -x -d 'What is led'
complete -c leader -n '__leader_is run status check' -l schema -x -d 'Of leader_terms'
complete -c leader -n '__leader_is run resign' -l wait -x -d 'How long to wait'
complete -c leader -n '__leader_is run' -l try -d 'Do not wait'
complete -c leader -n '__leader_is run' -l restart -d 'Contend again after a loss'
complete -c leader -n '__leader_is run' -l kill-after -x -d 'How long the command may take to end'
complete -c leader -n '__leader_is run' -l term-env -x -d 'Variable for the number of the leadership'
complete -c leader -n '__leader_is run' -l node -x -d 'Who this process is'
complete -c leader -n '__leader_is run' -l verbose -d 'Tell what happens'
complete -c leader -n '__leader_is status check key' -l json -d 'For programs'
complete -c leader -n '__leader_is status' -l watch -d 'Show what changes'
complete -c leader -n '__leader_is terminate' -l yes -d 'Do not ask'
complete -c leader -n '__leader_is run status check terminate resign key completion version' -l help -d 'What it does'
complete -c leader -n '__leader_is completion' -a 'bash zsh fish'
complete -c leader -n '__leader_is help' -a 'run status check terminate resign key completion version'
