/// Cursors of earlier terms, and of terms that the log has lost.
extension PushLog {
  /// Where a read from `cursor` starts; nil if it is ahead of this log. One of another epoch starts at the beginning.
  ///
  /// Another gateway that shares the log may show a push a moment before this one, as soon as it is stored. A reader that has it from there waits here.
  func readStart(at cursor: Cursor) -> ReadStart? {
    if cursor.epoch != epoch { return ReadStart(cursor) }
    if cursor.term == term {
      let isKnown = cursor.position <= visible || isCopy || Term.hasRandomBits(term) && cursor.position <= end
      return isKnown ? ReadStart(cursor) : nil
    }
    guard isKnown(cursor) else { return readStart(ofLost: cursor) }
    // An earlier term ended before the first message of the next.
    guard let next = terms.first(where: { $0.term > cursor.term }) else { return nil }
    let end = next.firstMessage - 1
    if cursor.sequence > end {
      return ReadStart(self.cursor(after: min(cursor.sequence, end)), gap: .store)
    }
    // The start of the next term may have extended the gap at the end.
    if cursor.sequence == end { return ReadStart(self.cursor(after: end)) }
    return ReadStart(self.cursor(at: cursor.position))
  }

  /// Whether the term of a cursor of this epoch is one of this log. If not, it may be one that this copy of a log does not have yet.
  package func isKnown(_ cursor: Cursor) -> Bool {
    cursor.epoch != epoch || cursor.term == term || terms.contains { $0.term == cursor.term }
  }

  /// Where a read from a cursor of a term starts that was forgotten, or that the store has lost with its beginning; nil if the term is yet to come.
  private func readStart(ofLost cursor: Cursor) -> ReadStart? {
    let next = terms.firstIndex { $0.term > cursor.term || $0.hasRandomBits && $0.counter == cursor.term >> 32 }
    guard Term.hasRandomBits(cursor.term), Term.hasRandomBits(term) else {
      guard let next else { return nil }
      return ReadStart(self.cursor(after: min(cursor.sequence, terms[next].firstMessage - 1)), gap: .store)
    }
    // The lost messages may begin anywhere in the last term before: of what the log has in their place, none may be missing.
    let last = (next ?? terms.count) - 1
    if last < 0, let first = terms.first, first.hasFollowed(cursor.term) {
      // Its term was forgotten: a log keeps the latest ones. Whether the end of it was lost is not known.
      return ReadStart(self.cursor(after: min(cursor.sequence, first.firstMessage - 1)), gap: .store)
    }
    let start = last < 0 ? 0 : terms[last].firstMessage - 1
    return ReadStart(self.cursor(after: min(cursor.sequence, start)), gap: .store)
  }
}
