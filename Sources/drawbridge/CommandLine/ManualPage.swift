/// Manual pages in roff, made from the declarations.
enum ManualPage {
  /// The page of the whole program, with every command.
  static func page(of commands: [Command], version: String) -> String {
    var lines = [
      title("DRAWBRIDGE", version), ".SH NAME", "drawbridge \\- gateway from HTTP to WebSocket services",
      ".SH SYNOPSIS",
      ".B drawbridge", ".I command", ".RI [ operand ...]", ".RB [ \\-\\-\\fIflag\\fB", ".IR value ]...", ".br",
      ".B drawbridge", ".I command", ".B \\-\\-help", ".SH DESCRIPTION",
    ]
    lines += paragraphs(HelpText.overview(of: commands).replacingPrefix("drawbridge: ").capitalized)
    lines.append(".SH COMMANDS")
    for command in commands {
      lines.append(".SS \"\(roff(command.heading))\"")
      lines += body(of: command)
    }
    return (lines + [ending]).joined(separator: "\n")
  }

  static func page(of command: Command, version: String) -> String {
    let name = "drawbridge-\(command.name)"
    let lines = [
      title(name.uppercased(), version), ".SH NAME", roff(name) + " \\- " + roff(command.summary), ".SH SYNOPSIS",
      ".B " + roff(command.heading), command.flags.isEmpty ? "" : ".RI [ flags ...]", ".SH DESCRIPTION",
    ]
    let end = [".SH SEE ALSO", ".BR drawbridge (1)"]
    return (lines.filter { !$0.isEmpty } + body(of: command) + end).joined(separator: "\n")
  }

  private static func title(_ name: String, _ version: String) -> String {
    ".TH \(roff(name)) 1 \"\" \"Drawbridge \(roff(version))\" \"User Commands\""
  }

  private static func body(of command: Command) -> [String] {
    var lines = paragraphs(command.purpose.capitalized)
    lines += example(command.examples)
    lines += paragraphs(command.text)
    if !command.flags.isEmpty {
      lines += [".PP", ".B Flags:"]
      for flag in command.flags {
        lines += [".TP", ".B " + roff(flag.usage), roff(flag.summary + (flag.isRepeatable ? " (repeatable)" : ""))]
      }
    }
    lines += paragraphs(command.notes)
    lines += [".PP", ".B Exit codes:"]
    for code in command.exitCodes { lines += [".TP", ".B \(code.code)", roff(code.meaning)] }
    return lines
  }

  /// Returns a text as roff. Lines that begin with a space are an example.
  private static func paragraphs(_ text: String) -> [String] {
    var lines: [String] = []
    var verbatim: [String] = []
    var isInParagraph = false
    for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix(" ") {
        verbatim.append(String(line))
        isInParagraph = false
        continue
      }
      lines += example(verbatim)
      verbatim = []
      if line.isEmpty {
        isInParagraph = false
        continue
      }
      if !isInParagraph { lines.append(".PP") }
      isInParagraph = true
      lines.append(roff(String(line)))
    }
    return lines + example(verbatim)
  }

  private static func example(_ lines: [String]) -> [String] {
    // The indentation that all lines have in common is removed, since roff indents the whole example.
    let indentation = lines.map { line in line.prefix { $0 == " " }.count }.min() ?? 0
    return lines.isEmpty
      ? [] : [".PP", ".RS", ".nf"] + lines.map { roff(String($0.dropFirst(indentation))) } + [".fi", ".RE"]
  }

  /// Escapes the characters that roff would interpret.
  static func roff(_ text: String) -> String {
    var result = text.first == "." || text.first == "'" ? "\\&" : ""
    for character in text {
      switch character {
      case "\\": result += "\\e"
      case "-": result += "\\-"
      default: result.append(character)
      }
    }
    return result
  }

  private static let ending = """
    .SH ENVIRONMENT
    .TP
    .B DRAWBRIDGE_URL
    The address of the gateway, for the commands that are its clients.
    .TP
    .B DRAWBRIDGE_TOKEN_FILE
    The file of the token that these commands send.
    .TP
    .B DRAWBRIDGE_CA_FILE
    A file of certificates that these commands trust.
    .TP
    .B DRAWBRIDGE_CONFIG
    The configuration file, if its flag is not given.
    .TP
    .BI DRAWBRIDGE_ NAME
    A setting: upstream.url is
    .BR DRAWBRIDGE_UPSTREAM_URL .
    It overrides the configuration file.
    .SH FILES
    .TP
    .I /etc/drawbridge/drawbridge.yaml
    The configuration of the service drawbridge.service.
    .TP
    .I /etc/default/drawbridge
    Variables of the environment of the service. The file is optional.
    .TP
    .I /var/lib/drawbridge
    The store of the service, if the configuration has
    .IR "store.engine: sqlite" .
    .TP
    .I /usr/share/doc/drawbridge
    The documentation of the Debian package.
    .I config/drawbridge.yaml
    has every setting, and
    .I config/profiles
    has configurations for known kinds of upstreams.
    .SH SEE ALSO
    .BR curl (1),
    .BR systemctl (1),
    .BR systemd.socket (5)
    """
}

extension String {
  func replacingPrefix(_ prefix: String) -> String { hasPrefix(prefix) ? String(dropFirst(prefix.count)) : self }

  /// This text with its first letter in upper case.
  fileprivate var capitalized: String { prefix(1).uppercased() + dropFirst() }
}
