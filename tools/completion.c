// SPDX-License-Identifier: BSD-3-Clause
// Completion for shells. Their scripts hand the words of a command line to `fabrail --complete`,
// which answers out of the tables of options and of settings: a candidate a line, each a whole
// word; or a line that leaves the answer to the shell:
//
//   @files PREFIX     names of files, behind PREFIX
//   @folders PREFIX   names of folders
//   @command N        a command of its own begins at word N, from 0 on
#include "config.h"

#include "command.h"

#include <string.h>
#include <strings.h>

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Prints the words of a list, parted by spaces or commas, that begin as the current one goes on
// behind `before`.
static void put_words(const char *list, const char *before, const char *begun)
{
    for (size_t length; *list != '\0'; list += length) {
        list += strspn(list, " ,");
        length = strcspn(list, " ,");
        if (length > 0 && strncmp(list, begun, strlen(begun)) == 0 && strlen(begun) <= length)
            printf("%s%.*s\n", before, (int)length, list);
    }
}

// Prints the settings whose names begin so, as the option takes them: in small letters, without the
// prefix.
static void put_settings(const char *begun)
{
    struct fr_core_setting setting;
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++) {
        const char *name = setting.name + strlen("FABRAIL_");
        if (strncasecmp(name, begun, strlen(begun)) != 0)
            continue;
        printf("--set=");
        for (; *name != '\0'; name++)
            putchar(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
        puts("=");
    }
}

// Prints the values of a setting, where it takes words.
static void put_setting_values(const char *text, const char *begun)
{
    struct fr_core_setting setting;
    char before[128];
    size_t length = strcspn(text, "=");
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++) {
        const char *name = setting.name + strlen("FABRAIL_");
        bool is_it = strlen(name) == length && strncasecmp(name, text, length) == 0;
        if (!is_it || setting.values == NULL || strstr(setting.values, " to ") != NULL)
            continue;
        snprintf(before, sizeof(before), "--set=%.*s=", (int)length, text);
        put_words(setting.values, before, begun);
    }
}

static void put_option_values(const struct fr_tool_option *option, const char *begun)
{
    char before[64];
    const char *value = strchr(begun, '=');
    snprintf(before, sizeof(before), "--%s=", option->name);
    if (option->values == NULL)
        return;
    if (strcmp(option->values, FR_TOOL_SETTINGS) != 0) {
        if (option->values[0] == '@')
            printf("%s %s\n", option->values, before);
        else
            put_words(option->values, before, begun);
    } else if (value != NULL) {
        put_setting_values(begun, value + 1);
    } else {
        put_settings(begun);
    }
}

static void put_options(const struct fr_tool_command *command, const char *begun)
{
    for (const struct fr_tool_option *o = command->options; o->name != NULL; o++) {
        if (begins(o->name, begun))
            printf("--%s%s\n", o->name, o->argument != NULL ? "=" : "");
    }
    put_words("--help --version", "", begun - 2);
}

// Returns the word at which another command begins, 0 for none.
static int other_command(const struct fr_tool_command *command, int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--") == 0)
            return i + 1 < count ? i + 1 : 0;
        if (command->stops && words[i][0] != '-')
            return i;
    }
    return 0;
}

void fr_tool_complete(const struct fr_tool_command *commands, int count, char **words)
{
    const struct fr_tool_command *c = commands;
    const char *current = count > 0 ? words[count - 1] : "";
    if (count < 2) {
        for (; c->name != NULL; c++)
            put_words(c->name, "", current);
        put_words("--help --version --completion", "", current);
        return;
    }
    while (c->name != NULL && strcmp(c->name, words[0]) != 0)
        c++;
    if (c->name == NULL)
        return;
    int other = other_command(c, count, words);
    size_t length = strcspn(current, "=");
    if (other > 0) {
        printf("@command %d\n", other);
    } else if (!begins(current, "--")) {
        puts(current[0] == '-' ? "--" : "@files ");
    } else if (current[length] == '\0') {
        put_options(c, current + 2);
    } else {
        for (const struct fr_tool_option *o = c->options; o->name != NULL; o++) {
            if (strlen(o->name) == length - 2 && strncmp(o->name, current + 2, length - 2) == 0)
                put_option_values(o, current + length + 1);
        }
    }
}

