import API
import ByteStreams
import HTTPCodec
import HTTPServer
import Journal
import Sessions
import Upstream
import WebSocketCodec

/// Limits of messages and responses that follow from the store.
extension GatewaySettings {
  /// The largest message that the store accepts, in bytes. A message is one row, and SQLite limits a row to 10⁹ bytes.
  /// Redis limits a value to 5·10⁸ bytes, and a reply to half as many. JSON may need six bytes for one byte.
  private var largestStoredMessage: Int { store.engine == .sqlite ? 128 << 20 : 32 << 20 }

  /// Maximum total size of the contents of responses that are arriving from other gateways, in bytes. It is the limit
  /// for responses that clients have not read, or the size of the largest response if that is larger. With a smaller
  /// limit, the largest response would be refused each time.
  package var peerResponseBytes: Int {
    let upstreams = configuredSessions.map(\.configuration.upstream) + profiles.map(\.configuration.upstream)
    return max(http.unsentBytes, api.largestResponse(messageBytes: upstreams.map(\.limits.messageBytes).max() ?? 0))
  }

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
