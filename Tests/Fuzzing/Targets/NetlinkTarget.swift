import ByteStreams
import RouteNetlink

/// An rtnetlink datagram: its events, and the change that the debouncer derives from them. The same bytes are also read
/// as a response about a route.
enum NetlinkTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let isShort = RouteQuery.read(input.extracting(first: min(input.count, 19))) == .malformed
    try require(isShort, "a response without all of its header is understood")
    if RouteQuery.read(input) == .failed(0) { throw Finding("a response without an error is one") }
    let events = RouteMessages.events(in: input)
    // A message has a header of sixteen bytes.
    try require(events.count <= input.count / 16, "\(events.count) events in \(input.count) bytes")
    let part = RouteMessages.events(in: input.extracting(first: input.count / 2))
    try require(events.starts(with: part), "the events in half of the datagram differ from those in all of it")

    let quiet = TimeSpan.milliseconds(500)
    var debouncer = NetworkChangeDebouncer(quiet: quiet)
    var now = MonotonicTime.zero
    for event in events {
      debouncer.add(event, now: now)
      now = now + .milliseconds(1)
    }
    let isDue = debouncer.deadline != .distantFuture
    let change = debouncer.take(now: now + quiet)
    try require(
      (change != nil) == isDue, "the debouncer's deadline is set: \(isDue), but it reports a change: \(change != nil)")
    try require((change?.vanished.count ?? 0) <= events.count, "more addresses vanished than there are events")
    try require(debouncer.take(now: now + .seconds(10)) == nil, "one burst is reported twice")
  }
}
