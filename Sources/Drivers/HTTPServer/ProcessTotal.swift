import Metrics
import Reactor
import Threading
import Totals

/// A total of the process, such as the number of connections, whose parts belong to connections of all loops: a
/// `YieldingTotal` behind a lock.
///
/// If the total is used up, a part of the heaviest client must yield, whichever loop has it. That loop is woken to give
/// up the part. The part is removed from the total as soon as it is chosen.
final class ProcessTotal: Sendable {
  /// Which part of the heaviest client yields if this client itself needs more.
  enum Order { case oldestFirst, newestFirst }

  /// The result of `LoopParts.add`.
  enum Admission {
    case admitted(LoopPart)
    /// The total is used up, and the client is among the heaviest clients.
    case refused
    /// The address has reached its limit.
    case tooManyOfAddress
  }

  struct Member: Sendable {
    let loop: ChosenParts
    let owner: ArrivalHandle
  }

  /// The parts of one loop that must yield. Used from any thread.
  final class ChosenParts: Sendable {
    private let owners = Locked<[ArrivalHandle]>([])
    private let signal: Signal

    init(_ signal: Signal) { self.signal = signal }

    func append(_ owner: ArrivalHandle) {
      owners.withLock { $0.append(owner) }
      signal.notify()
    }

    func take() -> [ArrivalHandle] {
      owners.withLock { owners in
        defer { owners = [] }
        return owners
      }
    }
  }

  let limit: Int
  private let limitPerAddress: Int
  private let order: Order
  /// Written only while the lock is held.
  private let used: Gauge
  private let yielded: Counter
  private let total: Locked<YieldingTotal<Member>>

  /// - Parameters:
  ///   - limitPerAddress: the limit of one address. Does not apply to Unix-domain sockets.
  ///   - used: the current sum of the parts.
  ///   - yielded: counts the parts that yielded.
  init(
    limit: Int, limitPerAddress: Int = .max, _ order: Order, used: Gauge = Gauge(), yielded: Counter = Counter()
  ) {
    self.limit = limit
    self.limitPerAddress = limitPerAddress
    self.order = order
    self.used = used
    self.yielded = yielded
    total = Locked(YieldingTotal(limit: limit))
  }

  /// The number of parts.
  var count: Int { total.withLock { $0.count } }

  func add(
    _ member: Member, _ amount: Int, by origin: ClientOrigin, _ principal: UInt64
  ) -> (YieldingTotal<Member>.Handle?, isRefusedByAddress: Bool) {
    let user = TotalUser(principal: principal, at: origin)
    return total.withLock { total in
      if origin != .local, amount > limitPerAddress - total.amount(of: user) { return (nil, true) }
      let handle = total.add(member, amount, by: user)
      yield(for: handle, of: member, &total)
      return (total.contains(handle) ? handle : nil, false)
    }
  }

  /// Returns false if the part has yielded.
  func change(_ handle: YieldingTotal<Member>.Handle, of member: Member, to amount: Int) -> Bool {
    total.withLock { total in
      guard total.change(handle, to: amount) else { return false }
      yield(for: handle, of: member, &total)
      return total.contains(handle)
    }
  }

  /// Returns false if the part has yielded.
  @discardableResult
  func remove(_ handle: YieldingTotal<Member>.Handle) -> Bool {
    total.withLock { total in
      let isRemoved = total.remove(handle)
      used.set(total.used)
      return isRemoved
    }
  }

  private func yield(
    for handle: YieldingTotal<Member>.Handle, of member: Member, _ total: inout YieldingTotal<Member>
  ) {
    while let part = total.yield(for: order == .newestFirst ? handle : nil) {
      yielded.add()
      // If the caller's own part yields, the result says so, and the caller need not be woken.
      if part.owner != member.owner || part.loop !== member.loop { part.loop.append(part.owner) }
    }
    used.set(total.used)
  }
}

/// A part of a total, until it is removed or yields.
struct LoopPart {
  fileprivate let total: YieldingTotal<ProcessTotal.Member>.Handle
  fileprivate let owner: ArrivalHandle
}

/// The parts of a total that belong to one loop.
final class LoopParts<Owner> {
  /// The target of the signal. It is an object of its own, since the signal must be made before `LoopParts` exists.
  private final class Relay: SignalTarget {
    weak var parts: LoopParts?
    func signalled() { parts?.signalled() }
  }

  let total: ProcessTotal
  private let chosen: ProcessTotal.ChosenParts
  private var owners = ArrivalList<Owner?>()
  private let giveWay: (Owner) -> Void

  /// - Parameter giveWay: called for a part that must yield, after the part was removed. It must free the
  ///   memory or the connection that the part counts.
  init(_ total: ProcessTotal, loop: LoopContext, giveWay: @escaping (Owner) -> Void) {
    self.total = total
    self.giveWay = giveWay
    let relay = Relay()
    chosen = ProcessTotal.ChosenParts(loop.makeSignal(for: relay))
    relay.parts = self
  }

  /// Number of parts of this loop.
  var count: Int { owners.count }

  /// Adds a part. `remove` must be called for it later.
  ///
  /// - Parameters:
  ///   - owner: the connection that has the part; nil if `assign` will be called in this turn.
  ///   - principal: a hash of the principal; 0 if it is unknown.
  func add(_ owner: Owner?, _ amount: Int, by origin: ClientOrigin, _ principal: UInt64 = 0) -> ProcessTotal.Admission {
    let owner = owners.append(owner)
    let (part, isRefusedByAddress) = total.add(
      ProcessTotal.Member(loop: chosen, owner: owner), amount, by: origin, principal)
    guard let part else {
      owners.remove(owner)
      return isRefusedByAddress ? .tooManyOfAddress : .refused
    }
    return .admitted(LoopPart(total: part, owner: owner))
  }

  func assign(_ part: LoopPart, to owner: Owner) { owners.replace(part.owner, with: owner) }

  /// Returns false if the part has yielded, in which case it has been removed.
  func change(_ part: LoopPart, to amount: Int) -> Bool {
    if total.change(part.total, of: ProcessTotal.Member(loop: chosen, owner: part.owner), to: amount) { return true }
    owners.remove(part.owner)
    return false
  }

  /// Returns false if the part was already chosen to yield.
  @discardableResult
  func remove(_ part: LoopPart) -> Bool {
    owners.remove(part.owner)
    return total.remove(part.total)
  }

  func signalled() {
    // An owner is not found here if it has removed its part since the part was chosen.
    for owner in chosen.take() { if let owner = owners.remove(owner).flatMap({ $0 }) { giveWay(owner) } }
  }
}
