import ByteStreams
import HTTPCodec
import Logging

/// The requests of one connection whose lines in the access log are not written yet. The record exists only while the
/// access log is on, and is reused for all requests of the connection.
///
/// The line of a request is written when the kernel has accepted its whole response, or when the connection ends.
final class AccessRecord {
  /// The address of the client.
  private let client: [UInt8]
  /// When the first byte of the next request was read.
  private var inputBegan: MonotonicTime?
  /// The request being received, held or responded to.
  private var current: AccessLine?
  /// Requests whose responses are written to the output but not completely sent.
  private var unsent: [AccessLine] = []
  /// The ids of `unsent` and `current`, in this order.
  private var ids = ByteQueue()
  private var heldSince: MonotonicTime?
  /// The fields of the line being written.
  private var fields = ByteQueue()

  init(client: String) { self.client = Array(client.utf8) }

  var isOpen: Bool { current != nil }

  // MARK: One request

  /// Records that input was read while no request was arriving. Replaces the time of earlier input: if no request has
  /// followed that input, it was an empty line.
  func beginInput(at now: MonotonicTime) { inputBegan = now }

  /// Records that a request has begun.
  func begin(at now: MonotonicTime) {
    current = AccessLine(began: inputBegan ?? now)
    inputBegan = nil
  }

  /// Records the head of the current request.
  func describe(_ request: borrowing HTTPRequestHead, route: StaticString) {
    current?.method = request.method
    current?.route = route
    current?.traceID = request.traceID
    if let id = RequestID.read(request) { setID(id) }
  }

  /// Sets the client that a trusted proxy names for the current request.
  func setClient(_ text: String?) { current?.client = text.map { Array($0.utf8) } }

  /// Sets the principal that sent the current request.
  func setPrincipal(_ text: String?) { current?.principal = text }

  func hold(at now: MonotonicTime) { heldSince = now }

  func resume(at now: MonotonicTime) {
    guard let since = heldSince else { return }
    heldSince = nil
    if let line = current { current?.held = line.held + (now - since) }
  }

  /// Records that the response begins. `id` is the id in the response, empty if there is none.
  func respond(with status: HTTPStatus, id: borrowing ByteQueue) {
    current?.status = Int(status.rawValue)
    setID(id.bytes)
  }

  func addBytes(_ count: Int) { current?.bytes += count }

  /// Records that the response has been written.
  func finish() {
    guard let line = current else { return }
    unsent.append(line)
    current = nil
  }

  private func setID(_ id: Span<UInt8>) {
    guard !id.isEmpty, let line = current else { return }
    ids.removeLast(line.idCount)
    ids.append(id)
    current?.idCount = id.count
  }

  // MARK: Lines

  /// Called when the kernel has accepted the responses to all requests in `unsent`. Writes the lines of these requests.
  func reportSent(to log: AccessLog, at now: MonotonicTime) {
    // An iterator would retain the array, so `removeAll` would have to allocate a new array.
    for index in unsent.indices { report(unsent[index], to: log, at: now) }
    unsent.removeAll(keepingCapacity: true)
  }

  /// Writes all lines, because the connection has ended.
  ///
  /// - Parameters:
  ///   - doing: the operation of the current request.
  ///   - unsentBytes: the number of written bytes that the kernel has not accepted; nil if unknown.
  func reportAborted(_ doing: AccessLine.Abort, unsentBytes: Int?, to log: AccessLog, at now: MonotonicTime) {
    resume(at: now)
    // Of the current response, the bytes that were streamed have been sent, except the bytes that are still queued.
    var remaining = unsentBytes ?? .max
    if let unsentBytes, let line = current {
      remaining -= min(line.bytes, unsentBytes)
      current?.bytes -= min(line.bytes, unsentBytes)
    }
    for index in unsent.indices.reversed() {
      let count = min(unsent[index].bytes, remaining)
      remaining -= count
      unsent[index].bytes -= count
      if count > 0 { unsent[index].abort = .sending }
    }
    current?.abort = doing
    finish()
    reportSent(to: log, at: now)
  }

  private func report(_ line: AccessLine, to log: AccessLog, at now: MonotonicTime) {
    if log.includes(line) {
      fields.removeAll()
      line.write(ids: ids, client: line.client ?? client, at: now, log.format, to: &fields)
      log.write(fields)
    }
    ids.consume(line.idCount)
  }
}
