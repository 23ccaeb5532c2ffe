import ByteStreams
import Inbox
import Journal

/// The ids of a session's deliveries. An id is `d-epoch.number`, or `d-epoch.term.number` if the session is stored,
/// with the term in which the number was issued.
package struct DeliveryTerms: Sendable {
  /// A number that was issued, with its term.
  package struct Issued: Equatable, Sendable {
    package let term: UInt64
    package let number: UInt64
    /// Whether the store has lost the delivery. That is so if a later term has issued the same number again, or if the
    /// session does not have the term of the id.
    package let isLost: Bool
  }

  /// The prefix of the ids of the present term.
  package let prefix: String
  private let epochPrefix: String
  /// Sorted, the oldest first. Empty if the session is not stored.
  private let terms: [Term]

  init(epoch: Epoch) { self.init(epoch, []) }

  init(_ restored: RestoredSession) {
    self.init(
      Epoch(restored.epoch),
      restored.terms.map { Term($0.term, firstMessage: $0.firstDelivery) })
  }

  private init(_ epoch: Epoch, _ terms: [Term]) {
    var text = ByteQueue()
    text.append("d-" as StaticString)
    epoch.write(into: &text)
    text.append("." as StaticString)
    epochPrefix = text.bytes.text()
    self.terms = terms
    prefix = epochPrefix + (terms.last.map { "\($0.term)." } ?? "")
  }

  /// The prefix of a delivery's id.
  package func prefix(of number: UInt64) -> String {
    // Most ids are of the present term, so this case is checked first.
    guard let last = terms.last, number < last.firstMessage else { return prefix }
    return prefix(ofTerm: terms.last { $0.firstMessage <= number }?.term ?? terms[0].term)
  }

  package func prefix(ofTerm term: UInt64) -> String { term == 0 ? epochPrefix : "\(epochPrefix)\(term)." }

  /// Reads an id. Returns nil if it was never issued.
  package func read(_ id: Span<UInt8>) -> Issued? {
    let prefix = Array(epochPrefix.utf8)
    guard id.count > prefix.count, id.extracting(first: prefix.count).equals(prefix.span),
      let (term, number) = TermNumber.read(id.extracting(prefix.count..<id.count))
    else { return nil }
    guard let present = terms.last else { return term == 0 ? Issued(term: 0, number: number, isLost: false) : nil }
    guard term > 0, number > 0 else { return nil }
    let own = terms.first { $0.term == term }
    // The session does not have the term of the id. The term is older than all terms that are kept, or it began in a
    // history of Redis that a failover has lost.
    if own == nil, Term.hasRandomBits(term), Term.hasRandomBits(present.term), !terms[0].hasFollowed(term) {
      return Issued(term: term, number: number, isLost: true)
    }
    guard term <= present.term else { return nil }
    if let own, number < own.firstMessage { return nil }
    let next = terms.first { $0.term > term }
    return Issued(term: term, number: number, isLost: next.map { number >= $0.firstMessage } ?? false)
  }
}
