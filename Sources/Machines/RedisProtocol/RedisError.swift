import ByteStreams

/// An error reply of Redis. Whether it ends the connection is decided here, and nowhere else.
package struct RedisError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The first word of the reply.
  package enum Kind: String, CaseIterable, Sendable {
    /// The server is a replica, or has become one.
    case readOnly = "READONLY"
    /// It has lost the scripts, by `SCRIPT FLUSH` or a restart.
    case noScript = "NOSCRIPT"
    /// It loads its data set, after a restart.
    case loading = "LOADING"
    /// A replica without its primary.
    case masterDown = "MASTERDOWN"
    /// A command that waited was ended, since the server became a replica.
    case unblocked = "UNBLOCKED"
    case noAuth = "NOAUTH"
    case wrongPassword = "WRONGPASS"
    /// The user may not do this.
    case noPermission = "NOPERM"
    /// `maxmemory` is reached.
    case outOfMemory = "OOM"
    /// Fewer replicas than `min-replicas-to-write`.
    case noReplicas = "NOREPLICAS"
    /// A script has run for longer than `busy-reply-threshold`.
    case busy = "BUSY"
    /// Writes are refused because the last snapshot or append failed.
    case cannotPersist = "MISCONF"
    /// Any other word, as `ERR`.
    case other = ""
  }

  package let kind: Kind
  /// The whole reply, without control characters, cut after `textLimit` characters.
  package let text: String

  /// A log line must stay readable.
  private static var textLimit: Int { 256 }
  /// Before the arguments that Redis quotes if it does not know a command. They are not shown: `rename-command` and proxies make `AUTH` or `EVALSHA` such a
  /// command, whose arguments are secrets and payloads.
  private static var argumentsMark: String { ", with args beginning with" }

  package init(_ reply: String) {
    kind = Kind(rawValue: String(Self.cause(in: reply[...]).prefix { $0 != " " })) ?? .other
    let shown = reply.firstRange(of: Self.argumentsMark).map { reply[..<$0.lowerBound] } ?? reply[...]
    text = PrintableText.escaped(String(shown.prefix(Self.textLimit)))
  }

  /// The error of the command itself. Before version 7, a script reports those of its commands as
  /// `ERR Error running script (call to f_…): @user_script:3: @user_script: 3: -OOM command not allowed …`.
  private static func cause(in reply: Substring) -> Substring {
    guard reply.hasPrefix("ERR Error running script"), let place = reply.firstRange(of: ": -") else { return reply }
    return reply[place.upperBound...]
  }

  /// Whether the connection must end: this server, or this connection, cannot execute the next command either. After a new connection the
  /// scripts are loaded again, and the role is verified. The other errors concern one command.
  package var endsConnection: Bool {
    switch kind {
    case .readOnly, .noScript, .loading, .masterDown, .unblocked, .noAuth, .wrongPassword: true
    case .noPermission, .outOfMemory, .noReplicas, .busy, .cannotPersist, .other: false
    }
  }

  /// Whether this server refuses all writes at present, not only this one.
  package var concernsAllWrites: Bool {
    switch kind {
    case .outOfMemory, .noReplicas, .busy, .cannotPersist, .noPermission: true
    case .readOnly, .noScript, .loading, .masterDown, .unblocked, .noAuth, .wrongPassword, .other: false
    }
  }

  package var description: String { text }
}
