/// Cursors of earlier terms, and of terms that the log has lost.
extension PushLog {
  /// The start of a read from `cursor`; nil if it is beyond the end of this log. A read from a cursor of another epoch
  /// starts at the beginning.
  ///
  /// Another gateway that shares the log may show a push, as soon as it is stored, a moment before this gateway does. A
  /// reader that has received the push there may continue here with a cursor beyond the end of this log. Such a reader
  /// waits.
  func readStart(at cursor: Cursor) -> ReadStart? {
    if cursor.epoch != epoch { return ReadStart(cursor) }
    if cursor.term == term {
      let isKnown = cursor.position <= visible || isCopy || Term.hasRandomBits(term) && cursor.position <= end
      return isKnown ? ReadStart(cursor) : nil
    }
    guard isKnown(cursor) else { return readStart(ofLost: cursor) }
    // The term of the cursor ended before the first message of the next term.
    guard let next = terms.first(where: { $0.term > cursor.term }) else { return nil }
    let end = next.firstMessage - 1
    if cursor.sequence > end {
      return ReadStart(self.cursor(after: min(cursor.sequence, end)), gap: .store)
    }
    // The start of the next term may have extended the gap at the end.
    if cursor.sequence == end { return ReadStart(self.cursor(after: end)) }
    return ReadStart(self.cursor(at: cursor.position))
  }

  /// Whether this log has the term of the cursor. True for a cursor of another epoch. A term that the log does not have
  /// may be a new term that this copy has not received yet.
  package func isKnown(_ cursor: Cursor) -> Bool {
    cursor.epoch != epoch || cursor.term == term || terms.contains { $0.term == cursor.term }
  }

  /// The start of a read from a cursor whose term was forgotten, or was lost by the store together with its first
  /// message; nil if the term has not begun yet.
  private func readStart(ofLost cursor: Cursor) -> ReadStart? {
    let next = terms.firstIndex { $0.term > cursor.term || $0.hasRandomBits && $0.counter == cursor.term >> 32 }
    guard Term.hasRandomBits(cursor.term), Term.hasRandomBits(term) else {
      guard let next else { return nil }
      return ReadStart(self.cursor(after: min(cursor.sequence, terms[next].firstMessage - 1)), gap: .store)
    }
    // The lost messages may begin anywhere in the last term before the term of the cursor. So the read starts before
    // all messages that the log may have in place of the lost messages.
    let last = (next ?? terms.count) - 1
    if last < 0, let first = terms.first, first.hasFollowed(cursor.term) {
      // The term was forgotten, since a log keeps only the latest terms. It is not known whether its last messages were
      // lost.
      return ReadStart(self.cursor(after: min(cursor.sequence, first.firstMessage - 1)), gap: .store)
    }
    let start = last < 0 ? 0 : terms[last].firstMessage - 1
    return ReadStart(self.cursor(after: min(cursor.sequence, start)), gap: .store)
  }
}
