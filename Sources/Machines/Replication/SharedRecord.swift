import ByteStreams

/// What Redis has of a session: the hash `m`, and where the stream `p` ends, read at one moment.
package struct SharedRecord: Hashable, Sendable {
  /// nil: nobody holds it.
  package var token: HolderToken?
  /// The history in which a holder has stamped it last. Empty: the session was never acquired.
  package var history: String
  /// The number of the last write of a holder.
  package var sequence: UInt64
  /// Of the cursors; 0: the session was never acquired.
  package var epoch: UInt64
  package var terms: ShareTerms
  /// No term has a larger counter, and none of a branch that Redis has lost.
  package var counter: UInt32
  /// Of what the last holder has written.
  package var format: UInt32
  /// Whom the last holder named when it released the session.
  package var successor: GatewayID?
  /// The last entry of `p`.
  package var last: PushEntryID

  package init(
    token: HolderToken? = nil, history: String = "", sequence: UInt64 = 0, epoch: UInt64 = 0,
    terms: ShareTerms = ShareTerms(), counter: UInt32 = 0,
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

  /// The fields of `m` that `init?(fields:lastEntry:)` reads, in its order.
  package static let fieldNames: [StaticString] = [
    "token", "history", "sequence", "epoch", "terms", "successor", "format", "counter",
  ]

  /// The newest format that this program reads, and the one that it writes.
  package static var newestFormat: UInt32 { 1 }

  /// What is added to the counter of a session that is not stamped: more terms than a branch can have that Redis has lost. So a cursor of such a
  /// branch is before the first term that the log has after it.
  package static var counterDistance: UInt32 { 1 << 10 }

  /// The term of the next acquisition.
  func nextTerm(in history: String, after counter: UInt32, random: UInt32) -> ShareTerm {
    let step = isNew || self.history == history ? 1 : Self.counterDistance
    return ShareTerm(counter: max(counter, self.counter) &+ step, random: random)
  }

  /// Whether the session was never acquired.
  package var isNew: Bool { history.isEmpty && token == nil }

  /// Reads the values of `fieldNames`, and the id of the last entry of `p`; nil where Redis has none. Returns nil if one is malformed: the session
  /// is damaged, or of another format.
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
      guard let terms = ShareTerms(text.span) else { return nil }
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

/// The id of an entry of `p`: the number of the last push up to it, and the number of entries before it with the same.
package struct PushEntryID: Hashable, Comparable, Sendable {
  package let push: UInt64
  package let count: UInt64

  package init(push: UInt64, count: UInt64) {
    self.push = push
    self.count = count
  }

  /// Before the first entry.
  package static let none = PushEntryID(push: 0, count: 0)

  package func write(into output: inout ByteQueue) {
    output.append(decimal: push)
    output.append(UInt8(ascii: "-"))
    output.append(decimal: count)
  }

  /// Returns nil if it is not the id of an entry of a stream.
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

/// How a session gets another token. The script compares what was read, and the entry of the gateway that seems to have ended.
package struct Acquisition: Hashable, Sendable {
  /// What the script expects: token, history, sequence and last entry.
  package let expected: SharedRecord
  /// The gateway whose entry must still be `entry`; nil: not compared.
  package let owner: GatewayID?
  /// nil: the gateway has none.
  package let entry: [UInt8]?
  package let token: HolderToken
  /// With the term of `token` as the last.
  package let terms: ShareTerms
  /// Drawn at random if the session was never acquired.
  package let epoch: UInt64
  /// Of the record afterwards: acquiring does not stamp.
  package let history: String
  /// The last entries may be missing: the session is restored as after a power failure.
  package let mayHaveLostEntries: Bool

  /// What Redis has when the script has succeeded.
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
