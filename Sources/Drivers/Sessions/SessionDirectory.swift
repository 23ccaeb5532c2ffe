import ByteStreams

/// The sessions of the process, by name.
package struct SessionDirectory: Sendable {
  /// In the order of the configuration, the default session first.
  package let all: [Session]
  /// nil where the configuration describes named sessions only.
  package let `default`: Session?
  private let others: [(name: [UInt8], session: Session)]

  package init(_ sessions: [Session]) {
    all = sessions
    self.default = sessions.first { $0.name == Session.defaultName }
    others = sessions.filter { $0.name != Session.defaultName }.map { (Array($0.name.utf8), $0) }
  }

  /// The session with this name; nil where there is none.
  package func find(_ name: Span<UInt8>) -> Session? {
    if name.equals("default") { return self.default }
    return others.first { name.equals($0.name.span) }?.session
  }
}
