import Delivery
import Metrics
import Reactor

/// The clients of one loop that have not taken all of their answers, the one that has gone longest without taking any first.
///
/// A waiting answer keeps the pushes in it alive, also when the buffer has long let them go. So what waits is bounded over
/// all clients of the process, and beyond the bound whoever reads slowest is let go, not whoever came last.
final class SlowReaders {
  fileprivate struct Reader {
    let channel: Channel
    let bytes: Int
  }

  /// A place among the slow readers, until `leave`.
  struct Place {
    fileprivate let handle: WaiterList<Reader>.Handle
  }

  private let limit: Int
  /// What waits for the clients of all loops.
  private let unsent: Gauge
  private let shed: Counter
  private var readers = WaiterList<Reader>()

  /// - Parameters:
  ///   - limit: bytes that may wait for all clients of the process together.
  ///   - unsent: counts them; all loops share it.
  ///   - shed: counts the clients that were let go.
  init(limit: Int, unsent: Gauge, shed: Counter) {
    self.limit = limit
    self.unsent = unsent
    self.shed = shed
  }

  var count: Int { readers.count }

  /// Notes that `bytes` wait for `channel`'s client, and makes room for them: of this loop's clients, the slowest are reset
  /// until there is. That may be this very one, where nobody else is left.
  func enter(_ channel: Channel, bytes: Int) -> Place {
    let place = Place(handle: readers.append(Reader(channel: channel, bytes: bytes)))
    unsent.add(bytes)
    while unsent.current > limit, let slowest = readers.popFirst() {
      unsent.add(-slowest.bytes)
      shed.add()
      slowest.channel.reset()
    }
    return place
  }

  func leave(_ place: Place) {
    if let reader = readers.remove(place.handle) { unsent.add(-reader.bytes) }
  }
}
