import ByteStreams
import CLinux
import Glibc
import Host
import Journal
import Logging
import Threading

/// Accepts requests for backups on the socket `PATH.sock` while the store is open. Only the user of the gateway, and
/// root, can connect to it.
///
/// A connection carries one request, a line with `backup` and the path of the copy. The response consists of lines.
/// `progress`, with the bytes written and the bytes of the store, is sent at once, and then about every second. The
/// last line is `done`, or `failed` with the reason. One thread serves the connections one after another. A client that
/// has disconnected before its turn gets no backup.
final class StoreControl: Sendable {
  static var suffix: String { ".sock" }
  /// Maximum bytes of a request. A path has at most 4096 bytes.
  static var maximumLineBytes: Int { 4096 + 64 }
  /// How long a client may take to send its request, or to receive a line.
  private static var timeoutSeconds: Int { 5 }
  private static var progressInterval: TimeSpan { .seconds(1) }

  struct Limits {
    /// How long a backup may take. During a backup nothing else is stored, so a backup to a slow disk must end.
    var backup = TimeSpan.minutes(10)
    /// How long a backup may exceed its limit because a disk does not respond. After this time, the client gets an
    /// error.
    var stall = TimeSpan.seconds(30)
  }
  private static var backlog: Int32 { 16 }

  private let listener: Int32
  private let path: String
  private let stopSignal: Int32
  private let file: SocketFile?
  private let limits: Limits

  private init(_ listener: Int32, _ path: String, _ limits: Limits) {
    self.listener = listener
    self.path = path
    self.limits = limits
    stopSignal = eventfd(0, O_CLOEXEC)
    file = SocketFile(at: path)
  }

  deinit {
    _ = Glibc.close(listener)
    _ = Glibc.close(stopSignal)
  }

  /// Creates the socket, and starts the thread that serves it. If that fails, the store works, but cannot be backed up
  /// while it is open. In this case a warning is logged.
  static func start(for store: Store, _ limits: Limits = Limits()) -> StoreControl? {
    let path = store.settings.path + suffix
    do throws(SystemError) {
      let control = StoreControl(try StoreSocket.listen(at: path, backlog: backlog), path, limits)
      let isStarted = DetachedThread.start(named: "store-control") { [weak store] in
        while let connection = control.accept() {
          if let store { control.serve(connection, store) }
          _ = Glibc.close(connection)
        }
      }
      if isStarted { return control }
      store.logger.warning("backups of the open store are not possible: the system cannot start a thread", [])
    } catch {
      store.logger.warning(
        "backups of the open store are not possible", [.text("path", path), .text("reason", "\(error)")])
    }
    return nil
  }

  /// Whether commands find the socket. False if its folder was removed and created again.
  var isInPlace: Bool { file?.isInPlace == true }

  /// Removes the socket. A backup in progress continues until the store cancels it.
  func stop() {
    file?.remove()
    var one: UInt64 = 1
    _ = unsafe Glibc.write(stopSignal, &one, 8)
  }

  /// Returns the next connection; nil after `stop`.
  private func accept() -> Int32? {
    while true {
      var events = [
        pollfd(fd: listener, events: Int16(POLLIN), revents: 0),
        pollfd(fd: stopSignal, events: Int16(POLLIN), revents: 0),
      ]
      _ = unsafe poll(&events, 2, -1)
      if events[1].revents != 0 { return nil }
      guard events[0].revents != 0 else { continue }
      let connection = clinux_accept(listener, nil, nil)
      if connection >= 0 {
        _ = fcntl(connection, F_SETFL, 0)
        return connection
      }
      // No descriptors are left, or the client has disconnected.
      usleep(10_000)
    }
  }

