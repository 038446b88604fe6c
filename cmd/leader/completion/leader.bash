# bash completion of leader: source <(leader completion bash)
_leader() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} i flags
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W 'run status check terminate resign key completion version help' -- "$current"))
		return
	fi
	# What follows "--" is a command of its own.
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = -- ]; then
			if [ "$((i + 1))" -eq "$COMP_CWORD" ]; then
				COMPREPLY=($(compgen -c -- "$current"))
			else
				COMPREPLY=($(compgen -f -- "$current"))
			fi
			return
		fi
	done
	case $previous in
	--db)
		COMPREPLY=($(compgen -f -- "$current"))
		return
		;;
	--name | --namespace | --schema | --node | --term-env | --wait | --kill-after) return ;;
	esac
	case ${COMP_WORDS[1]} in
	run) flags='--db --name --namespace --try --wait --restart --kill-after --term-env --schema --node --verbose --help --' ;;
	status) flags='--db --namespace --schema --json --watch --help' ;;
	check) flags='--db --namespace --schema --json --help' ;;
	terminate) flags='--db --name --namespace --yes --help' ;;
	resign) flags='--db --name --namespace --wait --help' ;;
	key) flags='--json --help' ;;
	completion) flags='bash zsh fish' ;;
	help) flags='run status check terminate resign key completion version' ;;
	esac
	COMPREPLY=($(compgen -W "$flags" -- "$current"))
}
complete -F _leader leader
