/// Scripts that let shells complete commands, flags and their values, made from the declarations.
enum Completion {
  static let shells = ["bash", "zsh", "fish"]

  static func script(for shell: String, _ commands: [Command]) -> String {
    switch shell {
    case "bash": bash(commands)
    case "zsh": zsh(commands)
    default: fish(commands)
    }
  }

  // MARK: bash

  private static func bash(_ commands: [Command]) -> String {
    let cases = commands.map { command in
      let values = command.flags.filter(\.takesValue).map { flag -> String in
        let reply =
          flag.isFile
          ? "compopt -o default; COMPREPLY=()"
          : flag.choices.isEmpty
            ? "COMPREPLY=()" : "COMPREPLY=($(compgen -W '\(flag.choices.joined(separator: " "))' -- \"$word\"))"
        return "        --\(flag.name)) \(reply); return ;;"
      }
      let words = command.operands.first.map(\.choices) ?? []
      let flags = command.flags.map { "--" + $0.name } + ["--help"]
      let isFile = command.operands.contains(where: \.isFile)
      return """
            \(command.name))
              case $previous in
        \(values.joined(separator: "\n"))
                *) ;;
              esac
              if [[ $word == -* ]]; then
                COMPREPLY=($(compgen -W '\(flags.joined(separator: " "))' -- "$word"))
              else
                COMPREPLY=($(compgen -W '\(words.joined(separator: " "))' -- "$word"))\(isFile ? "\n        compopt -o default" : "")
              fi
              ;;
        """
    }
    return """
      # Completion of drawbridge for bash. Use it at once: source <(drawbridge completion bash)
      _drawbridge() {
        local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
        if ((COMP_CWORD == 1)); then
          COMPREPLY=($(compgen -W '\((commands.map(\.name) + ["help"]).joined(separator: " "))' -- "$word"))
          return
        fi
        case ${COMP_WORDS[1]} in
          help) COMPREPLY=($(compgen -W '\(commands.map(\.name).joined(separator: " "))' -- "$word")) ;;
      \(cases.joined(separator: "\n"))
        esac
      }
      complete -F _drawbridge drawbridge
      """
  }

  // MARK: zsh

  private static func zsh(_ commands: [Command]) -> String {
    let names = commands.map { "    '\($0.name):\(quoted($0.summary))'" }
    let cases = commands.map { command in
      var items = command.flags.map { flag -> String in
        let repeats = flag.isRepeatable ? "*" : ""
        let action =
          !flag.takesValue
          ? ""
          : flag.isFile
            ? ":file:_files" : ":value:\(flag.choices.isEmpty ? "" : "(\(flag.choices.joined(separator: " ")))")"
        return "'\(repeats)--\(flag.name)\(flag.takesValue ? "=" : "")[\(bracketed(flag.summary))]\(action)'"
      }
      items += command.operands.map { operand in
        let action =
          operand.isFile ? "_files" : operand.choices.isEmpty ? "" : "(\(operand.choices.joined(separator: " ")))"
        return "'::\(operand.name.lowercased()):\(action)'"
      }
      items.append("'--help[explain the command]'")
      return "    \(command.name)) _arguments -S \(items.joined(separator: " \\\n      ")) ;;"
    }
    return """
      #compdef drawbridge
      # Completion of drawbridge for zsh. Put this into a folder of $fpath as _drawbridge.
      _drawbridge() {
        local -a commands
        commands=(
      \(names.joined(separator: "\n"))
        )
        if ((CURRENT == 2)); then
          _describe command commands
          return
        fi
        local command=$words[2]
        shift words
        ((CURRENT--))
        case $command in
      \(cases.joined(separator: "\n"))
        esac
      }
      if [[ $funcstack[1] == _drawbridge ]]; then _drawbridge "$@"; else compdef _drawbridge drawbridge; fi
      """
  }

  /// Escapes a text for a word in single quotation marks, in which a colon ends the name.
  private static func quoted(_ text: String) -> String { escaped(text, ":", "\\") }

  private static func bracketed(_ text: String) -> String { escaped(text, "[]:", "\\") }

  private static func escaped(_ text: String, _ special: String, _ escape: String) -> String {
    text.reduce(into: "") { result, character in
      if character == "'" {
        result += "'\\''"
      } else {
        result += special.contains(character) ? escape + String(character) : String(character)
      }
    }
  }

  // MARK: fish

  private static func fish(_ commands: [Command]) -> String {
    var lines = [
      "# Completion of drawbridge for fish. Use it at once: drawbridge completion fish | source",
      "complete -c drawbridge -f",
    ]
    for command in commands {
      lines.append(
        "complete -c drawbridge -n __fish_use_subcommand -a \(command.name) -d '\(fishQuoted(command.summary))'")
      let condition = "complete -c drawbridge -n '__fish_seen_subcommand_from \(command.name)'"
      for flag in command.flags {
        let value =
          !flag.takesValue
          ? ""
          : flag.isFile ? " -r -F" : flag.choices.isEmpty ? " -x" : " -x -a '\(flag.choices.joined(separator: " "))'"
        lines.append("\(condition) -l \(flag.name)\(value) -d '\(fishQuoted(flag.summary))'")
      }
      for operand in command.operands {
        if operand.isFile { lines.append("\(condition) -F") }
        if !operand.choices.isEmpty { lines.append("\(condition) -a '\(operand.choices.joined(separator: " "))'") }
      }
    }
    return lines.joined(separator: "\n")
  }

  private static func fishQuoted(_ text: String) -> String {
    text.reduce(into: "") { $0 += $1 == "'" || $1 == "\\" ? "\\" + String($1) : String($1) }
  }
}
