import ByteStreams
import CLinux
import Glibc

/// The output that is pending for one channel: text and slices in order. They are sent by gathering writes.
///
/// Text (heads, small bodies and small slices) is copied into one buffer. A larger `ByteSlice` is sent from its own
/// storage, however many connections send the same storage.
@safe
@usableFromInline
package struct OutputQueue: ~Copyable {
  /// Maximum number of pieces per system call. With more than some dozens of pieces, the cost of the call itself no
  /// longer matters.
  private static var vectorsPerCall: Int { 64 }
  /// Slices up to this size are copied: a copy costs less than a vector, and does not keep the slice's storage alive.
  private static var copiedBytes: Int { 1024 }

  private enum Segment {
    /// The next bytes of `text`, after the bytes of earlier segments. The value is their number.
    case text(Int)
    case slice(ByteSlice)
  }

  @usableFromInline var text = ByteQueue()
  private var textInSegments = 0
  private var segments: [Segment] = []
  private var firstSegment = 0
  /// Bytes still to be sent.
  @usableFromInline package internal(set) var count = 0
  /// Bytes of the storages of all slices that are not completely sent.
  private var sliceBytes = 0

  package init() {}

  package var isEmpty: Bool { count == 0 }

  /// Bytes of memory that the queue keeps in use. A slice keeps its whole storage until its last byte is sent.
  package var memoryBytes: Int { text.allocatedBytes &+ sliceBytes }

  /// Whether the queue contains text and no slice.
  package var isText: Bool { segments.isEmpty && count > 0 }

  /// Moves the whole content to the end of `bytes`. Requires `isText`.
  package mutating func moveText(to bytes: inout ByteQueue) {
    precondition(isText, "the queue contains slices")
    bytes.append(text.bytes)
    removeAll()
  }

  /// The result of a flush.
  package enum FlushResult: Equatable, Sendable {
    /// The kernel has accepted everything.
    case done
    /// The socket's send buffer is full. The caller must wait until the channel is writable, and flush again.
    case blocked
    /// The limit is reached, and more output is pending. The caller must flush again in the next turn.
    case paused
    /// The connection has failed; the value is `errno`.
    case failed(Int32)
  }

  /// Calls `write` to append to the text at the end of the queue.
  @inlinable @inline(__always)
  package mutating func withText<Failure: Error>(_ write: (inout ByteQueue) throws(Failure) -> Void) throws(Failure) {
    let before = text.count
    try write(&text)
    count &+= text.count &- before
  }

  package mutating func append(_ slice: ByteSlice) {
    guard slice.count > Self.copiedBytes else {
      text.append(slice.bytes)
      count &+= slice.count
      return
    }
    closeText()
    segments.append(.slice(slice))
    sliceBytes &+= slice.storage.count
    count &+= slice.count
  }

  /// Moves everything in `other` to the end of this queue.
  package mutating func takeAll(from other: inout OutputQueue) {
    if isEmpty {
      swap(&self, &other)
      return
    }
    other.closeText()
    var offset = 0
    for segment in other.segments[other.firstSegment...] {
      switch segment {
      case .text(let length):
        text.append(other.text.bytes.extracting(offset..<offset + length))
        count &+= length
        offset += length
      case .slice(let slice):
        append(slice)
      }
    }
    other.removeAll()
  }

  /// Returns a copy of all unsent bytes.
  package borrowing func copy() -> ByteString {
    var whole = ByteQueue(capacity: count)
    var offset = 0
    for segment in segments[firstSegment...] {
      switch segment {
      case .text(let length):
        whole.append(text.bytes.extracting(offset..<offset + length))
        offset += length
      case .slice(let slice):
        whole.append(slice.bytes)
      }
    }
    whole.append(text.bytes.extracting(offset..<text.count))
    return ByteString(copying: whole.bytes)
  }

  package mutating func removeAll() {
    text.removeAll()
    textInSegments = 0
    segments.removeAll(keepingCapacity: true)
    firstSegment = 0
    sliceBytes = 0
    count = 0
  }

  /// Releases memory that the unsent bytes do not need. Called when the channel is blocked.
  package mutating func releaseSpareCapacity() { text.releaseSpareCapacity() }

  /// Releases the buffers. The queue must be empty.
  package mutating func releaseStorage() {
    precondition(isEmpty, "a queue with unsent bytes was released")
    text.releaseStorage()
    segments = []
    firstSegment = 0
    textInSegments = 0
  }

  /// Removes the first bytes, at most `limit`, and passes them to `body` in one piece. The bytes of several segments
  /// are gathered in `scratch`.
  package mutating func takeFirst<Failure: Error>(
    _ limit: Int, gatheringIn scratch: inout ByteQueue, _ body: (Span<UInt8>) throws(Failure) -> Void
  ) throws(Failure) {
    let size = min(limit, count)
    if segments.isEmpty {
      try body(text.bytes.extracting(first: size))
    } else {
      closeText()
      scratch.removeAll()
      var textOffset = 0
      for segment in segments[firstSegment...] {
        let room = size &- scratch.count
        if room == 0 { break }
        switch segment {
        case .text(let length):
          scratch.append(text.bytes.extracting(textOffset..<textOffset &+ min(length, room)))
          textOffset &+= length
        case .slice(let slice): scratch.append(slice.bytes.extracting(first: min(slice.count, room)))
        }
      }
      try body(scratch.bytes)
    }
    consume(size)
  }

  /// Sends as much as the kernel accepts, up to the limit.
  package mutating func flush(to channel: Channel, atMost limit: Int = Channel.bytesPerFlush) -> FlushResult {
    var room = limit
    while count > 0 {
      guard room > 0 else { return .paused }
      let result: IOResult
      if segments.isEmpty {
        result = channel.send(text.bytes.extracting(first: min(text.count, room)))
      } else {
        closeText()
        result = sendSegments(to: channel, atMost: room)
      }
      switch result {
      case .bytes(let sent):
        consume(sent)
        room &-= sent
      case .wouldBlock: return .blocked
      case .failed(let code): return .failed(code)
      case .endOfStream: return .failed(EPIPE)
      }
    }
    return .done
  }

  private mutating func closeText() {
    let open = text.count &- textInSegments
    guard open > 0 else { return }
    segments.append(.text(open))
    textInSegments &+= open
  }

  private borrowing func sendSegments(to channel: Channel, atMost limit: Int) -> IOResult {
    unsafe withUnsafeTemporaryAllocation(of: iovec.self, capacity: Self.vectorsPerCall) { vectors in
      unsafe text.bytes.withUnsafeBytes { textBytes in
        var used = 0
        var total = 0
        var textOffset = 0
        for segment in segments[firstSegment...] {
          if used == vectors.count || total == limit { break }
          let start: UnsafeMutableRawPointer
          let length: Int
          switch segment {
          case .text(let count):
            unsafe start = UnsafeMutableRawPointer(mutating: textBytes.baseAddress.unsafelyUnwrapped + textOffset)
            length = min(count, limit &- total)
            textOffset &+= length
          case .slice(let slice):
            unsafe start = UnsafeMutableRawPointer(mutating: slice.storage.baseAddress + slice.range.lowerBound)
            length = min(slice.count, limit &- total)
          }
          unsafe vectors.initializeElement(at: used, to: iovec(iov_base: start, iov_len: length))
          total &+= length
          used &+= 1
        }
        return unsafe channel.send(gathering: UnsafeMutableBufferPointer(rebasing: vectors[..<used]), total: total)
      }
    }
  }

  private mutating func consume(_ sent: Int) {
    count &-= sent
    if segments.isEmpty {
      text.consume(sent)
      return
    }
    var left = sent
    while left > 0 {
      switch segments[firstSegment] {
      case .text(let length):
        let taken = min(length, left)
        text.consume(taken)
        textInSegments &-= taken
        left &-= taken
        if taken < length { segments[firstSegment] = .text(length - taken) } else { firstSegment &+= 1 }
      case .slice(let slice):
        let taken = min(slice.count, left)
        left &-= taken
        if taken < slice.count {
          let rest = (slice.range.lowerBound + taken)..<slice.range.upperBound
          segments[firstSegment] = .slice(ByteSlice(slice.storage, range: rest))
        } else {
          // This releases the storage of the slice now. The entry itself stays until the last segment is sent.
          segments[firstSegment] = .text(0)
          sliceBytes &-= slice.storage.count
          firstSegment &+= 1
        }
      }
    }
    if firstSegment == segments.count {
      segments.removeAll(keepingCapacity: true)
      firstSegment = 0
    }
  }
}
