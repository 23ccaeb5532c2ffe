import HTTPCodec
import Journal
import WebSocketCodec

/// What the store cannot hold.
extension GatewaySettings {
  /// A message is one row, and SQLite's rows have at most 10⁹ bytes, a value in Redis 5·10⁸, a reply half of it. JSON may need six bytes for one.
  private var largestStoredMessage: Int { store.engine == .sqlite ? 128 << 20 : 32 << 20 }

  package func storeProblems() -> [SettingProblem] {
    guard store.engine != .memory else { return [] }
    let largest = largestStoredMessage
    let reason =
      "with 'store.engine: \(store.engine.rawValue)', use at most \(ByteSize.format(largest)): larger messages cannot be stored"
    var problems: [SettingProblem] = []
    if http.limits.bodyBytes > largest { problems.append(SettingProblem("http.body_bytes", .value, reason)) }
    for session in configuredSessions where session.configuration.upstream.limits.messageBytes > largest {
      problems.append(SettingProblem(session.pathPrefix + "upstream.message_bytes", .value, reason))
    }
    return problems
  }
}
