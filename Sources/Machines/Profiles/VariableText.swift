/// A text with placeholders for variables: `{symbol}`.
package struct VariableText: Hashable, Sendable {
  package enum Piece: Hashable, Sendable {
    case text(String)
    case variable(String)
  }

  package let pieces: [Piece]

  /// Braces around text that is not a name are ordinary text.
  package init(_ text: String) {
    var pieces: [Piece] = []
    var plain = ""
    var rest = Substring(text)
    while let character = rest.first {
      if character == "{", let end = rest.firstIndex(of: "}") {
        let name = rest[rest.index(after: rest.startIndex)..<end]
        if ProfileVariable.isName(name) {
          if !plain.isEmpty { pieces.append(.text(plain)) }
          plain = ""
          pieces.append(.variable(String(name)))
          rest = rest[rest.index(after: end)...]
          continue
        }
      }
      plain.append(character)
      rest.removeFirst()
    }
    if !plain.isEmpty { pieces.append(.text(plain)) }
    self.pieces = pieces
  }

  package var variables: Set<String> {
    Set(pieces.compactMap { if case .variable(let name) = $0 { name } else { nil } })
  }

  /// The text with each placeholder replaced by the result of `value` for its variable.
  package func replaced(_ value: (String) -> String) -> String {
    pieces.map {
      switch $0 {
      case .text(let text): text
      case .variable(let name): value(name)
      }
    }.joined()
  }
}
