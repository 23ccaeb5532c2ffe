import ByteStreams

/// Recognises variables that an orchestrator sets for a service whose name begins with `drawbridge`. They are not
/// settings.
///
/// For each Service of its namespace, Kubernetes sets `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT` and
/// `NAME_SERVICE_PORT_PORTNAME` in each pod. Like Docker's links, Kubernetes also sets `NAME_PORT`, and
/// `NAME_PORT_80_TCP` without and with `_PROTO`, `_PORT` or `_ADDR` (`enableServiceLinks`).
enum ServiceLink {
  private static let protocols = ["TCP", "UDP", "SCTP"]

  static func isLink(_ name: String, value: String) -> Bool {
    let words = name.split(separator: "_", omittingEmptySubsequences: false)
    for index in words.indices.dropFirst() {
      let rest = words[index...].dropFirst()
      switch words[index] {
      case "SERVICE":
        if rest.first == "HOST" && rest.count == 1 || rest.first == "PORT" { return true }
      case "PORT":
        // The value of a service link is a URL. If the variable were meant as a setting, its value would be a number.
        if rest.isEmpty { return protocols.contains { value.hasPrefix($0.lowercased() + "://") } }
        if isPort(rest) { return true }
      default: continue
      }
    }
    return false
  }

  /// `80_TCP`, `80_TCP_ADDR`.
  private static func isPort(_ words: ArraySlice<Substring>) -> Bool {
    guard let number = words.first, !number.isEmpty, number.utf8.allSatisfy(ASCII.isDigit),
      let name = words.dropFirst().first, protocols.contains(String(name))
    else { return false }
    let last = words.dropFirst(2)
    return last.isEmpty || last.count == 1 && ["PROTO", "PORT", "ADDR"].contains(last.first)
  }
}
