/// A text for operators that may quote what a peer has sent.
///
///     "the upstream responded with \(quoted: reason) instead of …"
///
/// A peer may repeat secrets that it received, so secrets are masked in the quoted parts. The program's own words are
/// not searched: a user's secret may be `pass`, which is part of `password`.
package struct ReportText: Hashable, Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
  private struct Part: Hashable, Sendable {
    var text: String
    let isQuoted: Bool
  }

  private var parts: [Part] = []

  package init(stringLiteral text: String) { parts = [Part(text: text, isQuoted: false)] }

  package init(stringInterpolation: StringInterpolation) { parts = stringInterpolation.text.parts }

  /// Creates a text of the program's own words.
  package init(_ text: String) { parts = [Part(text: text, isQuoted: false)] }

  package var description: String { parts.reduce(into: "") { $0 += $1.text } }

  /// This text, with `change` applied to each quote.
  package func mappingQuotes(_ change: (String) -> String) -> ReportText {
    var result = self
    for index in parts.indices where parts[index].isQuoted { result.parts[index].text = change(parts[index].text) }
    return result
  }

  package static func + (left: ReportText, right: ReportText) -> ReportText {
    var result = left
    result.parts += right.parts
    return result
  }

  package struct StringInterpolation: StringInterpolationProtocol {
    fileprivate var text = ReportText("")

    package init(literalCapacity: Int, interpolationCount: Int) {}

    package mutating func appendLiteral(_ literal: String) { text.parts.append(Part(text: literal, isQuoted: false)) }

    package mutating func appendInterpolation(_ value: some CustomStringConvertible) {
      appendLiteral(value.description)
    }

    package mutating func appendInterpolation(_ other: ReportText) { text.parts += other.parts }

    package mutating func appendInterpolation(quoted text: String) {
      self.text.parts.append(Part(text: text, isQuoted: true))
    }
  }
}
