import ByteStreams
import Configuration

/// A configuration file: errors can be printed on a terminal, and accepted settings can be shown and read again.
enum ConfigurationTarget {
  private static let environment = ["NAME": "value", "EMPTY": ""]

  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let outcome = read(bytes)
    guard outcome.errors.isEmpty else {
      try require(outcome.errors.count <= ConfigurationErrors.limit, "\(outcome.errors.count) errors")
      for error in outcome.errors {
        try require(error.place.hasPrefix("d.yaml"), "the error has no position: \(error)")
        try requirePrintable(error.description)
      }
      return
    }
    for setting in outcome.displayedSettings { try requirePrintable(outcome.displayText(of: setting)) }
    let given = Setting.all.filter { outcome.origins[$0.path] != nil }
    // The input chooses a single setting, because reading it again takes as long as the rest of a run.
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

  /// The value that `check-config` shows must be read from a file as the same value.
  private static func requireReadable(_ setting: Setting, _ settings: GatewaySettings) throws(Finding) {
    let shown = setting.format(settings)
    try requirePrintable(shown)
    let keys = setting.path.split(separator: ".")
    // '${env:NAME}' was replaced when the value was read. The value must not be interpolated again.
    guard !shown.contains("${") else { return }
    let text = keys.map { "{\($0): " }.joined() + shown + String(repeating: "}", count: keys.count)
    // Without the other settings the value may violate a rule between settings. Only the value itself is compared.
    let again = read(Array(text.utf8)).settings
    try require(setting.format(again) == shown, "shown as \(shown), read again as \(setting.format(again))")
  }
}
