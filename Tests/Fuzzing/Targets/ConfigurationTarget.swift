import ByteStreams
import Configuration

/// A configuration file: whatever it says, the errors can be shown on a terminal, and what is accepted can be shown and read again.
enum ConfigurationTarget {
  private static let environment = ["NAME": "value", "EMPTY": ""]

  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let outcome = read(bytes)
    guard outcome.errors.isEmpty else {
      try require(outcome.errors.count <= ConfigurationErrors.limit, "\(outcome.errors.count) errors")
      for error in outcome.errors {
        try require(error.place.hasPrefix("d.yaml"), "the error does not tell its place: \(error)")
        try requirePrintable(error.description)
      }
      return
    }
    for setting in outcome.shownSettings { try requirePrintable(outcome.shown(setting)) }
    let given = Setting.all.filter { outcome.origins[$0.path] != nil }
    // One of them, as the input will have it: reading again costs as much as the rest of a run.
    guard !given.isEmpty else { return }
    try requireReadable(given[bytes.count % given.count], outcome.settings)
  }

  private static func read(_ bytes: [UInt8]) -> ConfigurationLoader.Outcome {
    ConfigurationLoader.read(
      file: "d.yaml", environment: environment, flags: [],
      readFile: { path in
        switch path {
        case "d.yaml": bytes
        case "secret": Array("s3cr3t\n".utf8)
        default: nil
        }
      })
  }

  /// No control character reaches the terminal of who runs `check-config`.
  private static func requirePrintable(_ text: String) throws(Finding) {
    let isPrintable = text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
    try require(isPrintable, "a control character is printed: \(String(reflecting: text))")
  }

  /// What `check-config` shows of a setting means the same when it is read from a file.
  private static func requireReadable(_ setting: Setting, _ settings: GatewaySettings) throws(Finding) {
    let shown = setting.show(settings)
    try requirePrintable(shown)
    let keys = setting.path.split(separator: ".")
    // Not by interpolation: '${env:NAME}' was replaced when it was read, and what it stood for is not replaced again.
    guard !shown.contains("${") else { return }
    let text = keys.map { "{\($0): " }.joined() + shown + String(repeating: "}", count: keys.count)
    // By itself it may break a rule that it keeps together with others: only what was read counts.
    let again = read(Array(text.utf8)).settings
    try require(setting.show(again) == shown, "shown as \(shown), read again as \(setting.show(again))")
  }
}