  private func serve(_ connection: Int32, _ store: Store) {
    StoreSocket.setTimeout(connection, seconds: Self.timeoutSeconds)
    guard let line = StoreSocket.readLine(connection, atMost: Self.maximumLineBytes) else {
      StoreSocket.write(connection, "failed no request was received\n")
      return
    }
    let prefix = "backup "
    guard line.hasPrefix(prefix), line.dropFirst(prefix.count).hasPrefix("/") else {
      StoreSocket.write(connection, "failed the request is not valid: use 'backup' and an absolute path\n")
      return
    }
    backUp(store, to: String(line.dropFirst(prefix.count)), connection)
  }

  private func backUp(_ store: Store, to path: String, _ connection: Int32) {
    func report() -> Bool {
      let written = StorePlace.size(of: path + StoreFile.partialSuffix)
      let total = StorePlace.size(of: store.settings.path)
      return StoreSocket.write(connection, "progress \(written) \(total)\n")
    }
    guard report() else { return }
    let result = BackupResult()
    store.backUp(to: path, within: limits.backup) { result.set($0) }
    let deadline = ProcessInformation.monotonicTime() + limits.backup + limits.stall
    while !result.wait(atMost: Self.progressInterval) {
      guard ProcessInformation.monotonicTime() < deadline else {
        StoreSocket.write(connection, "failed a disk does not respond\n")
        return
      }
      // If the client has disconnected, the backup still continues. At the end of the backup, the copy is complete, or
      // is removed.
      _ = report()
    }
    let line = result.reason.map { reason in "failed \(String(reason.map { $0.isNewline ? " " : $0 }))\n" }
    StoreSocket.write(connection, line ?? "done\n")
  }
}

/// The result of a backup, which the writer reports.
private final class BackupResult: Sendable {
  private let value = Locked<String??>(nil)
  private let signal = eventfd(0, O_CLOEXEC)

  deinit { _ = Glibc.close(signal) }

  var reason: String? { value.withLock { $0 ?? nil } }

  func set(_ reason: String?) {
    value.withLock { $0 = .some(reason) }
    var one: UInt64 = 1
    _ = unsafe Glibc.write(signal, &one, 8)
  }

  /// Returns whether the backup has ended.
  func wait(atMost span: TimeSpan) -> Bool {
    if value.withLock({ $0 != nil }) { return true }
    var event = pollfd(fd: signal, events: Int16(POLLIN), revents: 0)
    _ = unsafe poll(&event, 1, Int32(clamping: span.millisecondsRoundedUp))
    return value.withLock { $0 != nil }
  }
}

/// Unix-domain sockets with blocking calls.
enum StoreSocket {
  /// Binds a socket to a path, so that only its owner can connect. Removes a file at the path: no process uses it,
  /// since the store is locked.
  static func listen(at path: String, backlog: Int32) throws(SystemError) -> Int32 {
    let descriptor = try make()
    do throws(SystemError) {
      // The file of the socket gets the mode of the socket.
      guard fchmod(descriptor, 0o600) == 0 else { throw SystemError("fchmod", code: errno, subject: path) }
      _ = unsafe unlink(path)
      let result = try unsafe withAddress(of: path) { unsafe bind(descriptor, $0, $1) }
      guard result == 0 else { throw SystemError("bind", code: result, subject: path) }
      guard Glibc.listen(descriptor, backlog) == 0 else { throw SystemError("listen", code: errno, subject: path) }
      return descriptor
    } catch {
      _ = Glibc.close(descriptor)
      throw error
    }
  }

  static func connect(to path: String) throws(SystemError) -> Int32 {
    let descriptor = try make()
    do throws(SystemError) {
      let result = try unsafe withAddress(of: path) { unsafe Glibc.connect(descriptor, $0, $1) }
      guard result == 0 else { throw SystemError("connect", code: result, subject: path) }
      return descriptor
    } catch {
      _ = Glibc.close(descriptor)
      throw error
    }
  }

  /// Whether the last `readLine` ended because nothing was received within the timeout.
  static var hasTimedOut: Bool { errno == EAGAIN }

