# bash completion for ibup(8). Words come from the program's own help.
# shellcheck shell=bash
_ibup() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} file words=''
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		words=$(ibup help 2>/dev/null | sed -n 's/^  ibup \([a-z]*\) .*/\1/p')
	elif [[ $prev == --device ]]; then
		return # bash takes a PCI address apart at its colons
	elif [[ $prev == --root ]]; then
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
	elif [[ $cur == -* ]]; then
		words=$(ibup help "${COMP_WORDS[1]}" 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
	elif ((COMP_CWORD == 2)) && [[ ${COMP_WORDS[1]} == config ]]; then
		words='check show'
	elif ((COMP_CWORD == 2)) && [[ ${COMP_WORDS[1]} == help ]]; then
		words=$(ibup help 2>/dev/null | sed -n 's/^  ibup \([a-z]*\) .*/\1/p')
	else
		for file in /etc/ibup/*.conf; do
			file=${file##*/}
			[[ $file == '*.conf' ]] || words+=" ${file%.conf}"
		done
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _ibup ibup
