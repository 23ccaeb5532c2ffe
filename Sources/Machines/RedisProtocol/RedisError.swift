import ByteStreams

/// An error reply of Redis. This type alone decides whether an error ends the connection.
package struct RedisError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The first word of the reply.
  package enum Kind: String, CaseIterable, Sendable {
    /// The server is a replica, or has become one.
    case readOnly = "READONLY"
    /// The server has lost the scripts, by `SCRIPT FLUSH` or a restart.
    case noScript = "NOSCRIPT"
    /// The server is loading its data set, after a restart.
    case loading = "LOADING"
    /// The server is a replica without its primary.
    case masterDown = "MASTERDOWN"
    /// A waiting command was ended because the server became a replica.
    case unblocked = "UNBLOCKED"
    case noAuth = "NOAUTH"
    case wrongPassword = "WRONGPASS"
    /// The user may not execute this command.
    case noPermission = "NOPERM"
    /// `maxmemory` is reached.
    case outOfMemory = "OOM"
    /// The server has fewer replicas than `min-replicas-to-write`.
    case noReplicas = "NOREPLICAS"
    /// A script has run for longer than `busy-reply-threshold`.
    case busy = "BUSY"
    /// Writes are refused because the last snapshot or append failed.
    case cannotPersist = "MISCONF"
    /// Any other word, such as `ERR`.
    case other = ""
  }

  package let kind: Kind
  /// The whole reply, without control characters, truncated to `textLimit` characters.
  package let text: String

  /// Maximum characters of `text`, so that log lines stay readable.
  private static var textLimit: Int { 256 }
  /// The text before the arguments that Redis quotes for an unknown command. These arguments are not shown.
  /// `rename-command` and proxies can make `AUTH` or `EVALSHA` unknown, and their arguments are secrets and payloads.
  private static var argumentsMark: String { ", with args beginning with" }

  package init(_ reply: String) {
    kind = Kind(rawValue: String(Self.cause(in: reply[...]).prefix { $0 != " " })) ?? .other
    let shown = reply.firstRange(of: Self.argumentsMark).map { reply[..<$0.lowerBound] } ?? reply[...]
    text = PrintableText.escaped(String(shown.prefix(Self.textLimit)))
  }

  /// Returns the error of the command itself. Before version 7, a script reports an error of its commands as `ERR Error
  /// running script (call to f_…): @user_script:3: @user_script: 3: -OOM command not allowed …`.
  private static func cause(in reply: Substring) -> Substring {
    guard reply.hasPrefix("ERR Error running script"), let place = reply.firstRange(of: ": -") else { return reply }
    return reply[place.upperBound...]
  }

  /// Whether the connection must end, because this server or this connection cannot execute the next command either. A
  /// new connection loads the scripts again and verifies the role. Other errors concern only one command.
  package var endsConnection: Bool {
    switch kind {
    case .readOnly, .noScript, .loading, .masterDown, .unblocked, .noAuth, .wrongPassword: true
    case .noPermission, .outOfMemory, .noReplicas, .busy, .cannotPersist, .other: false
    }
  }

  /// Whether this server currently refuses all writes, not only this write.
  package var concernsAllWrites: Bool {
    switch kind {
    case .outOfMemory, .noReplicas, .busy, .cannotPersist, .noPermission: true
    case .readOnly, .noScript, .loading, .masterDown, .unblocked, .noAuth, .wrongPassword, .other: false
    }
  }

  package var description: String { text }
}