  private static func make() throws(SystemError) -> Int32 {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw SystemError("socket", code: errno) }
    return descriptor
  }

  /// Calls `body` with the address of a path. A path can be too long for a socket address. So the folder is opened, and
  /// the address is the name of the file below `/proc/self/fd/`. Returns 0 or an errno value.
  private static func withAddress(
    of path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
  ) throws(SystemError) -> Int32 {
    let folder = unsafe open(StorePlace.folder(of: path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard folder >= 0 else { throw SystemError("open", code: errno, subject: StorePlace.folder(of: path)) }
    defer { _ = Glibc.close(folder) }
    let name = path.lastIndex(of: "/").map { path[path.index(after: $0)...] } ?? path[...]
    let short = Array("/proc/self/fd/\(folder)/\(name)".utf8)
    var address = sockaddr_un()
    guard short.count < MemoryLayout.size(ofValue: address.sun_path) else {
      throw SystemError("bind", code: ENAMETOOLONG, subject: path)
    }
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: short) }
    return unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        let result = unsafe body(address, socklen_t(MemoryLayout<sockaddr_un>.size))
        return result == 0 ? 0 : errno
      }
    }
  }

  static func setTimeout(_ descriptor: Int32, seconds: Int) {
    var timeout = timeval(tv_sec: seconds, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, size)
  }

  /// Reads a line, and returns it without its end. Returns nil if there is no line, or it is too long or not UTF-8.
  static func readLine(_ descriptor: Int32, atMost limit: Int) -> String? {
    errno = 0
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while line.count < limit {
      let count = unsafe read(descriptor, &byte, 1)
      if count < 0, errno == EINTR { continue }
      guard count == 1 else { return nil }
      if byte == UInt8(ascii: "\n") { return String(validating: line, as: UTF8.self) }
      line.append(byte)
    }
    return nil
  }

  /// Returns false if the peer does not accept the text.
  @discardableResult
  static func write(_ descriptor: Int32, _ text: String) -> Bool {
    var bytes = Array(text.utf8)[...]
    while !bytes.isEmpty {
      let count = unsafe bytes.withUnsafeBytes {
        unsafe send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return false }
      bytes = bytes.dropFirst(count)
    }
    return true
  }
}

/// Requests a backup from the process that has a store open.
package enum BackupRequest {
  /// How long the gateway may send nothing. It reports its progress every second.
  private static var silenceSeconds: Int { 30 }

  /// Writes a copy to `target`, an absolute path. Calls `progress` about every second with the bytes written and the
  /// bytes of the store. Returns the reason of a failure; nil after a success.
  package static func send(
    _ path: String, target: String, silenceSeconds: Int = silenceSeconds, progress: (Int, Int) -> Void
  ) throws(StoreError) -> String? {
    let socket: Int32
    do throws(SystemError) {
      socket = try StoreSocket.connect(to: StorePlace.resolved(path) + StoreControl.suffix)
    } catch {
      throw .failed(path: path, reason: "the process that has it open does not respond (\(error))")
    }
    defer { _ = Glibc.close(socket) }
    StoreSocket.setTimeout(socket, seconds: silenceSeconds)
    StoreSocket.write(socket, "backup \(target)\n")
    while let line = StoreSocket.readLine(socket, atMost: 2 * StoreControl.maximumLineBytes) {
      let words = line.split(separator: " ", maxSplits: 1).map(String.init)
      switch words.first {
      case "progress":
        let numbers = line.split(separator: " ").compactMap { Int($0) }
        if numbers.count == 2 { progress(numbers[0], numbers[1]) }
      case "done": return nil
      case "failed": return words.count > 1 ? words[1] : "no reason"
      default: return "the response of the gateway is not known: \(line)"
      }
    }
    guard StoreSocket.hasTimedOut else { return "the gateway has ended" }
    return "the gateway does not respond: it makes another backup, it is stopped, or a disk stalls"
  }
}
