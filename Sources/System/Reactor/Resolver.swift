import ByteStreams
import CLinux
import Glibc
import Host
import Synchronization
import Threading

/// A host name that could not be resolved to addresses.
package struct ResolveError: Error, Hashable, Sendable, CustomStringConvertible {
  package let host: String
  package let reason: String
  package var description: String { "cannot resolve '\(host)': \(reason)" }
}

/// Resolves host names on its own threads, since `getaddrinfo` blocks until a name server responds or a timeout passes.
///
/// A thread is busy until `getaddrinfo` returns, so there are several threads, with a limited queue. The caller applies
/// its own timeout, and cancels a lookup that takes too long. A queued lookup is then removed. The result of a running
/// lookup is dropped.
package final class Resolver: Sendable {
  /// Maximum number of threads. All threads but one can hang without delaying other lookups.
  package static let threadCount = 4
  /// Descriptors that one lookup may use: files such as /etc/hosts, and a socket for each query or name server in use.
  package static let descriptorsPerThread = 4
  /// Maximum number of queued lookups. Further lookups fail at once.
  package static let queueLimit = 4096
  /// Maximum number of queued lookups of one owner, if owners have a share of the threads.
  package static let queueLimitOfOwner = 256
  /// Maximum number of addresses of a name. This is more than a connection attempt tries, and few enough that all of
  /// them can be compared with each other.
  package static let addressLimit = 256

  package typealias Resolution = Result<[SocketAddress], ResolveError>

  /// One request to resolve a name.
  package struct Lookup: Sendable { fileprivate let id: UInt64 }

  @safe
  private struct Waiter {
    let port: UInt16
    let continuation: UnsafeContinuation<Resolution, Never>
  }

  private struct State {
    var queue: LookupQueue<Waiter>
    var idleThreads = 0
    var threads = 0
  }

  private let state: Locked<State>
  private let work = CountingSemaphore()
  private let lastID = Atomic<UInt64>(0)

  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool
  private let lookUp: @Sendable (String) -> Resolution

  /// - Parameters:
  ///   - threadsPerOwner: how many threads may look up names of one owner at once.
  ///   - lookUp: returns the addresses of a host, with any port. Blocks.
  package init(
    threadsPerOwner: Int = threadCount,
    startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool = {
      DetachedThread.start(named: "resolver", $0)
    }, lookUp: @escaping @Sendable (String) -> Resolution = { Resolver.lookUp($0) }
  ) {
    self.startThread = startThread
    self.lookUp = lookUp
    let hasSeveralOwners = threadsPerOwner < Self.threadCount
    state = Locked(
      State(
        queue: LookupQueue(
          limit: Self.queueLimit, limitOfOwner: hasSeveralOwners ? Self.queueLimitOfOwner : Self.queueLimit,
          threadsPerOwner: threadsPerOwner)))
  }

  /// Makes an identity for a request, which must be passed to `resolve`. The request can be cancelled as soon as it has
  /// an identity.
  package func makeLookup() -> Lookup { Lookup(id: lastID.add(1, ordering: .relaxed).newValue) }

  /// Returns the addresses of `host`, in the system's order of preference (RFC 6724). A numeric address needs no
  /// thread.
  ///
  /// - Parameters:
  ///   - owner: the owner whose share of the threads is used.
  ///   - lookup: identifies this request; nil if the caller will not cancel it.
  package func resolve(
    host: String, port: UInt16, for owner: String = "", as lookup: Lookup? = nil
  ) async -> Resolution {
    if let address = SocketAddress(numericHost: host, port: port) { return .success([address]) }
    if let percent = host.firstIndex(of: "%") {
      let zone = host[host.index(after: percent)...]
      return .failure(ResolveError(host: host, reason: "this machine has no interface '\(zone)'"))
    }
    let lookup = lookup ?? makeLookup()
    return unsafe await withUnsafeContinuation { continuation in
      let waiter = unsafe Waiter(port: port, continuation: continuation)
      let verdict = state.withLock { state -> (queued: Int?, startThread: Bool) in
        if let queued = state.queue.add(waiter, lookup.id, .init(owner: owner, host: host)) { return (queued, false) }
        let start = state.idleThreads < state.queue.count && state.threads < Self.threadCount
        if start { state.threads += 1 }
        return (nil, start)
      }
      if let queued = verdict.queued {
        unsafe continuation.resume(
          returning: .failure(ResolveError(host: host, reason: "\(queued) lookups are queued already")))
        return
      }
      if verdict.startThread, !startThread({ self.serve() }) { threadStartFailed() }
      work.signal()
    }
  }

  /// Ends the wait of a request, if the request still waits.
  package func cancel(_ lookup: Lookup) {
    guard let waiter = state.withLock({ $0.queue.cancel(lookup.id) }) else { return }
    unsafe waiter.continuation.resume(returning: .failure(ResolveError(host: "", reason: "cancelled")))
  }

  /// Number of queued lookups.
  package var queuedLookups: Int { state.withLock { $0.queue.count } }

  /// Records that a thread could not be started. If there is no other thread, the queued lookups fail, since no thread
  /// would do them.
  private func threadStartFailed() {
    let stranded = state.withLock { state -> [(host: String, waiter: Waiter)] in
      state.threads -= 1
      return state.threads == 0 ? state.queue.removeQueued() : []
    }
    for (host, waiter) in stranded {
      let error = ResolveError(host: host, reason: "the system cannot start a thread for the lookup")
      unsafe waiter.continuation.resume(returning: .failure(error))
    }
  }

  private func serve() {
    while true {
      // The queue is checked again after each lookup, since the owner of that lookup may now start its next lookup.
      while let key = state.withLock({ $0.queue.next() }) {
        let resolution = lookUp(key.host)
        for waiter in state.withLock({ $0.queue.finish(key) }) {
          unsafe waiter.continuation.resume(
            returning: resolution.map { addresses in addresses.map { $0.with(port: waiter.port) } })
        }
      }
      state.withLock { $0.idleThreads += 1 }
      work.wait()
      state.withLock { $0.idleThreads -= 1 }
    }
  }

  private static func lookUp(_ host: String) -> Resolution {
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
    while let current = unsafe entry, addresses.count < addressLimit {
      if let kernel = unsafe current.pointee.ai_addr {
        var storage = sockaddr_storage()
        unsafe withUnsafeMutableBytes(of: &storage) {
          unsafe $0.baseAddress?.copyMemory(from: kernel, byteCount: Int(current.pointee.ai_addrlen))
        }
        if let address = SocketAddress(storage), !addresses.contains(address) {
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
