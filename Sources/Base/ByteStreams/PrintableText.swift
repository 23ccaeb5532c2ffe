/// Escapes the control characters of texts from files and the environment, for a terminal or a YAML file.
package enum PrintableText {
  /// Returns `text` as a double-quoted YAML scalar (YAML 1.2 §5.7, §7.3.1).
  package static func quoted(_ text: String) -> String {
    var quoted = "\""
    for scalar in text.unicodeScalars {
      if scalar == "\"" || scalar == "\\" { quoted += "\\" }
      append(scalar, to: &quoted)
    }
    return quoted + "\""
  }

  /// Returns `text` with non-printable characters escaped as in YAML.
  package static func escaped(_ text: String) -> String {
    var escaped = ""
    for scalar in text.unicodeScalars { append(scalar, to: &escaped) }
    return escaped
  }

  private static func append(_ scalar: Unicode.Scalar, to text: inout String) {
    switch scalar.value {
    case 0x09: text += "\\t"
    case 0x0A: text += "\\n"
    case 0x0D: text += "\\r"
    case 0x00...0xFF where scalar.controlsDisplay: text += "\\x" + hexadecimal(scalar.value, digits: 2)
    case 0x100... where scalar.controlsDisplay: text += "\\u" + hexadecimal(scalar.value, digits: 4)
    default: text.unicodeScalars.append(scalar)
    }
  }

  private static func hexadecimal(_ value: UInt32, digits: Int) -> String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
  }
}
