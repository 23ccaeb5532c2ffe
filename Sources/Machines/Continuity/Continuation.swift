/// The data that an upstream needs to restore the state of the last connection on a new connection, such as the offset
/// of the last event that it has sent. An upstream with namespaces needs one `Continuation` for each namespace.
package struct Continuation: Hashable, Sendable {
  /// The private id of the last connection; empty if the upstream restores no state.
  package var pid: [UInt8]
  /// The offset of the last push; nil if there was no push. Without an offset, the state cannot be restored.
  package var offset: [UInt8]?

  package init(pid: [UInt8], offset: [UInt8]? = nil) {
    self.pid = pid
    self.offset = offset
  }

  package var isRestorable: Bool { !pid.isEmpty && offset != nil }
}

extension Collection<Continuation> {
  /// Whether the upstream can restore the state of every namespace. If it restores all of them, no push is missing.
  package var areComplete: Bool { !isEmpty && allSatisfy(\.isRestorable) }
}
