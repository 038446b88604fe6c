#compdef leader
# zsh completion of leader: source <(leader completion zsh)
_leader() {
	local -a database subcommands
	database=('--db[the database]:URL or file:_files' '--namespace[of the names]:namespace:' '--help[what it does]')
	subcommands=(
		'run:run a command while this process leads'
		'status:show who leads what'
		'check:find out whether locks work on this database'
		'terminate:end the session of a holder that does not answer'
		'resign:ask the holder of a name to hand it over'
		'key:print the lock that a name means'
		'completion:print the script that completes commands in a shell'
		'version:print the version'
		'help:tell about a command'
	)
	if ((CURRENT == 2)); then
		_describe command subcommands
		return
	fi
	local subcommand=$words[2]
	shift words
	((CURRENT--))
	case $subcommand in
	run)
		_arguments -S $database '--name[what is led]:name:' '--try[do not wait]' '--wait[how long to wait]:time:' \
			'--restart[contend again after a loss]' '--kill-after[how long the command may take to end]:time:' \
			'--term-env[for the number of the leadership]:variable:' '--schema[of leader_terms]:schema:' \
			'--node[who this process is]:node:' '--verbose[tell what happens]' '*:::command:_normal'
		;;
	status) _arguments $database '--schema[of leader_terms]:schema:' '--json[for programs]' '--watch[show what changes]' '*:name:()' ;;
	check) _arguments $database '--schema[of leader_terms]:schema:' '--json[for programs]' ;;
	terminate) _arguments $database '--name[whose lock is to be free]:name:' '--yes[do not ask]' ;;
	resign) _arguments $database '--name[what is to be handed over]:name:' '--wait[how long to wait]:time:' ;;
	key) _arguments '--json[for programs]' '--help[what it does]' '1:namespace:()' '2:name:()' ;;
	completion) _values shell bash zsh fish ;;
	help) _describe command subcommands ;;
	esac
}
if [ "$funcstack[1]" = _leader ]; then
	_leader "$@"
else
	compdef _leader leader
fi
