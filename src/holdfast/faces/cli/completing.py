"""Completion scripts for bash, zsh and fish, made from the commands themselves: words, then options."""

from __future__ import annotations

from holdfast.faces.cli.command import all_commands
from holdfast.faces.cli.session import GLOBAL

_BASH = """\
_holdfast() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" key="" word valued=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        if [[ $word == -* ]]; then
            case " {valued} " in *" $word "*) valued=1 ;; *) valued="" ;; esac
        else
            [[ -n $valued ]] || key="${{key:+$key }}$word"
            valued=""
        fi
    done
    local found="" part="$key"
    while [[ -n $part && -z $found ]]; do
        case "$part" in
{cases}
        esac
        [[ $part == *" "* ]] && part="${{part% *}}" || part=""
    done
    [[ -n $key ]] || found="{first}"
    COMPREPLY=($(compgen -W "$found {common}" -- "$cur"))
}}
complete -o default -F _holdfast holdfast"""
_ZSH = "#compdef holdfast\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str) -> str:
    """The script for a shell."""
    if shell == "fish":
        return _fish()
    return (_ZSH if shell == "zsh" else "") + _bash()


def words() -> dict[str, list[str]]:
    """What may follow: the next words of a group, the options of a command; the first words under the name ''."""
    found: dict[str, list[str]] = {"": []}
    for command in all_commands():
        *groups, last = command.name.split()
        for at, word in enumerate([*groups, last]):
            members = found.setdefault(" ".join(groups[:at]), [])
            if word not in members:
                members.append(word)
        known = [argument.option for argument in command.arguments if not argument.word]
        known += [choice for argument in command.arguments if argument.word for choice in argument.choices]
        found[command.name] = [*found.get(command.name, ()), *known]
    return found


def _bash() -> str:
    after = words()
    first = " ".join(after.pop(""))
    common = " ".join(argument.option for argument in GLOBAL)
    cases = "\n".join(f'            "{name}") found="{" ".join(known)} " ;;' for name, known in after.items())
    return _BASH.format(cases=cases, first=first, common=common, valued=" ".join(sorted(_valued())))


def _valued() -> set[str]:
    """The options that are followed by a value."""
    arguments = [*GLOBAL, *(argument for command in all_commands() for argument in command.arguments)]
    valued = {name for each in arguments if each.kind != "flag" for name in (each.option, each.short) if name}
    return valued - {each.option for each in arguments if each.kind == "flag"}


def _fish() -> str:
    lines = ["complete -c holdfast -f"]
    lines += [f"complete -c holdfast -l {argument.option[2:]} -d '{_quoted(argument.help)}'" for argument in GLOBAL]
    told = set()
    for command in all_commands():
        *groups, last = command.name.split()
        for at, word in enumerate([*groups, last]):
            if at and (*groups[:at], word) not in told:
                what = command.summary if word is last else f"more of {groups[0]}"
                lines.append(f"complete -c holdfast -n '{_seen(groups[:at])}' -a {word} -d '{_quoted(what)}'")
            told.add((*groups[:at], word))
        if not groups:
            lines.append(f"complete -c holdfast -n '__fish_use_subcommand' -a {last} -d '{_quoted(command.summary)}'")
        for argument in command.arguments:
            if not argument.word:
                option = f"-l {argument.option[2:]} -d '{_quoted(argument.help)}'"
                lines.append(f"complete -c holdfast -n '{_seen([*groups[:-1], last])}' {option}")
    return "\n".join(lines)


def _seen(words: list[str]) -> str:
    return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
