import ByteStreams
import Replication

/// The log of the sessions that several gateways share: of each session a record, its pushes and its other changes; and what the gateways store of
/// themselves. An engine carries out the commands of `RedisStoreDriver`, which knows no engine. `RedisLog` is the one of the program.
///
/// It lives on the loop of the store.
package protocol SharedLog: AnyObject {
  /// Connects. From now on its owner receives reports.
  func start()
  func close()
  /// Gives up what is on its way, and connects again.
  func reset(_ reason: String)

  /// Whether commands can be sent.
  var isUp: Bool { get }

  /// Executes commands in their order, each in one step, and reports them together: all have a reply by then, and it is known whether a failover
  /// can lose them. If the connection ends first, `then` is not called.
  ///
  /// - Returns: false if not all could be sent. The caller resets the log.
  func send(_ commands: [LogCommand], on lane: LogLane, then: @escaping (LogLanding) -> Void) -> Bool

  /// Each is confirmed by a report. What is notified before can be missed.
  func subscribe(to topics: [LogTopic])
  func unsubscribe(from topics: [LogTopic])
}

/// Receives what a log reports, on its loop.
package protocol SharedLogOwner: AnyObject {
  /// - Parameters:
  ///   - history: changes whenever the engine may have lost something that was not confirmed.
  ///   - address: of the server, for the log.
  func logIsUp(history: String, at address: String)
  /// Nothing that was sent will be answered.
  func logIsDown(_ failure: LogFailure)
  /// Another attempt failed while the log is down.
  ///
  /// - Parameter address: the server that failed; nil if it is not known.
  func logAttemptFailed(_ failure: LogFailure, at address: String?)
  func logSubscribed(to topic: LogTopic)
  func logNotified(_ topic: LogTopic, _ message: [UInt8])
}

/// A heartbeat must not wait for entries that are being sent.
package enum LogLane: Int {
  case heartbeats
  case journals
}

/// What gateways are notified of.
package enum LogTopic: Hashable, Sendable {
  case session(String)
  /// The list of sessions that clients create.
  case definitions
}

/// Why a log cannot be used.
package struct LogFailure {
  package let reason: String
  package let isAboutCredentials: Bool

  package init(_ reason: String, isAboutCredentials: Bool = false) {
    self.reason = reason
    self.isAboutCredentials = isAboutCredentials
  }
}

/// Why the engine has refused a command.
package struct LogRefusal {
  package let reason: String
  package let concernsAllWrites: Bool

  package init(_ reason: String, concernsAllWrites: Bool) {
    self.reason = reason
    self.concernsAllWrites = concernsAllWrites
  }
}

/// What became of commands that were sent together.
package struct LogLanding {
  /// One for each command.
  package var replies: [LogReply]
  /// Whether enough replicas have everything.
  package var isConfirmed: Bool
  package var refusals: [LogRefusal]

  package init(replies: [LogReply], isConfirmed: Bool, refusals: [LogRefusal] = []) {
    self.replies = replies
    self.isConfirmed = isConfirmed
    self.refusals = refusals
  }
}
