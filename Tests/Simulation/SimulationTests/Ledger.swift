import Outbox

/// Records the observations of clients and the upstream, and checks the promises against them. `violation` is the first
/// broken promise.
final class Ledger {
  /// The evidence for a state that a response has shown. After the term has ended, the state counts only if the store
  /// has all entries up to `ticket`.
  struct Fact {
    let tenure: Tenure
    let ticket: UInt64
  }

  final class Message {
    let name: String
    /// The final states that the message may reach, apart from the states of a sent message.
    let ends: Set<String>
    /// The number of requests without a response so far.
    var pending = 0
    /// Whether a request ended without a response that states the outcome of the message.
    var isUncertain = false
    /// The id of the delivery, after a response has accepted the message.
    var id: String?
    /// The number of disruptions when the message was first sent.
    let disruptions: Int
    /// The number of times that the upstream has received the message.
    var received = 0
    /// The final state in a response.
    var end: (state: String, fact: Fact)?
    /// The evidence of a refusal; nil if the message was not refused.
    var refusal: Fact?

    init(_ name: String, ends: Set<String>, disruptions: Int) {
      self.name = name
      self.disruptions = disruptions
      self.ends = ends
    }
  }

  /// A client that reads with a cursor.
  struct Reader {
    var cursor = "earliest"
    var last = 0
    var hasGap = false
  }

  /// Whether messages that are not confirmed are sent again.
  let redelivers: Bool
  private(set) var violation: String?
  private(set) var messages: [String: Message] = [:]
  var readers: [Reader]
  /// The pushes that the worker of the consumer has acknowledged.
  private(set) var acknowledged: Set<Int> = []
  /// The last push that was sent before a gateway had ever finished connecting. Readers need not receive the pushes up
  /// to this push.
  var lastUnexpected = 0
  /// The number of lost connections and ended terms.
  var disruptions = 0
  /// Whether an operator has closed the session.
  var isClosed = false
  private var pushIDs: [String: String] = [:]
  /// A digest of all observations. Two runs with one seed have the same digest.
  private(set) var digest: UInt64 = 0xCBF2_9CE4_8422_2325

  init(redelivers: Bool, readers: Int) {
    self.redelivers = redelivers
    self.readers = Array(repeating: Reader(), count: readers)
  }

  func note(_ text: String) { if violation == nil { violation = text } }

  func trace(_ text: String) {
    for byte in text.utf8 { digest = (digest ^ UInt64(byte)) &* 0x100_0000_01B3 }
    if World.isTraced { print(text) }
  }

  // MARK: The upstream

  func connected() {
    trace("connected")
    if isClosed { note("the gateway connects although the session is closed") }
  }

  func received(_ name: String) {
    trace("received \(name)")
    guard let message = messages[name] else { return note("\(name) was never sent") }
    message.received += 1
    if message.received > 1, !redelivers { note("\(message.name) was sent twice") }
    if let end = message.end, end.state != "unknown" { note("\(message.name) was sent after it was \(end.state)") }
    if message.refusal != nil, message.pending == 0, message.id == nil {
      note("\(message.name) was sent although it was refused")
    }
  }

  // MARK: Messages

  func begin(_ names: [String], ends: Set<String> = []) {
    for name in names {
      let message = messages[name] ?? Message(name, ends: ends, disruptions: disruptions)
      messages[name] = message
      message.pending += 1
      message.refusal = nil
    }
  }

  /// Called when a response accepts the message.
  func accepted(_ name: String, as id: String) {
    guard let message = messages[name] else { return }
    if let known = message.id, known != id { note("\(name) was accepted twice: \(known) and \(id)") }
    message.id = id
  }

  /// Called when a response refuses the message.
  func refused(_ name: String, _ fact: Fact?) {
    guard let message = messages[name], message.id == nil, !message.isUncertain, message.pending == 0 else { return }
    message.refusal = fact
  }

  /// Called when a response shows the state of the message.
  ///
  /// - Parameter isCurrent: whether the gateway has the present term of the store.
  func shown(_ name: String, _ state: String, _ fact: Fact?, isCurrent: Bool) {
    guard let message = messages[name] else { return }
    let isFinal = !["queued", "written"].contains(state)
    if isFinal, !isCurrent { note("a former holder says that \(name) is \(state)") }
    if let end = message.end, end.state != state { note("\(name) was \(end.state), and is \(state)") }
    if isFinal, message.end == nil, let fact { message.end = (state, fact) }
  }

  /// Called when a term has ended. States that its gateway has shown no longer count if their entries are not stored.
  func ended(_ tenure: Tenure) {
    disruptions += 1
    for message in messages.values {
      // A message that has ended as `unknown` stays unknown.
      if let end = message.end, end.fact.tenure === tenure, end.fact.ticket > tenure.kept,
        redelivers || end.state != "unknown"
      {
        message.end = nil
      }
      if let refusal = message.refusal, refusal.tenure === tenure, refusal.ticket > tenure.kept {
        message.refusal = nil
      }
    }
  }

  // MARK: Pushes

  func read(_ pushes: [(id: String, data: String)], hasGap: Bool, cursor: String?, by reader: Int) {
    var state = readers[reader]
    state.hasGap = state.hasGap || hasGap
    for push in pushes {
      check(push)
      let number = Int(push.data.dropFirst()) ?? 0
      if number <= state.last { note("reader \(reader) gets \(push.data) after p\(state.last)") }
      if number > max(state.last, lastUnexpected) + 1, !state.hasGap {
        note("reader \(reader) misses p\(state.last + 1)")
      }
      (state.last, state.hasGap) = (number, false)
    }
    state.cursor = cursor ?? state.cursor
    readers[reader] = state
  }

  private func check(_ push: (id: String, data: String)) {
    if let known = pushIDs.updateValue(push.data, forKey: push.id), known != push.data {
      note("\(push.id) is \(known) and \(push.data)")
    }
  }

  func leased(_ push: (id: String, data: String)) {
    check(push)
    let number = Int(push.data.dropFirst()) ?? 0
    if acknowledged.contains(number) { note("the consumer gets \(push.data), which is acknowledged") }
  }

  func acknowledged(_ numbers: [Int]) { acknowledged.formUnion(numbers) }

  // MARK: The end

  /// The accepted messages whose final state is not known.
  var unfinished: [Message] {
    messages.values.filter { $0.id != nil && $0.end == nil }.sorted { $0.name < $1.name }
  }

  func check() {
    for message in messages.values.sorted(by: { $0.name < $1.name }) where message.id != nil {
      guard let state = message.end?.state else {
        note("\(message.name) was accepted and has no end")
        continue
      }
      if state == "confirmed", message.received == 0 { note("\(message.name) is confirmed and was not received") }
      if ["expired", "rejected", "replaced"].contains(state), message.received > 0 {
        note("\(message.name) is \(state) and was received")
      }
      if !["confirmed", "unknown"].contains(state), !message.ends.contains(state) {
        note("\(message.name) was accepted, and is \(state)")
      }
      if state == "unknown", message.disruptions == disruptions { note("\(message.name) is unknown without a reason") }
    }
  }
}
