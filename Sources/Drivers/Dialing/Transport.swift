import ByteStreams
import Glibc
import Reactor
import TLSEngine

/// The byte stream of one connection, over plain TCP or TLS.
///
/// Output is appended to `output`, or as a large content, and sent by `flush()`. Positions count plaintext bytes of the
/// output from the connection's beginning. A peer can decrypt only whole TLS records. So the plaintext of a record
/// counts as `written` when the kernel has accepted all ciphertext of the record.
@usableFromInline
package final class Transport {
  package let channel: Channel
  /// The permission that is checked before each system call that writes; nil if the transport may always write.
  private let permission: WritePermission?
  /// Whether a write was refused because the permission has ended.
  package private(set) var isForbidden = false
  @usableFromInline
  var tls: TLSConnection?
  /// The error inside TLS, after which `receive` and `flush` return `.failed(EPROTO)`; nil if there was none.
  package private(set) var failure: TLSError?
  /// The output after the last large content.
  @usableFromInline package var output = ByteQueue()
  /// The output up to the last large content.
  private var large = LargeOutput()
  /// The size of `large` in bytes.
  @usableFromInline private(set) var largeBytes = 0
  /// Whether a write has failed. The output is discarded and nothing is written any more.
  package private(set) var isBroken = false
  /// The kernel has accepted all plaintext before this position.
  @usableFromInline package private(set) var written: UInt64 = 0
  /// Number of system calls in which the kernel accepted bytes.
  package private(set) var writes = 0

  /// The number of plaintext bytes that were encrypted, of ciphertext bytes that were produced, and of bytes that were
  /// sent.
  @usableFromInline
  var sealed: UInt64 = 0
  private var produced: UInt64 = 0
  private var sent: UInt64 = 0
  private var records: [Record] = []
  private var firstRecord = 0

  private struct Record {
    let plainEnd: UInt64
    let cipherEnd: UInt64
  }

  /// Maximum plaintext of a TLS record, in bytes (RFC 8446 §5.1).
  private static var recordSize: Int { 16_384 }
  private static var bytesPerRead: Int { 64 << 10 }
  private static var retainedOutputStorage: Int { 512 << 10 }

  package init(_ channel: Channel, _ permission: WritePermission? = nil) {
    self.channel = channel
    self.permission = permission
  }

  /// The position at the end of `output`.
  @inlinable
  package var end: UInt64 { outputStart + UInt64(output.count) }

  /// The position of the first byte of `output`.
  @inlinable
  package var outputStart: UInt64 { committed + UInt64(largeBytes) }

  /// Plaintext before this position cannot be taken back: the kernel has accepted it, or it is already encrypted. With
  /// TLS, this position is at most one record beyond the plaintext that the kernel has begun to accept.
  @inlinable
  package var committed: UInt64 { tls == nil ? written : sealed }

  /// Removes plaintext that is not committed, from `start` up to `end`. Later bytes move up.
  package func takeBack(_ start: UInt64, _ end: UInt64) {
    var (start, count) = (Int(start - committed), Int(end - start))
    if largeBytes > 0 {
      let removed = large.remove(start..<start + count)
      count -= removed
      start = max(start, largeBytes) - largeBytes
      largeBytes = large.count
    }
    output.remove(count, at: start)
  }

  /// Number of bytes that the kernel has not accepted yet, in plaintext and ciphertext.
  @inlinable
  package var unsent: Int { output.count + largeBytes + (tls?.pendingCiphertextCount ?? 0) }

  /// Appends a large content to the output.
  package func append(_ content: any LargeContent) {
    large.append(content, after: &output)
    largeBytes = large.count
  }

  /// The position up to which the peer of the socket, which may be a proxy, has acknowledged plaintext, and the latest
  /// time at which the last acknowledgement can have arrived. With TLS, the position may be slightly too low, since it
  /// is not known how much of the ciphertext under way is overhead of records. nil if the channel is closed.
  package var acknowledgedOutput: (position: UInt64, time: MonotonicTime)? {
    guard !channel.isClosed else { return nil }
    let pending = unsent + channel.unacknowledgedBytes
    return (end - min(end, UInt64(pending)), channel.lastAcknowledgement)
  }

  // MARK: TLS

  /// Uses TLS from now on. `received`: ciphertext that has already arrived, after a proxy's response.
  func secure(with connection: TLSConnection, received: Span<UInt8>) {
    connection.receive(ciphertext: received)
    tls = connection
  }

  /// Continues the handshake. Returns true when the handshake is complete. After each call the caller must flush, even
  /// if there was an error, since an alert may have to be sent.
  func advanceHandshake() throws(TLSError) -> Bool {
    guard let tls else { return true }
    return try tls.advanceHandshake() == .complete
  }

  /// Reads ciphertext for the handshake.
  func receiveHandshake() -> IOResult {
    guard let tls else { return .wouldBlock }
    let result = tls.receiveCiphertext { channel.receive(into: &$0, atMost: Self.bytesPerRead) }
    if case .endOfStream = result { tls.receiveEndOfCiphertext() }
    return result
  }

  // MARK: Input

  /// Reads once, and appends to `input`.
  package func receive(into input: inout ByteQueue, atMost limit: Int) -> IOResult {
    guard let tls else { return channel.receive(into: &input, atMost: limit) }
    while true {
      do throws(TLSError) {
        switch try tls.read(into: &input, atMost: limit) {
        case .bytes(let count): return .bytes(count)
        case .closed: return .endOfStream
        case .needsCiphertext: break
        }
      } catch {
        failure = error
        // TCP has ended without close_notify. This is reported as the normal end of the stream: the close frame of
        // WebSocket shows whether anything is missing.
        return error == .truncated ? .endOfStream : .failed(EPROTO)
      }
      switch receiveHandshake() {
      case .bytes, .endOfStream: continue
      case .wouldBlock: return .wouldBlock
      case .failed(let code): return .failed(code)
      }
    }
  }

  // MARK: Output

  package enum FlushResult: Equatable {
    case done
    case blocked
    /// The limit is reached, and more output is pending. The caller must flush again in the next turn.
    case paused
    case failed(Int32)
  }

  /// Sends the output, up to the limit, as far as the kernel accepts it.
  package func flush(atMost limit: Int = Channel.bytesPerFlush) -> FlushResult {
    guard !isBroken else { return .failed(EPIPE) }
    let isShort = largeBytes == 0 && output.count <= limit
    let result = isShort ? flush(&output, atMost: limit) : flushPart(limit)
    if case .failed = result { discardOutput() }
    // The memory that a single large message has needed must not stay allocated.
    if output.isEmpty, output.allocatedBytes > Self.retainedOutputStorage { output.releaseStorage() }
    return result
  }

  private func flushPart(_ limit: Int) -> FlushResult {
    var room = limit
    while unsent > 0 {
      guard room > 0 else { return .paused }
      let start = committed
      let result: FlushResult
      if large.isEmpty {
        result = flush(&output, atMost: room)
      } else {
        result = large.withNext { flush(&$0, atMost: room) }
        largeBytes = large.count
      }
      // Before the end of the TLS handshake, no output is sent.
      guard result == .done, committed > start else { return result }
      room -= Int(committed - start)
    }
    return .done
  }

  /// Sends at most `limit` bytes of `queue`, which is the beginning of the output.
  private func flush(_ queue: inout ByteQueue, atMost limit: Int) -> FlushResult {
    if let tls { return flush(&queue, atMost: limit, through: tls) }
    let result = send(&queue, atMost: limit)
    written = sent
    return result
  }

  private func send(_ queue: inout ByteQueue, atMost limit: Int = .max) -> FlushResult {
    let rest = max(queue.count - limit, 0)
    while queue.count > rest {
      // All output passes through this check, even output that TLS has already encrypted.
      if let permission, !permission.isGiven {
        isForbidden = true
        return .failed(EPERM)
      }
      switch channel.send(queue.bytes.extracting(first: queue.count - rest)) {
      case .bytes(let count):
        queue.consume(count)
        writes &+= 1
        sent += UInt64(count)
      case .wouldBlock, .endOfStream: return .blocked
      case .failed(let code): return .failed(code)
      }
    }
    return .done
  }

  private func discardOutput() {
    isBroken = true
    output.releaseStorage()
    large.removeAll()
    largeBytes = 0
    tls?.sendCiphertext { $0.releaseStorage() }
  }

  /// Encrypts a record only when the kernel has accepted the record before it, since encrypted bytes must be sent even
  /// if their messages expire.
  private func flush(_ queue: inout ByteQueue, atMost limit: Int, through tls: TLSConnection) -> FlushResult {
    let rest = max(queue.count - limit, 0)
    while true {
      let result = tls.sendCiphertext { send(&$0) }
      noteRecords()
      guard result == .done, tls.isHandshakeComplete, queue.count > rest else { return result }
      guard seal(min(queue.count - rest, Self.recordSize), of: &queue, with: tls) else { return .failed(EPROTO) }
    }
  }

  /// Encrypts a record, and records where its ciphertext ends.
  private func seal(_ count: Int, of queue: inout ByteQueue, with tls: TLSConnection) -> Bool {
    let before = tls.pendingCiphertextCount
    do throws(TLSError) {
      try tls.write(queue.bytes.extracting(first: count))
    } catch {
      failure = error
      return false
    }
    queue.consume(count)
    sealed += UInt64(count)
    produced = sent + UInt64(tls.pendingCiphertextCount)
    precondition(tls.pendingCiphertextCount > before, "a record without ciphertext")
    records.append(Record(plainEnd: sealed, cipherEnd: produced))
    return true
  }

  private func noteRecords() {
    while firstRecord < records.count, records[firstRecord].cipherEnd <= sent {
      written = records[firstRecord].plainEnd
      firstRecord += 1
    }
    guard firstRecord == records.count else { return }
    records.removeAll(keepingCapacity: records.capacity <= 1_024)
    firstRecord = 0
  }

  // MARK: Closing

  /// Frees memory that an idle connection does not need.
  package func releaseIdleStorage() {
    if output.isEmpty { output.releaseStorage() }
    tls?.releaseIdleStorage()
  }

  /// Sends close_notify and FIN. The kernel still delivers the data that it has accepted. If the permission to write
  /// has ended, resets the connection instead.
  package func close() {
    if let permission, !permission.isGiven { return channel.reset() }
    if let tls, !channel.isClosed {
      tls.sendCloseNotify()
      _ = tls.sendCiphertext { send(&$0) }
    }
    channel.close()
  }

  package func reset() { channel.reset() }
}

extension Transport {
  /// Calls `body` once, on the loop, when the kernel accepts more output. Does not call `body` if the transport is
  /// closed before that.
  package func whenWritable(on loop: LoopContext, _ body: @escaping () -> Void) {
    loop.spawn(WritableTask(channel, body))
  }
}

private final class WritableTask: LoopTask {
  private let channel: Channel
  private let body: () -> Void

  init(_ channel: Channel, _ body: @escaping () -> Void) {
    self.channel = channel
    self.body = body
  }

  func run() async {
    guard await channel.writable() == .ready else { return }
    body()
  }
}
