import ByteStreams
import Replication

/// The log of the sessions that several gateways share. It has a record, pushes and other changes of each session, and
/// the entries of the gateways themselves. An *engine* is a class that implements this protocol. It executes the
/// commands of `RedisStoreDriver`, which does not depend on a particular engine. The program uses `RedisLog`.
///
/// Used only on the loop of the store.
package protocol SharedLog: AnyObject {
  /// Connects. The owner receives reports from now on.
  func start()
  func close()
  /// Abandons the commands that have no reply yet, and reconnects.
  func reset(_ reason: String)

  /// Whether commands can be sent.
  var isUp: Bool { get }

  /// Executes commands in order, each in one step. Reports them together, when all have replies and it is known whether
  /// a failover can lose them. If the connection ends first, `then` is not called.
  ///
  /// - Returns: false if not all commands could be sent. In this case the caller resets the log.
  func send(_ commands: [LogCommand], on lane: LogLane, then: @escaping (LogLanding) -> Void) -> Bool

  /// The owner gets a report for each subject. A notification before this report can be missed.
  func subscribe(to subjects: [LogSubject])
  func unsubscribe(from subjects: [LogSubject])
}

/// Receives the reports of a log, on its loop.
package protocol SharedLogOwner: AnyObject {
  /// - Parameters:
  ///   - history: changes whenever the engine may have lost data that was not confirmed.
  ///   - address: the address of the server, for log lines.
  func logIsUp(history: String, at address: String)
  /// The connection has ended. Commands that have no reply yet get none.
  func logIsDown(_ failure: LogFailure)
  /// A further attempt to connect has failed while the log is down.
  ///
  /// - Parameter address: the server that failed; nil if it is not known.
  func logAttemptFailed(_ failure: LogFailure, at address: String?)
  func logSubscribed(to subject: LogSubject)
  func logNotified(_ subject: LogSubject, _ message: [UInt8])
}

/// The lane of commands. Heartbeats have their own lane, because they must not wait for entries that are being sent.
package enum LogLane: Int {
  case heartbeats
  case journals
}

/// The subject of notifications.
package enum LogSubject: Hashable, Sendable {
  case session(String)
  /// The list of created sessions.
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

/// The outcome of commands that were sent together.
package struct LogLanding {
  /// One reply for each command, in order.
  package var replies: [LogReply]
  /// Whether enough replicas have all writes.
  package var isConfirmed: Bool
  package var refusals: [LogRefusal]

  package init(replies: [LogReply], isConfirmed: Bool, refusals: [LogRefusal] = []) {
    self.replies = replies
    self.isConfirmed = isConfirmed
    self.refusals = refusals
  }
}
