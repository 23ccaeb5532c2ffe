import ByteStreams
import CLinux
import Glibc
import Threading

/// A host name that could not be resolved to addresses.
package struct ResolveError: Error, Hashable, Sendable, CustomStringConvertible {
  package let host: String
  package let reason: String
  package var description: String { "cannot resolve '\(host)': \(reason)" }
}

/// Resolves host names on its own threads, since `getaddrinfo` blocks until a name server responds or a timeout passes.
///
/// The caller applies its own timeout and drops a late result. A thread is bound until `getaddrinfo` returns, so there are
/// several, and a bounded queue for them.
package final class Resolver: Sendable {
  /// Maximum number of threads. One fewer lookups than this can hang without delaying others.
  package static let threadCount = 4
  /// Descriptors that one lookup may hold: files such as /etc/hosts, and a socket for each query or name server in use.
  package static let descriptorsPerThread = 4
  /// Maximum number of queued lookups. Further ones fail at once.
  package static let queueLimit = 4096

  package typealias Resolution = Result<[SocketAddress], ResolveError>

  @safe
  private struct Request {
    let host: String
    let port: UInt16
    let continuation: UnsafeContinuation<Resolution, Never>
  }

  private struct State {
    var queue: [Request] = []
    var idleThreads = 0
    var threads = 0
  }

  private let state = Locked(State())
  private let work = CountingSemaphore()

  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  package init(
    startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool = {
      DetachedThread.start(named: "resolver", $0)
    }
  ) {
    self.startThread = startThread
  }

  /// Returns the addresses of `host`, in the system's order of preference (RFC 6724). A numeric address needs no thread.
  package func resolve(host: String, port: UInt16) async -> Resolution {
    if let address = SocketAddress(numericHost: host, port: port) { return .success([address]) }
    if let percent = host.firstIndex(of: "%") {
      let zone = host[host.index(after: percent)...]
      return .failure(ResolveError(host: host, reason: "this machine has no interface '\(zone)'"))
    }
    return unsafe await withUnsafeContinuation { continuation in
      let request = unsafe Request(host: host, port: port, continuation: continuation)
      let verdict = state.withLock { state -> (accepted: Bool, startThread: Bool) in
        guard state.queue.count < Self.queueLimit else { return (false, false) }
        state.queue.append(request)
        let start = state.idleThreads < state.queue.count && state.threads < Self.threadCount
        if start { state.threads += 1 }
        return (true, start)
      }
      guard verdict.accepted else {
        unsafe continuation.resume(
          returning: .failure(ResolveError(host: host, reason: "\(Self.queueLimit) lookups are queued already")))
        return
      }
      if verdict.startThread, !startThread({ self.serve() }) { threadStartFailed() }
      work.signal()
    }
  }

  /// Records that a thread could not be started. If there is no other thread, the queued lookups fail, since none would serve
  /// them.
  private func threadStartFailed() {
    let stranded = state.withLock { state -> [Request] in
      state.threads -= 1
      guard state.threads == 0 else { return [] }
      let queue = state.queue
      state.queue = []
      return queue
    }
    for request in stranded {
      let error = ResolveError(host: request.host, reason: "the system cannot start a thread for the lookup")
      unsafe request.continuation.resume(returning: .failure(error))
    }
  }

  private func serve() {
    while true {
      state.withLock { $0.idleThreads += 1 }
      work.wait()
      let request = state.withLock { state -> Request? in
        state.idleThreads -= 1
        return state.queue.isEmpty ? nil : state.queue.removeFirst()
      }
      if let request = request {
        unsafe request.continuation.resume(returning: Self.lookUp(host: request.host, port: request.port))
      }
    }
  }

  private static func lookUp(host: String, port: UInt16) -> Resolution {
    var hints = unsafe addrinfo()
    unsafe hints.ai_family = AF_UNSPEC
    unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    unsafe hints.ai_flags = AI_ADDRCONFIG
    var list: UnsafeMutablePointer<addrinfo>?
    let result = unsafe getaddrinfo(host, nil, &hints, &list)
    defer { if let list = unsafe list { unsafe freeaddrinfo(list) } }
    guard result == 0 else {
      let reason = unsafe String(cString: gai_strerror(result))
      return .failure(ResolveError(host: host, reason: reason))
    }
    var addresses: [SocketAddress] = []
    var entry = unsafe list
    while let current = unsafe entry {
      if let kernel = unsafe current.pointee.ai_addr {
        var storage = sockaddr_storage()
        unsafe withUnsafeMutableBytes(of: &storage) {
          unsafe $0.baseAddress?.copyMemory(from: kernel, byteCount: Int(current.pointee.ai_addrlen))
        }
        if let address = SocketAddress(storage)?.with(port: port), !addresses.contains(address) {
          addresses.append(address)
        }
      }
      unsafe entry = current.pointee.ai_next
    }
    return addresses.isEmpty ? .failure(ResolveError(host: host, reason: "no address")) : .success(addresses)
  }
}

/// A POSIX semaphore.
///
/// Unchecked: a semaphore is safe for use by many threads, and its address does not change.
@safe
package final class CountingSemaphore: @unchecked Sendable {
  private let semaphore: UnsafeMutablePointer<sem_t>

  package init() {
    unsafe semaphore = .allocate(capacity: 1)
    unsafe sem_init(semaphore, 0, 0)
  }

  deinit {
    unsafe sem_destroy(semaphore)
    unsafe semaphore.deallocate()
  }

  func signal() { unsafe _ = sem_post(semaphore) }

  func wait() {
    while unsafe sem_wait(semaphore) != 0, errno == EINTR {}
  }

  /// Returns false if `signal()` was not called within `limit`.
  package func wait(atMost limit: TimeSpan) -> Bool {
    let deadline = MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) + limit
    let (seconds, nanoseconds) = deadline.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
    while unsafe clinux_semaphore_wait(semaphore, Int(clamping: seconds), Int(nanoseconds)) != 0 {
      guard errno == EINTR else { return false }
    }
    return true
  }
}
