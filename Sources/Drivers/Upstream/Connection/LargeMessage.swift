import ByteStreams
import Synchronization
import Threading

/// A large message of the upstream, which another thread processes (`MessagePreparation`).
final class LargeMessage: Sendable {
  /// Work on messages that are at least this large is done on another thread. Work on a smaller message takes at most 1
  /// ms.
  static var smallest: Int { LargeSlice.smallest }

  private struct Content: ~Copyable {
    var received: ByteQueue
    var bytes: ByteString?
  }

  let kind: MessageKind
  /// Wall-clock time of arrival in milliseconds.
  let time: Int64
  private let content: Locked<Content>
  private let cancelled = Atomic(false)

  init(_ received: consuming ByteQueue, _ kind: MessageKind, time: Int64) {
    self.kind = kind
    self.time = time
    content = Locked(Content(received: received))
  }

  /// Whether nobody waits for the result any more.
  var isCancelled: Bool { cancelled.load(ordering: .relaxed) }

  func cancel() { cancelled.store(true, ordering: .relaxed) }

  /// The payload. The first call copies it, which takes long.
  var payload: ByteString {
    content.withLock { content in
      if let bytes = content.bytes { return bytes }
      let bytes = ByteString(copying: content.received.bytes)
      content.received.releaseStorage()
      content.bytes = bytes
      return bytes
    }
  }
}
