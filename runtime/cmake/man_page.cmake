# cmake -DCLI=tessera -DOUTPUT=folder -P man_page.cmake: from what the command line says with --help, its man page
# (tessera.1) and its completion for bash (completion/tessera), so that both know every option.
cmake_minimum_required(VERSION 3.20)
function(help variable)
  execute_process(COMMAND ${CLI} ${ARGN} --help OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()
# roff: a backslash, and a point or quote at the beginning of a line, mean something there.
function(preformatted variable text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" text "${text}")
  string(STRIP "${text}" text)
  set(${variable} ".nf\n${text}\n.fi\n" PARENT_SCOPE)
endfunction()

help(main)
execute_process(COMMAND ${CLI} --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "^[^\n]*" summary "${main}")
string(REGEX REPLACE ".*\nSubcommands:\n" "" rest "${main}")
string(REGEX MATCHALL "(^|\n)  [a-z]+" commands "${rest}")
string(REGEX REPLACE ".*\n\n([^\n]+)\n*$" "\\1" last "${main}")
set(man
  ".TH TESSERA 1 \"\" \"${version}\" \"User Commands\"
.SH NAME
tessera \\- ${summary}
.SH SYNOPSIS
.B tessera
.I COMMAND
[\\fIOPTIONS\\fR]
")
set(words "")
set(cases "")
set(values "")
foreach(command IN LISTS commands)
  string(STRIP "${command}" command)
  help(text ${command})
  string(REPLACE "\n${last}" "" text "${text}")
  preformatted(body "${text}")
  string(TOUPPER ${command} title)
  string(APPEND man ".SH ${title}\n${body}")
  string(APPEND words " ${command}")
  string(REGEX MATCHALL "(\n| |,)--[a-z-]+" options "${text}")
  list(TRANSFORM options REPLACE "^[\n ,]" "")
  list(REMOVE_DUPLICATES options)
  list(JOIN options " " options)
  string(APPEND cases "    ${command}) words='${options}' ;;\n")
  # --lint TEXT:{off,warn,error}
  string(REGEX MATCHALL "--[a-z-]+ TEXT:{[^}]*}" choices "${text}")
  list(REMOVE_DUPLICATES choices)
  foreach(choice IN LISTS choices)
    string(REGEX REPLACE "(--[a-z-]+) TEXT:{(.*)}" "\\1" option "${choice}")
    string(REGEX REPLACE "(--[a-z-]+) TEXT:{(.*)}" "\\2" of "${choice}")
    string(REPLACE "," " " of "${of}")
    string(APPEND values "    ${command}:${option}) words='${of}' ;;\n")
  endforeach()
endforeach()
preformatted(end "${last}")
string(APPEND man ".SH NOTES\n${end}")
file(WRITE ${OUTPUT}/tessera.1 "${man}")
file(WRITE ${OUTPUT}/completion/tessera
  "# bash completion for tessera: its commands, options and their values; else files.
_tessera() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} command=\${COMP_WORDS[1]} words=''
  case \$command:\$before in
${values}  esac
  if [ -z \"\$words\" ] && [ \"\$COMP_CWORD\" -eq 1 ]; then words='${words} --help --version'; fi
  if [ -z \"\$words\" ] && [[ \$current == -* ]]; then
    case \$command in
${cases}    esac
  fi
  COMPREPLY=(\$(compgen -W \"\$words\" -- \"\$current\"))
}
complete -o bashdefault -o default -F _tessera tessera
")
