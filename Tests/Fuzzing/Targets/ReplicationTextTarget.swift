import ByteStreams
import Replication

/// The records of sessions and gateways in Redis, which other programs may have written. Writing a record after reading
/// it must result in the same text.
enum ReplicationTextTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    if let id = GatewayID(input) { try same(bytes) { id.write(into: &$0) } }
    if let term = HolderTerm(input) { try same(bytes) { term.write(into: &$0) } }
    if let token = HolderToken(input) { try same(bytes) { token.write(into: &$0) } }
    if let terms = HolderTerms(input) {
      try require(terms.begins.count <= HolderTerms.maximum, "\(terms.begins.count) terms")
      let written = text { terms.write(into: &$0) }
      try require(HolderTerms(written.span) == terms, "the terms are read otherwise when they are written again")
      try require(written.count <= bytes.count, "the terms are longer when they are written again")
      for (begin, next) in zip(terms.begins, terms.begins.dropFirst()) {
        try require(begin.term < next.term && begin.firstPush <= next.firstPush, "the terms are not in order")
      }
    }
    if let id = PushEntryID(input) {
      let written = text { id.write(into: &$0) }
      try require(PushEntryID(written.span) == id, "the entry id is read otherwise when it is written again")
    }
    if let entry = GatewayEntry(input) {
      let written = text { entry.write(into: &$0) }
      try require(GatewayEntry(written.span) == entry, "the entry is read otherwise when it is written again")
    }
    // The fields of a record, separated by newlines. The first field is the number of the last entry.
    let parts = bytes.split(separator: 0x0A, omittingEmptySubsequences: false).map { $0.isEmpty ? nil : Array($0) }
    _ = SharedRecord(fields: Array(parts.dropFirst()), lastEntry: parts[0])
  }

  private static func text(_ write: (inout ByteQueue) -> Void) -> [UInt8] {
    var output = ByteQueue()
    write(&output)
    return output.copyBytes()
  }

  private static func same(_ bytes: [UInt8], _ write: (inout ByteQueue) -> Void) throws(Finding) {
    let written = text(write)
    try require(written == bytes, "\(bytes) is written again as \(written)")
  }
}
