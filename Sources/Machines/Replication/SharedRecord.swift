import ByteStreams

/// The record of a session in Redis: the hash `m`, and the end of the stream `p`, read atomically.
package struct SharedRecord: Hashable, Sendable {
  /// The token of the holder; nil if there is no holder.
  package var token: HolderToken?
  /// The history in which a holder last stamped the session. Empty if the session was never acquired.
  package var history: String
  /// The number of the last write of a holder.
  package var sequence: UInt64
  /// The epoch of the cursors; 0 if the session was never acquired.
  package var epoch: UInt64
  package var terms: HolderTerms
  /// No term has a greater counter, not even a term that Redis has lost.
  package var counter: UInt32
  /// The format of the last holder's writes.
  package var format: UInt32
  /// The gateway that the last holder named when it released the session.
  package var successor: GatewayID?
  /// The last entry of `p`.
  package var last: PushEntryID

  package init(
    token: HolderToken? = nil, history: String = "", sequence: UInt64 = 0, epoch: UInt64 = 0,
    terms: HolderTerms = HolderTerms(), counter: UInt32 = 0,
    format: UInt32 = Self.newestFormat, successor: GatewayID? = nil, last: PushEntryID = .none
  ) {
    self.token = token
    self.history = history
    self.sequence = sequence
    self.epoch = epoch
    self.terms = terms
    self.counter = counter
    self.format = format
    self.successor = successor
    self.last = last
  }

  /// The fields of `m` in the order in which `init?(fields:lastEntry:)` reads them.
  package static let fieldNames: [StaticString] = [
    "token", "history", "sequence", "epoch", "terms", "successor", "format", "counter",
  ]

  /// The format that this program writes, and the newest format that it reads.
  package static var newestFormat: UInt32 { 1 }

  /// The number that is added to the counter of a session that is not stamped. This number is greater than the number
  /// of terms that Redis can have lost. So a cursor of a lost term is before the first term after the loss.
  package static var counterDistance: UInt32 { 1 << 10 }

  /// The number of the next term.
  func nextTerm(in history: String, after counter: UInt32, random: UInt32) -> HolderTerm {
    let step = isNew || self.history == history ? 1 : Self.counterDistance
    return HolderTerm(counter: max(counter, self.counter) &+ step, random: random)
  }

  /// Whether the session was never acquired.
  package var isNew: Bool { history.isEmpty && token == nil }

  /// Reads the values of `fieldNames`, and the id of the last entry of `p`. A value is nil if Redis does not have the
  /// field. Returns nil if a value is malformed, which means that the session is damaged or has another format.
  package init?(fields: [[UInt8]?], lastEntry: [UInt8]?) {
    guard fields.count == Self.fieldNames.count else { return nil }
    self.init()
    if let text = fields[0], !text.isEmpty {
      guard let token = HolderToken(text.span) else { return nil }
      self.token = token
    }
    if let text = fields[1] {
      guard text.count <= 64, text.span.isPrintable else { return nil }
      history = text.span.text()
    }
    if let text = fields[2] {
      guard let number = text.span.decimalValue() else { return nil }
      sequence = UInt64(number)
    }
    if let text = fields[3] {
      guard text.count == 12, let value = text.span.hexadecimalValue() else { return nil }
      epoch = value
    }
    if let text = fields[4] {
      guard let terms = HolderTerms(text.span) else { return nil }
      self.terms = terms
    }
    if let text = fields[5], !text.isEmpty {
      guard let gateway = GatewayID(text.span) else { return nil }
      successor = gateway
    }
    if let text = fields[6] {
      guard let number = text.span.decimalValue(), let format = UInt32(exactly: number) else { return nil }
      self.format = format
    }
    if let text = fields[7] {
      guard let number = text.span.decimalValue(), let counter = UInt32(exactly: number) else { return nil }
      self.counter = counter
    }
    if let text = lastEntry {
      guard let last = PushEntryID(text.span) else { return nil }
      self.last = last
    }
  }
}

/// The id of an entry of `p`: the number of the last push in it or before it, and the number of earlier entries with
/// the same last push.
package struct PushEntryID: Hashable, Comparable, Sendable {
  package let push: UInt64
  package let count: UInt64

  package init(push: UInt64, count: UInt64) {
    self.push = push
    self.count = count
  }

  /// The position before the first entry.
  package static let none = PushEntryID(push: 0, count: 0)

  package func write(into output: inout ByteQueue) {
    output.append(decimal: push)
    output.append(UInt8(ascii: "-"))
    output.append(decimal: count)
  }

  /// Returns nil if the text is not the id of an entry of a stream.
  package init?(_ text: Span<UInt8>) {
    guard let dash = text.firstIndex(of: UInt8(ascii: "-")),
      let push = text.extracting(first: dash).decimalValue(),
      let count = text.extracting(dash + 1..<text.count).decimalValue()
    else { return nil }
    self.init(push: UInt64(push), count: UInt64(count))
  }

  package static func < (left: PushEntryID, right: PushEntryID) -> Bool {
    (left.push, left.count) < (right.push, right.count)
  }
}

/// An acquisition, which gives a session a new token. The script compares the record with `expected`. It also compares
/// `entry` with the entry of the gateway that seems to have ended.
package struct Acquisition: Hashable, Sendable {
  /// The record that the script expects: its token, history, sequence and last entry.
  package let expected: SharedRecord
  /// The gateway whose entry must still be `entry`; nil if no entry is compared.
  package let owner: GatewayID?
  /// nil if the gateway has no entry.
  package let entry: [UInt8]?
  package let token: HolderToken
  /// The terms, which end with the term of `token`.
  package let terms: HolderTerms
  /// A random number if the session was never acquired, otherwise the epoch of the session.
  package let epoch: UInt64
  /// The history of the record afterwards. An acquisition does not stamp the session.
  package let history: String
  /// Whether the last entries may be missing. If so, the session is restored as after a power failure.
  package let mayHaveLostEntries: Bool

  /// The record after the script has succeeded.
  package var result: SharedRecord {
    var record = expected
    record.token = token
    record.history = history
    record.terms = terms
    record.counter = token.term.counter
    record.epoch = epoch
    record.successor = nil
    return record
  }
}
