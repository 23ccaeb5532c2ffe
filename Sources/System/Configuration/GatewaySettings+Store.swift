import HTTPCodec
import Journal
import WebSocketCodec

/// What the store cannot hold.
extension GatewaySettings {
  /// A message is one row, and SQLite's rows have at most 10⁹ bytes. JSON may need six bytes for one.
  private static var largestStoredMessage: Int { 128 << 20 }

  package func storeProblems() -> [SettingProblem] {
    guard store.engine == .sqlite else { return [] }
    let largest = Self.largestStoredMessage
    let reason =
      "with 'store.engine: sqlite', use at most \(ByteSize.format(largest)): larger messages cannot be stored"
    var problems: [SettingProblem] = []
    if http.limits.bodyBytes > largest { problems.append(SettingProblem("http.body_bytes", .value, reason)) }
    for session in configuredSessions where session.configuration.upstream.limits.messageBytes > largest {
      problems.append(SettingProblem(session.pathPrefix + "upstream.message_bytes", .value, reason))
    }
    return problems
  }
}
