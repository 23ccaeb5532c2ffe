import ByteStreams
import RouteNetlink

/// A datagram of rtnetlink, and what the debouncer makes of its events.
enum NetlinkTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let events = RouteMessages.events(in: input)
    // A message has a header of sixteen bytes.
    try require(events.count <= input.count / 16, "\(events.count) events in \(input.count) bytes")
    let part = RouteMessages.events(in: input.extracting(first: input.count / 2))
    try require(events.starts(with: part), "half of the datagram tells other events than the whole")

    let quiet = TimeSpan.milliseconds(500)
    var debouncer = NetworkChangeDebouncer(quiet: quiet)
    var now = MonotonicTime.zero
    for event in events {
      debouncer.note(event, now: now)
      now = now + .milliseconds(1)
    }
    let isDue = debouncer.deadline != .distantFuture
    let change = debouncer.take(now: now + quiet)
    try require((change != nil) == isDue, "a change is due, and none is told; or the other way round")
    try require((change?.vanished.count ?? 0) <= events.count, "more addresses vanished than there are events")
    try require(debouncer.take(now: now + .seconds(10)) == nil, "one burst is told twice")
  }
}
