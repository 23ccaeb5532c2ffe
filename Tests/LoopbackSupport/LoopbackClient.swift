import Glibc
import Host
import Testing

/// One end of a connection, with calls that block for at most a minute.
package final class LoopbackClient: @unchecked Sendable {
  private let descriptor: Int32
  private let expectsInput: Bool
  private var input: [UInt8] = []
  private var isOpen = true

  package struct Failed: Error { package init() {} }

  /// - Parameter expectsInput: whether the test fails if nothing arrives in time.
  package init(_ descriptor: Int32, expectsInput: Bool = true) {
    self.descriptor = descriptor
    self.expectsInput = expectsInput
  }

  package init(to address: SocketAddress) throws {
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    expectsInput = true
    let descriptor = descriptor
    let result = unsafe address.withKernelAddress { unsafe Glibc.connect(descriptor, $0, $1) }
    guard result == 0 else { throw Failed() }
  }

  deinit { close() }

  package func send(_ text: String) {
    let bytes = Array(text.utf8)
    var sent = 0
    while sent < bytes.count {
      let count = unsafe bytes[sent...].withUnsafeBytes {
        unsafe Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      guard count > 0 else { return }
      sent += count
    }
  }

  /// Returns false at the end of the stream.
  private func receive() -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    guard unsafe poll(&entry, 1, 60_000) == 1 else {
      if expectsInput { Issue.record("nothing has come") }
      return false
    }
    var room = [UInt8](repeating: 0, count: 1 << 16)
    let count = unsafe Glibc.read(descriptor, &room, room.count)
    if count > 0 { input += room[..<count] }
    return count > 0
  }

  /// Whether data can be read now, or the stream has ended.
  package var isReadable: Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return unsafe !input.isEmpty || poll(&entry, 1, 0) == 1
  }

  /// Whether the other end has closed the connection.
  package var isHungUp: Bool {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    return unsafe poll(&entry, 1, 0) == 1 && entry.revents & Int16(POLLHUP) != 0
  }

  /// Reads to the end of the stream.
  package func readAll() -> [UInt8] {
    while receive() {}
    defer { input = [] }
    return input
  }

  package func readToEnd() -> String { String(decoding: readAll(), as: UTF8.self) }

  /// Reads until `text` has arrived. Returns false at the end of the stream.
  package func readUntil(_ text: String) -> Bool {
    while input.firstRange(of: Array(text.utf8)) == nil { guard receive() else { return false } }
    return true
  }

  /// Reads until `text` has arrived, and removes everything through it. Returns nil at the end of the stream.
  package func read(through text: String) -> String? {
    guard readUntil(text), let end = input.firstRange(of: Array(text.utf8))?.upperBound else { return nil }
    let read = String(decoding: input[..<end], as: UTF8.self)
    input.removeFirst(end)
    return read
  }

  /// Reads the head of an HTTP message. Returns nil at the end of the stream.
  package func readHead() -> String? { read(through: "\r\n\r\n") }

  /// Reads an HTTP message with the content that its head announces. Returns nil at the end of the stream.
  package func readMessage(hasContent: Bool = true) -> (head: String, body: String)? {
    guard let head = readHead() else { return nil }
    guard hasContent else { return (head, "") }
    let length =
      head.split(separator: "\r\n").first { $0.lowercased().hasPrefix("content-length:") }
      .flatMap { Int($0.split(separator: " ")[1]) } ?? 0
    while input.count < length { guard receive() else { return nil } }
    let body = String(decoding: input[..<length], as: UTF8.self)
    input.removeFirst(length)
    return (head, body)
  }

  package func closeSending() { shutdown(descriptor, Int32(SHUT_WR)) }

  package func close() {
    guard isOpen else { return }
    isOpen = false
    _ = Glibc.close(descriptor)
  }
}
