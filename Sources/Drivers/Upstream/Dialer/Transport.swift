import ByteStreams
import Glibc
import Reactor
import TLSEngine

/// The bytes of one connection, in and out: over TCP as they are, or through TLS.
///
/// What is to be sent is appended to `output` and leaves with `flush()`. Positions count the plain bytes of `output` from the
/// connection's beginning. In TLS a record reaches the peer as a whole or not at all: its plain bytes are `written` once all
/// of its ciphertext is.
final class Transport {
  let channel: Channel
  private var tls: TLSConnection?
  /// What went wrong inside TLS; `receive` and `flush` then answer `.failed(EPROTO)`.
  private(set) var failure: TLSError?
  var output = ByteQueue()
  /// A write has failed. Nothing is written any more, and what was to be is gone.
  private(set) var isBroken = false
  /// All plain bytes before this position are with the kernel.
  private(set) var written: UInt64 = 0
  /// System calls that took bytes.
  private(set) var writes = 0

  /// Plain bytes that were encrypted, and ciphertext bytes that were produced and sent.
  private var sealed: UInt64 = 0
  private var produced: UInt64 = 0
  private var sent: UInt64 = 0
  private var records: [Record] = []
  private var firstRecord = 0

  private struct Record {
    let plainEnd: UInt64
    let cipherEnd: UInt64
  }

  /// What one TLS record holds at most (RFC 8446 §5.1).
  private static var recordSize: Int { 16_384 }
  private static var bytesPerRead: Int { 64 << 10 }
  private static var outputStorageKept: Int { 512 << 10 }

  init(_ channel: Channel) { self.channel = channel }

  /// The position at the end of `output`.
  var end: UInt64 { (tls == nil ? written : sealed) + UInt64(output.count) }

  /// All plain bytes before this position are with the kernel or encrypted for it, and cannot be taken back. With TLS that is
  /// at most one record more than the kernel has begun.
  var committed: UInt64 { tls == nil ? written : sealed }

  /// Takes plain bytes back that are not committed, from `start` to before `end`; what is behind them moves up.
  func takeBack(_ start: UInt64, _ end: UInt64) {
    output.remove(Int(end - start), at: Int(start - committed))
  }

  /// Bytes the kernel has not taken yet.
  var unsent: Int { output.count + (tls?.pendingCiphertextCount ?? 0) }

  // MARK: TLS

  /// Speaks TLS from now on. `received`: ciphertext that has come already, behind a proxy's answer.
  func secure(with connection: TLSConnection, received: Span<UInt8>) {
    connection.receive(ciphertext: received)
    tls = connection
  }

  /// Goes on with the handshake; true when it is complete. The driver flushes after it, also after an error: that may be an
  /// alert which tells the peer why.
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

  // MARK: In

  /// Reads once, onto the end of `input`.
  func receive(into input: inout ByteQueue, atMost limit: Int) -> IOResult {
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
        // The end of TCP without a close_notify: WebSocket's own close frame tells whether anything is missing.
        return error == .truncated ? .endOfStream : .failed(EPROTO)
      }
      switch receiveHandshake() {
      case .bytes, .endOfStream: continue
      case .wouldBlock: return .wouldBlock
      case .failed(let code): return .failed(code)
      }
    }
  }

  // MARK: Out

  enum FlushResult: Equatable {
    case done
    case blocked
    case failed(Int32)
  }

  func flush() -> FlushResult {
    guard !isBroken else { return .failed(EPIPE) }
    let result: FlushResult
    if let tls {
      result = flush(through: tls)
    } else {
      result = send(&output)
      written = sent
    }
    if case .failed = result { abandonOutput() }
    // One large message must not leave its size behind.
    if output.isEmpty, output.allocatedBytes > Self.outputStorageKept { output.releaseStorage() }
    return result
  }

  private func send(_ queue: inout ByteQueue) -> FlushResult {
    while !queue.isEmpty {
      switch channel.send(queue.bytes) {
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

  private func abandonOutput() {
    isBroken = true
    output.releaseStorage()
    tls?.sendCiphertext { $0.releaseStorage() }
  }

  /// Encrypts a record once the kernel has the one before: what is encrypted must be sent, whatever becomes of its messages.
  private func flush(through tls: TLSConnection) -> FlushResult {
    while true {
      let result = tls.sendCiphertext { send(&$0) }
      noteRecords()
      guard result == .done, tls.isHandshakeComplete, !output.isEmpty else { return result }
      guard sealRecord(with: tls) else { return .failed(EPROTO) }
    }
  }

  /// Encrypts the next record of the output, so that it is known where its ciphertext ends.
  private func sealRecord(with tls: TLSConnection) -> Bool {
    let count = min(output.count, Self.recordSize)
    let before = tls.pendingCiphertextCount
    do throws(TLSError) {
      try tls.write(output.bytes.extracting(first: count))
    } catch {
      failure = error
      return false
    }
    output.consume(count)
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

  // MARK: The end

  /// Gives back what a connection that only waits need not hold.
  func releaseIdleStorage() {
    if output.isEmpty { output.releaseStorage() }
    tls?.releaseIdleStorage()
  }

  /// FIN, after TLS's own goodbye: what was written still arrives.
  func close() {
    if let tls, !channel.isClosed {
      tls.sendCloseNotify()
      _ = tls.sendCiphertext { send(&$0) }
    }
    channel.close()
  }

  func reset() { channel.reset() }
}