static const char bash_script[] =
    "# Completion of fabrail(1) for bash.\n"
    "_fabrail()\n"
    "{\n"
    "    local words=() i line current last\n"
    "    # The equals sign is a word of its own to bash.\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        last=$((${#words[@]} - 1))\n"
    "        if [ \"$last\" -ge 1 ] && { [ \"${COMP_WORDS[i]}\" = = ] || "
    "[ \"${COMP_WORDS[i - 1]}\" = = ]; }; then\n"
    "            words[last]+=${COMP_WORDS[i]}\n"
    "        else\n"
    "            words+=(\"${COMP_WORDS[i]}\")\n"
    "        fi\n"
    "    done\n"
    "    current=${COMP_WORDS[COMP_CWORD]}\n"
    "    [ \"$current\" != = ] || current=\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "        @files*) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
    "        @folders*) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$current\")) ;;\n"
    "        @command*)\n"
    "            for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "                [ \"${COMP_WORDS[i]}\" != -- ] || break\n"
    "            done\n"
    "            ! declare -F _command_offset >/dev/null || _command_offset $((i + 1)) ;;\n"
    "        *=)\n"
    "            compopt -o nospace\n"
    "            [ \"${line#--*=}\" = \"\" ] || line=${line#--*=}\n"
    "            COMPREPLY+=(\"$line\") ;;\n"
    "        *=*) COMPREPLY+=(\"${line##*=}\") ;;\n"
    "        *) COMPREPLY+=(\"$line\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]}\" --complete \"${words[@]}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _fabrail fabrail\n";

static const char zsh_script[] =
    "#compdef fabrail\n"
    "# Completion of fabrail(1) for zsh.\n"
    "_fabrail()\n"
    "{\n"
    "    local line\n"
    "    local -a lines whole open\n"
    "    lines=(\"${(@f)$(\"${words[1]}\" --complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    for line in \"${lines[@]}\"; do\n"
    "        case $line in\n"
    "        @files*|@folders*)\n"
    "            compset -P '--*='\n"
    "            if [[ $line == @folders* ]]; then _files -/; else _files; fi\n"
    "            return ;;\n"
    "        @command*)\n"
    "            shift $((${line#@command } + 1)) words\n"
    "            ((CURRENT -= ${line#@command } + 1))\n"
    "            _normal\n"
    "            return ;;\n"
    "        *=) open+=(\"$line\") ;;\n"
    "        ?*) whole+=(\"$line\") ;;\n"
    "        esac\n"
    "    done\n"
    "    ((${#open} == 0)) || compadd -S '' -- \"${open[@]}\"\n"
    "    ((${#whole} == 0)) || compadd -- \"${whole[@]}\"\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _fabrail ]; then _fabrail \"$@\"; else compdef _fabrail fabrail; "
    "fi\n";

static const char fish_script[] =
    "# Completion of fabrail(1) for fish.\n"
    "function __fabrail_complete\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    for line in ($words[1] --complete $words[2..-1] 2>/dev/null)\n"
    "        switch $line\n"
    "            case '@files *' '@folders *'\n"
    "                set -l before (string replace -r '^@\\w+ ' '' -- $line)\n"
    "                set -l begun (string replace -r '^--[a-z-]+=' '' -- $words[-1])\n"
    "                for name in (__fish_complete_path $begun)\n"
    "                    echo -- $before$name\n"
    "                end\n"
    "            case '@command *'\n"
    "                set -l at (math (string replace '@command ' '' -- $line) + 2)\n"
    "                complete -C (string join ' ' -- (string escape -- $words[$at..-2]) "
    "$words[-1])\n"
    "            case '*'\n"
    "                echo -- $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c fabrail -f -a '(__fabrail_complete)'\n";

bool fr_tool_write_completion(FILE *out, const char *shell)
{
    const char *script = strcmp(shell, "bash") == 0   ? bash_script
                         : strcmp(shell, "zsh") == 0  ? zsh_script
                         : strcmp(shell, "fish") == 0 ? fish_script
                                                      : NULL;
    if (script != NULL)
        fputs(script, out);
    return script != NULL;
}
